"""Runs FFmpeg's `.model` files in NumPy: always installed, and the reference for the others."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DeviceError, InferenceError, ModelError
from ..frame import Arrays, Layout, ModelInfo, Precision, Shapes, TensorSpec
from . import Backend, Options
from ._native_blas import one_thread
from ._native_file import read
from ._native_model import FLOAT, Conv2d, Dense, Kind, Model, Operand, sources
from ._native_rows import Size
from ._native_run import Network

SUFFIXES = (".model",)
KEYS: Mapping[str, str] = {"conv2d_threads": "threads for one frame; 0 is one per core"}

_PROBE = 1 << 14
"""Height and width that stand for a free size when only channels are asked for."""


def load(model: Path, options: Options) -> Backend:
    """Load a `.model` file; ModelError names the file and what does not fit."""
    try:
        _check(options)
        return _Native(read(model), options, str(model))
    except ModelError as error:
        text = str(error)
        if text.startswith(f"{model}: "):
            raise
        raise ModelError(f"{model}: {text}", backend="native") from error


def precisions(options: Options) -> tuple[Precision, ...]:
    """NumPy multiplies float32 matrices."""
    return (Precision.FLOAT32,)


def describe() -> Mapping[str, Any]:
    """The version of NumPy, and the CPU."""
    return {"version": np.__version__, "devices": {"cpu": f"NumPy, {_cores()} cores"}}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check(options: Options) -> None:
    if options.device.lower() not in ("", "cpu"):
        raise DeviceError(
            f"native has no device {options.device}; there are: cpu", device=options.device
        )
    if options.precision is not Precision.FLOAT32:
        raise ModelError(f"precision {options.precision}; the native backend has float32 only")
    if options.layout is Layout.NCHW:
        raise ModelError("layout nchw; native models are nhwc")


def _threads(options: Options) -> int:
    given = options.config.get("conv2d_threads", str(options.threads))
    try:
        count = int(given)
    except ValueError:
        raise ModelError(f"conv2d_threads={given}; a number is wanted") from None
    return count if count > 0 else _cores()


def _pick(wanted: Sequence[str], found: Sequence[str], others: Sequence[str], what: str) -> None:
    """Check tensor names; the error lists those that there are."""
    for name in wanted:
        if name not in found and name not in others:
            listed = ", ".join(repr(known) for known in found)
            raise ModelError(f"no {what} {name!r}; there is {listed}")


def _channels(model: Model, operand: Operand) -> int:
    """The channels of an input, from the file or from the layer that reads it."""
    if operand.dims[3] > 0:
        return operand.dims[3]
    for layer in model.layers:
        if operand.name in sources(layer) and isinstance(layer, Conv2d | Dense):
            return int(layer.kernel.shape[-1])
    raise ModelError(f"input {operand.name!r} has no number of channels")


class _Native:
    """A network, and the threads that run it."""

    def __init__(self, model: Model, options: Options, title: str) -> None:
        self.title = title
        self._reshaped: dict[str, str] = {}
        inputs = [operand for operand in model.operands if operand.kind is Kind.INPUT]
        targets = [layer.target for layer in model.layers]
        ends = model.names(Kind.OUTPUT) or (targets[-1],)
        _pick(options.inputs, [operand.name for operand in inputs], (), "input")
        _pick(options.outputs, ends, targets, "output")
        self.network = Network(model, options.outputs or ends)
        self.inputs = [self._input(model, each, options) for each in inputs if self._uses(each)]
        self.sizes = self._sized({spec.name: _size(spec, _PROBE) for spec in self.inputs})
        outputs = [self._output(name, options) for name in self.network.outputs]
        self.threads = _threads(options)
        slots = (options.nireq or self.threads // 2 + 1) if options.asynchronous else 1
        self.info = ModelInfo(
            inputs=tuple(self.inputs),
            outputs=tuple(outputs),
            max_in_flight=slots,
            reshapeable=True,
            facts={"format": "FFmpeg native", "layers": str(len(model.layers))} | self._reshaped,
        )
        self._slots = threading.BoundedSemaphore(slots)
        self._jobs = ThreadPoolExecutor(slots, "avdnn-native")
        self._bands = ThreadPoolExecutor(self.threads, "avdnn-native-band")

    def _uses(self, operand: Operand) -> bool:
        return operand.name in self.network.operands

    def _input(self, model: Model, operand: Operand, options: Options) -> TensorSpec:
        if operand.dtype != FLOAT:
            raise ModelError(f"input {operand.name!r} is of type {operand.dtype}, not 1 (float)")
        own = tuple(side if side > 0 else -1 for side in operand.dims[1:3])
        height, width = options.size or own
        if -1 not in own and own != (height, width):
            self._reshaped["reshaped from"] = f"{own[1]}x{own[0]}"
        shape = (-1, height, width, _channels(model, operand))
        return _spec(operand.name, shape, options)

    def _output(self, name: str, options: Options) -> TensorSpec:
        size = self.sizes[name]
        free = any(-1 in spec.size for spec in self.inputs)
        height, width = (-1, -1) if free else (size.height, size.width)
        return _spec(name, (-1, height, width, size.channels), options)

    def _sized(self, inputs: Mapping[str, Size]) -> dict[str, Size]:
        try:
            return self.network.sizes(inputs)
        except ModelError as error:
            raise ModelError(f"{self.title}: {error}", backend="native") from error

    def output_shapes(self, inputs: Shapes) -> Shapes:
        """Computed from the layers; the model does not run."""
        sizes = self._sized({name: _checked(name, inputs, self.inputs) for name in inputs})
        batch = next(iter(inputs.values()))[0]
        return {
            name: (batch, sizes[name].height, sizes[name].width, sizes[name].channels)
            for name in self.network.outputs
        }

    def infer_async(self, inputs: Arrays) -> Future[Arrays]:
        """Start one inference; waits while all slots are busy."""
        self._slots.acquire()
        future = self._jobs.submit(self._infer, dict(inputs))
        future.add_done_callback(lambda _: self._slots.release())
        return future

    def _infer(self, inputs: Arrays) -> Arrays:
        try:
            shapes = {name: tuple(array.shape) for name, array in inputs.items()}
            sized = {spec.name: _checked(spec.name, shapes, self.inputs) for spec in self.inputs}
            sizes = self._sized(sized)
            found = {
                name: np.empty(shape, np.float32)
                for name, shape in self.output_shapes(shapes).items()
            }
            for index in range(next(iter(shapes.values()))[0]):
                given = {name: _floats(name, array)[index] for name, array in inputs.items()}
                self._frame(given, {name: array[index] for name, array in found.items()}, sizes)
        except Exception as error:
            raise InferenceError(f"{self.title}: {error}", backend="native") from error
        return found

    def _frame(self, given: Arrays, found: Arrays, sizes: Mapping[str, Size]) -> None:
        parts = self.network.parts(sizes, self.threads)
        with one_thread():
            bands = [
                self._bands.submit(self.network.run, given, found, sizes, part, parts)
                for part in range(parts)
            ]
            wait(bands)
        for band in bands:
            band.result()

    def close(self) -> None:
        """Wait for running jobs and end the threads."""
        self._jobs.shutdown()
        self._bands.shutdown()


def _spec(name: str, shape: tuple[int, int, int, int], options: Options) -> TensorSpec:
    scale = 255.0 if options.scale is None else options.scale
    mean = options.mean or 0.0
    return TensorSpec(name, shape, "float32", Layout.NHWC, options.order, scale, mean)


def _size(spec: TensorSpec, free: int) -> Size:
    height, width = (free if size < 0 else size for size in spec.size)
    return Size(spec.channels, height, width)


def _floats(name: str, array: Any) -> Any:
    found = np.from_dlpack(array) if not isinstance(array, np.ndarray) else array
    if found.dtype != np.float32:
        raise ValueError(f"input {name!r} is {found.dtype}, not float32")
    return found


def _checked(name: str, shapes: Shapes, specs: Sequence[TensorSpec]) -> Size:
    """The size of an input's pictures, after checking its shape against the model's."""
    spec = next((spec for spec in specs if spec.name == name), None)
    if spec is None or name not in shapes:
        raise ModelError(f"inputs {list(shapes)}; wanted {[spec.name for spec in specs]}")
    shape = shapes[name]
    fixed = zip(spec.shape, shape, strict=False)
    if len(shape) != 4 or any(want not in (-1, got) for want, got in fixed):
        raise ModelError(f"input {name!r} has shape {shape}; wanted {spec.shape}")
    return Size(shape[3], shape[1], shape[2])
