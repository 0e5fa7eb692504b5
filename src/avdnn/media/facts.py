"""What is known of a video before it is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import av
import av.container

from ..job import InputSpec
from ..versions import fraction
from .cut import MICROSECOND, seconds


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of the decoded stream, as it will be read; None stands for unknown.

    `time_base` is the unit of the frames' times and `duration` what will be read, in seconds.
    `rate` is the average, `nominal_rate` the constant rate that FFmpeg would assume, in frames a
    second. `frames` is what the file says, or an estimate from the duration.
    """

    time_base: Fraction
    rate: Fraction | None
    nominal_rate: Fraction | None
    sar: Fraction | None
    duration: Fraction | None
    frames: int | None


def learn(
    container: av.container.InputContainer,
    video: av.VideoStream,
    spec: InputSpec,
    forced_rate: Fraction | None,
) -> Facts:
    """The facts of an open file; `forced_rate` replaces its own."""
    average, guessed = fraction(video.average_rate), fraction(video.guessed_rate)
    unit = fraction(video.time_base) or MICROSECOND
    rate = forced_rate or average or guessed
    duration = _duration(container, video, spec)
    frames = video.frames or None
    if spec.start or spec.duration is not None or frames is None:
        frames = max(1, round(duration * rate)) if duration is not None and rate else None
    return Facts(
        time_base=1 / forced_rate if forced_rate else unit,
        rate=rate,
        nominal_rate=forced_rate or guessed or average,
        sar=fraction(video.sample_aspect_ratio),
        duration=duration,
        frames=frames,
    )


def _duration(
    container: av.container.InputContainer, video: av.VideoStream, spec: InputSpec
) -> Fraction | None:
    known: Fraction | None = None
    if container.duration is not None:
        known = container.duration * MICROSECOND
    elif video.duration is not None:
        known = video.duration * (fraction(video.time_base) or MICROSECOND)
    start, limit = seconds(spec.start), seconds(spec.duration)
    if known is not None and start:
        known = max(Fraction(0), known - start)
    if limit is not None:
        return limit if known is None else min(known, limit)
    return known
