"""-map chooses the streams of an output, and the video that is filtered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import pytest

from avdnn.errors import UsageError
from avdnn.job import FILTERED, InputSpec, StreamMap
from avdnn.media.mapping import meant
from avdnn.media.reader import Reader

from ..clips import clip, picture
from .test_writer import FAST, SUBTITLES, copy, left

KEPT = StreamMap("")


def _full(folder: Path) -> Path:
    """Video, sound in eng and deu, a subtitle, an attachment: streams 0 to 4."""
    return clip(folder / "in.mkv", frames=5, audio=[0.0, 0.0], subtitles=SUBTITLES, font=True)


def _kinds(path: Path) -> list[str]:
    """The streams in short: `a/eng`."""
    with av.open(str(path)) as opened:
        found = [(stream.type[0], stream.language or "") for stream in opened.streams]
    return [f"{kind}/{language}".rstrip("/") for kind, language in found]


def _mapped(source: Path, target: Path, *maps: StreamMap) -> list[str]:
    copy(source, target, {"maps": maps}, options=FAST, maps=maps)
    return _kinds(target)


@pytest.mark.parametrize(
    ("maps", "kinds"),
    [
        ([KEPT], ["v", "a/eng", "a/deu", "s/eng", "a"]),
        ([StreamMap("v")], ["v"]),
        ([StreamMap("v"), StreamMap("a:1")], ["v", "a/deu"]),
        ([StreamMap("2"), StreamMap("0")], ["a/deu", "v"]),
        ([StreamMap("V:0"), StreamMap("s:1", optional=True)], ["v"]),
        ([KEPT, StreamMap("s", negative=True)], ["v", "a/eng", "a/deu", "a"]),
        ([KEPT, StreamMap("a:0", True), StreamMap("t", True)], ["v", "a/deu", "s/eng"]),
        ([KEPT, StreamMap("7", negative=True)], ["v", "a/eng", "a/deu", "s/eng", "a"]),
        ([StreamMap("a:1"), StreamMap("v"), StreamMap("a:0")], ["a/deu", "v", "a/eng"]),
        ([KEPT, StreamMap("a")], ["v", "a/eng", "a/deu", "s/eng", "a"]),
        ([StreamMap(FILTERED), StreamMap("a:0")], ["v", "a/eng"]),
    ],
)
def test_what_is_mapped_is_kept_in_the_order_of_the_maps(
    tmp_path: Path, maps: list[StreamMap], kinds: list[str]
) -> None:
    assert _mapped(_full(tmp_path), tmp_path / "out.mkv", *maps) == kinds


@pytest.mark.parametrize(
    ("maps", "said"),
    [
        ([StreamMap("v"), StreamMap("a:2")], "-map 0:a:2: the input has no such stream; .*0:a:2?"),
        ([StreamMap("0"), StreamMap("d")], "-map 0:d: the input has no such stream"),
        ([StreamMap("1")], "-map leaves out the video: add -map 0:v"),
        ([KEPT, StreamMap("v", negative=True)], "-map leaves out the video"),
        ([StreamMap(FILTERED), StreamMap("0")], "-map 0:0 adds the unfiltered video"),
    ],
)
@pytest.mark.parametrize("reads", [True, False])
def test_wrong_maps_are_refused(
    tmp_path: Path, maps: list[StreamMap], said: str, reads: bool
) -> None:
    reading: dict[str, Any] = {"maps": maps} if reads else {}
    source = _full(tmp_path)
    with pytest.raises(UsageError, match=said):
        copy(source, tmp_path / "out.mkv", reading, maps=maps)
    assert left(tmp_path) == []


def _two_videos(path: Path) -> Path:
    with av.open(str(path), "w") as output:
        streams = [output.add_stream("mpeg4", rate=25) for _ in range(2)]
        for stream, width in zip(streams, (64, 32), strict=True):
            stream.width, stream.height, stream.pix_fmt = width, 32, "yuv420p"
        for stream in streams:
            frame = picture(0, stream.width, 32)
            frame.pts = 0
            output.mux([*stream.encode(frame), *stream.encode(None)])
    return path


@pytest.mark.parametrize(("where", "width"), [("v", 64), ("v:0", 64), ("v:1", 32), ("1", 32)])
def test_the_video_that_is_filtered_is_one_that_is_mapped(
    tmp_path: Path, where: str, width: int
) -> None:
    source = _two_videos(tmp_path / "in.mkv")
    with Reader(InputSpec(str(source), maps=(StreamMap(where),))) as reader:
        assert reader.width == width


def test_the_output_of_the_filters_is_one_video(tmp_path: Path) -> None:
    source = _two_videos(tmp_path / "in.mkv")
    assert _mapped(source, tmp_path / "out.mkv", StreamMap(FILTERED)) == ["v"]


def test_cover_art_is_video_for_a_small_v_only(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4", frames=3, cover=True)
    with av.open(str(source)) as opened:
        assert len(meant(opened.streams, "v")) == 2
        assert meant(opened.streams, "V") == [opened.streams.video[0]]
    with pytest.raises(UsageError, match="-map leaves out the video"):
        copy(source, tmp_path / "out.mp4", {"maps": (StreamMap("v:1"),)})
