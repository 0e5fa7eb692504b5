"""NVIDIA GPUs: decoding, frames and tensors in their memory, and the order of their streams.

`_device` alone imports cupy, and only when a GPU is opened.
"""

from ._device import Device, device, installed, opened, reporting
from .failures import OutOfDeviceMemory, explained

__all__ = [
    "Device",
    "OutOfDeviceMemory",
    "device",
    "explained",
    "installed",
    "opened",
    "reporting",
]
