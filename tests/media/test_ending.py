"""A file that is cut off says so, however little is missing; a whole one says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from avdnn.frame import Frame
from avdnn.job import InputSpec
from avdnn.media.ending import is_cut_jpeg
from avdnn.media.reader import Reader

from ..clips import clip, picture

_MADE = {
    "mp4": {"muxing": {"movflags": "faststart"}},
    "mov": {"muxing": {"movflags": "faststart"}, "audio": [0.0]},
    "mkv": {"audio": [0.0]},
    "webm": {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8"}},
    "avi": {"codec": "mpeg4"},
    "ts": {},
    "m2ts": {"muxing": {"mpegts_m2ts_mode": "1"}},
}


def damage(path: Path) -> list[str]:
    with Reader(InputSpec(str(path))) as reader:
        assert sum(isinstance(item, Frame) for item in reader)
    return reader.damage


@pytest.mark.parametrize("suffix", _MADE)
def test_a_missing_end_is_noted_and_a_whole_file_is_not(tmp_path: Path, suffix: str) -> None:
    whole = clip(tmp_path / f"in.{suffix}", size=(160, 120), **_MADE[suffix])
    assert damage(whole) == []
    data = whole.read_bytes()
    for missing in (1, 100, 1000):
        cut = tmp_path / f"cut.{suffix}"
        cut.write_bytes(data[:-missing])
        assert any("ends early" in said for said in damage(cut)), missing
        assert not any(": 1 bytes" in said for said in damage(cut))


@pytest.mark.parametrize("flags", ["frag_keyframe+empty_moov", "frag_every_frame+empty_moov"])
def test_fragments_are_whole_without_their_index(tmp_path: Path, flags: str) -> None:
    whole = clip(tmp_path / "in.mp4", size=(160, 120), muxing={"movflags": flags})
    data = whole.read_bytes()
    cut = tmp_path / "cut.mp4"
    assert damage(whole) == []
    cut.write_bytes(data[: data.rindex(b"mfra") - 4])
    assert damage(cut) == []
    cut.write_bytes(data[: data.rindex(b"mfra") - 40])
    assert any("ends early" in said for said in damage(cut))


def test_a_recording_may_begin_anywhere_and_a_part_that_was_not_asked_for_may_be_missing(
    tmp_path: Path,
) -> None:
    whole = clip(tmp_path / "in.ts", frames=50, size=(160, 120), options={"g": "10"})
    late = tmp_path / "late.ts"
    late.write_bytes(whole.read_bytes()[1000:])
    assert damage(late) == []
    late.write_bytes(whole.read_bytes()[:-50])
    with Reader(InputSpec(str(late), duration=0.4)) as reader:
        assert len(list(reader)) == 10
    assert reader.damage == []


def test_a_cut_jpeg_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "in.jpg"
    picture(1, 320, 240, "yuvj420p").save(path)
    data = path.read_bytes()
    assert damage(path) == []
    assert is_cut_jpeg(data[: len(data) // 2])
    assert not is_cut_jpeg(data + b"a trailer")
    assert not is_cut_jpeg(b"")
    assert not is_cut_jpeg(bytes(range(99)))
    path.write_bytes(data[:-40])
    assert damage(path) == ["a video packet at 0.000 s is incomplete"]
