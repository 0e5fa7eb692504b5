"""Goes to places in an open file: an instant, or what lies behind the last frame that came."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

import av
import av.container
import av.error
from av.format import Flags

from ..errors import UsageError
from ..job import InputSpec
from .cut import MICROSECOND
from .opening import open_input

_log = logging.getLogger(__name__)

_REORDERING = Fraction(3, 23)
"""How far FFmpeg goes back for B-frames where a demuxer seeks by decoding time."""
_NEVER = Fraction(1 << 62)


def declares(form: av.ContainerFormat, flag: Any) -> bool:
    """Whether a format declares a trait, one of av.format.Flags."""
    return bool(flag.value & form.flags)


def from_end(spec: InputSpec, container: av.container.InputContainer) -> InputSpec:
    """The input with the `start` that `start_from_end` means for the open file.

    A file that is shorter is read from its start, with a warning; UsageError where the length is
    not known.
    """
    if spec.start_from_end is None:
        return spec
    if spec.start is not None:
        raise UsageError("-ss and -sseof contradict each other: give one of them")
    if spec.start_from_end >= 0:
        raise UsageError(f"-sseof {spec.start_from_end:g}: must be negative, such as -10")
    if not container.duration:
        raise UsageError(f"-sseof: the length of {spec.url} is not known; use -ss")
    length = container.duration * MICROSECOND
    start = length + Fraction(str(spec.start_from_end))
    if start < 0:
        _log.warning(
            "%s: -sseof %g: it is %.3f s long and is read from its start",
            spec.url,
            spec.start_from_end,
            length,
        )
    return replace(spec, start=float(max(start, Fraction(0))))


def seek(
    container: av.container.InputContainer,
    video: av.VideoStream,
    instant: Fraction,
    begin: Fraction,
) -> None:
    """Go to a key frame at or before `instant`; what cannot seek is left at its start.

    Some demuxers land behind the target (MPEG-TS); then the target moves back, to a second before
    `begin`, where the file begins, at most.
    """
    first = begin - 1
    by_pts = declares(container.format, Flags.seek_to_pts) or not video.codec_context.has_b_frames
    target, step = instant - (0 if by_pts else _REORDERING), Fraction(1)
    try:
        while True:
            container.seek(int(max(first, target) / MICROSECOND))
            if target <= first or _next_key(container, video) <= instant:
                break
            target, step = target - step, step * 2
        container.seek(int(max(first, target) / MICROSECOND))
    except (av.error.FFmpegError, OSError) as error:
        _log.debug("%s: cannot seek, reading from the start: %s", container.name, error)


def _next_key(container: av.container.InputContainer, video: av.VideoStream) -> Fraction:
    """When the next key frame of the video is shown; the end of the file counts as never."""
    for packet in container.demux(video):
        if packet.size and packet.is_keyframe:
            time = packet.dts if packet.pts is None else packet.pts
            return (time or 0) * Fraction(packet.time_base)
    return _NEVER


def tail(spec: InputSpec, last: int) -> list[av.VideoFrame]:
    """The frames behind time `last`, decoded on one thread from the key frame before it."""
    found: list[av.VideoFrame] = []
    again, video = open_input(spec, threaded=False)
    with again:
        try:
            again.seek(last, stream=video)
        except av.error.FFmpegError as error:
            _log.debug("%s: cannot seek to the tail: %s", spec.url, error)
            return []
        for packet in again.demux(video):
            with suppress(av.error.FFmpegError):
                found += [frame for frame in video.decode(packet) if _after(frame, last)]
    _log.debug("%s: %d frames behind the last one recovered", spec.url, len(found))
    return found


def _after(frame: av.VideoFrame, last: int) -> bool:
    time = frame.dts if frame.pts is None else frame.pts
    return time is not None and time > last
