"""What CUDA's errors mean for the user."""

from __future__ import annotations

from ..errors import DeviceError

OUT_OF_MEMORY, NO_DRIVER, NO_DEVICE, BAD_DEVICE = 2, 35, 100, 101
"""CUDA's numbers of these."""


class OutOfDeviceMemory(DeviceError, MemoryError):
    """The device has no room; says how much was needed, in bytes or as text."""

    def __init__(self, label: str, size: int | str, free: int, total: int) -> None:
        needed = size if isinstance(size, str) else _mib(size)
        super().__init__(
            f"{label} is out of memory: {needed} more are needed, {_mib(free)} of "
            f"{_mib(total)} are free; use a smaller batch_size=, fit=tile, or stop other programs",
            device=label,
        )


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


def explained(label: str, doing: str, status: int, text: str) -> str:
    """What a CUDA runtime status means for the user."""
    if status == NO_DRIVER:
        return (
            "the NVIDIA driver is missing or older than this CUDA: update the driver, or run the "
            "container with --gpus all (see avdnn doctor)"
        )
    if status == NO_DEVICE:
        return "no NVIDIA GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES"
    if status == BAD_DEVICE:
        return f"no GPU {label} on this machine (see avdnn doctor)"
    if status == OUT_OF_MEMORY:
        return f"{label} could not {doing}: out of memory"
    return f"{label} could not {doing}: {text}"
