"""The slots of a constant rate are filled as FFmpeg's fps filter fills them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import av
import av.filter
import numpy as np
import pytest

from avdnn.media.cadence import Cadence, frame_rate

MILLISECOND = Fraction(1, 1000)


def by_cadence(times: Sequence[int], last: int, rate: Fraction) -> list[tuple[int, int]]:
    """(number of the frame, slot) of all that comes out; times are milliseconds."""
    cadence: Cadence[int] = Cadence(rate)
    out: list[tuple[int, int]] = []
    durations = [*np.diff(times).tolist(), last]
    for number, (time, duration) in enumerate(zip(times, durations, strict=True)):
        out += cadence.push(number, time * MILLISECOND, duration * MILLISECOND)
    out += cadence.flush()
    assert len(times) + cadence.repeated - cadence.dropped == len(out)
    return out


def by_filter(times: Sequence[int], last: int, rate: Fraction) -> list[tuple[int, int]]:
    graph = av.filter.Graph()
    source = graph.add_buffer(width=16, height=16, format="gray", time_base=MILLISECOND)
    fps = graph.add("fps", f"fps={rate}")
    sink = graph.add("buffersink")
    source.link_to(fps)
    fps.link_to(sink)
    graph.configure()
    out = []

    def pull() -> None:
        while True:
            try:
                frame = graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            out.append((int(frame.to_ndarray()[0, 0]), frame.pts))

    durations = [*np.diff(times).tolist(), last]
    for number, (time, duration) in enumerate(zip(times, durations, strict=True)):
        frame = av.VideoFrame.from_ndarray(np.full((16, 16), number, np.uint8), format="gray")
        frame.pts, frame.time_base, frame.duration = time, MILLISECOND, duration
        graph.push(frame)
        pull()
    graph.push(None)
    pull()
    return out


@pytest.mark.parametrize("rate", [Fraction(10), Fraction(25), Fraction(30000, 1001), Fraction(60)])
@pytest.mark.parametrize("seed", range(6))
def test_slots_are_those_of_the_fps_filter(rate: Fraction, seed: int) -> None:
    random = np.random.default_rng(seed)
    times = np.cumsum(random.integers(1, 120, 30)).tolist()
    last = int(random.integers(20, 120))
    ours, theirs = by_cadence(times, last, rate), by_filter(times, last, rate)
    # PyAV ends a graph without a time, so the filter shows its last frame once
    assert ours[: len(theirs)] == theirs
    assert {number for number, _ in ours[len(theirs) :]} <= {len(times) - 1}


def test_one_frame_lasts_one_slot_at_least() -> None:
    assert by_cadence([0], 1, Fraction(10)) == [(0, 0)]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("25", Fraction(25)),
        ("30000/1001", Fraction(30000, 1001)),
        ("29.97", Fraction(2997, 100)),
        ("ntsc", Fraction(30000, 1001)),
        ("fast", None),
        ("0", None),
        ("-5", None),
        ("1/0", None),
    ],
)
def test_rates_are_read_as_ffmpeg_reads_them(text: str, rate: Fraction | None) -> None:
    assert frame_rate(text) == rate
