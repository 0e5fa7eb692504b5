"""The ways from one format to another; each writes a new file."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from .. import backends
from ..backends import Options
from ..backends._tensors import guess_layout, resized
from ..errors import ModelError

Size = tuple[int, int]

PROBE = (64, 64)
"""(height, width) of the picture that models are run on, where they leave it open."""


class Form(StrEnum):
    """Groups of formats that are converted alike."""

    GRAPH = ".pb, SavedModel, .onnx, .tflite, .pdmodel"
    SCRIPT = "TorchScript (.pt)"
    EXPORTED = "torch.export (.pt2)"
    WEIGHTS = "weights (.pth, .safetensors)"


def _openvino() -> Any:
    backend: Any = backends.module("openvino")
    return backend.runtime()


def _graph_to_ir(source: Path, target: Path, size: Size | None) -> None:
    runtime = _openvino()
    try:
        model = runtime.convert_model(str(source))
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"{source}: OpenVINO cannot convert it: {_line(error)}") from error
    port = model.inputs[0]
    shape = tuple(dim.get_length() if dim.is_static else -1 for dim in port.partial_shape)
    _save(runtime, model, shape, target, size)


def _save(
    runtime: Any, model: Any, shape: tuple[int, ...], target: Path, size: Size | None
) -> None:
    """Write an IR whose first input has this shape (-1 is free), in float32."""
    layout = guess_layout(shape)
    if size is not None:
        if layout is None:
            raise ModelError(f"size: the model takes {len(shape)} dimensions, a picture has 4")
        shape = resized(shape, layout, shape[0], size)
    try:
        model.reshape({model.inputs[0]: runtime.PartialShape(list(shape))})
        runtime.save_model(model, str(target), compress_to_fp16=False)
    except RuntimeError as error:
        raise ModelError(f"{target.name}: OpenVINO cannot make it: {_line(error)}") from error


def program_of(source: Path) -> Any:
    """A torch file's program, in float32."""
    backends.module("torch")
    import torch

    from ..backends._torch_file import read

    program = read(source, "cpu")
    program.network.float()
    if program.kind == "weights":
        # spandrel limits what its networks give to 0..1; the program must do so itself.
        limited = torch.nn.Sequential(program.network, torch.nn.Hardtanh(0.0, 1.0)).eval()
        program = replace(program, network=limited)
    return program


def _example(source: Path, size: Size | None) -> tuple[Any, Any, tuple[int, ...]]:
    """A torch program, a picture that it takes, and the shape of that with what is free as -1."""
    import torch

    with closing(backends.load("torch", source, Options(size=size))) as loaded:
        spec = loaded.info.inputs[0]
    batch, channels, rows, columns = spec.shape
    if channels == -1:
        channels = 3
    own = (rows, columns)
    if size is not None and any(
        side not in (-1, want) for side, want in zip(own, size, strict=True)
    ):
        raise ModelError(f"{source}: its size is fixed at {columns}x{rows}")
    sides = tuple(
        want if side == -1 else side for side, want in zip(own, size or PROBE, strict=True)
    )
    example = torch.zeros(max(batch, 1), channels, *sides)
    return program_of(source), example, (batch, channels, *(size or own))


def _torch_to_ir(source: Path, target: Path, size: Size | None) -> None:
    import torch

    runtime = _openvino()
    program, example, shape = _example(source, size)
    try:
        with _quiet():
            network = program.network
            if not program.scripted:
                network = torch.jit.trace(network, example)
            model = runtime.convert_model(network, example_input=example)
    except Exception as error:
        # Tracing runs the program, which may raise anything.
        raise ModelError(f"{source}: OpenVINO cannot convert it: {_line(error)}") from error
    model.inputs[0].tensor.set_names({program.input})
    model.inputs[0].node.set_friendly_name(program.input)
    for index, port in enumerate(model.outputs):
        port.tensor.set_names({f"y{index or ''}"})
    _save(runtime, model, shape, target, size)


def _torch_to_onnx(source: Path, target: Path, size: Size | None) -> None:
    import torch

    program, example, shape = _example(source, size)
    axes = {index: name for index, name in enumerate("nchw") if shape[index] == -1}
    try:
        with _quiet(), torch.no_grad():
            network = program.network
            if not program.scripted:
                network = torch.jit.trace(network, example)
            made = network(example)
            names = [f"y{index or ''}" for index in range(len(made) if type(made) is tuple else 1)]
            free = {program.input: axes}
            free |= {name: {i: f"{name}_{axis}" for i, axis in axes.items()} for name in names}
            torch.onnx.export(
                network,
                (example,),
                str(target),
                dynamo=False,
                input_names=[program.input],
                output_names=names,
                dynamic_axes=free,
                opset_version=17,
            )
    except Exception as error:
        # Tracing runs the program, which may raise anything.
        raise ModelError(f"{source}: torch cannot write it as ONNX: {_line(error)}") from error


def _torch_to_script(source: Path, target: Path, size: Size | None) -> None:
    import torch

    program, example, _ = _example(source, size)
    try:
        with _quiet(), torch.no_grad():
            torch.jit.trace(program.network, example).save(str(target))
    except Exception as error:
        # Tracing runs the program, which may raise anything.
        raise ModelError(f"{source}: torch cannot trace it: {_line(error)}") from error


def _torch_to_exported(source: Path, target: Path, size: Size | None) -> None:
    import torch

    program, example, shape = _example(source, size)
    try:
        with _quiet(), torch.no_grad():
            if program.scripted:
                from torch._export.converter import TS2EPConverter

                exported = TS2EPConverter(program.network, (example,)).convert()
            else:
                free = {i: torch.export.Dim.AUTO for i, dim in enumerate(shape) if i > 1 > dim}
                exported = torch.export.export(program.network, (example,), dynamic_shapes=(free,))
            torch.export.save(exported, target)
    except Exception as error:
        # Exporting runs the program, which may raise anything.
        raise ModelError(f"{source}: torch cannot export it: {_line(error)}") from error


WAYS: dict[Form, dict[str, Callable[[Path, Path, Size | None], None]]] = {
    Form.GRAPH: {".xml": _graph_to_ir},
    Form.SCRIPT: {".xml": _torch_to_ir, ".onnx": _torch_to_onnx, ".pt2": _torch_to_exported},
    Form.EXPORTED: {".xml": _torch_to_ir, ".onnx": _torch_to_onnx, ".pt": _torch_to_script},
    Form.WEIGHTS: {
        ".xml": _torch_to_ir,
        ".onnx": _torch_to_onnx,
        ".pt": _torch_to_script,
        ".pt2": _torch_to_exported,
    },
}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep converters' remarks back: what counts is that the result is compared."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _line(error: BaseException) -> str:
    from ..backends._torch_file import first_line

    return first_line(error)
