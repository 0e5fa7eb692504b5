"""Planes of GPU memory as other libraries get them."""

from __future__ import annotations

import ctypes
import gc
import weakref
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from avdnn.cuda import dlpack
from avdnn.cuda.dlpack import Exported
from avdnn.cuda.geometry import Plane

from .fake_gpu import FakeGpu


class Owner:
    """Keeps the memory of a plane."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory


@pytest.fixture
def gpu(kernels: Path) -> FakeGpu:
    return FakeGpu(kernels)


def exported(gpu: FakeGpu, view: Any, owner: Any = None) -> Exported:
    plane = Plane(view.ctypes.data, view.shape, view.strides, view.itemsize)
    return Exported(gpu, plane, owner or Owner(view), gpu.encode)


def tensor(capsule: Any) -> Any:
    """The DLTensor of a capsule that nobody took."""
    api = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    pointer = api(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, b"dltensor")
    return dlpack._Managed.from_address(pointer).tensor


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_shape_and_pitch_arrive(gpu: FakeGpu, dtype: str) -> None:
    memory = np.arange(6 * 256, dtype=dtype).reshape(6, 256)
    luma, chroma = memory[:4, :8], memory[4:, :8].reshape(2, 4, 2)
    for view in (luma, chroma):
        got = np.from_dlpack(exported(gpu, view))  # type: ignore[arg-type]
        assert (got.dtype, got.shape, got.strides) == (view.dtype, view.shape, view.strides)
        assert got.ctypes.data == view.ctypes.data


def test_device_is_told_in_the_object_and_in_the_capsule(gpu: FakeGpu) -> None:
    gpu.dlpack_type, gpu.index = 2, 3
    made = exported(gpu, np.zeros((2, 2), np.uint16))
    assert made.__dlpack_device__() == (2, 3)
    capsule = made.__dlpack__()
    told = tensor(capsule)
    assert (told.device_type, told.device_id, told.code, told.bits, told.lanes) == (2, 3, 1, 16, 1)


@pytest.mark.parametrize(
    ("asked", "waits"), [(None, "decode"), (1, "decode"), (2, "copies"), (3, ""), (-1, "")]
)
def test_stream_that_is_named_waits_for_the_samples(
    gpu: FakeGpu, asked: int | None, waits: str
) -> None:
    # The fake's streams are 0 decode, 1 compute, 2 copies, 3 encode; DLPack's 1 is CUDA's 0.
    exported(gpu, np.zeros((2, 2), np.uint8)).__dlpack__(stream=asked)
    for name in ("decode", "compute", "copies"):
        assert len(getattr(gpu, name).work) == (name == waits), name
    assert len(gpu.encode.work) == bool(waits)


def test_memory_is_kept_until_its_taker_drops_it(gpu: FakeGpu) -> None:
    view = np.full((4, 8), 7, np.uint8)
    owner = Owner(view)
    kept = weakref.ref(owner)
    taken = np.from_dlpack(exported(gpu, view, owner))  # type: ignore[arg-type]
    del owner
    gc.collect()
    assert kept() is not None
    assert taken[3, 7] == 7
    del taken
    assert kept() is None


def test_capsule_that_nobody_takes_lets_go(gpu: FakeGpu) -> None:
    view = np.zeros((4, 8), np.uint8)
    owner = Owner(view)
    kept = weakref.ref(owner)
    capsule = exported(gpu, view, owner).__dlpack__()
    del owner
    assert kept() is not None
    del capsule
    assert kept() is None


def test_frame_of_libav_keeps_both_planes(gpu: FakeGpu) -> None:
    memory = np.arange(6 * 64, dtype=np.uint8).reshape(6, 64)
    owner = Owner(memory)
    kept = weakref.ref(owner)
    planes = [
        exported(gpu, memory[:4, :8], owner),
        exported(gpu, memory[4:, :8].reshape(2, 4, 2), owner),
    ]
    frame = av.VideoFrame.from_dlpack(planes, format="nv12", stream=3)
    del planes, owner
    assert kept() is not None
    assert np.array_equal(frame.to_ndarray(), memory[:, :8])
    del frame
    assert kept() is None


def test_refused_planes_are_let_go(gpu: FakeGpu) -> None:
    owner = Owner(np.zeros((4, 8), np.uint8))
    kept = weakref.ref(owner)
    planes = [exported(gpu, owner.memory, owner), exported(gpu, owner.memory, owner)]
    with pytest.raises(ValueError, match="plane 1"):
        av.VideoFrame.from_dlpack(planes, format="nv12")
    del planes, owner
    gc.collect()
    assert kept() is None
