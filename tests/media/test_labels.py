"""-disposition, -map_metadata and -map_chapters: what an output says of its streams."""

from __future__ import annotations

from pathlib import Path

import av
import pytest
from av.stream import Disposition

from avdnn.errors import UsageError
from avdnn.job import StreamFlags, Tag

from ..clips import clip
from .test_writer import CHAPTERS, FAST, copy

DEFAULT, FORCED = Disposition.default, Disposition.forced


def _flags(path: Path) -> list[Disposition]:
    with av.open(str(path)) as opened:
        return [stream.disposition & (DEFAULT | FORCED) for stream in opened.streams]


@pytest.mark.parametrize(
    ("given", "video", "first", "second"),
    [
        ([("a:1", "default")], 0, DEFAULT, DEFAULT),
        ([("a:0", "+forced")], 0, DEFAULT | FORCED, 0),
        ([("", "0")], 0, 0, 0),
        ([("", "forced")], FORCED, FORCED, FORCED),
        ([("v:0", "default"), ("a:0", "0"), ("a:1", "default+forced")], 2, 0, 3),
        ([("a", "-default")], 0, 0, 0),
        ([("1", "forced-forced")], 0, 0, 0),
    ],
)
def test_dispositions_are_set_as_ffmpeg_sets_them(
    tmp_path: Path, given: list[tuple[str, str]], video: int, first: int, second: int
) -> None:
    bits = {2: DEFAULT, 3: DEFAULT | FORCED}
    source = clip(tmp_path / "in.mkv", audio=[0.0, 0.0])
    flags = tuple(StreamFlags(*words) for words in given)
    copy(source, tmp_path / "out.mkv", options=FAST, dispositions=flags)
    assert _flags(tmp_path / "out.mkv") == [bits.get(n, n) for n in (video, first, second)]


@pytest.mark.parametrize(
    ("where", "flags", "said"),
    [
        ("s:0", "default", "-disposition:s:0 default: the output has no such stream"),
        ("a:2", "0", "the output has no such stream"),
        ("a", "defualt", "-disposition defualt: defualt is none; there are 0, default, dub,"),
        ("a", "default+", "there are 0"),
    ],
)
def test_wrong_dispositions_are_refused(tmp_path: Path, where: str, flags: str, said: str) -> None:
    source = clip(tmp_path / "in.mkv", audio=[0.0, 0.0], frames=3)
    with pytest.raises(UsageError, match=said.replace("+", r"\+")):
        copy(source, tmp_path / "out.mkv", dispositions=(StreamFlags(where, flags),))
    assert not (tmp_path / "out.mkv").exists()


@pytest.mark.parametrize(
    ("suffix", "where", "flags", "said"),
    [
        ("mov", "a:1", "forced", "forced of stream 2 is lost: mov makes it 0"),
        ("mp4", "a:0", "0", "0 of stream 1 is lost: mp4 makes it default"),
        ("mp4", "a:1", "default+forced", ""),
        ("mkv", "a", "0", ""),
    ],
)
def test_dispositions_that_a_container_does_not_keep_are_told(
    tmp_path: Path, suffix: str, where: str, flags: str, said: str
) -> None:
    source, target = clip(tmp_path / "in.mkv", audio=[0.0, 0.0]), tmp_path / f"out.{suffix}"
    given = (StreamFlags(where, flags),)
    notes = copy(source, target, options=FAST, dispositions=given).notes
    assert [note for note in notes if "disposition" in note] == (
        [f"-disposition {said}"] if said else []
    )


def _described(folder: Path) -> Path:
    return clip(
        folder / "in.mkv",
        audio=[0.0],
        metadata={"title": "T"},
        chapters=CHAPTERS,
        font=True,
    )


def test_tags_of_the_source_can_be_left_out(tmp_path: Path) -> None:
    source, target = _described(tmp_path), tmp_path / "out.mkv"
    tags = (Tag("", "artist", "A"),)
    copy(source, target, options=FAST, source_tags=False, tags=tags)
    with av.open(str(target)) as opened:
        assert "title" not in {key.lower() for key in opened.metadata}
        assert opened.metadata["ARTIST"] == "A"
        assert opened.streams.audio[0].language is None
        assert [chapter["metadata"] for chapter in opened.chapters()] == [{}, {}]
        assert opened.streams[-1].metadata["filename"] == "a font.ttf"


def test_chapters_can_be_left_out(tmp_path: Path) -> None:
    source, target = _described(tmp_path), tmp_path / "out.mkv"
    copy(source, target, options=FAST, chapters=False)
    with av.open(str(target)) as opened:
        assert not opened.chapters()
        assert opened.metadata["title"] == "T"
        assert opened.streams.audio[0].language == "eng"
