"""Where a model meets frames on a GPU: which backend takes them there, or how they come down."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from .. import backends, cuda
from ..cuda import frames as cuda_frames
from ..cuda.choice import gpu_index
from ..errors import DeviceError, HostMemoryOnly, ModelError
from ..frame import Frame
from . import Context
from ._device_session import DeviceSession
from ._options import DnnOptions, locate
from ._session import Session

ON_DEVICE = ("torch", "onnx", "tensorflow")
"""Backends that take device memory, the preferred one first."""


def open_session(options: DnnOptions, first: Frame, context: Context, number: int) -> Session:
    """A session for frames like `first`, on their own GPU."""
    device = cuda.device(gpu_index(first.device))
    own = re.sub("^gpu", "cuda", options.device.lower() or device.label)
    if own.partition(":")[0] != "cuda":
        raise DeviceError(
            f"device={own}: the frames are on {device.label}: put hwdownload before the filter",
            device=own,
        )
    options = replace(options, device=device.label if own == "cuda" else own)
    if options.device != device.label:
        raise DeviceError(
            f"device={options.device}: the frames are on {device.label}; give -hwaccel_device and "
            f"device= the same GPU",
            device=options.device,
        )
    name, model = _backend(options)
    return DeviceSession(device, options, name, model, first, context, number)


def fetch(frame: Frame) -> Frame:
    """A device frame in host memory; others as they are."""
    if frame.device == "cpu":
        return frame
    device = cuda.device(gpu_index(frame.device))
    return cuda_frames.to_host(device, frame)


def _backend(options: DnnOptions) -> tuple[str, Path]:
    """The backend that takes device memory, and its form of the model."""
    if options.dnn_backend != "auto":
        name, model = locate(options)
        if name not in ON_DEVICE:
            raise HostMemoryOnly(
                f"dnn_backend={name} takes no frames on {options.device}", device=options.device
            )
        return name, model
    why: Exception | None = None
    for name in ON_DEVICE:
        if not backends.installed(name):
            continue
        try:
            return locate(replace(options, dnn_backend=name))
        except ModelError as error:
            why = why or error
    raise HostMemoryOnly(
        f"{options.model}: no installed backend runs it on frames on {options.device} "
        f"({why or 'torch is not installed'})",
        device=options.device,
    )
