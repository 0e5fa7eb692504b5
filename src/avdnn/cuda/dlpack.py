"""GPU memory as other libraries take it: DLPack's capsules over planes, which keep it alive."""

from __future__ import annotations

import ctypes
from typing import Any

from ._device import Device
from .geometry import Plane

UNORDERED, LEGACY_STREAM = -1, 1
"""Values of `stream` that are no handles: nothing is to be ordered, the default stream."""

_NAME = b"dltensor"
_UINT = 1


class _Tensor(ctypes.Structure):
    """DLTensor; shape and strides count elements."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))


_alive: dict[int, tuple[Any, ...]] = {}
"""What each tensor that was handed out needs, by its address, until its deleter is called."""


def _forget(address: int) -> None:
    _alive.pop(address, None)


_delete = _Deleter(_forget)

_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", _api)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)


def _dropped(capsule: int) -> None:
    """Free the tensor of a capsule that nobody took: who takes one gives it another name."""
    if _is_valid(capsule, _NAME):
        _forget(_pointer_in(capsule, _NAME))


_drop = _Destructor(_dropped)


class Exported:
    """A plane whose samples are ordered in `stream`; `owner` keeps its memory.

    Each capsule holds `owner` until whoever took it calls its deleter, on any thread.
    """

    def __init__(self, device: Device, plane: Plane, owner: Any, stream: Any) -> None:
        self._device = device
        self._plane = plane
        self._owner = owner
        self._stream = stream

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device.dlpack_type, self._device.index

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        """A capsule; what is put into the stream of that handle from now on finds the samples."""
        if stream != UNORDERED:
            handle = 0 if stream in (None, LEGACY_STREAM) else int(stream)
            if handle != self._stream.ptr:
                self._device.order(self._stream, handle)
        return _capsule(self._plane, self.__dlpack_device__(), self._owner)


def _capsule(plane: Plane, where: tuple[int, int], owner: Any) -> Any:
    counts = ctypes.c_int64 * plane.ndim
    shape = counts(*plane.shape)
    strides = counts(*(step // plane.itemsize for step in plane.strides))
    made = _Managed()
    made.tensor = _Tensor(
        plane.pointer,
        *where,
        plane.ndim,
        _UINT,
        8 * plane.itemsize,
        1,
        shape,
        strides,
        0,
    )
    made.deleter = _delete
    address = ctypes.addressof(made)
    _alive[address] = made, shape, strides, owner
    return _new_capsule(address, _NAME, _drop)
