"""Times, sizes and rates mean what they mean to FFmpeg."""

from __future__ import annotations

from fractions import Fraction

import av
import av.filter
import pytest

from avdnn.command import quantities
from avdnn.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0.0),
        ("12.5", 12.5),
        (".5", 0.5),
        ("12.", 12.0),
        ("90s", 90.0),
        ("200ms", 0.2),
        ("300us", 0.0003),
        ("1:05", 65.0),
        ("01:02:03.5", 3723.5),
        ("100:00:00", 360000.0),
    ],
)
def test_times(text: str, expected: float) -> None:
    assert quantities.seconds(text, "-t") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("text", ["", "x", "1:60", "60:00", "1:2:3:4", "1m", "5 s", "1e3", "nan"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"-ss: expected a time such as"):
        quantities.seconds(text, "-ss")


@pytest.mark.parametrize("text", ["-1", "-0:05"])
def test_negative_times_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="negative"):
        quantities.seconds(text, "-ss")


def _blank(args: str) -> av.filter.Graph:
    graph = av.filter.Graph()
    source, sink = graph.add("color", args), graph.add("buffersink")
    source.link_to(sink)
    graph.configure()
    return graph


@pytest.mark.parametrize("name", quantities.SIZES)
def test_names_of_sizes_are_those_of_ffmpeg(name: str) -> None:
    frame = _blank(f"s={name}").pull()
    assert isinstance(frame, av.VideoFrame)
    assert quantities.size(name, "-s") == (frame.width, frame.height)


@pytest.mark.parametrize("name", quantities.RATES)
def test_names_of_rates_are_those_of_ffmpeg(name: str) -> None:
    graph = _blank(f"s=16x16:r={name}")
    graph.pull()
    frame = graph.pull()
    assert frame is not None
    assert frame.pts is not None
    assert frame.pts * frame.time_base * Fraction(quantities.rate(name, "-r")) == 1


def test_sizes() -> None:
    assert quantities.size("64x48", "-s") == (64, 48)
    for wrong in ("64", "0x48", "64x-1", "64X48", "hd", "64x48x3", ""):
        with pytest.raises(UsageError, match="-s: expected a size such as"):
            quantities.size(wrong, "-s")


def test_rates() -> None:
    assert [quantities.rate(text, "-r") for text in ("25", "23.976", "30000/1001")] == [
        "25",
        "23.976",
        "30000/1001",
    ]
    for wrong in ("", "0", "-1", "1/0", "fast", "nan"):
        with pytest.raises(UsageError, match="-r: expected a rate such as"):
            quantities.rate(wrong, "-r")


def test_counts() -> None:
    assert quantities.count("010", "-frames:v") == 10
    for wrong in ("0", "-1", "1.5", "", "many"):
        with pytest.raises(UsageError, match="-frames:v: expected a whole number"):
            quantities.count(wrong, "-frames:v")
