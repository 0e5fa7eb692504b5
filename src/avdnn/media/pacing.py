"""The times that frames are encoded with: their own, or those of a constant rate."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Protocol

import av

from ..errors import UsageError
from ..job import OutputSpec
from .cadence import Cadence, frame_rate

_CONSTANT_RATE = frozenset(
    {"avi", "dv", "mpeg", "mxf", "svcd", "vcd", "dvd", "vob", "yuv4mpegpipe", "ivf"}
)
"""Containers that count frames instead of storing times."""

_COARSE_CLOCK = frozenset({"h261", "h263", "h263p", "mpeg1video", "mpeg2video", "mpeg4", "dvvideo"})
"""Encoders that cannot count in the fine time bases that containers use."""


def constant_rate(
    spec: OutputSpec, form: str, codec: str, nominal: Fraction | None
) -> Fraction | None:
    """The constant rate to keep, or None for the frames' own times; `nominal` is the source's."""
    if spec.rate:
        rate = frame_rate(spec.rate)
        if rate is None:
            raise UsageError(f"-r {spec.rate}: not a frame rate, such as 25 or 30000/1001")
        return rate
    if form in _CONSTANT_RATE or codec in _COARSE_CLOCK:
        return nominal or Fraction(25)
    return None


class Pace(Protocol):
    """Turns frames, each with its time and duration in seconds, into frames to encode.

    `unit` is the time base of what comes out. A frame that comes out twice is the same object,
    so that it has to be encoded before the next is asked for.
    """

    unit: Fraction

    def push(
        self, picture: av.VideoFrame, time: Fraction, duration: Fraction
    ) -> Iterator[av.VideoFrame]: ...

    def flush(self) -> Iterator[av.VideoFrame]: ...

    @property
    def note(self) -> str:
        """What was changed, as a sentence, or ""."""
        ...


class OwnTimes:
    """Every frame once, at its own time."""

    note = ""

    def __init__(self, unit: Fraction) -> None:
        self.unit = unit

    def push(
        self, picture: av.VideoFrame, time: Fraction, duration: Fraction
    ) -> Iterator[av.VideoFrame]:
        yield picture

    def flush(self) -> Iterator[av.VideoFrame]:
        yield from ()


class Counted:
    """Every frame once, at its number: for formats that store no times."""

    note = ""

    def __init__(self, rate: Fraction) -> None:
        self.unit = 1 / rate
        self._count = 0

    def push(
        self, picture: av.VideoFrame, time: Fraction, duration: Fraction
    ) -> Iterator[av.VideoFrame]:
        yield _at(picture, self._count, self.unit)
        self._count += 1

    def flush(self) -> Iterator[av.VideoFrame]:
        yield from ()


class ConstantRate:
    """Frames repeated and dropped to fill the slots of a constant rate."""

    def __init__(self, rate: Fraction) -> None:
        self.unit = 1 / rate
        self._cadence: Cadence[av.VideoFrame] = Cadence(rate)

    def push(
        self, picture: av.VideoFrame, time: Fraction, duration: Fraction
    ) -> Iterator[av.VideoFrame]:
        for held, slot in self._cadence.push(picture, time, duration or self.unit):
            yield _at(held, slot, self.unit)

    def flush(self) -> Iterator[av.VideoFrame]:
        for held, slot in self._cadence.flush():
            yield _at(held, slot, self.unit)

    @property
    def note(self) -> str:
        changed = self._cadence
        if not changed.repeated and not changed.dropped:
            return ""
        return (
            f"constant rate {changed.rate}: {changed.repeated} frames repeated, "
            f"{changed.dropped} dropped"
        )


def choose_pace(
    constant: Fraction | None, nominal: Fraction | None, unit: Fraction, *, timed: bool
) -> Pace:
    """A constant rate if there is one, else the frames' own times in `unit`, else their numbers.

    `timed` tells whether the container stores times.
    """
    if constant is not None:
        return ConstantRate(constant)
    return OwnTimes(unit) if timed else Counted(nominal or Fraction(25))


def _at(picture: av.VideoFrame, number: int, unit: Fraction) -> av.VideoFrame:
    picture.pts, picture.time_base, picture.duration = number, unit, 1
    return picture
