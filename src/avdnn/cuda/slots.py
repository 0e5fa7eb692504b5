"""Pictures of a decoder, copied out of its surfaces into slots of device memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
from av.video.reformatter import VideoReformatter

from ..errors import DeviceError
from ..media.cut import MICROSECOND
from ..pixfmt import pixel_format
from ..properties import field_order
from ._device import Device
from .blocks import Block
from .frames import copy_surface, known_format, surface_geometry
from .geometry import Geometry


@dataclass(slots=True)
class Stamp:
    """The times of a picture whose surface has gone back to the decoder."""

    pts: int | None
    dts: int | None
    duration: int | None
    time_base: Fraction = MICROSECOND
    interlaced: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """Pictures of one kind that lie one behind the other in a block; `field_order` is that of
    those that are interlaced."""

    block: Block
    form: str
    width: int
    height: int
    laid: Geometry
    stamps: tuple[Stamp, ...]
    template: Any
    ready: Any
    field_order: int = 0


class Slots:
    """Copies each picture of a decoder into the next place of a slot, in the decoder's stream.

    The surface goes back at once: what the decoder writes into it next comes behind the copy in
    the same stream.
    """

    def __init__(self, device: Device, frames: int) -> None:
        self._device = device
        self._frames = frames
        self._kind: tuple[str, int, int] | None = None
        self._laid: Geometry
        self._block: Block | None = None
        self._stamps: list[Stamp] = []
        self._template: Any = None
        self._tags: tuple[Any, ...] = ()
        self._field_order = 0

    def add(self, picture: av.VideoFrame) -> Iterator[Slot]:
        """Copy a picture; yields the slot that it fills, or that it does not fit."""
        form: Any = picture.sw_format
        if form is None:
            raise DeviceError("the decoder gave a frame in host memory, not on the GPU")
        kind, tags = (form.name, picture.width, picture.height), _tags(picture)
        if kind != self._kind or tags != self._tags:
            yield from self.flush()
            self._kind, self._tags = kind, tags
            known_format(form.name)
            self._laid = surface_geometry(pixel_format(form.name), picture)
            self._template = picture
        if self._block is None:
            size = self._laid.size * self._frames
            self._block = self._device.pool.take(size, self._device.decode)
        base = self._laid.size * len(self._stamps)
        copy_surface(self._device, picture, self._block, self._laid, base)
        stamp = Stamp(picture.pts, picture.dts, picture.duration)
        stamp.interlaced = picture.interlaced_frame
        if stamp.interlaced and not self._field_order:
            self._field_order = surface_field_order(self._device, picture)
        self._stamps.append(stamp)
        if len(self._stamps) == self._frames:
            yield from self.flush()

    def flush(self) -> Iterator[Slot]:
        """The slot as far as it is filled."""
        if self._block is None or self._kind is None:
            return
        ready = self._device.mark(self._device.decode)
        block, stamps = self._block, tuple(self._stamps)
        self._block, self._stamps = None, []
        yield Slot(block, *self._kind, self._laid, stamps, self._template, ready, self._field_order)


def _tags(picture: av.VideoFrame) -> tuple[Any, ...]:
    return (
        picture.colorspace,
        picture.color_range,
        picture.color_primaries,
        picture.color_trc,
    )


def surface_field_order(device: Device, picture: av.VideoFrame) -> int:
    """FFmpeg's number for the order of a surface's fields, asked of a small copy in host memory."""
    device.traffic.down += sum(plane.buffer_size for plane in picture.planes)
    small = VideoReformatter().reformat(
        picture, width=16, height=16, format="gray", interpolation="POINT", threads=1
    )
    return field_order(small)
