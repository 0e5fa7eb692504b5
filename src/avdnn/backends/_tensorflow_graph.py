"""What a TensorFlow graph takes and gives, and the graph around it that avdnn runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..frame import Layout, TensorSpec
from . import Options
from ._tensorflow_file import Source, first_line
from ._tensors import is_picture, resized, select

FLOATS = ("float32", "float16", "bfloat16", "float64")


@dataclass(frozen=True, slots=True)
class Runnable:
    """The graph to run: fed with codes or floats, fetching the same and one check per output.

    A check is one truth per item of the batch: whether all of it is finite.
    """

    graph: Any
    feeds: Sequence[Any]
    fetches: Sequence[Any]
    checks: Sequence[tuple[str, Any]]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batch: int
    reshapeable: bool
    start: Any = None
    facts: Mapping[str, str] = field(default_factory=dict)


# ---- what it takes and gives -------------------------------------------------------------------


def _tensors(source: Source, wanted: Sequence[str], model: Path, kind: str) -> dict[str, str]:
    """Tensor by name for the wanted names; any operation of the graph may be named."""
    offered = source.inputs if kind == "input" else source.outputs
    operations = {operation.name: operation for operation in source.graph.get_operations()}
    found: dict[str, str] = {}
    for name in wanted:
        plain = name.removesuffix(":0")
        operation, _, port = plain.partition(":")
        if plain in offered:
            found[plain] = offered[plain]
        elif operation in operations and int(port or 0) < len(operations[operation].outputs):
            found[plain] = f"{operation}:{port or 0}"
        else:
            select(
                [name], list(offered), lambda n: [n], kind=kind, model=model, backend="tensorflow"
            )
    return found or dict(offered)


def _spec(tensor: Any, name: str, options: Options) -> TensorSpec:
    rank = tensor.shape.rank
    dims = [None] * 4 if rank is None else tensor.shape.as_list()
    shape = tuple(-1 if dim is None else dim for dim in dims)
    layout = (options.layout or Layout.NHWC) if len(shape) == 4 else None
    return TensorSpec(
        name,
        shape,
        tensor.dtype.name,
        layout,
        options.order,
        255.0 if options.scale is None else options.scale,
        options.mean or 0.0,
    )


# ---- the graph to run --------------------------------------------------------------------------


def build(tf: Any, source: Source, model: Path, options: Options) -> Runnable:
    """The file's graph between conversions, of the size and batch that are wanted if it can be."""
    taken = _tensors(source, options.inputs, model, "input")
    given = _tensors(source, options.outputs, model, "output")
    if not taken or not given:
        message = f"{model}: the graph has no {'outputs' if taken else 'placeholder to feed'}"
        raise ModelError(message, backend="tensorflow")
    specs = tuple(
        _spec(source.graph.get_tensor_by_name(tensor), name, options)
        for name, tensor in taken.items()
    )
    before = specs
    specs, reshapeable = _resize(tf, source, specs, list(taken.values()), options, model)
    graph = tf.Graph()
    feeds, inputs, values = [], [], {}
    with graph.as_default():
        for spec, tensor in zip(specs, taken.values(), strict=True):
            feed, value, spec = _enter(tf, spec, tensor, source, options)
            feeds.append(feed)
            inputs.append(spec)
            values[tensor] = value
        results, start = _between(tf, source, values, list(given.values()), model)
        fetches, checks, outputs = [], [], []
        for tensor, name in zip(results, given, strict=True):
            fetch, check, spec = _leave(tf, tensor, _spec(tensor, name, options), options)
            fetches.append(fetch)
            outputs.append(spec)
            if check is not None:
                checks.append((name, check))
    batch = next((spec.shape[0] for spec in inputs if is_picture(spec)), -1)
    if options.batch_size not in (1, batch) and batch != -1:
        raise ModelError(
            f"{model}: its batch is fixed at {batch}; leave batch_size={options.batch_size} out",
            backend="tensorflow",
        )
    return Runnable(
        graph,
        feeds,
        fetches,
        checks,
        tuple(inputs),
        tuple(outputs),
        batch,
        reshapeable,
        start,
        {"format": source.kind, **_made_for(before, specs)},
    )


def _made_for(before: Sequence[TensorSpec], after: Sequence[TensorSpec]) -> dict[str, str]:
    """The size of a picture that was fixed and is another now, as a fact."""
    for old, new in zip(before, after, strict=True):
        if is_picture(old) and -1 not in old.size and old.size != new.size:
            return {"reshaped from": f"{old.size[1]}x{old.size[0]}"}
    return {}


def _between(
    tf: Any, source: Source, values: Mapping[str, Any], wanted: Sequence[str], model: Path
) -> tuple[list[Any], Any]:
    """The file's graph on new inputs: the wanted tensors, and its operation `init` or None."""
    has_start = any(node.name == "init" for node in source.definition.node)
    elements = [*wanted, *(["init"] if has_start else [])]
    try:
        made = tf.import_graph_def(
            source.definition, input_map=dict(values), return_elements=elements, name="model"
        )
    except ValueError as error:
        message = f"{model}: TensorFlow cannot run it: {first_line(error)}"
        raise ModelError(message, backend="tensorflow") from error
    return made[: len(wanted)], made[-1] if has_start else None


def _resize(
    tf: Any,
    source: Source,
    specs: tuple[TensorSpec, ...],
    tensors: Sequence[str],
    options: Options,
    model: Path,
) -> tuple[tuple[TensorSpec, ...], bool]:
    """Give pictures the wanted size and batch where the graph follows; (specs, reshapeable)."""
    picture = next((spec for spec in specs if is_picture(spec)), None)
    if picture is None or picture.layout is None:
        return specs, False
    own, count = picture.size, picture.shape[0]
    size = options.size if -1 not in own else None
    reshapeable = -1 in own or _follows(
        tf, source, specs, tensors, abs(count), (2 * own[0], 2 * own[1])
    )
    if size not in (None, own) and _follows(tf, source, specs, tensors, abs(count), size):
        specs = _all(specs, count, size)
        own = size or own
    if count not in (-1, options.batch_size):
        probe = own if -1 not in own else (32, 32)
        if _follows(tf, source, specs, tensors, options.batch_size, probe):
            specs = _all(specs, options.batch_size, None)
    return specs, reshapeable


def _all(
    specs: tuple[TensorSpec, ...], batch: int, size: tuple[int, int] | None
) -> tuple[TensorSpec, ...]:
    return tuple(
        replace(spec, shape=resized(spec.shape, spec.layout, batch, size)) if spec.layout else spec
        for spec in specs
    )


def _follows(
    tf: Any,
    source: Source,
    specs: tuple[TensorSpec, ...],
    tensors: Sequence[str],
    batch: int,
    size: tuple[int, int] | None,
) -> bool:
    """Whether shapes through the graph add up, and the outputs change, with other input shapes."""
    before = source.outputs.values()
    with tf.Graph().as_default():
        values = {
            tensor: tf.compat.v1.placeholder(
                spec.dtype, [None if dim == -1 else dim for dim in spec.shape]
            )
            for tensor, spec in zip(tensors, _all(specs, batch, size), strict=True)
        }
        try:
            made = tf.import_graph_def(
                source.definition, input_map=values, return_elements=list(before), name="probe"
            )
        except ValueError:
            return False
    for tensor, name in zip(made, before, strict=True):
        old = source.graph.get_tensor_by_name(name).shape
        known = old.rank == 4 and None not in old.as_list()
        changed = tensor.shape.as_list()[0] == batch if tensor.shape.rank == 4 else True
        picture = next(spec for spec in specs if spec.layout)
        moved = size is not None and size != picture.size
        if not changed or (known and moved and tensor.shape[1:3] == old[1:3]):
            return False
    return True


def _enter(
    tf: Any, spec: TensorSpec, tensor: str, source: Source, options: Options
) -> tuple[Any, Any, TensorSpec]:
    """What is fed, what the file's graph gets of it, and how it is declared."""
    dtype = spec.dtype
    if dtype in FLOATS:
        dtype = options.sample if is_picture(spec) else "float32"
    rank = source.graph.get_tensor_by_name(tensor).shape.rank
    dims = [None if dim == -1 else dim for dim in spec.shape] if rank is not None else [None] * 4
    feed = tf.compat.v1.placeholder(dtype, dims)
    value = feed
    if dtype != spec.dtype:
        value = tf.cast(value, tf.float32)
        if dtype != "float32":
            value = value * _number(tf, 1 / options.peak * (255 / spec.scale))
            if spec.mean:
                value = value - _number(tf, spec.mean / spec.scale)
        value = tf.cast(value, spec.dtype)
    return feed, value, replace(spec, dtype=dtype)


def _leave(tf: Any, tensor: Any, spec: TensorSpec, options: Options) -> tuple[Any, Any, TensorSpec]:
    """What is fetched, its check or None, and how it is declared."""
    if spec.dtype not in FLOATS:
        return tensor, None, spec
    value = tf.cast(tensor, tf.float32)
    if options.sample == "float32" or not is_picture(spec):
        return value, None, replace(spec, dtype="float32")
    value = value * _number(tf, options.peak * (spec.scale / 255))
    if spec.mean:
        value = value + _number(tf, options.peak * (spec.mean / 255))
    check = tf.reduce_all(tf.math.is_finite(value), axis=[1, 2, 3])
    codes = tf.clip_by_value(tf.round(value), 0.0, float(options.peak))
    return tf.cast(codes, options.sample), check, replace(spec, dtype=options.sample)


def _number(tf: Any, value: float) -> Any:
    """A number that the optimiser must not take for a constant.

    It would merge it with the model's own factors, and round once where the contract rounds twice.
    """
    return tf.compat.v1.placeholder_with_default(tf.constant(value, tf.float32), [])
