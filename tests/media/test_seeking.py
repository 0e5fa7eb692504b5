"""-itsoffset moves an input's times, -sseof counts its start from the end."""

from __future__ import annotations

import logging
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import av
import pytest

from avdnn.errors import MediaError, UsageError
from avdnn.job import InputSpec
from avdnn.media.reader import Reader

from ..clips import clip
from .test_reader import read, seconds
from .test_writer import CHAPTERS, FAST, copy


@pytest.mark.parametrize("offset", [1.5, -0.5])
@pytest.mark.parametrize("cut", [{}, {"start": 0.4}, {"start": 0.2, "duration": 0.4}])
def test_an_offset_is_added_to_all_times(
    tmp_path: Path, offset: float, cut: dict[str, float]
) -> None:
    path = clip(tmp_path / "a.mkv", audio=[0.0])
    plain, packets, _ = read(path, **cut)
    moved, late, _ = read(path, offset=offset, **cut)
    assert seconds(moved) == [time + Fraction(offset) for time in seconds(plain)]
    assert [p.time for p in late] == [p.time + Fraction(offset) for p in packets]


def test_chapters_move_with_the_times(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mkv", chapters=CHAPTERS)
    copy(source, tmp_path / "out.mkv", {"offset": 2.0}, options=FAST)
    with av.open(str(tmp_path / "out.mkv")) as opened:
        starts = [chapter["start"] * chapter["time_base"] for chapter in opened.chapters()]
    assert starts == [2, Fraction(5, 2)]


def test_an_offset_and_shortest_agree(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mkv", frames=50, audio=[0.0])
    copy(source, tmp_path / "out.mkv", {"offset": 1.0}, options=FAST, shortest=True)
    with av.open(str(tmp_path / "out.mkv")) as opened:
        ends = [float(frame.pts * frame.time_base) for frame in opened.decode(video=0)]
    assert len(ends) in (25, 26)
    assert ends[0] == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("start", [-0.4, -0.5, -1.0])
def test_a_start_from_the_end_is_ffmpegs(tmp_path: Path, start: float) -> None:
    if not shutil.which("ffmpeg"):
        pytest.skip("ffmpeg is not installed")
    path = clip(tmp_path / "a.mp4", options={"g": "5"})
    frames, _, _ = read(path, start_from_end=start)
    words = ["ffmpeg", "-v", "error", "-sseof", str(start), "-i", str(path), "-map", "0:v"]
    words += ["-vsync", "passthrough", "-f", "framemd5", "-"]
    made = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert len(frames) == sum(not line.startswith("#") for line in made.splitlines())
    assert len(frames) == round(-start * 25)


def test_a_start_before_the_file_is_said_and_is_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = clip(tmp_path / "a.mp4")
    with caplog.at_level(logging.WARNING):
        frames, _, _ = read(path, start_from_end=-9.0)
    assert len(frames) == 25
    assert "-sseof -9: it is 1.000 s long and is read from its start" in caplog.text


def test_a_video_that_ends_before_the_start_is_told_with_both_options(tmp_path: Path) -> None:
    path = clip(tmp_path / "a.mkv", frames=5, audio=[0.0])  # sound goes on for 0.8 s
    with pytest.raises(MediaError, match=r"after -ss 0\.\d+ \(-sseof -0\.4\); it is"):
        read(path, start_from_end=-0.4)


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("", {"start_from_end": -1.0, "start": 1.0}, "-ss and -sseof contradict"),
        ("", {"start_from_end": 1.0}, "-sseof 1: must be negative, such as -10"),
        (
            "testsrc2=s=64x48",
            {"start_from_end": -1.0, "format": "lavfi"},
            "-sseof: the length of testsrc2=s=64x48 is not known; use -ss",
        ),
    ],
)
def test_a_start_from_the_end_that_makes_no_sense(
    tmp_path: Path, url: str, options: dict[str, float], said: str
) -> None:
    spec = InputSpec(url or str(clip(tmp_path / "a.mp4", frames=2)), **options)
    with pytest.raises(UsageError, match=said), Reader(spec):
        pass
