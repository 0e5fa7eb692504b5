"""Frames in GPU memory to tensors and back, and from one format or size to another.

The same steps as host.py, with kernels.cu in place of NumPy and its arithmetic and rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .. import host
from ..errors import ModelError
from ..frame import Array, Frame, Layout, TensorSpec
from ._device import Device
from .frames import empty, empty_slot, finished, follow, known_format
from .kernels import pack_planes, resize_plane, unpack_planes

# ---- frames to tensors ---------------------------------------------------------------------------


def pack(
    device: Device,
    frames: Sequence[Frame],
    spec: TensorSpec,
    order: str = "",
    *,
    channels: int = 0,
    batch: int = 0,
    packed_channels: bool = True,
) -> Array:
    """One tensor (N, C, H, W) or (N, H, W, C) from N frames of one format and size, in `compute`.

    `channels` 3 takes YUV frames through their matrix to RGB; 0 means the format's own. `batch`
    is N where it must be more than the frames: the rest repeats the last. With
    `packed_channels` an NCHW tensor of colour lies in memory as NHWC, which networks prefer.
    """
    channels = channels or known_format(frames[0].format).channels
    count = max(batch, len(frames))
    size = frames[0].height, frames[0].width
    tensor = empty_tensor(device, size, spec, channels, count, packed_channels)
    for frame in frames:
        follow(frame, device.compute)
    fill(device, tensor, [*frames, *[frames[-1]] * (count - len(frames))], spec, order, channels)
    return tensor


def empty_tensor(
    device: Device, size: tuple[int, int], spec: TensorSpec, channels: int, count: int, packed: bool
) -> Array:
    """A new tensor for `count` pictures of (height, width) `size`, for work in `compute`."""
    shape = (count, *size, channels)
    itemsize = 4 if spec.dtype == "float32" else 2
    block = device.pool.take(int(np.prod(shape)) * itemsize, device.compute)
    if spec.layout is Layout.NHWC:
        return device.array(block, shape, spec.dtype)
    if packed:
        return device.array(block, shape, spec.dtype).transpose(0, 3, 1, 2)
    return device.array(block, (count, channels, *size), spec.dtype)


def fill(
    device: Device,
    tensor: Array,
    frames: Sequence[Frame],
    spec: TensorSpec,
    order: str,
    channels: int,
) -> None:
    """Fill a tensor from as many frames as it has, in `compute`, which must follow them."""
    form = known_format(frames[0].format)
    for start, length, step in runs(frames):
        part = tensor[start : start + length]
        frame = frames[start]
        pack_planes(device, frame, form, part, spec, order, channels, device.compute, step)


def runs(frames: Sequence[Frame]) -> Iterator[tuple[int, int, int]]:
    """Cut frames into (start, length, step) of those that lie `step` bytes apart in one block."""
    start, step = 0, 0
    for index in range(1, len(frames) + 1):
        if index < len(frames) and frames[index].owner is frames[start].owner:
            gap = _gap(frames[index - 1], frames[index])
            if index - start == 1 and gap > 0:
                step = gap
                continue
            if gap == step > 0:
                continue
        yield start, index - start, step
        start, step = index, 0


def _gap(one: Frame, other: Frame) -> int:
    gap: int = other.planes[0].pointer - one.planes[0].pointer
    return gap


# ---- tensors to frames ---------------------------------------------------------------------------


def unpack(
    device: Device,
    tensor: Array,
    spec: TensorSpec,
    sources: Sequence[Frame],
    bad: Array,
    order: str = "",
) -> list[Frame]:
    """Frames of the sources' format from an output (N, C, H, W) or (N, H, W, C), in `compute`.

    Chroma and alpha come from the sources, copied or resampled, unless the model made colour of
    a YUV frame. `bad` (N int32, zeroed) gets a 1 where a frame's tensor holds NaN or infinity.
    """
    width, height = made_size(tensor, spec, len(sources))
    ready = device.event()
    made = empty_slot(device, sources, width, height, device.compute, ready)
    for source in sources:
        follow(source, device.compute)
    drain(device, tensor, spec, sources, made, bad, order)
    device.record(ready, device.compute)
    return made


def made_size(tensor: Array, spec: TensorSpec, count: int) -> tuple[int, int]:
    """(width, height) of the pictures in an output; ModelError if it holds no `count` pictures."""
    if tensor.ndim != 4 or tensor.shape[0] < count:
        raise ModelError(
            f"the model gives a tensor of shape {list(tensor.shape)} for {count} frames; "
            f"pictures have 4 dimensions"
        )
    rows, columns = host.output_size(tensor.shape, spec)
    return columns, rows


def drain(
    device: Device,
    tensor: Array,
    spec: TensorSpec,
    sources: Sequence[Frame],
    made: Sequence[Frame],
    bad: Array,
    order: str,
) -> None:
    """Fill the frames `made`, which share a block, from an output; see unpack."""
    channels = tensor.shape[1] if spec.layout is Layout.NCHW else tensor.shape[3]
    apart = _gap(made[0], made[1]) if len(made) > 1 else 0
    for start, length, step in runs(sources):
        part = slice(start, start + length)
        source, target = sources[start], made[start]
        unpack_planes(
            device, tensor[part], spec, source, target, bad[part], order, channels, step, apart
        )


def scale(device: Device, frame: Frame, width: int, height: int) -> Frame:
    """The frame at another size, each plane bicubic as libswscale does it, in `compute`."""
    form = known_format(frame.format)
    made = empty(device, frame.format, width, height, frame.meta, device.compute)
    follow(frame, device.compute)
    for index in range(len(frame.planes)):
        resize_plane(device, form, frame, made, index, 1, device.compute)
    return finished(device, made, device.compute)


def convert(device: Device, frame: Frame, form: str) -> Frame:
    """The frame in another sw_format through float32 RGB, in `compute`.

    RGB layouts among each other are exact; YUV goes through its tagged matrix and range.
    """
    if form == frame.format:
        return frame
    known_format(form)
    spec = TensorSpec("", (-1, -1, -1, 3), layout=Layout.NHWC)
    colour = pack(device, [frame], spec, "rgb", channels=3)
    made = empty(device, form, frame.width, frame.height, frame.meta, device.compute)
    bad = device.array(device.pool.take(4, device.compute), (1,), "int32")
    unpack_planes(device, colour, spec, frame, made, bad, "rgb", 3)
    return finished(device, made, device.compute)
