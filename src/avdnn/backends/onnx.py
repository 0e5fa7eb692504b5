"""ONNX Runtime: any number of inputs and outputs, on one execution provider.

Jobs run side by side on threads of their own: on a CPU several frames at once, each on few
threads, beat one frame on all of them. Samples are float (or what the model declares); only
bfloat16 tensors, which NumPy does not have, are float32 at the seam.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BackendError, DeviceError, InferenceError, ModelError
from ..frame import Arrays, ModelInfo, Precision, Shape, Shapes, TensorSpec
from . import Options, _formats, _onnx_cuda, _onnx_device
from ._cuda_arrays import on_device
from ._tensors import check_shapes, guess_layout, matched, select
from ._workers import Workers

SUFFIXES: tuple[str, ...] = (".onnx",)

KEYS: Mapping[str, str] = {
    "threads_per_operation": "CPU threads that one operation of the network is split over",
    "device_id": "index of the device, for example 1 for the second GPU",
}

DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(bfloat16)": "bfloat16",
    "tensor(double)": "float64",
    "tensor(bool)": "bool",
    **{
        f"tensor({sign}int{bits})": f"{sign}int{bits}"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}
BFLOAT16 = 16
"""ONNX's number of the bfloat16 element type."""


def runtime() -> Any:
    """The onnxruntime package, silent and without its telemetry: errors come as exceptions."""
    try:
        import onnxruntime
    except (ImportError, OSError) as error:
        message = f"onnxruntime is installed but does not load: {error}"
        raise BackendError(message, backend="onnx") from error
    onnxruntime.set_default_logger_severity(4)
    onnxruntime.disable_telemetry_events()
    return onnxruntime


def describe() -> Mapping[str, Any]:
    """The installed version and the execution providers that it was built with."""
    ort = runtime()
    return {
        "version": ort.__version__,
        "devices": _onnx_device.providers(ort.get_available_providers()),
    }


def precisions(options: Options) -> tuple[Precision, ...]:
    """TensorRT may compute in float16; elsewhere the model's own types decide."""
    name = options.device.lower().partition(":")[0]
    if name == "tensorrt":
        return (Precision.FLOAT16, Precision.FLOAT32)
    return (Precision.FLOAT32,)


def load(model: Path, options: Options) -> ONNX:
    """Open a session on the provider that `device` names, and on no other."""
    _formats.check(model, "onnx")
    ort = runtime()
    name, provider, settings = _onnx_device.choose(ort, options)
    if options.precision not in precisions(options):
        raise DeviceError(
            f"onnx: device {name} is not told to compute in {options.precision}; the model's own "
            f"types decide",
            device=name,
        )
    slots, callers, threads = _onnx_device.split_cores(name, options)
    session_options = ort.SessionOptions()
    session_options.log_severity_level = 4
    session_options.intra_op_num_threads = threads
    try:
        session = ort.InferenceSession(
            str(model), session_options, providers=[(provider, settings)], enable_fallback=0
        )
    except _errors() as error:
        if provider != "CPUExecutionProvider" and isinstance(error, (RuntimeError, ValueError)):
            raise DeviceError(f"onnx: {name}: {_reason(error)}", device=name) from error
        message = f"{model}: ONNX Runtime cannot load it: {_reason(error)}"
        raise ModelError(message, backend="onnx") from error
    session.disable_fallback()
    if session.get_providers()[0] != provider:
        why = _onnx_device.missing_library(Path(ort.__file__).parent / "capi", name)
        raise DeviceError(f"onnx: device {name} cannot be used: {why}", device=name)
    bound = None
    if name == "cuda" and options.stream is not None:
        bound = _onnx_cuda.Bound(ort, session, int(settings["device_id"]))
    return ONNX(session, model, options, slots, callers, name, bound)


class ONNX:
    """A session and the threads that call it.

    Device arrays run at once on the calling thread, on `options.stream`, where `bound` is given.
    """

    info: ModelInfo

    def __init__(
        self,
        session: Any,
        model: Path,
        options: Options,
        slots: int,
        callers: int,
        device: str,
        bound: _onnx_cuda.Bound | None = None,
    ) -> None:
        self._session = session
        found = {
            kind: select(
                wanted,
                tensors,
                lambda tensor: [tensor.name],
                kind=kind,
                model=model,
                backend="onnx",
            )
            for kind, wanted, tensors in (
                ("input", options.inputs, session.get_inputs()),
                ("output", options.outputs, session.get_outputs()),
            )
        }
        if len(found["input"]) < len(session.get_inputs()):
            names = ", ".join(tensor.name for tensor in session.get_inputs())
            raise ModelError(f"{model}: all its inputs are needed: {names}", backend="onnx")
        inputs, outputs = (
            tuple(_spec(tensor, model, options) for tensor in tensors) for tensors in found.values()
        )
        batch = _batch(inputs, model, options)
        self._wide = {spec.name for spec in (*inputs, *outputs) if spec.dtype == "bfloat16"}
        self._bound = bound if _onnx_cuda.takes(inputs, outputs) else None
        self._workers = Workers("onnx", slots, callers)
        self._shapes: dict[tuple[Shape, ...], Shapes] = {}
        meta = session.get_modelmeta()
        self.info = ModelInfo(
            inputs=tuple(_at_the_seam(spec) for spec in inputs),
            outputs=tuple(_at_the_seam(spec) for spec in outputs),
            memory=frozenset({"host", "cuda"} if self._bound else {"host"}),
            max_batch=batch,
            max_in_flight=slots,
            device=device,
            precision=options.precision,
            facts={
                "format": "ONNX model",
                "producer": meta.producer_name or "unknown",
                "runtime": f"ONNX Runtime {runtime().__version__}",
            },
        )

    def output_shapes(self, inputs: Shapes) -> Shapes:
        """Shapes of all outputs; the model runs once on zeros where it leaves them open."""
        check_shapes(inputs, self.info.inputs, "onnx")
        key = tuple(tuple(inputs[spec.name]) for spec in self.info.inputs)
        if key not in self._shapes:
            shapes = {spec.name: spec.shape for spec in self.info.outputs}
            if any(-1 in shape for shape in shapes.values()):
                zeros = {s.name: np.zeros(inputs[s.name], s.dtype) for s in self.info.inputs}
                made = self.infer_async(zeros).result()
                shapes = {name: array.shape for name, array in made.items()}
            self._shapes[key] = shapes
        return self._shapes[key]

    def infer_async(self, inputs: Arrays) -> Future[Arrays]:
        """Start one run: host arrays on a free thread, device arrays at once on the stream."""
        if any(on_device(array) for array in inputs.values()):
            return self._on_stream(inputs)
        return self._workers.submit(partial(self._infer, inputs))

    def close(self) -> None:
        """Wait for running jobs and free the session."""
        self._workers.close()
        self._session = self._bound = None

    def _infer(self, inputs: Arrays) -> Arrays:
        arrays = matched(inputs, self.info.inputs, "onnx")
        feed = {spec.name: array for spec, array in zip(self.info.inputs, arrays, strict=True)}
        names = [spec.name for spec in self.info.outputs]
        try:
            if self._wide:
                return self._run_wide(names, feed)
            return dict(zip(names, self._session.run(names, feed), strict=True))
        except _errors() as error:
            raise InferenceError(f"onnx: {_reason(error)}", backend="onnx") from error

    def _on_stream(self, inputs: Arrays) -> Future[Arrays]:
        """A future that is done at once: what it holds is ordered on the stream."""
        future: Future[Arrays] = Future()
        names = [spec.name for spec in self.info.outputs]
        try:
            if self._bound is None:
                message = "onnx: the model is closed, or was not loaded for frames on a GPU"
                raise InferenceError(message, backend="onnx")
            future.set_result(self._bound.run(inputs, self.info.inputs, names))
        except InferenceError as error:
            future.set_exception(error)
        except _errors() as error:
            failure = InferenceError(f"onnx: {_reason(error)}", backend="onnx")
            failure.__cause__ = _onnx_cuda.exhausted(error)
            future.set_exception(failure)
        return future

    def _run_wide(self, names: list[str], feed: dict[str, Any]) -> dict[str, Any]:
        """A run with bfloat16 tensors, which travel as their bits."""
        value = runtime().OrtValue
        values = {
            name: value.ortvalue_from_numpy_with_onnx_type(_narrow(array), BFLOAT16)
            if name in self._wide
            else value.ortvalue_from_numpy(array)
            for name, array in feed.items()
        }
        made = self._session.run_with_ort_values(names, values)
        return {
            name: _widen(given) if name in self._wide else given.numpy().copy()
            for name, given in zip(names, made, strict=True)
        }


def _spec(tensor: Any, model: Path, options: Options) -> TensorSpec:
    dtype = DTYPES.get(tensor.type)
    if dtype is None:
        message = f"{model}: {tensor.name} is a {tensor.type}; tensors of numbers are wanted"
        raise ModelError(message, backend="onnx")
    shape = tuple(dim if isinstance(dim, int) else -1 for dim in tensor.shape)
    layout = options.layout if options.layout and len(shape) == 4 else guess_layout(shape)
    scale = 255.0 if options.scale is None else options.scale
    return TensorSpec(tensor.name, shape, dtype, layout, options.order, scale, options.mean or 0.0)


def _at_the_seam(spec: TensorSpec) -> TensorSpec:
    return replace(spec, dtype="float32") if spec.dtype == "bfloat16" else spec


def _batch(inputs: tuple[TensorSpec, ...], model: Path, options: Options) -> int | None:
    """The fixed batch, or None where it is free."""
    fixed = [spec.shape[0] for spec in inputs if spec.layout is not None and spec.shape[0] != -1]
    if not fixed:
        return None
    if options.batch_size not in (1, fixed[0]):
        raise ModelError(
            f"{model}: its batch is fixed at {fixed[0]}; leave batch_size={options.batch_size} out",
            backend="onnx",
        )
    return fixed[0]


# ---- bfloat16 and errors -----------------------------------------------------------------------


def _narrow(array: Any) -> Any:
    """The bits of float32 values rounded half to even to bfloat16; NaN stays NaN."""
    bits = array.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded).astype(np.uint16)


def _widen(value: Any) -> Any:
    """The float32 values of a bfloat16 tensor."""
    shape = tuple(value.shape())
    count = int(np.prod(shape))
    bits = np.ctypeslib.as_array((ctypes.c_uint16 * count).from_address(value.data_ptr()))
    return (bits.astype(np.uint32) << 16).view(np.float32).reshape(shape)


def _errors() -> tuple[type[Exception], ...]:
    """What ONNX Runtime raises: classes of its own without a common base, and two builtins."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = [kind for kind in vars(state).values() if isinstance(kind, type)]
    return (*(kind for kind in own if issubclass(kind, Exception)), RuntimeError, ValueError)


def _reason(error: Exception) -> str:
    """The message without its code, on one line."""
    text = " ".join(str(error).split())
    return text.split(" : ", 3)[-1] if text.startswith("[ONNXRuntimeError]") else text
