"""Edits an OpenVINO graph before it is compiled: tensors, shapes, sample codes in and out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelError
from ..frame import Layout, Shape, TensorSpec
from ._openvino_shapes import reshape, shape_of
from ._tensors import guess_layout, is_picture, select

FLOATS = ("float32", "float16", "bfloat16", "float64")


FLOAT_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the caller asks of a graph: see Options for the fields."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    batch: int
    size: tuple[int, int] | None
    may_resize: bool
    sample: str
    peak: int
    layout: Layout | None
    order: str
    scale: float
    mean: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """A graph ready to compile.

    `checks` of the outputs stand behind the others in the graph: for each tensor of `checked`,
    one value per item of the batch that is not finite if the tensor held NaN or infinity.
    """

    graph: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    checked: tuple[str, ...]
    batch: int
    reshapeable: bool
    made_for: tuple[int, int] | None = None
    """(height, width) that the file has, where the graph now has another."""


def prepare(graph: Any, model: Path, wanted: Wanted) -> Prepared:
    """Keep the tensors that are wanted, set batch and size, convert samples inside the graph."""
    graph = _keep(graph, model, wanted)
    layouts = [_layout(port, wanted) for port in graph.inputs]
    shapes = [shape_of(port) for port in graph.inputs]
    batch, reshapeable = reshape(
        graph,
        layouts,
        model,
        batch=wanted.batch,
        size=wanted.size,
        may_resize=wanted.may_resize,
    )
    inputs = tuple(
        _spec(port, layout, input_names(port)[0], wanted)
        for port, layout in zip(graph.inputs, layouts, strict=True)
    )
    like = next((spec for spec in inputs if is_picture(spec)), None)
    outputs = tuple(
        _spec(port, _layout(port, wanted, like), output_names(port)[0], wanted)
        for port in graph.outputs
    )
    made_for = _made_for(inputs, shapes)
    prepared = Prepared(graph, inputs, outputs, (), batch, reshapeable, made_for)
    return _convert(graph, prepared, wanted)


def _made_for(inputs: tuple[TensorSpec, ...], shapes: list[Shape]) -> tuple[int, int] | None:
    """The size of the first picture before it was reshaped, if it was fixed and is another now."""
    for spec, shape in zip(inputs, shapes, strict=True):
        if is_picture(spec):
            before = replace(spec, shape=shape).size
            return None if -1 in before or before == spec.size else before
    return None


def input_names(port: Any) -> list[str]:
    """All names of an input, the one that people know first."""
    return _unique([port.node.friendly_name, *sorted(port.names)])


def output_names(port: Any) -> list[str]:
    """All names of an output: its tensor's, its result's, and that of the node that makes it."""
    source = port.node.input_value(0)
    known = sorted(port.names)
    result = port.node.friendly_name
    first = [result] if result in known else []
    made_by = source.node.friendly_name
    if source.node.get_output_size() > 1:
        made_by = f"{made_by}:{source.index}"
    return _unique([*first, *known, made_by, result])


def _unique(names: list[str]) -> list[str]:
    """Names without the port suffix of a first output, each once."""
    return list(dict.fromkeys(name.removesuffix(":0") for name in names))


def _keep(graph: Any, model: Path, wanted: Wanted) -> Any:
    """The graph with the wanted inputs and outputs, in the wanted order."""
    import openvino

    found = select(
        wanted.inputs, graph.inputs, input_names, kind="input", model=model, backend="openvino"
    )
    missing = [port for port in graph.inputs if port not in found]
    if missing:
        names = ", ".join(input_names(port)[0] for port in graph.inputs)
        raise ModelError(f"{model}: all its inputs are needed: {names}", backend="openvino")
    kept = select(
        wanted.outputs, graph.outputs, output_names, kind="output", model=model, backend="openvino"
    )
    if found == list(graph.inputs) and kept == list(graph.outputs):
        return graph
    return openvino.Model(
        [port.node for port in kept], [port.node for port in found], graph.friendly_name
    )


def _layout(port: Any, wanted: Wanted, like: TensorSpec | None = None) -> Layout | None:
    """The layout of a tensor; an output with the input's channel axis has the input's layout."""
    shape = shape_of(port)
    if len(shape) != 4:
        return None
    if wanted.layout is not None:
        return wanted.layout
    if like is not None:
        axis = 1 if like.layout is Layout.NCHW else 3
        if shape[axis] in (1, 3):
            return like.layout
    return guess_layout(shape)


def _spec(port: Any, layout: Layout | None, name: str, wanted: Wanted) -> TensorSpec:
    dtype = port.element_type.get_type_name()
    names = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64"}
    names |= {f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
    names |= {f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)}
    return TensorSpec(
        name,
        shape_of(port),
        names.get(dtype, dtype),
        layout,
        wanted.order,
        wanted.scale,
        wanted.mean,
    )


# ---- sample codes ------------------------------------------------------------------------------


def _convert(graph: Any, prepared: Prepared, wanted: Wanted) -> Prepared:
    """Rebuild the graph's ends so that codes, or float32 values, go in and out."""
    import openvino
    from openvino import opset8 as ops

    parameters, inputs = [], []
    for port, spec in zip(graph.inputs, prepared.inputs, strict=True):
        parameter = port.node
        if spec.dtype in FLOATS:
            dtype = wanted.sample if is_picture(spec) else "float32"
            if dtype != spec.dtype:
                parameter = _float_input(port, spec, dtype, wanted)
            spec = replace(spec, dtype=dtype)
        parameters.append(parameter)
        inputs.append(spec)
    results, outputs, checks, checked = [], [], [], []
    for port, spec in zip(graph.outputs, prepared.outputs, strict=True):
        source = port.node.input_value(0)
        if spec.dtype in FLOATS:
            dtype = wanted.sample if is_picture(spec) else "float32"
            if spec.dtype != "float32":
                source = ops.convert(source, "f32").output(0)
            if dtype != "float32":
                checks.append(ops.result(_not_finite(source)))
                checked.append(spec.name)
                source = _codes(source, dtype, wanted).output(0)
            spec = replace(spec, dtype=dtype)
        results.append(ops.result(source))
        outputs.append(spec)
    for place, node in enumerate([*parameters, *results, *checks]):
        tensor = node.output(0).tensor
        if not tensor.names:
            tensor.set_names({f"avdnn/{place}"})
    made = openvino.Model([*results, *checks], parameters, graph.friendly_name)
    _name_nodes(made)
    return replace(
        prepared,
        graph=made,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        checked=tuple(checked),
    )


def _name_nodes(graph: Any) -> None:
    """Number unnamed nodes by their place: the cache of compiled models goes by their names."""
    for place, node in enumerate(graph.get_ordered_ops()):
        kind, _, number = node.friendly_name.rpartition("_")
        if kind == node.get_type_name() and number.isdecimal():
            node.friendly_name = f"{kind}_at_{place}"


def _float_input(port: Any, spec: TensorSpec, dtype: str, wanted: Wanted) -> Any:
    """A parameter of `dtype` in place of a float one, and what turns it into the model's type."""
    from openvino import opset8 as ops

    parameter = ops.parameter(port.partial_shape, np.dtype(dtype), spec.name)
    value = parameter
    if dtype != "float32":
        value = ops.convert(value, "f32")
        factor = 1 / wanted.peak * (255 / wanted.scale)
        value = ops.multiply(value, ops.constant(np.float32(factor)))
        if wanted.mean:
            value = ops.subtract(value, ops.constant(np.float32(wanted.mean / wanted.scale)))
        # A barrier: without it the model's own first factors are merged with these, and exact
        # ties come out one ulp off the float32 path.
        value = ops.clamp(value, -FLOAT_MAX, FLOAT_MAX)
    if spec.dtype != "float32":
        value = ops.convert(value, port.element_type)
    port.replace(value.output(0))
    return parameter


def _codes(source: Any, dtype: str, wanted: Wanted) -> Any:
    """clip(round_half_even(peak * v)), where the tensor holds (255 * v - mean) / scale."""
    from openvino import opset8 as ops

    factor = np.float32(wanted.peak * (wanted.scale / 255))
    value = ops.multiply(source, ops.constant(factor))
    if wanted.mean:
        value = ops.add(value, ops.constant(np.float32(wanted.peak * (wanted.mean / 255))))
    value = ops.clamp(ops.round(value, "half_to_even"), 0.0, float(wanted.peak))
    return ops.convert(value, np.dtype(dtype))


def _not_finite(source: Any) -> Any:
    """The sum of 0 * x over each item of the batch: 0, or NaN if any x is NaN or infinite."""
    from openvino import opset8 as ops

    zeros = ops.multiply(source, ops.constant(np.float32(0)))
    return ops.reduce_sum(zeros, ops.constant(np.array([1, 2, 3])), False)
