"""Devices, element types and threads of torch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

from ..errors import BackendError, DeviceError
from ..frame import Precision
from . import _cpu


def framework() -> Any:
    """The torch package."""
    try:
        import torch
    except (ImportError, OSError) as error:
        message = f"torch is installed but does not load: {error}"
        raise BackendError(message, backend="torch") from error
    return torch


def version() -> str:
    """The installed version."""
    return metadata.version("torch")


def devices() -> Mapping[str, str]:
    """Name and description of each device that torch sees."""
    torch = framework()
    found = {"cpu": torch.backends.cpu.get_cpu_capability()}
    for kind in ("cuda", "xpu"):
        side = getattr(torch, kind, None)
        if side is not None and side.is_available():
            found |= {f"{kind}:{n}": side.get_device_name(n) for n in range(side.device_count())}
    return found


def resolve(name: str) -> str:
    """torch's spelling of a device, after checking that it exists."""
    wanted = name.lower() or "cpu"
    there = devices()
    device = f"{wanted}:0" if wanted in ("cuda", "xpu") else wanted
    if device not in there:
        raise DeviceError(f"torch has no device {name}; there are: {', '.join(there)}", device=name)
    return device


def precisions(device: str) -> tuple[Precision, ...]:
    """What the hardware computes in, the fastest first."""
    if device.startswith("cuda"):
        return (Precision.FLOAT16, Precision.BFLOAT16, Precision.FLOAT32)
    if device.startswith("xpu"):
        return (Precision.FLOAT16, Precision.FLOAT32)
    return _cpu.precisions()
