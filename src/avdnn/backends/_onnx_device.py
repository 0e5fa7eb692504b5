"""Where ONNX Runtime runs a model, and on how many threads."""

from __future__ import annotations

import ctypes
import os
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from ..errors import DeviceError, HostMemoryOnly, ModelError
from ..frame import Precision
from . import Options, _onnx_cuda

PACKAGES = {
    "cuda": "pip install onnxruntime-gpu",
    "tensorrt": "pip install onnxruntime-gpu, and TensorRT",
    "openvino": "pip install onnxruntime-openvino",
    "dml": "pip install onnxruntime-directml",
    "qnn": "pip install onnxruntime-qnn",
    "migraphx": "pip install onnxruntime-migraphx",
}
INDEXED = ("cuda", "tensorrt", "dml", "migraphx", "cann", "webgpu")

MOST_CALLERS = 4
"""Frames at once by default: each holds its own activations, and more gain nothing."""


def providers(names: list[str]) -> dict[str, str]:
    """Device name -> provider, without the one that calls a service on the network."""
    short = {name.removesuffix("ExecutionProvider").lower(): name for name in names}
    short.pop("azure", None)
    return short


def choose(ort: Any, options: Options) -> tuple[str, str, dict[str, str]]:
    """Device name, provider and provider settings for `options.device`.

    A provider that the build lacks is HostMemoryOnly where the caller's frames are on a GPU.
    """
    name, _, rest = (options.device or "cpu").partition(":")
    name = name.lower()
    known, there = providers(ort.get_all_providers()), providers(ort.get_available_providers())
    if name not in known:
        raise DeviceError(f"onnx has no device {name}; there are: {', '.join(there)}", device=name)
    if name not in there:
        package = PACKAGES.get(name, "a build of ONNX Runtime that has it")
        on_gpu = options.stream is not None
        raise (HostMemoryOnly if on_gpu else DeviceError)(
            f"onnx: the installed ONNX Runtime has no {known[name]}, only {', '.join(there)}; "
            f"{name} needs {package}{', and so do frames on a GPU' if on_gpu else ''}",
            device=name,
        )
    index = options.config.get("device_id", rest or "0")
    settings: dict[str, str] = {}
    if name == "openvino":
        settings = {"device_type": rest.upper() or "CPU"}
    elif not index.isdecimal() or (rest and rest != index):
        message = f"onnx: device {options.device} with device_id={index}: one index is wanted"
        raise DeviceError(message, device=options.device)
    elif name == "cpu":
        if index != "0":
            raise DeviceError(f"onnx: there is one cpu, not cpu:{index}", device=options.device)
    elif name in INDEXED:
        settings = {"device_id": index}
    if name == "cuda":
        settings |= _onnx_cuda.settings(options.stream)
    if name == "tensorrt":
        settings["trt_fp16_enable"] = str(options.precision is Precision.FLOAT16)
        if options.cache is not None:
            settings |= {
                "trt_engine_cache_enable": "True",
                "trt_engine_cache_path": str(options.cache),
            }
    if name in ("cuda", "tensorrt") and hasattr(ort, "preload_dlls"):
        with redirect_stdout(StringIO()):
            ort.preload_dlls()
    return name, known[name], settings


def missing_library(folder: Path, name: str) -> str:
    """Why a provider does not load: the message of the system's loader names what is missing."""
    library = folder / f"libonnxruntime_providers_{name}.so"
    if not library.exists():
        return f"{library.name} is missing from the installed ONNX Runtime"
    try:
        shared = folder / "libonnxruntime_providers_shared.so"
        if shared.exists():
            ctypes.CDLL(str(shared), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(library))
    except OSError as error:
        return str(error)
    return "its libraries load, but it finds no device or a driver that is too old"


def split_cores(name: str, options: Options) -> tuple[int, int, int]:
    """Jobs in flight, threads that call the session, threads of one operation."""
    text = options.config.get("threads_per_operation", "0")
    if not text.isdecimal():
        message = f"threads_per_operation={text}: a whole number is wanted"
        raise ModelError(message, backend="onnx")
    cores = options.threads or available_cores()
    if not options.asynchronous:
        return 1, 1, int(text) or cores
    if name != "cpu":
        slots = options.nireq or 2
        return slots, slots, int(text) or cores
    room = max(1, cores // max(1, int(text)))
    callers = min(options.nireq or MOST_CALLERS, room)
    return options.nireq or callers + 1, callers, int(text) or max(1, cores - callers + 1)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
