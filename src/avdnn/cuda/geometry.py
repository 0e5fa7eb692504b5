"""Where the samples of frames in GPU memory lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..pixfmt import PixelFormat

PITCH = 256
"""Rows of our own frames begin at multiples of this many bytes."""


class Plane(NamedTuple):
    """Samples of one plane in GPU memory: as an array's, but its shape and strides alone."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @property
    def ndim(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where the planes of a frame lie in one block: shapes, pitches and offsets in bytes.

    `used` bytes are taken, `size` with the step to a next frame.
    """

    shapes: tuple[tuple[int, ...], ...]
    pitches: tuple[int, ...]
    offsets: tuple[int, ...]
    size: int
    itemsize: int
    strides: tuple[tuple[int, ...], ...]
    used: int

    @property
    def places(self) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
        """Offset, shape and strides of each plane."""
        return zip(self.offsets, self.shapes, self.strides, strict=True)

    def widths(self) -> tuple[int, ...]:
        """Bytes of picture in a row of each plane."""
        return tuple(int(np.prod(shape[1:])) * self.itemsize for shape in self.shapes)


@lru_cache(maxsize=64)
def geometry(form: PixelFormat, width: int, height: int, pitch: int = PITCH) -> Geometry:
    """The layout of a frame; rows are padded to multiples of `pitch` bytes."""
    itemsize = np.dtype(form.dtype).itemsize
    pitches = []
    for index, (_, columns) in enumerate(form.plane_sizes(width, height)):
        used = columns * _components(form, index) * itemsize
        pitches.append(-(-used // pitch) * pitch)
    return laid_out(form, width, height, tuple(pitches))


@lru_cache(maxsize=64)
def laid_out(
    form: PixelFormat,
    width: int,
    height: int,
    pitches: tuple[int, ...],
    offsets: tuple[int, ...] = (),
) -> Geometry:
    """The layout with these pitches, the planes at `offsets` or one behind the other."""
    itemsize = np.dtype(form.dtype).itemsize
    shapes: list[tuple[int, ...]] = []
    strides: list[tuple[int, ...]] = []
    places: list[int] = []
    size = 0
    for index, (rows, columns) in enumerate(form.plane_sizes(width, height)):
        components = _components(form, index)
        inner = (components * itemsize, itemsize) if components > 1 else (itemsize,)
        shapes.append((rows, columns, components) if components > 1 else (rows, columns))
        strides.append((pitches[index], *inner))
        places.append(offsets[index] if offsets else size)
        size = max(size, places[-1] + pitches[index] * rows)
    step = -(-size // PITCH) * PITCH
    return Geometry(tuple(shapes), pitches, tuple(places), step, itemsize, tuple(strides), size)


def _components(form: PixelFormat, index: int) -> int:
    return 2 if form.interleaved and index == 1 else form.components
