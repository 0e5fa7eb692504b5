"""Frames in GPU memory to tensors and back, and from one format or size to another.

The same steps as host.py, with kernels.cu in place of NumPy and its arithmetic and rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from . import color, host, taps
from .cuda import TILE, Device
from .cuda_frames import empty, empty_slot, finished, follow, known_format
from .errors import FormatError, ModelError
from .frame import Array, Frame, Layout, TensorSpec
from .pixfmt import Family, PixelFormat, pixel_format

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
    tensor = empty_tensor(device, frames[0], spec, channels, count, packed_channels)
    for frame in frames:
        follow(frame, device.compute)
    fill(device, tensor, [*frames, *[frames[-1]] * (count - len(frames))], spec, order, channels)
    return tensor


def empty_tensor(
    device: Device, frame: Frame, spec: TensorSpec, channels: int, count: int, packed: bool
) -> Array:
    """A new tensor for `count` frames like this one, for work in `compute`."""
    shape = (count, frame.height, frame.width, channels)
    itemsize = 4 if spec.dtype == "float32" else 2
    block = device.pool.take(int(np.prod(shape)) * itemsize, device.compute)
    if spec.layout is Layout.NHWC:
        return device.array(block, shape, spec.dtype)
    if packed:
        return device.array(block, shape, spec.dtype).transpose(0, 3, 1, 2)
    return device.array(block, (count, channels, frame.height, frame.width), spec.dtype)


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


def pack_planes(
    device: Device,
    frame: Frame,
    form: PixelFormat,
    tensor: Array,
    spec: TensorSpec,
    order: str,
    channels: int,
    stream: Any,
    step: int = 0,
) -> None:
    """Fill `tensor` (N, ...) from planes; frame n lies `step` bytes behind frame n - 1."""
    size = frame.width, frame.height
    target = _tensor_args(device, tensor, spec)
    norm = _norm(form, spec)
    count = tensor.shape[0]
    if channels == 1:
        if form.family is not Family.LUMA:
            raise FormatError(f"a model of one channel takes no {frame.format} frames")
        args = [*_plane(device, frame.planes[0], step), form.shift, *target, *norm, *size]
        grid = _grid(-(-frame.width // 4), frame.height, count)
        device.launch("pack_luma", form.dtype, spec.dtype, grid, args, stream)
        return
    grid = _grid(*size, count)
    if form.family is Family.PACKED:
        places = _places(form, order)
        plane = _plane(device, frame.planes[0], step)
        args = [*plane, form.components, *places, form.shift, *target, *norm, *size]
        device.launch("pack_packed", form.dtype, spec.dtype, grid, args, stream)
        return
    weights = _weights(frame, form)
    first, last = (2, 0) if order == "bgr" else (0, 2)
    args = [
        *_plane(device, frame.planes[0], step),
        *_plane(device, frame.planes[1], step),
        form.shift,
        *weights.numbers(),
        *target,
        first,
        last,
        *norm,
        *size,
    ]
    device.launch("pack_yuv", form.dtype, spec.dtype, grid, args, stream)


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


def unpack_planes(
    device: Device,
    tensor: Array,
    spec: TensorSpec,
    source: Frame,
    made: Frame,
    bad: Array,
    order: str,
    channels: int,
    in_step: int = 0,
    out_step: int = 0,
) -> None:
    """Fill the planes of `made` from `tensor` (N, ...) and what the model leaves from `source`."""
    form = pixel_format(made.format)
    stream = device.compute
    size = made.width, made.height
    origin = _tensor_args(device, tensor, spec)
    count = tensor.shape[0]
    flags = device.pointer(bad)
    if channels not in (1, 3) or (form.family is Family.PACKED and channels == 1):
        raise ModelError(
            f"the model gives {channels} channels; {made.format} needs {form.channels}"
        )
    if channels == 1:
        norm = _norm(form, spec)
        plane = _plane(device, made.planes[0], out_step)
        args = [*origin, *norm, *plane, form.shift, *size, flags]
        grid = _grid(-(-made.width // 4), made.height, count)
        device.launch("unpack_luma", form.dtype, spec.dtype, grid, args, stream)
        for index in range(1, len(form.plane_sizes(*size))):
            resize_plane(device, form, source, made, index, count, stream, in_step, out_step)
        return
    if form.family is Family.PACKED:
        _unpack_packed(
            device, form, origin, spec, source, made, flags, order, count, in_step, out_step
        )
        return
    _needs_interleaved(form)
    first, last = (2, 0) if order == "bgr" else (0, 2)
    args = [
        *origin,
        first,
        last,
        *_norm(form, spec, values=True),
        *_weights(source, form).numbers(),
        *_plane(device, made.planes[0], out_step),
        *_plane(device, made.planes[1], out_step),
        form.shift,
        *size,
        flags,
    ]
    grid = _grid(-(-made.width // 2), -(-made.height // 2), count)
    device.launch("unpack_yuv", form.dtype, spec.dtype, grid, args, stream)


def _unpack_packed(
    device: Device,
    form: PixelFormat,
    origin: Sequence[int],
    spec: TensorSpec,
    source: Frame,
    made: Frame,
    flags: int,
    order: str,
    count: int,
    in_step: int,
    out_step: int,
) -> None:
    same = (made.width, made.height) == (source.width, source.height)
    pad = next((i for i, name in enumerate(form.order) if name in "0a"), -1)
    alpha = [0, 0, 0]
    if form.alpha and source.format == made.format:
        if not same:
            raise FormatError(
                f"alpha of {made.format} frames cannot be enlarged on a GPU: use rgb24 or rgb0"
            )
        alpha = _plane(device, source.planes[0], in_step)
    args = [
        *origin,
        *_norm(form, spec),
        *_plane(device, made.planes[0], out_step),
        form.components,
        *_places(form, order),
        form.shift,
        pad,
        *alpha,
        made.width,
        made.height,
        flags,
    ]
    grid = _grid(made.width, made.height, count)
    device.launch("unpack_packed", form.dtype, spec.dtype, grid, args, device.compute)


def resize_plane(
    device: Device,
    form: PixelFormat,
    source: Frame,
    made: Frame,
    index: int,
    count: int,
    stream: Any,
    in_step: int = 0,
    out_step: int = 0,
) -> None:
    """Plane `index` of `made` from the source's: copied at the same size, else bicubic."""
    plane, target = source.planes[index], made.planes[index]
    components = plane.shape[2] if plane.ndim == 3 else 1
    if plane.shape == target.shape:
        width = int(np.prod(plane.shape[1:])) * plane.itemsize
        for number in range(count):
            device.copy(
                device.pointer(target) + number * out_step,
                target.strides[0],
                device.pointer(plane) + number * in_step,
                plane.strides[0],
                width,
                plane.shape[0],
                stream,
            )
        return
    across = taps.bicubic(plane.shape[1], target.shape[1], taps.ACROSS_BITS)
    down = taps.bicubic(plane.shape[0], target.shape[0], taps.DOWN_BITS)
    steps, top = taps.fine_steps(form.depth)
    args: list[int | float] = [
        *_plane(device, plane, in_step),
        plane.shape[1],
        plane.shape[0],
        *_plane(device, target, out_step),
        target.shape[1],
        target.shape[0],
        components,
        form.shift,
        float(form.peak),
        steps,
        top,
        device.pointer(device.table(across.first)),
        device.pointer(device.table(across.weights)),
        across.weights.shape[1],
        device.pointer(device.table(down.first)),
        device.pointer(device.table(down.weights)),
        down.weights.shape[1],
    ]
    grid = _grid(target.shape[1], target.shape[0], count)
    device.launch("resample", form.dtype, "float32", grid, args, stream)


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


# ---- kernel arguments ----------------------------------------------------------------------------


def _grid(columns: int, rows: int, count: int) -> tuple[int, int, int]:
    return -(-columns // TILE[0]), -(-rows // TILE[1]), count


def _plane(device: Device, plane: Array, step: int) -> list[int]:
    return [device.pointer(plane), plane.strides[0] // plane.itemsize, step // plane.itemsize]


def _tensor_args(device: Device, tensor: Array, spec: TensorSpec) -> list[int]:
    n, c, h, w = (stride // tensor.itemsize for stride in tensor.strides)
    if spec.layout is Layout.NHWC:
        c, h, w = w, c, h
    return [device.pointer(tensor), n, c, h, w]


def _norm(form: PixelFormat, spec: TensorSpec, *, values: bool = False) -> list[float]:
    """The Norm of kernels.cu: codes to tensor and back; `values` takes tensors to 0..1 only."""
    top = 1.0 if values else float(form.peak)
    return [
        float(np.float32(1 / form.peak)),
        255.0 / spec.scale,
        spec.mean / spec.scale,
        top * (spec.scale / 255.0),
        top * (spec.mean / 255.0),
        float(form.peak),
    ]


def _places(form: PixelFormat, order: str) -> tuple[int, int, int]:
    """Offsets in a pixel of the samples for the tensor's first, second and third channel."""
    colours = [name for name in form.order if name in "rgb"]
    wanted = list(order) if order else colours
    first, second, third = (form.order.index(name) for name in wanted)
    return first, second, third


def _weights(frame: Frame, form: PixelFormat) -> color.Weights:
    _needs_interleaved(form)
    template = frame.meta.template
    space = int(template.colorspace) if template is not None else 2
    span = int(template.color_range) if template is not None else 0
    return color.weights(space, span, form.depth)


def _needs_interleaved(form: PixelFormat) -> None:
    if not form.interleaved or form.log2_chroma != (1, 1):
        raise FormatError(
            f"{form.name} frames on a GPU have no way to RGB; nv12, p010le and RGB formats have: "
            f"put hwdownload before the filter, or use a luma model",
            wanted="nv12",
            got=form.name,
        )
