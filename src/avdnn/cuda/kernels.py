"""Launches of kernels.cu: planes of frames on one side, slices of tensors on the other.

Each call covers frames that lie a fixed number of bytes apart, in one launch for each kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import FormatError, ModelError
from ..frame import Array, Frame, Layout, TensorSpec
from ..pixfmt import Family, PixelFormat, pixel_format
from . import color, taps
from ._device import TILE, Device

RESAMPLED_ROWS = 8
"""Rows that a thread of `resample` makes: RUN in kernels.cu."""


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
    target = tensor_args(device, tensor, spec)
    norm = _norm(form, spec)
    count = tensor.shape[0]
    if channels == 1:
        if form.family is not Family.LUMA:
            raise FormatError(f"a model of one channel takes no {frame.format} frames")
        args = [*_plane(device, frame.planes[0], step), form.shift, *target, *norm, *size]
        grid = grid_for(-(-frame.width // 4), frame.height, count)
        device.launch("pack_luma", form.dtype, spec.dtype, grid, args, stream)
        return
    grid = grid_for(*size, count)
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
    origin = tensor_args(device, tensor, spec)
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
        grid = grid_for(-(-made.width // 4), made.height, count)
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
    grid = grid_for(-(-made.width // 2), -(-made.height // 2), count)
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
    grid = grid_for(made.width, made.height, count)
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
    grid = grid_for(target.shape[1], -(-target.shape[0] // RESAMPLED_ROWS), count)
    device.launch("resample", form.dtype, "float32", grid, args, stream)


# ---- kernel arguments ----------------------------------------------------------------------------


def grid_for(columns: int, rows: int, count: int) -> tuple[int, int, int]:
    """Blocks of threads for `count` pictures."""
    return -(-columns // TILE[0]), -(-rows // TILE[1]), count


def _plane(device: Device, plane: Array, step: int) -> list[int]:
    return [device.pointer(plane), plane.strides[0] // plane.itemsize, step // plane.itemsize]


def tensor_args(device: Device, tensor: Array, spec: TensorSpec) -> list[int]:
    """A tensor as TENSOR_OF takes it."""
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
