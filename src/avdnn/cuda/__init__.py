"""NVIDIA GPUs: decoding, frames and tensors in their memory, and the order of their streams.

`_device` alone imports cupy, and only when a GPU is opened.
"""

from ._device import (
    Device,
    OutOfDeviceMemory,
    Plane,
    device,
    explained,
    installed,
    opened,
    pinned_array,
    reporting,
)

__all__ = [
    "Device",
    "OutOfDeviceMemory",
    "Plane",
    "device",
    "explained",
    "installed",
    "opened",
    "pinned_array",
    "reporting",
]
