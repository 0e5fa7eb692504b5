"""OpenVINO: IR and whatever its frontends read, on any of its devices.

Samples are converted inside the graph: `info` declares the caller's own sample type, arrays are
shared with the runtime, and each job's outputs are fresh arrays that the runtime writes into.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from importlib import metadata
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from ..errors import BackendError, DeviceError, InferenceError, ModelError, NonFiniteError
from ..frame import Arrays, Layout, ModelInfo, Precision, Shape, Shapes
from . import Options, _formats
from ._openvino_graph import Prepared, Wanted, prepare
from ._tensors import check_shapes, matched, number
from ._workers import Workers

SUFFIXES: tuple[str, ...] = (".xml", ".onnx", ".pb", ".tflite", ".pdmodel", "")

KEYS: Mapping[str, str] = {
    "input_resizable": "1: reshape a model of fixed size to the frames (done anyway where the "
    "model allows it), 0: never",
    "layout": "none (guess), nchw or nhwc",
    "scale": "the model's tensors hold (x - mean) / scale, x in 0..255; 255 where not given",
    "mean": "see scale; 0 where not given",
}

HINTS = {Precision.FLOAT32: "f32", Precision.BFLOAT16: "bf16", Precision.FLOAT16: "f16"}
CAPABILITIES = {"BF16": Precision.BFLOAT16, "FP16": Precision.FLOAT16}


def runtime() -> Any:
    """The openvino package, imported without the telemetry that would report the import."""
    modules: dict[str, Any] = sys.modules
    modules.setdefault("openvino_telemetry", None)
    try:
        import openvino
    except (ImportError, OSError) as error:
        message = f"openvino is installed but does not load: {error}"
        raise BackendError(message, backend="openvino") from error
    return openvino


@functools.cache
def _core() -> Any:
    """The one core of the process, kept to its end.

    The CPU plugin gives the calling thread a stack for signal handlers and puts back the one it
    found when it goes. Two of them that do not go in reverse order leave freed memory there, and
    the next Ctrl-C or SIGTERM is a segmentation fault.
    """
    return runtime().Core()


def describe() -> Mapping[str, Any]:
    """The installed version and the devices that this machine has."""
    core = _core()
    devices = {name: str(core.get_property(name, "FULL_DEVICE_NAME")) for name in _devices(core)}
    return {"version": metadata.version("openvino"), "devices": devices}


def precisions(options: Options) -> tuple[Precision, ...]:
    """What every device of `options.device` computes in hardware, the fastest first."""
    core = _core()
    return _precisions(core, _device(core, options.device))


def load(model: Path, options: Options) -> OpenVINO:
    """Read, reshape, add the conversions, compile."""
    kind = _formats.check(model, "openvino")
    core = _core()
    device = _device(core, options.device)
    allowed = _precisions(core, device)
    if options.precision not in allowed:
        raise DeviceError(
            f"openvino: device {device} does not compute in {options.precision}; "
            f"it does in {', '.join(allowed)}",
            device=device,
        )
    try:
        graph = core.read_model(model)
    except RuntimeError as error:
        message = f"{model}: openvino cannot read it: {_reason(error)}"
        raise ModelError(message, backend="openvino") from error
    try:
        prepared = prepare(graph, model, _wanted(options))
        compiled = core.compile_model(prepared.graph, device, _properties(device, options))
    except RuntimeError as error:
        message = f"{model}: openvino cannot compile it for {device}: {_reason(error)}"
        raise ModelError(message, backend="openvino") from error
    return OpenVINO(compiled, prepared, kind, options)


def _facts(kind: _formats.Kind, prepared: Prepared) -> dict[str, str]:
    facts = {"format": kind.value, "runtime": f"OpenVINO {metadata.version('openvino')}"}
    if prepared.made_for:
        height, width = prepared.made_for
        facts["reshaped from"] = f"{width}x{height}"
    return facts


class OpenVINO:
    """A compiled model and its requests, one for each worker."""

    info: ModelInfo

    def __init__(
        self, compiled: Any, prepared: Prepared, kind: _formats.Kind, options: Options
    ) -> None:
        self._prepared = prepared
        slots = _slots(compiled, options)
        self._requests: SimpleQueue[Any] = SimpleQueue()
        for _ in range(slots):
            self._requests.put(compiled.create_infer_request())
        self._workers = Workers("openvino", slots)
        self._types = [port.element_type.to_dtype() for port in compiled.outputs]
        self._static: list[Shape | None] = [
            tuple(port.shape) if port.partial_shape.is_static else None for port in compiled.outputs
        ]
        self._shapes: dict[tuple[tuple[str, Shape], ...], Shapes] = {}
        self.info = ModelInfo(
            inputs=prepared.inputs,
            outputs=prepared.outputs,
            max_batch=prepared.batch if prepared.batch != -1 else None,
            max_in_flight=slots,
            device=",".join(compiled.get_property("EXECUTION_DEVICES")),
            precision=options.precision,
            reshapeable=prepared.reshapeable,
            facts=_facts(kind, prepared),
        )

    def output_shapes(self, inputs: Shapes) -> Shapes:
        """Shapes of all outputs; a model of free size runs once on zeros to tell."""
        check_shapes(inputs, self.info.inputs, "openvino")
        key = tuple((spec.name, tuple(inputs[spec.name])) for spec in self.info.inputs)
        if key not in self._shapes:
            names = [spec.name for spec in self.info.outputs]
            shapes = dict(zip(names, self._static, strict=False))
            if None in shapes.values():
                zeros = [np.zeros(inputs[spec.name], spec.dtype) for spec in self.info.inputs]
                found = self._workers.submit(partial(self._run, zeros)).result()
                shapes = {name: found[name].shape for name in names}
            self._shapes[key] = {name: shape for name, shape in shapes.items() if shape is not None}
        return self._shapes[key]

    def infer_async(self, inputs: Arrays) -> Future[Arrays]:
        """Start one inference on a free request."""
        return self._workers.submit(partial(self._infer, inputs))

    def close(self) -> None:
        """Wait for running jobs and free the requests."""
        self._workers.close()
        while not self._requests.empty():
            self._requests.get()

    def _infer(self, inputs: Arrays) -> Arrays:
        found = self._run(matched(inputs, self.info.inputs, "openvino"))
        for name in self._prepared.checked:
            bad = np.flatnonzero(~np.isfinite(found[f"check {name}"]))
            if bad.size:
                raise NonFiniteError(
                    f"openvino: output {name} holds NaN or infinity (item {bad[0]} of the batch)",
                    backend="openvino",
                )
        return {spec.name: found[spec.name] for spec in self.info.outputs}

    def _run(self, arrays: list[Any]) -> dict[str, Any]:
        """All outputs by name, the checks among them as `check NAME`."""
        tensor = partial(runtime().Tensor, shared_memory=True)
        request = self._requests.get()
        try:
            for index, array in enumerate(arrays):
                own = array if array.flags.writeable else array.copy()
                request.set_input_tensor(index, tensor(own))
            results: list[Any] = []
            for index, (shape, dtype) in enumerate(zip(self._static, self._types, strict=True)):
                results.append(None if shape is None else np.empty(shape, dtype))
                if shape is not None:
                    request.set_output_tensor(index, tensor(results[index]))
            request.start_async()
            request.wait()
            for index, result in enumerate(results):
                if result is None:
                    results[index] = request.get_output_tensor(index).data.copy()
        except RuntimeError as error:
            message = f"openvino: {_reason(error)}"
            raise InferenceError(message, backend="openvino") from error
        finally:
            self._requests.put(request)
        names = [spec.name for spec in self.info.outputs]
        names += [f"check {name}" for name in self._prepared.checked]
        return dict(zip(names, results, strict=True))


def _slots(compiled: Any, options: Options) -> int:
    """Requests in flight: one more than run at once, so that none waits for Python."""
    if not options.asynchronous:
        return 1
    if options.nireq:
        return options.nireq
    return int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")) + 1


def _wanted(options: Options) -> Wanted:
    text = options.config.get("layout", "none").lower()
    if text not in ("none", *Layout):
        raise ModelError(f"layout={text}: none, nchw or nhwc is wanted", backend="openvino")
    resizable = options.config.get("input_resizable", "1").lower()
    if resizable not in ("0", "1", "true", "false"):
        message = f"input_resizable={resizable}: 0 or 1 is wanted"
        raise ModelError(message, backend="openvino")
    scale = number(options.config, "scale", options.scale, "openvino")
    mean = number(options.config, "mean", options.mean, "openvino")
    if scale == 0:
        raise ModelError("scale=0: the model's tensors hold (x - mean) / scale, so it is not 0")
    return Wanted(
        inputs=options.inputs,
        outputs=options.outputs,
        batch=options.batch_size,
        size=options.size,
        may_resize=resizable in ("1", "true"),
        sample=options.sample,
        peak=options.peak,
        layout=options.layout or (None if text == "none" else Layout(text)),
        order=options.order,
        scale=255.0 if scale is None else scale,
        mean=mean or 0.0,
    )


def _properties(device: str, options: Options) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": HINTS[options.precision],
        "PERFORMANCE_HINT": "THROUGHPUT" if options.asynchronous else "LATENCY",
    }
    if options.nireq and options.asynchronous:
        properties["PERFORMANCE_HINT_NUM_REQUESTS"] = options.nireq
    if options.threads:
        if device != "CPU":
            message = f"openvino: threads={options.threads} is for the CPU, not for {device}"
            raise DeviceError(message, device=device)
        properties["INFERENCE_NUM_THREADS"] = options.threads
    if options.cache is not None:
        properties["CACHE_DIR"] = str(options.cache)
    return properties


def _devices(core: Any) -> list[str]:
    return list(core.available_devices)


def _device(core: Any, name: str) -> str:
    """OpenVINO's spelling of a device, after checking that each part of it exists."""
    device = name.upper() or "CPU"
    there = _devices(core)
    for part in _parts(device):
        known = {*there, *(f"{found}.0" for found in there), *(d.split(".")[0] for d in there)}
        if part not in known:
            raise DeviceError(
                f"openvino has no device {part}; there are: {', '.join(there)}", device=part
            )
    return device


def _parts(device: str) -> list[str]:
    """The plain devices that a name like MULTI:GPU.1(4),CPU is made of."""
    head, _, rest = device.partition(":")
    if head not in ("AUTO", "MULTI", "HETERO", "BATCH"):
        return [device]
    parts = [part.strip().lstrip("-").partition("(")[0] for part in rest.split(",")]
    return [part for part in parts if part]


def _precisions(core: Any, device: str) -> tuple[Precision, ...]:
    capabilities = [
        set(core.get_property(part, "OPTIMIZATION_CAPABILITIES"))
        for part in _parts(device) or _devices(core)
    ]
    shared = set.intersection(*capabilities)
    fast = [precision for name, precision in CAPABILITIES.items() if name in shared]
    return (*fast, Precision.FLOAT32)


def _reason(error: RuntimeError) -> str:
    """What OpenVINO has to say, without the source lines that it comes from."""
    text = re.sub(r"Exception from \S+:\d+:|Caught exception:", "", str(error))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    told = [line for line in lines if line and not line.startswith("Check '")]
    return re.sub(r" failed at \S+:\d+:", " failed", "; ".join(told[:2] or lines))
