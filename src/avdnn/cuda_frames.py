"""Frames in GPU memory: where their planes lie, and how they come from FFmpeg and go to the host.

Every function puts work into a stream and returns; a frame's `ready` event says when its planes
are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import host
from .blocks import Block
from .cuda import Device, pinned_array
from .errors import DeviceError, FormatError
from .frame import Array, Frame, Meta
from .pixfmt import PixelFormat, pixel_format

PITCH = 256
"""Rows of our own frames begin at multiples of this many bytes."""

FROM_DECODER = ("nv12", "p010le", "p016le", "p012le", "yuv444p", "yuv444p16le", "nv16", "p210le")
UPLOADED = ("rgb24", "bgr24", "rgb0", "bgr0", "0rgb", "0bgr", "rgba", "bgra", "argb", "abgr")
FORMATS = frozenset((*FROM_DECODER, *UPLOADED, "gray", "yuv420p", "yuv422p"))
"""sw_formats that device frames may have."""


def known_format(name: str) -> PixelFormat:
    """The format of device frames of that sw_format; FormatError lists those there are."""
    if name not in FORMATS:
        raise FormatError(
            f"frames on a GPU cannot be {name}; they can be {', '.join(sorted(FORMATS))}: put "
            f"format= before hwupload",
            wanted="|".join(sorted(FORMATS)),
            got=name,
        )
    return pixel_format(name)


# ---- memory -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where the planes of a frame lie in one block: shapes, pitches and offsets in bytes."""

    shapes: tuple[tuple[int, ...], ...]
    pitches: tuple[int, ...]
    offsets: tuple[int, ...]
    size: int
    itemsize: int

    def widths(self) -> tuple[int, ...]:
        """Bytes of picture in a row of each plane."""
        return tuple(int(np.prod(shape[1:])) * self.itemsize for shape in self.shapes)

    def strides(self, index: int) -> tuple[int, ...]:
        """Strides in bytes of plane `index`."""
        shape = self.shapes[index]
        inner = (shape[2] * self.itemsize, self.itemsize) if len(shape) == 3 else (self.itemsize,)
        return (self.pitches[index], *inner)


def geometry(form: PixelFormat, width: int, height: int, pitch: int = PITCH) -> Geometry:
    """The layout of a frame; rows are padded to multiples of `pitch` bytes."""
    itemsize = np.dtype(form.dtype).itemsize
    shapes: list[tuple[int, ...]] = []
    pitches, offsets, size = [], [], 0
    for index, (rows, columns) in enumerate(form.plane_sizes(width, height)):
        components = 2 if form.interleaved and index == 1 else form.components
        shapes.append((rows, columns, components) if components > 1 else (rows, columns))
        pitches.append(-(-columns * components * itemsize // pitch) * pitch)
        offsets.append(size)
        size += pitches[-1] * rows
    return Geometry(tuple(shapes), tuple(pitches), tuple(offsets), size, itemsize)


def empty(device: Device, form: str, width: int, height: int, meta: Meta, stream: Any) -> Frame:
    """A new frame for work in `stream`; its `ready` is set by `finished`."""
    known = known_format(form)
    laid = geometry(known, width, height)
    block = device.pool.take(laid.size, stream)
    return frame_in(device, block, known, width, height, laid, 0, meta)


def empty_slot(
    device: Device, sources: Sequence[Frame], width: int, height: int, stream: Any
) -> list[Frame]:
    """New frames of the sources' format and times, one behind the other in one block."""
    known = known_format(sources[0].format)
    laid = geometry(known, width, height)
    block = device.pool.take(laid.size * len(sources), stream)
    return [
        frame_in(device, block, known, width, height, laid, number * laid.size, source.meta)
        for number, source in enumerate(sources)
    ]


def frame_in(
    device: Device,
    block: Block,
    form: PixelFormat,
    width: int,
    height: int,
    laid: Geometry,
    base: int,
    meta: Meta,
    ready: Any = None,
) -> Frame:
    """The frame that lies in a block at `base`."""
    planes = tuple(
        device.array(block, shape, form.dtype, laid.strides(index), base + laid.offsets[index])
        for index, shape in enumerate(laid.shapes)
    )
    return Frame(planes, form.name, width, height, meta, block, ready, device.label)


def finished(device: Device, frame: Frame, stream: Any) -> Frame:
    """The frame with an event behind what is in `stream` now."""
    return replace(frame, ready=device.mark(stream))


def follow(frame: Frame, stream: Any) -> None:
    """Let work that is put into `stream` from now on read the frame."""
    if frame.ready is not None:
        stream.wait_event(frame.ready)
    frame.owner.touch(stream)


# ---- borders ------------------------------------------------------------------------------------


def from_av(device: Device, picture: Any, meta: Meta) -> Frame:
    """A decoded hardware frame, copied once within the device, in the decoder's own stream.

    The surface may be dropped at once: whatever the decoder writes into it next is behind the
    copy in the same stream.
    """
    form = picture.sw_format.name
    made = empty(device, form, picture.width, picture.height, meta, device.decode)
    copy_surface(device, picture, made.owner, geometry(pixel_format(form), made.width, made.height))
    return finished(device, made, device.decode)


def copy_surface(device: Device, picture: Any, block: Block, laid: Geometry, base: int = 0) -> None:
    """Copy a hardware frame's planes into a block at `base`, in the decoder's stream."""
    for plane, rows, width, pitch, offset in zip(
        picture.planes,
        (shape[0] for shape in laid.shapes),
        laid.widths(),
        laid.pitches,
        laid.offsets,
        strict=True,
    ):
        device.copy(
            block.pointer + base + offset,
            pitch,
            plane.buffer_ptr,
            plane.line_size,
            width,
            rows,
            device.decode,
        )


def upload(device: Device, frame: Frame) -> Frame:
    """A host frame's planes on the device; the host frame may be changed when this returns."""
    form = known_format(frame.format)
    made = empty(device, frame.format, frame.width, frame.height, frame.meta, device.copies)
    laid = geometry(form, frame.width, frame.height)
    staged = device.pinned.take(laid.size)
    view = pinned_array(staged, laid.size)
    _fill(view, laid, frame.planes, form)
    device.copy(
        made.owner.pointer,
        laid.size,
        staged.pointer,
        laid.size,
        laid.size,
        1,
        device.copies,
        way="up",
    )
    staged.touch(device.copies)
    return finished(device, made, device.copies)


def _fill(view: Array, laid: Geometry, planes: Sequence[Array], form: PixelFormat) -> None:
    for index, plane in enumerate(planes):
        target = np.ndarray(
            laid.shapes[index], form.dtype, view, laid.offsets[index], laid.strides(index)
        )
        np.copyto(target, plane)


@dataclass(frozen=True, slots=True, eq=False)
class Download:
    """A block of device frames on its way to pinned host memory, as a whole."""

    source: Block
    base: int
    block: Block
    event: Any

    def result(self, frame: Frame, base: int) -> Frame:
        """Wait for this copy alone; the host frame lies in the pinned memory itself."""
        self.event.synchronize()
        laid = geometry(pixel_format(frame.format), frame.width, frame.height)
        return host_frame(frame, self.block, laid, base)


def download(device: Device, frame: Frame, *, whole: bool = False) -> Download:
    """Start copying a frame, or the `whole` block that it shares, beside the device's other work.

    The block's frames must all be ready when this one is.
    """
    laid = geometry(pixel_format(frame.format), frame.width, frame.height)
    base = 0 if whole else device.pointer(frame.planes[0]) - frame.owner.pointer
    size = frame.owner.size if whole else laid.size
    block = device.pinned.take(size, device.copies)
    follow(frame, device.copies)
    source = frame.owner.pointer + base
    device.copy(block.pointer, size, source, size, size, 1, device.copies, way="down")
    return Download(frame.owner, base, block, device.mark(device.copies))


def to_host(device: Device, frame: Frame) -> Frame:
    """The frame in host memory, now; for single frames outside the loop."""
    return download(device, frame).result(frame, 0)


def host_frame(source: Frame, block: Block, laid: Geometry, base: int = 0) -> Frame:
    """A host frame over pinned memory; where FFmpeg cannot wrap it, a copy in FFmpeg's own."""
    import av

    form = pixel_format(source.format)
    whole = pinned_array(block, block.size)
    planes = tuple(
        np.ndarray(shape, form.dtype, whole, base + laid.offsets[index], laid.strides(index))
        for index, shape in enumerate(laid.shapes)
    )
    even = source.width % 2 == 0 and source.height % 2 == 0
    if source.format in ("nv12", "p010le", "p016le") and even:
        picture = av.VideoFrame.from_dlpack(planes, format=source.format)
        for name in ("color_range", "colorspace", "color_primaries", "color_trc"):
            if source.meta.template is not None:
                setattr(picture, name, getattr(source.meta.template, name))
        return replace(source, planes=planes, owner=picture, ready=None, device="cpu")
    made = host.empty(source.format, source.width, source.height, source.meta)
    for target, plane in zip(made.planes, planes, strict=True):
        np.copyto(target, plane)
    return made


def same_device(device: Device, frames: Sequence[Frame]) -> None:
    """DeviceError where a frame lies on another GPU than the model."""
    for frame in frames:
        if frame.device != device.label:
            raise DeviceError(
                f"the frames are on {frame.device} and the model is on {device.label}: give "
                f"-hwaccel_device and device= the same GPU",
                device=device.label,
            )
