"""Between a torch file's network and the backend: what it takes, made ready, and declared."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..frame import Layout, Precision, Shape, TensorSpec
from . import Options, _torch_cuda
from ._tensors import is_picture, select
from ._torch_file import read
from ._torch_network import Network, element_type
from ._torch_trial import Found, examine, named

Flags = Mapping[str, bool]


def find_out(network: Network, model: Path, options: Options, device: Any) -> Found:
    """What the program takes, in the precision that is wanted or else in its own type.

    For a GPU it is tried on the CPU first: a wrong number of channels may end in an assertion on
    the GPU, after which nothing runs there any more.
    """
    if device.type != "cuda":
        return _try_out(network, model, options, device)
    spare = Network(read(model, "cpu"), network.layout, optimize=False)
    told = replace(options, precision=Precision.FLOAT32)
    try:
        found = _try_out(spare, model, told, "cpu")
    except ModelError:
        return _try_out(network, model, options, device)
    floats = spare.dtype.is_floating_point
    network.use(element_type(options.precision) if floats else spare.dtype)
    return found


def _try_out(network: Network, model: Path, options: Options, device: Any) -> Found:
    import torch

    def run(shape: Shape) -> list[TensorSpec]:
        with torch.inference_mode():
            zeros = torch.zeros(shape, dtype=network.dtype, device=device)
            made = named(network(zeros))
        names = {False: "", True: "float32"}
        return [
            TensorSpec(
                name,
                tuple(value.shape),
                names[value.is_floating_point()] or str(value.dtype).removeprefix("torch."),
            )
            for name, value in made
        ]

    own = network.own_dtype()
    wanted = element_type(options.precision)
    others = [own, torch.uint8] if options.precision is Precision.FLOAT32 else [torch.uint8]
    errors: list[ModelError] = []
    for dtype in dict.fromkeys((wanted, *others)):
        network.use(dtype)
        try:
            found = examine(network.program, model, run, network.layout, options.size)
        except ModelError as error:
            errors.append(error)
            continue
        kind = "float32" if dtype.is_floating_point else "uint8"
        return replace(found, input=replace(found.input, dtype=kind))
    raise errors[0]


def make_ready(
    network: Network, model: Path, options: Options, found: Found, device: Any, flags: Flags
) -> None:
    """Freeze, fuse or compile the network, as the flags say and the device allows."""
    on_stream = device.type == "cuda" and options.stream is not None
    if flags["capture"] and not on_stream:
        message = "capture=1 is for frames on a GPU: put hwupload before the filter"
        raise ModelError(f"{model}: {message}", backend="torch")
    if flags["compile"] or device.type == "cuda":
        network.fuse(compiled=flags["compile"], cache=options.cache)
    elif flags["optimize"] and network.program.scripted:
        network.freeze(model)
    if flags["compile"]:
        _run_once(network, model, options, found, device)


def _run_once(network: Network, model: Path, options: Options, found: Found, device: Any) -> None:
    """Compile for frames of the size to come, where it is known."""
    import torch

    channels = found.input.channels if found.input.channels > 0 else 3
    own, size = found.input.size, options.size or (64, 64)
    rows, columns = (fixed if fixed > 0 else side for fixed, side in zip(own, size, strict=True))
    count = found.batch if found.batch > 0 else options.batch_size
    nchw = network.layout is Layout.NCHW
    sides = (channels, rows, columns) if nchw else (rows, columns, channels)
    zeros = torch.zeros((count, *sides), dtype=network.dtype, device=device)
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            # The compiler warns of what it would like to have; the result is the same.
            warnings.simplefilter("ignore")
            if device.type == "cuda":
                with _torch_cuda.ordered_on(options.stream, device):
                    network(zeros)
            else:
                network(zeros)
    except ModelError as error:
        text = str(error)
        if "compiler" in text.lower():
            text = "compile=1 needs a C++ compiler (g++ or clang++), and there is none"
        raise ModelError(f"{model}: {text}", backend="torch") from error


def batch(network: Network, found: Found, options: Options) -> int | None:
    """The batch that jobs must have; what was compiled is for one."""
    if found.batch != -1:
        return found.batch
    return options.batch_size if network.is_fused and network.fixed_shapes else None


def declare(
    found: Found, model: Path, options: Options, sample: str
) -> tuple[TensorSpec, tuple[TensorSpec, ...]]:
    """Input and wanted outputs, in the caller's types."""
    if options.batch_size not in (1, found.batch) and found.batch != -1:
        raise ModelError(
            f"{model}: its batch is fixed at {found.batch}; leave batch_size="
            f"{options.batch_size} out",
            backend="torch",
        )
    given = found.input
    select(
        options.inputs,
        [given],
        lambda spec: [spec.name, "x"],
        kind="input",
        model=model,
        backend="torch",
    )
    kept = select(
        options.outputs,
        found.outputs,
        lambda spec: [spec.name],
        kind="output",
        model=model,
        backend="torch",
    )

    def declared(spec: TensorSpec) -> TensorSpec:
        dtype = sample if spec.dtype == "float32" and is_picture(spec) else spec.dtype
        scale = 255.0 if options.scale is None else options.scale
        return replace(spec, dtype=dtype, order=options.order, scale=scale, mean=options.mean or 0)

    return declared(given), tuple(declared(spec) for spec in kept)
