"""Frames in GPU memory: where their planes lie, and how they come from FFmpeg and go to the host.

Every function puts work into a stream and returns; a frame's `ready` event says when its planes
are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import host
from ..errors import DeviceError, FormatError
from ..frame import Array, Frame, Meta
from ..pixfmt import PixelFormat, pixel_format
from ..properties import field_order, with_fields
from ._device import Device
from .blocks import Block, pinned_array
from .geometry import Geometry, Plane, geometry, laid_out

if TYPE_CHECKING:
    import av

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


def empty(device: Device, form: str, width: int, height: int, meta: Meta, stream: Any) -> Frame:
    """A new frame for work in `stream`; its `ready` is set by `finished`."""
    known = known_format(form)
    laid = geometry(known, width, height)
    block = device.pool.take(laid.size, stream)
    return frame_in(device, block, known, width, height, laid, 0, meta)


def empty_slot(
    device: Device, sources: Sequence[Frame], width: int, height: int, stream: Any, ready: Any
) -> list[Frame]:
    """New frames of the sources' format and times, one behind the other in one block.

    `ready` is the event that is to be recorded when they are filled.
    """
    known = known_format(sources[0].format)
    laid = geometry(known, width, height)
    block = device.pool.take(laid.size * len(sources), stream)
    return [
        frame_in(device, block, known, width, height, laid, number * laid.size, source.meta, ready)
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
    start, itemsize = block.pointer + base, laid.itemsize
    planes = tuple(
        [Plane(start + offset, shape, strides, itemsize) for offset, shape, strides in laid.places]
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
    laid = geometry(pixel_format(form), made.width, made.height)
    copy_surface(device, picture, made.owner, laid)
    return finished(device, made, device.decode)


def surface_geometry(form: PixelFormat, picture: Any) -> Geometry:
    """The layout of a decoder's surface, whose planes lie in one allocation as a rule.

    Kept as it is, a picture is one copy; surfaces of another make get our own layout.
    """
    planes = picture.planes
    first = planes[0].buffer_ptr
    offsets = tuple(plane.buffer_ptr - first for plane in planes)
    pitches = tuple(plane.line_size for plane in planes)
    laid = laid_out(form, picture.width, picture.height, pitches, offsets)
    own = geometry(form, picture.width, picture.height)
    whole = all(offset >= 0 for offset in offsets) and laid.size <= 2 * own.size
    return laid if whole else own


def copy_surface(device: Device, picture: Any, block: Block, laid: Geometry, base: int = 0) -> None:
    """Copy a hardware frame into a block at `base`, in the decoder's stream."""
    planes = picture.planes
    first = planes[0].buffer_ptr
    target = block.pointer + base
    for plane, pitch, offset in zip(planes, laid.pitches, laid.offsets, strict=True):
        if plane.line_size != pitch or plane.buffer_ptr - first != offset:
            break
    else:
        device.copy(target, laid.used, first, laid.used, laid.used, 1, device.decode)
        return
    for plane, shape, width, pitch, offset in zip(
        planes, laid.shapes, laid.widths(), laid.pitches, laid.offsets, strict=True
    ):
        source, rows = plane.buffer_ptr, shape[0]
        device.copy(target + offset, pitch, source, plane.line_size, width, rows, device.decode)


def upload(device: Device, frame: Frame) -> Frame:
    """A host frame's planes on the device; the host frame may be changed when this returns."""
    form = known_format(frame.format)
    meta = frame.meta
    if getattr(frame.owner, "interlaced_frame", False):
        meta = replace(meta, field_order=field_order(frame.owner))
    made = empty(device, frame.format, frame.width, frame.height, meta, device.copies)
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
            laid.shapes[index], form.dtype, view, laid.offsets[index], laid.strides[index]
        )
        np.copyto(target, plane)


@dataclass(frozen=True, slots=True, eq=False)
class Download:
    """Device memory of `source` from `start` on, on its way to pinned host memory."""

    source: Block
    start: int
    landed: Array
    event: Any

    def result(self, frame: Frame) -> Frame:
        """Wait for this copy alone; the host frame lies in the pinned memory itself."""
        self.event.synchronize()
        return host_frame(frame, self.landed, self.start)


def download(device: Device, frame: Frame, *, whole: bool = False) -> Download:
    """Start copying a frame, or the `whole` block that it shares, beside the device's other work.

    The block's frames must all be ready when this one is.
    """
    block: Block = frame.owner
    start, end = block.pointer, block.pointer + block.size
    if not whole:
        start = min(plane.pointer for plane in frame.planes)
        ends = (plane.pointer + plane.strides[0] * plane.shape[0] for plane in frame.planes)
        end = min(end, max(ends))
    size = end - start
    landing = device.pinned.take(size, device.copies)
    follow(frame, device.copies)
    device.copy(landing.pointer, size, start, size, size, 1, device.copies, way="down")
    return Download(block, start, pinned_array(landing, size), device.mark(device.copies))


def to_host(device: Device, frame: Frame) -> Frame:
    """The frame in host memory, now; for single frames outside the loop."""
    return download(device, frame).result(frame)


def host_frame(source: Frame, landed: Array, start: int) -> Frame:
    """A host frame over pinned memory that holds the device's from `start` on.

    Where FFmpeg cannot wrap it, it is a copy in FFmpeg's own memory.
    """
    form = pixel_format(source.format)
    planes = tuple(
        [
            np.ndarray(plane.shape, form.dtype, landed, plane.pointer - start, plane.strides)
            for plane in source.planes
        ]
    )
    meta = source.meta
    if source.format in WRAPPED and source.width % 2 == 0 and source.height % 2 == 0:
        own = Landed(planes, source.format, meta)
        return Frame(planes, source.format, source.width, source.height, meta, own)
    made = host.empty(source.format, source.width, source.height, meta)
    for target, plane in zip(made.planes, planes, strict=True):
        np.copyto(target, plane)
    return made


class Landed:
    """The pinned memory of a host frame, which FFmpeg wraps when it is asked for.

    Wrapping costs more than all else that is done for a frame on its way.
    """

    __slots__ = ("_form", "_made", "_meta", "_planes")

    def __init__(self, planes: tuple[Array, ...], form: str, meta: Meta) -> None:
        self._planes = planes
        self._form = form
        self._meta = meta
        self._made: av.VideoFrame | None = None

    def picture(self) -> av.VideoFrame:
        """The av frame over this memory, with the stream's colour tags and order of fields."""
        if self._made is None:
            import av

            made = av.VideoFrame.from_dlpack(self._planes, format=self._form)
            made = tagged(made, self._meta.template)
            self._made = with_fields(made, self._meta.field_order)
        return self._made


WRAPPED = frozenset(("nv12", "p010le", "p016le"))
"""Formats of which FFmpeg takes memory that is not its own."""

_UNTAGGED = {"color_range": 0, "colorspace": 2, "color_primaries": 2, "color_trc": 2}
_tags: tuple[Any, tuple[tuple[str, int], ...]] = (None, ())


def colour_tags(template: Any) -> tuple[tuple[str, int], ...]:
    """The colour properties that a frame has beyond an untagged one; kept for the last template."""
    global _tags
    last, tags = _tags
    if template is not last:
        told = {name: int(getattr(template, name)) for name in _UNTAGGED} if template else {}
        tags = tuple((name, value) for name, value in told.items() if value != _UNTAGGED[name])
        _tags = template, tags
    return tags


def tagged(picture: av.VideoFrame, template: Any) -> av.VideoFrame:
    """A new av frame with the template's colour properties."""
    for name, value in colour_tags(template):
        setattr(picture, name, value)
    return picture


def same_device(device: Device, frames: Sequence[Frame]) -> None:
    """DeviceError where a frame lies on another GPU than the model."""
    for frame in frames:
        if frame.device != device.label:
            raise DeviceError(
                f"the frames are on {frame.device} and the model is on {device.label}: give "
                f"-hwaccel_device and device= the same GPU",
                device=device.label,
            )
