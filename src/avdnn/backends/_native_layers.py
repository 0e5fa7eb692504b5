"""How each layer of a native network runs over rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from ._native_conv import Conv, Frame
from ._native_maths import maths
from ._native_model import (
    AvgPool,
    Conv2d,
    Dense,
    DepthToSpace,
    Floats,
    Layer,
    MathBinary,
    MathUnary,
    Maximum,
    MirrorPad,
    Padding,
    PadMode,
)
from ._native_rows import Block, Push, Size, Span, Step, Window


def step(layer: Layer) -> Step:
    """The way to run a layer."""
    match layer:
        case Conv2d():
            return Conv(layer)
        case Dense():
            return Conv.dense(layer)
        case DepthToSpace():
            return _DepthToSpace(layer)
        case MirrorPad():
            return _MirrorPad(layer)
        case AvgPool():
            return _AvgPool(layer)
        case Maximum() | MathUnary() | MathBinary():
            return maths(layer)
    raise TypeError(f"no such layer: {layer!r}")


class _DepthToSpace:
    """Channels become blocks of pixels."""

    def __init__(self, layer: DepthToSpace) -> None:
        self.block = layer.block

    def size(self, sources: Sequence[Size]) -> Size:
        channels, height, width = sources[0]
        if channels % self.block**2:
            raise ModelError(
                f"{channels} channels cannot become blocks of {self.block}x{self.block} pixels"
            )
        return Size(channels // self.block**2, height * self.block, width * self.block)

    def needs(self, span: Span, source: Size) -> Span:
        return Span(span.lo // self.block, -(-span.hi // self.block))

    def open(self, sources: Sequence[Size], span: Span) -> Push:
        size, (channels, _, width) = self.block, self.size(sources)

        def push(blocks: Sequence[Block | None]) -> Block | None:
            block = blocks[0]
            if block is None:
                return None
            rows = block.end - block.first
            parts = block.data.reshape(size, size, channels, rows, -1).transpose(2, 3, 0, 4, 1)
            data = parts.reshape(channels, rows * size, width)
            return Block(block.first * size, data).within(span)

        return push


class _MirrorPad:
    """Borders filled from the picture's own rows, columns and channels."""

    def __init__(self, layer: MirrorPad) -> None:
        self.mode = layer.mode
        self.batch, self.height, self.width, self.channels = layer.paddings

    def size(self, sources: Sequence[Size]) -> Size:
        if self.batch != (0, 0):
            raise ModelError(f"padding of the batch by {self.batch} is not possible")
        channels, height, width = sources[0]
        return Size(
            len(self.table(self.channels, channels)),
            len(self.table(self.height, height)),
            len(self.table(self.width, width)),
        )

    def table(self, pads: tuple[int, int], size: int) -> NDArray[np.intp]:
        """For each index of the result the one of the source, -1 for a zero."""
        before, after = pads
        if self.mode is PadMode.CONSTANT:
            index = np.arange(-before, size + after)
            return np.where((index < 0) | (index >= size), -1, index)
        reflect = self.mode is PadMode.REFLECT
        if max(pads) > size - reflect:
            raise ModelError(f"{size} rows, columns or channels cannot be mirrored by {max(pads)}")
        top = np.arange(before, 0, -1) - (not reflect)
        bottom = size - 1 - reflect - np.arange(after)
        return np.concatenate((top, np.arange(size), bottom))

    def needs(self, span: Span, source: Size) -> Span:
        index = self.table(self.height, source.height)[span.lo : span.hi]
        index = index[index >= 0]
        return Span(int(index.min()), int(index.max()) + 1) if len(index) else Span(0, 1)

    def open(self, sources: Sequence[Size], span: Span) -> Push:
        source = sources[0]
        window = Window(source.channels, source.width, self.needs(span, source).lo)
        rows = self.table(self.height, source.height)[span.lo : span.hi]
        columns = _line(self.table(self.width, source.width))
        channels = _line(self.table(self.channels, source.channels))
        # What must have come before a row is ready, and what must stay for those after it.
        ready = np.maximum.accumulate(rows) + 1
        kept = np.where(rows < 0, source.height, rows)
        kept = np.minimum.accumulate(kept[::-1])[::-1]
        done = 0

        def push(blocks: Sequence[Block | None]) -> Block | None:
            nonlocal done
            block = blocks[0]
            if block is None:
                return None
            window.grow(block.end - block.first)[...] = block.data
            lo, done = done, int(np.searchsorted(ready, window.end, "right"))
            if lo == done:
                return None
            held = window.rows(window.first, window.end)
            index = _line(np.where(rows[lo:done] < 0, -1, rows[lo:done] - window.first))
            found = _take(_take(_take(held, index, 1), columns, 2), channels, 0)
            window.drop(int(kept[done]) if done < len(kept) else window.end)
            return Block(span.lo + lo, found)

        return push


Line: TypeAlias = slice | NDArray[np.intp]


def _line(index: NDArray[np.intp]) -> Line:
    """The index as a slice where it is one."""
    lo, hi = int(index[0]), int(index[-1]) + 1
    whole = hi - lo == len(index) and lo >= 0 and bool((np.diff(index) == 1).all())
    return slice(lo, hi) if whole else index


def _take(data: Floats, index: Line, axis: int) -> Floats:
    """Gather along an axis; index -1 gives zeros."""
    if isinstance(index, slice):
        return data if axis != 1 else data[:, index].copy()
    found: Floats = np.take(data, index, axis)
    if index.min() < 0:
        np.moveaxis(found, axis, 0)[index < 0] = 0
    return found


class _AvgPool:
    """The mean of the pixels under a square, those outside the picture not counted."""

    def __init__(self, layer: AvgPool) -> None:
        self.square, self.stride = layer.size, layer.stride
        self.same = layer.padding is Padding.SAME

    def size(self, sources: Sequence[Size]) -> Size:
        channels, height, width = sources[0]
        lost = 0 if self.same else self.square - 1
        if min(height, width) <= lost:
            raise ModelError(
                f"a picture of {width}x{height} is too small for a mean over {self.square}"
            )
        return Size(channels, -((lost - height) // self.stride), -((lost - width) // self.stride))

    def before(self, size: int) -> int:
        """Rows or columns that the first square lies outside."""
        missing = self.square - ((size - 1) % self.stride + 1)
        return max(missing, 0) // 2 if self.same else 0

    def after(self, size: int, result: int) -> int:
        """Rows or columns that the last square lies outside."""
        return max((result - 1) * self.stride + self.square - size - self.before(size), 0)

    def needs(self, span: Span, source: Size) -> Span:
        top = self.before(source.height)
        lo, hi = span.lo * self.stride - top, (span.hi - 1) * self.stride + self.square - top
        return Span(max(lo, 0), min(hi, source.height))

    def counts(self, source: int, span: Span) -> Floats:
        """How many rows or columns of the source each square in `span` covers."""
        start = np.arange(span.lo, span.hi) * self.stride - self.before(source)
        end = np.minimum(start + self.square, source)
        return (end - np.maximum(start, 0)).astype(np.float32)

    def open(self, sources: Sequence[Size], span: Span) -> Push:
        source, result = sources[0], self.size(sources)
        top, left = self.before(source.height), self.before(source.width)
        bottom = self.after(source.height, result.height)
        right = self.after(source.width, result.width)
        frame = Frame(top, bottom, left, right, edge=False)
        across = self.counts(source.width, Span(0, result.width))
        first = self.needs(span, source).lo
        framed_width = frame.width(source.width)
        window = Window(source.channels, framed_width, first + top if first else 0)
        done = span.lo

        def push(blocks: Sequence[Block | None]) -> Block | None:
            nonlocal done
            block = blocks[0]
            if block is None:
                return None
            framed = window.grow(frame.rows(block, source.height))
            frame.put(block, source.height, framed)
            ready = min(span.hi, (window.end - self.square) // self.stride + 1)
            if ready <= done:
                return None
            span_done = Span(done, ready)
            total = self.total(window, span_done, result)
            area = self.counts(source.height, span_done)[:, None] * across
            done = ready
            window.drop(done * self.stride)
            return Block(span_done.lo, total / area)

        return push

    def total(self, window: Window, span: Span, result: Size) -> Floats:
        """Sums in FFmpeg's order, so that they round as FFmpeg's do."""
        shape = (result.channels, span.hi - span.lo, result.width)
        total = np.zeros(shape, np.float32)
        for y in range(self.square):
            lo = span.lo * self.stride + y
            lines = window.rows(lo, lo + (shape[1] - 1) * self.stride + 1)[:, :: self.stride]
            for x in range(self.square):
                stop = x + (result.width - 1) * self.stride + 1
                total += lines[:, :, x : stop : self.stride]
        return total
