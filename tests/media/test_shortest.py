"""-shortest ends the output with the video or the first sound that ends."""

from __future__ import annotations

import os
import threading
from fractions import Fraction
from pathlib import Path

import pytest

from avdnn.errors import UsageError
from avdnn.job import InputSpec
from avdnn.media.reader import Reader
from avdnn.media.shortest import sound_end

from ..clips import clip, payloads, times
from .test_writer import FAST, copy


def _ends(path: Path) -> tuple[float, list[float]]:
    """When the video ends, and when the last packet of every sound starts."""
    shown = times(path)
    return float(sum(shown[-1])), [packets[-1][0] for packets in payloads(path, "audio")]


@pytest.mark.parametrize("suffix", ["mkv", "mp4", "ts"])
def test_sound_that_ends_early_ends_the_video(tmp_path: Path, suffix: str) -> None:
    source = clip(tmp_path / f"in.{suffix}", frames=50, audio=[0.0])  # 2 s with 1 s of sound
    copy(source, tmp_path / "out.mkv", options=FAST, shortest=True)
    video, sounds = _ends(tmp_path / "out.mkv")
    assert 0.95 < video < 1.08
    assert 0.93 < sounds[0] < video


def test_video_that_ends_early_ends_the_sound(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mkv", frames=10, audio=[0.0])
    copy(source, tmp_path / "out.mkv", options=FAST, shortest=True)
    video, sounds = _ends(tmp_path / "out.mkv")
    assert video == pytest.approx(0.4, abs=1e-3)
    assert 0.36 < sounds[0] < 0.4


def test_the_first_sound_of_several_decides(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mkv", frames=50, audio=[0.0, 0.5])
    copy(source, tmp_path / "out.mkv", options=FAST, shortest=True)
    video, sounds = _ends(tmp_path / "out.mkv")
    assert 0.95 < video < 1.08
    assert all(0.93 < sound < video for sound in sounds)


def test_sound_that_is_left_out_ends_nothing(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mkv", frames=50, audio=[0.0])
    copy(source, tmp_path / "out.mkv", options=FAST, shortest=True, audio=False)
    assert len(times(tmp_path / "out.mkv")) == 50


def test_a_start_of_input_and_output_moves_the_end(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mkv", frames=50, audio=[0.0], options={"g": "5"})
    copy(source, tmp_path / "out.mkv", {"start": 0.2}, options=FAST, shortest=True, start=0.2)
    assert 0.55 < _ends(tmp_path / "out.mkv")[0] < 0.68


def test_what_can_be_read_once_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.mkv"
    os.mkfifo(pipe)
    data = clip(tmp_path / "in.mkv", frames=5, audio=[0.0]).read_bytes()
    feeder = threading.Thread(target=pipe.write_bytes, args=(data,))
    feeder.start()
    with (
        Reader(InputSpec(str(pipe))) as reader,
        pytest.raises(UsageError, match=r"-shortest: .*pipe\.mkv .* with -t"),
    ):
        sound_end(reader, reader.copied, Fraction(0))
    feeder.join()


def test_a_silent_input_needs_no_reading_ahead() -> None:
    with Reader(InputSpec("testsrc2=s=64x48", format="lavfi")) as reader:
        assert sound_end(reader, reader.copied, Fraction(0)) is None
