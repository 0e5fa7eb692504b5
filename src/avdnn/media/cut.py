"""The part of a time line that is wanted: where 0 lies, and where it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import floor
from typing import Any

import av
import av.stream

from ..errors import UsageError
from ..job import OutputSpec
from ..versions import fraction
from .mapping import is_cover

MICROSECOND = Fraction(1, 1_000_000)
MILLISECOND = Fraction(1, 1000)
_PATIENCE = Fraction(1)
"""Seconds that interleaved streams may lag behind the video before a cut stops waiting."""


class Cut:
    """Moves copied packets to a new origin and leaves out what lies before it or after the end.

    `trims` says whether what is earlier than the origin is left out. `end` is seconds from the
    origin, or None. Sound that starts before the origin goes; a subtitle that is still shown
    then starts with the origin. Times are rounded to ticks as FFmpeg rounds them. `delay` seconds
    are added at last, by `place` and `delayed`.
    """

    def __init__(
        self,
        origin: Fraction,
        *,
        trims: bool,
        end: Fraction | None,
        delay: Fraction = Fraction(0),
    ) -> None:
        self.origin = origin
        self.delay = delay
        self.trims = trims
        self.end = end
        self._first: int | None = None
        self._moved: tuple[Fraction | None, int] = None, 0
        self._past_end: set[int] = set()
        self._reached = Fraction(0)

    def shift(self, pts: int, unit: Fraction) -> int:
        """A timestamp counted from the origin."""
        if self._moved[0] is not unit:
            self._moved = unit, _ticks(self.origin, unit)
        return pts - self._moved[1]

    def delayed(self, pts: int, unit: Fraction) -> int:
        """A shifted timestamp with the delay."""
        return pts + _ticks(self.delay, unit) if self.delay else pts

    def is_early(self, pts: int) -> bool:
        """Whether a shifted frame lies before the wanted part."""
        return self.trims and pts < 0

    def is_late(self, pts: int, unit: Fraction) -> bool:
        """Whether a shifted frame lies after the wanted part."""
        return self.end is not None and pts * unit >= self.end

    def is_enough(self, pts: int, unit: Fraction) -> bool:
        """Whether a shifted frame ends an input's -t, which FFmpeg counts from the first frame.

        Ask for every frame that is not early, in order.
        """
        if self._first is None:
            self._first = pts
        return self.end is not None and pts - self._first >= _ticks(self.end, unit)

    def place(self, packet: av.Packet[Any]) -> bool:
        """Shift a packet in place; False if it is not wanted."""
        unit = Fraction(packet.time_base)
        if is_cover(packet.stream):
            packet.pts = packet.dts = 0
            return True
        shift = _ticks(self.origin, unit)
        if packet.dts is not None:
            packet.dts -= shift
        if packet.pts is not None:
            packet.pts -= shift
        time = packet.dts if packet.pts is None else packet.pts
        if time is None:
            return True
        self._reached = max(self._reached, time * unit)
        if self.is_early(time):
            shown = time + (packet.duration or 0)
            if packet.stream.type != "subtitle" or shown <= 0:
                return False
            packet.pts = packet.dts = time = 0
            packet.duration = shown
        if self.is_late(time, unit):
            self._past_end.add(packet.stream_index)
            return False
        if packet.dts is not None:
            packet.dts = self.delayed(packet.dts, unit)
        if packet.pts is not None:
            packet.pts = self.delayed(packet.pts, unit)
        return True

    def limit(self, end: Fraction | None) -> None:
        """End no later than that, in seconds from the origin; None changes nothing."""
        if end is not None:
            self.end = end if self.end is None else min(end, self.end)

    def chapters(self, chapters: Iterable[Any], origin: Fraction) -> Iterator[Any]:
        """Those that lie in the wanted part, moved; `origin` is where their own 0 lies."""
        for chapter in chapters:
            unit = fraction(chapter["time_base"]) or MILLISECOND
            shift = _ticks(origin + self.origin, unit)
            start, end = max(0, chapter["start"] - shift), chapter["end"] - shift
            if end > 0 and not self.is_late(start, unit):
                yield chapter | {"start": start, "end": end}

    def is_over(self, streams: Iterable[av.stream.Stream], reached: Fraction) -> bool:
        """Whether, with the video past the end, the sound of `streams` is too.

        Sparse streams are not waited for, nor is sound that lags behind `reached`, the video's
        own position, by more than a second.
        """
        if self.end is None:
            return False
        sounds = {stream.index for stream in streams if stream.type == "audio"}
        late = max(self._reached, reached) > self.end + _PATIENCE
        return late or sounds <= self._past_end


def output_cut(spec: OutputSpec) -> Cut:
    """What -ss and -t after the input want; UsageError for a length, or -frames:v, of nothing."""
    start, end = seconds(spec.start), seconds(spec.duration)
    if spec.frames is not None and spec.frames < 1:
        raise UsageError(f"-frames:v {spec.frames}: must be 1 or more")
    if end is not None and end <= 0:
        raise UsageError(f"-t {spec.duration:g}: must be more than 0")
    return Cut(start or Fraction(0), trims=bool(start), end=end)


def seconds(value: float | None) -> Fraction | None:
    """A number of seconds as written, without the error of binary fractions."""
    return None if value is None else Fraction(str(value))


def _ticks(time: Fraction, unit: Fraction) -> int:
    """The nearest tick; a half goes away from zero."""
    count = floor(abs(time) / unit + Fraction(1, 2))
    return count if time >= 0 else -count
