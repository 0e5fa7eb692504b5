"""Rows of a tensor that pass through a network: blocks, and the window that is still needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from ._native_model import Floats


class Size(NamedTuple):
    """The size of one picture inside a network."""

    channels: int
    height: int
    width: int


class Span(NamedTuple):
    """Rows lo up to, not including, hi."""

    lo: int
    hi: int


@dataclass(frozen=True, slots=True)
class Block:
    """Some rows of a picture: `data` is (channels, rows, width), its first row is row `first`."""

    first: int
    data: Floats

    @property
    def end(self) -> int:
        return self.first + int(self.data.shape[1])

    def within(self, span: Span) -> Block | None:
        """The part of the block inside `span`."""
        lo, hi = max(self.first, span.lo), min(self.end, span.hi)
        if lo >= hi:
            return None
        if (lo, hi) == (self.first, self.end):
            return self
        return Block(lo, self.data[:, lo - self.first : hi - self.first])


Push: TypeAlias = Callable[[Sequence[Block | None]], Block | None]
"""Takes the next rows of each source, in order, and gives the rows that they complete."""


class Step(Protocol):
    """How one layer runs over rows.

    `open` starts a pass that gives exactly the rows `span`; its caller pushes, from the top, the
    rows that `needs(span)` names. Blocks that it gives belong to the caller, unchanged later.
    """

    def size(self, sources: Sequence[Size]) -> Size:
        """The size of the result; ModelError if the layer cannot take such sources."""

    def needs(self, span: Span, source: Size) -> Span:
        """The source's rows that the result's rows `span` depend on."""

    def open(self, sources: Sequence[Size], span: Span) -> Push:
        """Start a pass over the rows `span` of the result."""


class Window:
    """The rows first up to, not including, end of a picture, in a buffer that slides along."""

    def __init__(self, channels: int, width: int, first: int) -> None:
        self._buffer: Floats = np.empty((channels, 0, width), np.float32)
        self._at = 0
        self.first = first
        self.end = first

    def grow(self, rows: int) -> Floats:
        """Add rows at the end and return them, to be filled."""
        held = self.end - self.first
        channels, capacity, width = self._buffer.shape
        if self._at + held + rows > capacity:
            kept = self.rows(self.first, self.end)
            if 4 * (held + rows) > 3 * capacity:
                self._buffer = np.empty((channels, 2 * (held + rows), width), np.float32)
            self._buffer[:, :held] = kept
            self._at = 0
        self.end += rows
        return self.rows(self.end - rows, self.end)

    def rows(self, lo: int, hi: int) -> Floats:
        """A view of rows that the window holds."""
        shift = self._at - self.first
        return self._buffer[:, lo + shift : hi + shift]

    def drop(self, lo: int) -> None:
        """Forget the rows before `lo`."""
        lo = min(max(lo, self.first), self.end)
        self._at += lo - self.first
        self.first = lo
