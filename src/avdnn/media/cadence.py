"""Constant frame rate by repeating and dropping whole frames."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import floor
from typing import Generic, TypeVar

T = TypeVar("T")


class Cadence(Generic[T]):
    """Puts frames into slots of 1/rate seconds, the rule of FFmpeg's fps filter.

    A slot shows the newest frame whose time, rounded to a slot, has come. The last frame lasts
    as long as its own duration says, and for one slot at least if it is the only one.
    """

    def __init__(self, rate: Fraction) -> None:
        self.rate = rate
        self.repeated = 0
        self.dropped = 0
        self._held: T | None = None
        self._slot = 0
        self._end = Fraction(0)
        self._any = False

    def push(self, frame: T, time: Fraction, duration: Fraction) -> Iterator[tuple[T, int]]:
        """The frame before, once for every slot (its number is given) that it fills."""
        slot = self._nearest(time)
        if self._held is None:
            self._slot = slot
        else:
            yield from self._fill(slot)
        self._held, self._end = frame, time + duration

    def flush(self) -> Iterator[tuple[T, int]]:
        """The last frame."""
        last = self._nearest(self._end)
        if not self._any:
            last = max(last, self._slot + 1)
        yield from self._fill(last)
        self._held = None

    def _fill(self, until: int) -> Iterator[tuple[T, int]]:
        if self._held is None:
            return
        count = until - self._slot
        if count <= 0:
            self.dropped += 1
            return
        self.repeated += count - 1
        self._any = True
        while self._slot < until:
            yield self._held, self._slot
            self._slot += 1

    def _nearest(self, time: Fraction) -> int:
        return floor(time * self.rate + Fraction(1, 2))


def frame_rate(text: str) -> Fraction | None:
    """A rate as FFmpeg writes it (25, 29.97, 30000/1001, ntsc), or None."""
    named = _NAMED.get(text.lower())
    if named:
        return named
    try:
        rate = Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None
    return rate if rate > 0 else None


_NAMED = {
    "ntsc": Fraction(30000, 1001),
    "pal": Fraction(25),
    "film": Fraction(24),
    "ntsc-film": Fraction(24000, 1001),
}
