"""What goes in comes out: frames, times, tags, streams. What cannot is refused or said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from avdnn.errors import FormatError, MediaError, UsageError
from avdnn.job import InputSpec, OutputSpec, Tag
from avdnn.media import hdr
from avdnn.media.losses import palette_is_transparent
from avdnn.media.reader import Item, Reader
from avdnn.media.writer import Writer
from avdnn.properties import blank, display_matrix, field_order
from avdnn.versions import side_data

from ..clips import MILLISECOND, clip, payloads, picture, times
from ..test_access import as_nobody, open_folder

__all__ = ["open_folder"]

FAST = {"preset": "ultrafast"}
SUBTITLES = (
    "1\n00:00:00,100 --> 00:00:00,400\nHello <i>you</i>\n\n"
    "2\n00:00:00,600 --> 00:00:00,900\nBye, ünï\nline two\n"
)
CHAPTERS: list[dict[str, Any]] = [
    {"id": 1, "start": 0, "end": 500, "time_base": MILLISECOND, "metadata": {"title": "one"}},
    {"id": 2, "start": 500, "end": 1000, "time_base": MILLISECOND, "metadata": {"title": "& two"}},
]


def copy(
    source: Path | str, target: Path | str, reading: dict[str, Any] | None = None, **writing: Any
) -> Writer:
    """Read and write without a filter between."""
    with (
        Reader(InputSpec(str(source), **(reading or {}))) as reader,
        Writer(OutputSpec(str(target), **writing), reader) as writer,
    ):
        for item in reader:
            writer.write(item)
            if writer.full:
                break
    return writer


def _write(reader: Reader, target: Path, items: Iterable[Item], **writing: Any) -> None:
    with Writer(OutputSpec(str(target), **writing), reader) as writer:
        for item in items:
            writer.write(item)


def _until(
    reader: Reader, count: int, error: BaseException, absent: Path | None = None
) -> Iterator[Item]:
    """Items up to a number, then an error; `absent` must not appear meanwhile."""
    for number, item in enumerate(reader):
        assert absent is None or not absent.exists()
        if number == count:
            raise error
        yield item


def lavfi(target: Path | str, chain: str, **writing: Any) -> Writer:
    """Write five frames of a test picture that went through a filter chain."""
    text = f"testsrc2=s=64x48:r=25:d=0.2,{chain}"
    return copy(text, target, {"format": "lavfi"}, **writing)


def first(path: Path) -> av.VideoFrame:
    with av.open(str(path)) as opened:
        return next(opened.decode(video=0))


def read_hdr(path: Path) -> hdr.Hdr:
    with av.open(str(path)) as opened:
        found = hdr.read(next(opened.decode(video=0)), opened.streams.video[0].codec_context)
    assert found is not None
    return found


def probe(path: Path, entries: str) -> str:
    if not shutil.which("ffprobe"):
        pytest.skip("ffprobe is not installed")
    command = ["ffprobe", "-v", "error", "-show_entries", entries, "-of", "csv=p=0", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def left(folder: Path) -> list[str]:
    """What a run left behind beside its input."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("in."))


# ---- frames and times --------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "mov", "ts"])
def test_b_frames_come_out_whole_and_at_their_times(tmp_path: Path, suffix: str) -> None:
    source = clip(tmp_path / f"in.{suffix}")
    copy(source, tmp_path / f"out.{suffix}", options={"bf": "3"})
    got, expected = times(tmp_path / f"out.{suffix}"), times(source)
    assert len(expected) == 25
    shift = expected[0][0] - got[0][0]
    if suffix == "ts":  # starts at 0, and holds no durations
        assert [time + shift for time, _ in got] == [time for time, _ in expected]
    else:
        assert got == expected


@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_variable_rate_and_offset_tracks_survive(tmp_path: Path, suffix: str) -> None:
    source = clip(
        tmp_path / f"in.{suffix}", pts=[0, 40, 47, 200], time_base=MILLISECOND, audio=[0.0, 0.5]
    )
    copy(source, tmp_path / f"out.{suffix}", options=FAST)
    assert [time for time, _ in times(tmp_path / f"out.{suffix}")] == [
        n * MILLISECOND for n in (0, 40, 47, 200)
    ]
    assert payloads(tmp_path / f"out.{suffix}", "audio") == payloads(source, "audio")


def test_mp4_keeps_the_ticks_of_a_fine_clock(tmp_path: Path) -> None:
    unit = Fraction(1, 90000)
    source = clip(tmp_path / "in.mp4", pts=[0, 3001, 6007, 9000, 20001], time_base=unit)
    copy(source, tmp_path / "out.mp4", options=FAST)
    expected = [n * unit for n in (0, 3001, 6007, 9000, 20001)]
    assert [time for time, _ in times(tmp_path / "out.mp4")] == expected


@pytest.mark.parametrize("codec", ["libx264", "libx265", "mpeg4", "ffv1"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_frame_and_few_frames(tmp_path: Path, codec: str, count: int) -> None:
    source = clip(tmp_path / "in.mp4", frames=count)
    for again in range(3):  # libx265 leaves decoding times unset at random
        copy(source, tmp_path / f"{again}.mkv", codec=codec)
        assert [t for t, _ in times(tmp_path / f"{again}.mkv")] == [
            Fraction(n, 25) for n in range(count)
        ]


def test_frames_out_of_order_are_refused(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4", frames=3)
    with Reader(InputSpec(str(source))) as reader:
        frames = list(reader)
        with pytest.raises(MediaError, match=r"frame 1 at 0\.000 s does not come after"):
            _write(reader, tmp_path / "out.mp4", [frames[1], frames[0]])
    assert left(tmp_path) == []


def test_a_size_change_is_scaled_and_said(tmp_path: Path) -> None:
    one = clip(tmp_path / "in.1.ts", frames=3, size=(64, 48))
    two = clip(tmp_path / "in.2.ts", frames=3, size=(96, 64))
    (tmp_path / "in.ts").write_bytes(one.read_bytes() + two.read_bytes())
    writer = copy(tmp_path / "in.ts", tmp_path / "out.mp4", options=FAST)
    assert writer.frames == 6
    assert any("size changes from 64x48 to 96x64" in note for note in writer.notes)


# ---- cuts and rates ----------------------------------------------------------------------------


def test_frames_and_t_end_video_and_sound_together(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4", frames=75, audio=[0.0])
    for name, limit in (("n.mp4", {"frames": 10}), ("t.mp4", {"duration": 0.4})):
        writer = copy(source, tmp_path / name, options=FAST, **limit)
        assert writer.full
        assert len(times(tmp_path / name)) == 10
        sound = payloads(tmp_path / name, "audio")[0]
        assert 0.35 < sound[-1][0] < 0.4


def test_output_ss_counts_from_the_cut(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mkv", frames=25, audio=[0.0], chapters=CHAPTERS)
    copy(source, tmp_path / "out.mkv", start=0.4, duration=0.4, options=FAST)
    assert [time for time, _ in times(tmp_path / "out.mkv")] == [Fraction(n, 25) for n in range(10)]
    with av.open(str(tmp_path / "out.mkv")) as made:
        spans = [(c["start"] * c["time_base"], c["end"] * c["time_base"]) for c in made.chapters()]
    assert spans == [(0, Fraction(1, 10)), (Fraction(1, 10), Fraction(6, 10))]


@pytest.mark.parametrize(("rate", "count", "words"), [("50", 50, "25 frames"), ("10", 10, "15")])
def test_output_rate_repeats_and_drops_and_says_so(
    tmp_path: Path, rate: str, count: int, words: str
) -> None:
    source = clip(tmp_path / "in.mp4")
    writer = copy(source, tmp_path / "out.mp4", rate=rate, options=FAST)
    assert [time for time, _ in times(tmp_path / "out.mp4")] == [
        Fraction(n, int(rate)) for n in range(count)
    ]
    assert any(words in note for note in writer.notes)


_MD5 = {"format": "framemd5", "codec": "rawvideo", "overwrite": True}
_UNEVEN = [0, 7, 40, 80, 200, 233, 240, 330, 371, 571, 604, 611]


@pytest.mark.parametrize("rate", ["5", "7.3", "10", "15", "30000/1001", "50"])
@pytest.mark.parametrize("cut", [{}, {"start": 0.13}, {"start": 0.05, "duration": 0.41}])
def test_output_rate_is_ffmpegs_filter_fps(tmp_path: Path, rate: str, cut: dict[str, Any]) -> None:
    if not shutil.which("ffmpeg"):
        pytest.skip("ffmpeg is not installed")
    even = clip(tmp_path / "in.even.mp4")
    uneven = clip(tmp_path / "in.uneven.mkv", pts=_UNEVEN, time_base=MILLISECOND)
    names = {"start": "-ss", "duration": "-t"}
    given = [word for name, value in cut.items() for word in (names[name], str(value))]
    # of frames that -t drops, FFmpeg learns how long the last one before them lasts
    for source in (even,) if "duration" in cut else (even, uneven):
        command = ["ffmpeg", "-v", "error", *given, "-i", str(source), "-vf", f"fps={rate}"]
        shown = subprocess.run(
            [*command, "-f", "framemd5", "-"], capture_output=True, text=True, check=True
        ).stdout
        copy(source, tmp_path / "out.md5", cut, rate=rate, **_MD5)
        assert _frame_lines((tmp_path / "out.md5").read_text()) == _frame_lines(shown)


def _frame_lines(text: str) -> list[list[str]]:
    """For each frame of a framemd5 file its time and its hash."""
    lines = [line.split(",") for line in text.splitlines() if not line.startswith("#")]
    return [[fields[2].strip(), fields[-1].strip()] for fields in lines]


def test_avi_gets_a_constant_rate(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mkv", pts=[0, 40, 80, 200], time_base=MILLISECOND)
    writer = copy(source, tmp_path / "out.avi")
    assert [time for time, _ in times(tmp_path / "out.avi")] == [Fraction(n, 25) for n in range(6)]
    assert any("2 frames repeated" in note for note in writer.notes)


# ---- tags --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "mov"])
def test_aspect_rotation_and_colour_tags_stay(tmp_path: Path, suffix: str) -> None:
    tags = {"colorspace": 1, "color_range": 1, "color_trc": 1, "color_primaries": 1}
    source = clip(
        tmp_path / f"in.{suffix}",
        rotation=90,
        settings={**tags, "sample_aspect_ratio": Fraction(4, 3)},
    )
    copy(source, tmp_path / f"out.{suffix}", options=FAST)
    frame, before = first(tmp_path / f"out.{suffix}"), first(source)
    assert {name: getattr(frame, name) for name in tags} == tags
    assert display_matrix(frame) == display_matrix(before) != []
    assert (frame.width, frame.height, frame.rotation) == (64, 48, 90)
    with av.open(str(tmp_path / f"out.{suffix}")) as made:
        assert made.streams.video[0].sample_aspect_ratio == Fraction(4, 3)


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
@pytest.mark.parametrize("flip", [False, True])
def test_pictures_are_turned_as_ffmpeg_turns_them(tmp_path: Path, degrees: int, flip: bool) -> None:
    if not shutil.which("ffmpeg"):
        pytest.skip("ffmpeg is not installed")
    source = tmp_path / "in.mp4"
    with av.open(str(source), "w") as output:
        stream = output.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.set_display_rotation(degrees, hflip=flip)
        frame = picture(1, 64, 48)
        frame.pts, frame.time_base = 0, Fraction(1, 25)
        output.mux(stream.encode(frame) + stream.encode(None))
    command = ["ffmpeg", "-v", "error", "-i", source, "-f", "rawvideo", tmp_path / "theirs"]
    subprocess.run(command, check=True)
    copy(source, tmp_path / "ours", format="rawvideo")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_a_photo_with_exif_comes_out_upright(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    photo = image.fromarray(np.zeros((48, 64, 3), np.uint8))
    exif = photo.getexif()
    exif[0x0112] = 6
    photo.save(tmp_path / "in.jpg", exif=exif)
    for name in ("o.jpg", "o.png", "o.bmp"):
        writer = copy(tmp_path / "in.jpg", tmp_path / name)
        assert any("turned upright" in note for note in writer.notes)
        frame = first(tmp_path / name)
        assert (frame.width, frame.height, frame.rotation) == (48, 64, 0)


@pytest.mark.parametrize(("name", "codec"), [("o.webm", ""), ("o.mkv", "libsvtav1"), ("o.mkv", "")])
def test_matroska_holds_the_aspect_ratio_itself(tmp_path: Path, name: str, codec: str) -> None:
    source = clip(
        tmp_path / "in.mkv", frames=30, size=(96, 64), audio=[0.0], subtitles=SUBTITLES, font=True
    )
    rest = {"audio": False, "subtitles": False} if name == "o.webm" else {}
    text = f"movie={source},setsar=16/11"
    with av.open(text, format="lavfi"):
        pass
    copy(text, tmp_path / name, {"format": "lavfi"}, codec=codec, **rest)
    assert probe(tmp_path / name, "stream=sample_aspect_ratio").split()[0] in ("35:24", "16:11")
    assert len(times(tmp_path / name)) == 30
    with av.open(str(tmp_path / name)) as made:
        made.seek(500_000)
        assert next(made.decode(video=0)).width == 96


def test_an_aspect_ratio_that_cannot_be_carried_is_said(tmp_path: Path) -> None:
    writer = lavfi(tmp_path / "out.y4m", "setsar=4/3")
    assert any("sample aspect ratio 4/3 is lost" in note for note in writer.notes)


@pytest.mark.parametrize(
    ("suffix", "codec"),
    [("mp4", "libx265"), ("mkv", "libx265"), ("mp4", "libx264"), ("mkv", "ffv1")],
)
def test_hdr_metadata_stays_in_ten_bits(tmp_path: Path, suffix: str, codec: str) -> None:
    display = "G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,1)"
    quiet = "log-level=none:pools=1"
    source = clip(
        tmp_path / "in.mkv",
        frames=2,
        codec="libx265",
        form="yuv420p10le",
        options={"x265-params": f"{quiet}:master-display={display}:max-cll=1000,400"},
        settings={"color_range": 1, "colorspace": 9, "color_primaries": 9, "color_trc": 16},
    )
    options = {"x265-params": quiet} if codec == "libx265" else {}
    copy(source, tmp_path / f"out.{suffix}", codec=codec, options=options)
    frame = first(tmp_path / f"out.{suffix}")
    assert read_hdr(tmp_path / f"out.{suffix}") == read_hdr(source)
    assert read_hdr(source).light == (1000, 400)
    assert frame.format.name == "yuv420p10le"
    assert (frame.colorspace, frame.color_primaries, frame.color_trc) == (9, 9, 16)
    held = probe(tmp_path / f"out.{suffix}", "stream_side_data=max_content,red_x")
    assert "1000" in held


@pytest.mark.parametrize(("mode", "order"), [("tff", 4), ("bff", 5), ("prog", 1)])
def test_interlacing_stays(tmp_path: Path, mode: str, order: int) -> None:
    lavfi(tmp_path / "out.mkv", f"setfield={mode}", options=FAST)
    frame = first(tmp_path / "out.mkv")
    assert frame.interlaced_frame == (mode != "prog")
    assert field_order(frame) == order


@pytest.mark.parametrize("form", ["yuv420p", "rgb24", "gbrp10le", "nv12", "grayf32le"])
def test_a_blank_frame_has_the_properties_of_its_source(form: str) -> None:
    text = (
        "testsrc2=s=64x48,setfield=bff,addroi=0:0:8:8,"
        "setparams=colorspace=bt709:color_trc=bt709:color_primaries=bt709:range=tv"
    )
    with av.open(text, format="lavfi") as opened:
        source = next(opened.decode(video=0))
    made = blank(source, 175, 143, form)
    assert (made.format.name, made.width, made.height) == (form, 175, 143)
    assert field_order(made) == 5
    assert [data.type.name for data in side_data(made)] == ["REGIONS_OF_INTEREST"]
    assert (made.colorspace, made.color_trc, made.color_primaries, made.color_range) == (1, 1, 1, 1)
    assert (made.pts, made.time_base) == (source.pts, source.time_base)


# ---- pixel formats -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "chain", "form", "words"),
    [
        ("a.mp4", "format=yuv420p10le", "yuv420p10le", ""),
        ("a.mp4", "format=nv12", "yuv420p", ""),
        ("a.mp4", "format=p010le", "yuv420p10le", "encoding yuv420p10le"),
        ("a.mp4", "format=yuva420p", "yuv420p", "loses transparency"),
        ("a.mp4", "format=yuv444p12le", "yuv444p10le", "loses depth"),
        ("a.mp4", "format=yuvj420p", "yuvj420p", ""),
        ("a.mkv", "format=gbrp", "yuv444p", "encoding yuv444p"),
        ("a.webm", "format=yuva420p", "yuv420p", ""),
        ("a.webm", "format=gray", "yuv420p", "encoding yuv420p"),
        ("a.webm", "format=rgba", "yuv420p", "encoding yuva420p"),
        ("a.webm", "format=yuv420p10le", "yuv420p10le", ""),
        ("a.nut", "format=yuva444p10le", "yuva444p10le", ""),
        ("a%d.png", "format=yuva420p", "rgba", "encoding rgba"),
        ("a%d.png", "format=yuv420p10le", "rgb48be", "encoding rgb48be"),
        ("a%d.png", "format=gray10le", "gray16be", ""),
        ("a%d.jpg", "format=yuv420p", "yuvj420p", ""),
        ("a%d.bmp", "format=rgb24", "bgr24", ""),
    ],
)
def test_depth_and_alpha_are_kept_or_their_loss_is_said(
    tmp_path: Path, name: str, chain: str, form: str, words: str
) -> None:
    writer = lavfi(tmp_path / name, chain)
    assert first(tmp_path / name.replace("%d", "1")).format.name == form
    assert words in " ".join(writer.notes)
    assert bool(words) or not any("loses" in note for note in writer.notes)


def test_gray_stays_gray_in_webm(tmp_path: Path) -> None:
    raw = picture(0, 64, 48, "gray")
    raw.save(tmp_path / "in.png")
    copy(tmp_path / "in.png", tmp_path / "out.webm", options={"lossless": "1"})
    made = first(tmp_path / "out.webm").to_ndarray()
    assert np.array_equal(made[:48], first(tmp_path / "in.png").to_ndarray())


def test_a_palettes_transparency_is_kept_or_its_loss_said(tmp_path: Path) -> None:
    for alpha in (255, 9):
        frame = av.VideoFrame(64, 48, "pal8")
        frame.planes[0].update(bytes(frame.planes[0].buffer_size))
        frame.planes[1].update(bytes([1, 2, 3, alpha]).ljust(1024, b"\0"))
        with av.open(str(tmp_path / "in.png"), "w", options={"update": "1"}) as output:
            stream = output.add_stream("png", rate=1)
            stream.width, stream.height, stream.pix_fmt = 64, 48, "pal8"
            output.mux([*stream.encode(frame), *stream.encode(None)])
        assert palette_is_transparent(first(tmp_path / "in.png")) == (alpha == 9)
        for name, kept in (("out.mkv", False), ("out.png", True)):
            target = tmp_path / name
            writer = copy(tmp_path / "in.png", target, overwrite=True)
            lost = any("palette's transparency is lost" in note for note in writer.notes)
            assert lost == (alpha == 9 and not kept)


def _rgb(path: Path) -> np.ndarray[Any, Any]:
    return first(path).reformat(format="rgb24").to_ndarray().astype(int)


@pytest.mark.parametrize("matrix", ["bt709", "smpte170m"])
@pytest.mark.parametrize("range_", ["tv", "pc"])
def test_pictures_keep_their_colours_whatever_matrix_and_range(
    tmp_path: Path, matrix: str, range_: str
) -> None:
    number = {"bt709": 1, "smpte170m": 6}[matrix]
    source = picture(3, 64, 48, "rgb24")
    yuv = source.reformat(
        format="yuv444p",
        dst_colorspace={1: 1, 6: 5}[number],
        dst_color_range=1 if range_ == "tv" else 2,
    )
    yuv.pts, yuv.time_base = 0, Fraction(1, 25)
    yuv.colorspace, yuv.color_range = number, 1 if range_ == "tv" else 2
    with av.open(str(tmp_path / "in.mkv"), "w") as output:
        stream = output.add_stream("ffv1", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv444p"
        stream.codec_context.colorspace = number
        stream.codec_context.color_range = yuv.color_range
        output.mux(stream.encode(yuv) + stream.encode(None))
    expected = source.to_ndarray().astype(int)
    for name, worst in (("o.png", 3), ("o.mkv", 6), ("o.jpg", 24)):
        # png: rounding to 8-bit YUV; mkv: x264 at qp 1; jpg: its quantizer
        options = {"qp": "1"} if name == "o.mkv" else {}
        copy(tmp_path / "in.mkv", tmp_path / name, options=options)
        error = np.abs(_rgb(tmp_path / name) - expected)
        assert error.max() <= worst * 2
        assert error.mean() <= worst / 3


def test_a_pixel_format_that_the_encoder_lacks_names_those_it_has(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="libx264 takes yuv420p, "):
        lavfi(tmp_path / "a.mp4", "null", pix_fmt="rgb24")
    with pytest.raises(MediaError, match="odd size needs"):
        lavfi(tmp_path / "a.mp4", "format=yuv420p,scale=175:143")
    assert left(tmp_path) == []


# ---- other streams -----------------------------------------------------------------------------


def test_every_stream_chapter_and_tag_of_a_matroska_file_stays(tmp_path: Path) -> None:
    source = clip(
        tmp_path / "in.mkv",
        audio=[0.0, 0.5],
        subtitles=SUBTITLES,
        chapters=CHAPTERS,
        font=True,
        metadata={"title": "A title", "comment": "ünï"},
    )
    copy(source, tmp_path / "out.mkv", options=FAST)
    with av.open(str(source)) as before, av.open(str(tmp_path / "out.mkv")) as after:
        for one, two in zip(before.streams, after.streams, strict=True):
            assert (one.type, one.language, one.disposition) == (
                two.type,
                two.language,
                two.disposition,
            )
        assert after.metadata["title"] == "A title"
        assert after.metadata["COMMENT"] == "ünï"
        assert [c["metadata"] for c in after.chapters()] == [c["metadata"] for c in CHAPTERS]
        assert after.streams.attachments[0].data == before.streams.attachments[0].data
    for kind in ("audio", "subtitle"):
        assert payloads(tmp_path / "out.mkv", kind) == payloads(source, kind)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_tags_are_set_and_taken_away(tmp_path: Path, suffix: str) -> None:
    old = {"title": "old", "artist": "somebody", "comment": "stays"}
    source = clip(tmp_path / f"in.{suffix}", frames=3, audio=[0.0, 0.0], metadata=old)
    tags = (
        Tag("", "title", "new = better"),
        Tag("", "artist", ""),
        Tag("s:v:0", "language", "fra"),
        Tag("s:a:1", "language", "ita"),
    )
    copy(source, tmp_path / f"out.{suffix}", options=FAST, tags=tags)
    with av.open(str(tmp_path / f"out.{suffix}")) as made:
        found = {key.lower(): value for key, value in made.metadata.items()}
        assert (found["title"], found["comment"]) == ("new = better", "stays")
        assert "artist" not in found
        assert [stream.language for stream in made.streams] == ["fra", "eng", "ita"]
    with pytest.raises(UsageError, match="-metadata:s:s: the output has no such stream"):
        copy(source, tmp_path / "no.mp4", tags=[Tag("s:s", "language", "ita")])
    assert left(tmp_path) == [f"out.{suffix}"]


@pytest.mark.parametrize(
    ("suffix", "tag", "said"),
    [
        (
            "mp4",
            Tag("", "shot", "7"),
            "-metadata shot=7 is lost: mp4 does not keep this tag; "
            "-movflags use_metadata_tags keeps it",
        ),
        (
            "mp4",
            Tag("s:v", "shot", "7"),
            "-metadata:s:v shot=7 is lost: mp4 does not keep this tag",
        ),
        ("ts", Tag("", "title", "7"), "-metadata title=7 is lost: mpegts does not keep this tag"),
        ("avi", Tag("", "year", "7"), "-metadata year=7 is lost: avi does not keep this tag"),
        ("mp4", Tag("", "title", "7"), ""),
        ("mp4", Tag("", "shot", ""), ""),
        ("mp4", Tag("s:v:0", "title", "8"), ""),
        ("mkv", Tag("s:v:0", "shot", "7"), ""),
        ("nut", Tag("", "author", "7"), ""),
        ("ts", Tag("", "service_name", "7"), ""),
        ("3gp", Tag("", "title", "7"), ""),
    ],
)
def test_a_tag_that_a_container_drops_is_named(
    tmp_path: Path, suffix: str, tag: Tag, said: str
) -> None:
    source = clip(tmp_path / "in.mkv", frames=25)
    tags = (Tag("", "genre", "7"), tag) if suffix == "mp4" else (tag,)
    notes = copy(source, tmp_path / f"out.{suffix}", codec="mpeg4", tags=tags).notes
    assert [note for note in notes if "-metadata" in note] == ([said] if said else [])


@pytest.mark.parametrize(
    ("suffix", "said"),
    [
        ("mkv", ""),
        ("mp4", "mp4 does not keep shot; -movflags use_metadata_tags keeps those of the file"),
        ("ts", "mpegts does not keep title, shot, title of stream 0"),
        ("avi", "avi does not keep shot, language of stream 1"),
    ],
)
def test_tags_of_the_source_that_a_container_drops_are_named_in_one_line(
    tmp_path: Path, suffix: str, said: str
) -> None:
    made = clip(tmp_path / "in.made.mkv", audio=[0.0])
    tags = (Tag("", "title", "A"), Tag("", "shot", "7"), Tag("s:v", "title", "B"))
    tags += (Tag("s:a", "language", "fra"), Tag("", "handler_name", "x"))
    assert not copy(made, tmp_path / "in.mkv", codec="mpeg4", tags=tags).notes
    writer = copy(tmp_path / "in.mkv", tmp_path / f"out.{suffix}", codec="mpeg4")
    notes = [note for note in writer.notes if "lost" in note]
    assert notes == ([f"tags of the source are lost: {said}"] if said else [])


def test_tags_of_the_source_that_the_user_set_or_took_away_are_not_missed(tmp_path: Path) -> None:
    made = clip(tmp_path / "in.made.mkv")
    copy(made, tmp_path / "in.mkv", options=FAST, tags=[Tag("", "shot", "7"), Tag("", "x", "1")])
    tags = (Tag("", "SHOT", ""), Tag("", "x", "2"))
    notes = copy(tmp_path / "in.mkv", tmp_path / "out.mp4", options=FAST, tags=tags).notes
    assert [note.partition(" is lost")[0] for note in notes] == ["-metadata x=2"]


@pytest.mark.parametrize(("suffix", "tag"), [("mp4", "s:v title"), ("avi", " album")])
def test_tags_that_come_back_under_another_key_stay(tmp_path: Path, suffix: str, tag: str) -> None:
    where, key = tag.split(" ")
    source = clip(tmp_path / "in.mkv")
    copy(source, tmp_path / f"in.{suffix}", codec="mpeg4", tags=[Tag(where, key, "kept")])
    for form in (suffix, "mkv"):
        assert not copy(tmp_path / f"in.{suffix}", tmp_path / f"out.{form}", codec="mpeg4").notes
    with av.open(str(tmp_path / "out.mkv")) as opened:
        holder = opened.streams[0].metadata if where else opened.metadata
        assert {name.lower(): text for name, text in holder.items()}[key] == "kept"


def test_text_subtitles_take_the_containers_form_and_back(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mkv", subtitles=SUBTITLES)
    writer = copy(source, tmp_path / "out.mp4", options=FAST)
    assert any("converted to mov_text" in note for note in writer.notes)
    copy(tmp_path / "out.mp4", tmp_path / "out.mkv", options=FAST)
    lines = [data for _, data in payloads(tmp_path / "out.mkv", "subtitle")[0]]
    assert lines == [b"Hello <i>you</i>", "Bye, ünï\nline two".encode()]


def test_cover_art_and_chapters_of_mp4_stay_and_cross_to_matroska(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4", cover=True, chapters=CHAPTERS, audio=[0.0])
    art = payloads(source, "video")[1][0][1]
    for name in ("out.mp4", "out.mkv"):
        copy(source, tmp_path / name, options=FAST)
        with av.open(str(tmp_path / name)) as made:
            covers = [s for s in made.streams.video if s.disposition & 0x400]
            assert len(covers) == 1
            assert [c["metadata"]["title"] for c in made.chapters()] == ["one", "& two"]
        assert payloads(tmp_path / name, "video")[1][0][1] == art


def test_other_video_streams_are_copied_and_named(tmp_path: Path) -> None:
    small, large = clip(tmp_path / "in.1.mp4"), clip(tmp_path / "in.2.mp4", size=(128, 96))
    with av.open(str(tmp_path / "in.mkv"), "w") as output:
        for path in (small, large):
            with av.open(str(path)) as source:
                stream = output.add_stream_from_template(source.streams.video[0], opaque=True)
                stream.disposition = 0
                packets = [packet for packet in source.demux() if packet.size]
            for packet in packets:
                packet.stream = stream
            if path is small:
                kept = packets
        output.mux(kept + packets)
    writer = copy(tmp_path / "in.mkv", tmp_path / "out.mkv", options=FAST)
    assert writer.notes == [
        "video stream 0 (h264) is copied as it is; one video stream is processed"
    ]
    before, after = (payloads(tmp_path / name, "video") for name in ("in.mkv", "out.mkv"))
    assert after[0] == before[0]
    assert len(after[1]) == 25


def test_a_time_code_is_made_anew(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "in.mov"), "w") as output:
        video = output.add_stream("libx264", rate=25)
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        video.metadata["timecode"] = "01:00:00:00"
        for number in range(3):
            frame = picture(number, 64, 48)
            frame.pts, frame.time_base = number, Fraction(1, 25)
            output.mux(video.encode(frame))
        output.mux(video.encode(None))
    writer = copy(tmp_path / "in.mov", tmp_path / "out.mov", options=FAST)
    assert writer.notes == []
    with av.open(str(tmp_path / "out.mov")) as made:
        assert [stream.type for stream in made.streams] == ["video", "data"]
        assert made.streams.video[0].metadata["timecode"] == "01:00:00:00"


@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_an_option_that_nobody_has_is_named(tmp_path: Path, suffix: str) -> None:
    source, name = clip(tmp_path / "in.mkv", frames=2), "movflags" if suffix == "mkv" else "fs"
    with pytest.raises(UsageError, match=rf"^-{name}: neither encoder libx264 nor container \w+"):
        copy(source, tmp_path / f"out.{suffix}", options={**FAST, name: "faststart"})
    assert left(tmp_path) == []


def test_data_is_copied_unless_it_is_not_wanted(tmp_path: Path) -> None:
    with av.open(str(tmp_path / "in.ts"), "w") as output:
        video, data = output.add_stream("libx264", rate=25), output.add_data_stream("klv")
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        frame = picture(0, 64, 48)
        frame.pts, frame.time_base = 0, Fraction(1, 25)
        packet = av.Packet(b"some data")
        packet.stream, packet.pts, packet.dts = data, 0, 0
        output.mux([*video.encode(frame), *video.encode(None), packet])
    for wanted, kinds in ((True, ["video", "data"]), (False, ["video"])):
        copy(tmp_path / "in.ts", tmp_path / "out.ts", options=FAST, data=wanted, overwrite=True)
        with av.open(str(tmp_path / "out.ts")) as made:
            assert [stream.type for stream in made.streams] == kinds


def test_streams_that_a_container_cannot_hold_are_refused_before_anything(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mkv", audio=[0.0], subtitles=SUBTITLES, font=True)
    with pytest.raises(MediaError, match=r"webm cannot hold audio stream 1 \(aac, eng\).*-an"):
        copy(source, tmp_path / "out.webm")
    with pytest.raises(MediaError, match=r"avi cannot hold subtitle stream 2.*-sn"):
        copy(source, tmp_path / "out.avi")
    assert left(tmp_path) == []
    writer = copy(source, tmp_path / "out.mp4", subtitles=False, options=FAST)
    assert writer.notes == [
        "attachment stream 3 (a font.ttf) is left out: mp4 cannot hold it",
    ]
    copy(source, tmp_path / "none.mkv", audio=False, subtitles=False, options=FAST)
    with av.open(str(tmp_path / "none.mkv")) as made:
        assert [stream.type for stream in made.streams] == ["video", "attachment"]


# ---- formats and options -----------------------------------------------------------------------


@pytest.mark.parametrize(("form", "extra"), [("framemd5", []), ("md5", []), ("rawvideo", [])])
def test_raw_formats_equal_ffmpegs(tmp_path: Path, form: str, extra: list[str]) -> None:
    if not shutil.which("ffmpeg"):
        pytest.skip("ffmpeg is not installed")
    source = clip(tmp_path / "in.mkv", pts=[0, 40, 47, 200], time_base=MILLISECOND)
    copy(source, tmp_path / "ours", format=form)
    command = ["ffmpeg", "-v", "error", "-i", source, "-vsync", "passthrough", "-f", form]
    subprocess.run([*command, *extra, tmp_path / "theirs"], check=True)
    ours, theirs = ((tmp_path / name).read_bytes() for name in ("ours", "theirs"))
    if form == "framemd5":  # FFmpeg 5.1 gives the frames another time base and no durations
        hashes = [
            [line.split(b",")[-1] for line in text.splitlines() if not line.startswith(b"#")]
            for text in (ours, theirs)
        ]
        assert len(hashes[0]) == 4
        assert hashes[0] == hashes[1]
    else:
        assert ours == theirs


_RAW = {
    "nut": {"yuv444p", "bgr24", "yuv420p", "rgb24"},
    "avi": {"bgr24", "yuv420p"},
    "mov": {"bgr24", "rgb24"},
}
"""The formats of raw video that a container has a name for."""


@pytest.mark.parametrize("name", _RAW)
@pytest.mark.parametrize("form", ["p010le", "grayf32le", "yuv444p", "bgr24", "yuv420p", "rgb24"])
def test_raw_video_reads_back_or_is_refused(tmp_path: Path, name: str, form: str) -> None:
    out, source = tmp_path / f"out.{name}", tmp_path / "in.raw"
    if form not in _RAW[name]:
        with pytest.raises(FormatError, match=f"{name} cannot say that raw video is {form}"):
            lavfi(out, f"format={form}", codec="rawvideo")
        assert left(tmp_path) == []
        return
    lavfi(out, f"format={form}", codec="rawvideo")
    lavfi(source, f"format={form}", codec="rawvideo", format="rawvideo")
    with av.open(str(out)) as opened:
        frames = [frame.to_ndarray().tobytes() for frame in opened.decode(video=0)]
        assert opened.streams.video[0].format.name == form
    assert b"".join(frames) == source.read_bytes()


def test_null_output_and_devices_write_no_file(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4", audio=[0.0])
    assert copy(source, "-", format="null").frames == 25
    assert copy(source, "/dev/null", format="matroska", options=FAST).frames == 25
    assert left(tmp_path) == []


def test_numbered_pictures_appear_whole(tmp_path: Path) -> None:
    lavfi(tmp_path / "p%02d.png", "null")
    assert left(tmp_path) == [f"p{n:02d}.png" for n in range(1, 6)]
    with pytest.raises(MediaError, match=r"p0\d\.png exists already; -y"):
        lavfi(tmp_path / "p%02d.png", "null")
    lavfi(tmp_path / "p%02d.png", "null", overwrite=True, options={"start_number": "3"})
    assert left(tmp_path)[-1] == "p07.png"


def test_one_picture_name_takes_one_frame(tmp_path: Path) -> None:
    assert lavfi(tmp_path / "o.png", "null", frames=1).frames == 1
    with pytest.raises(MediaError, match=r"holds one picture.*%04d"):
        lavfi(tmp_path / "p.png", "null")
    assert left(tmp_path) == ["o.png"]


def test_options_reach_encoder_and_muxer_and_others_are_refused(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4", frames=5)
    options = {"crf": "51", "movflags": "+faststart", "tag:v": "avc3", "b:v": "100k"}
    copy(source, tmp_path / "out.mp4", options=options)
    data = (tmp_path / "out.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    assert b"avc3" in data
    with pytest.raises(UsageError, match=r"-crff: neither encoder libx264 nor .* mean -crf\?"):
        copy(source, tmp_path / "no.mp4", options={"crff": "1"})
    with pytest.raises(UsageError, match="-q:v fine: not a number"):
        copy(source, tmp_path / "no.mp4", options={"q:v": "fine"})
    with pytest.raises(MediaError, match=r"encoder libx264 does not open: .*preset"):
        copy(source, tmp_path / "no.mp4", options={"preset": "warp"})
    assert left(tmp_path) == ["out.mp4"]


@pytest.mark.parametrize(
    ("writing", "words"),
    [
        ({"codec": "nosuch"}, "-c:v nosuch: no such encoder"),
        ({"codec": "aac"}, "-c:v aac: encodes audio"),
        ({"codec": "copy"}, "has to be encoded"),
        ({"format": "nosuch"}, "-f nosuch: no such output format"),
        ({"url": "-", "format": "mp4"}, "cannot be written to a pipe; take -f matroska"),
        ({"codec": "gif"}, "mp4 cannot hold gif"),
        ({"rate": "fast"}, "-r fast: not a frame rate"),
        ({"frames": 0}, "-frames:v 0"),
        ({"duration": 0.0}, "-t 0"),
    ],
)
def test_wrong_requests_are_one_line_before_the_first_frame(
    tmp_path: Path, writing: dict[str, Any], words: str
) -> None:
    source = clip(tmp_path / "in.mp4", frames=1)
    with Reader(InputSpec(str(source))) as reader:
        given = {"url": str(tmp_path / "out.mp4"), **writing}
        writer = Writer(OutputSpec(**given), reader)
        with pytest.raises((UsageError, MediaError)) as raised:
            writer.__enter__()
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)
    assert left(tmp_path) == []


# ---- the file ----------------------------------------------------------------------------------


def test_a_file_appears_only_when_whole(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4")
    target = tmp_path / "out.mp4"
    with Reader(InputSpec(str(source))) as reader, pytest.raises(KeyboardInterrupt):
        _write(reader, target, _until(reader, 20, KeyboardInterrupt(), target))
    assert left(tmp_path) == []


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4")
    target = tmp_path / "out.mp4"
    target.write_bytes(b"precious")
    with pytest.raises(MediaError, match="exists already; -y overwrites"):
        copy(source, target)
    with Reader(InputSpec(str(source))) as reader, pytest.raises(RuntimeError):
        _write(reader, target, _until(reader, 1, RuntimeError()), overwrite=True)
    assert target.read_bytes() == b"precious"
    copy(source, target, overwrite=True)
    assert len(times(target)) == 25
    assert left(tmp_path) == ["out.mp4"]


def test_the_input_is_never_the_output(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4")
    before = source.read_bytes()
    (tmp_path / "in.link.mp4").symlink_to(source)
    os.link(source, tmp_path / "in.hard.mp4")
    for name in ("in.mp4", "in.link.mp4", "in.hard.mp4"):
        with pytest.raises(MediaError, match="is the input itself"):
            copy(source, tmp_path / name, overwrite=True)
    assert source.read_bytes() == before


def test_a_link_keeps_pointing(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4", frames=2)
    (tmp_path / "real").mkdir()
    (tmp_path / "out.mp4").symlink_to(tmp_path / "real" / "out.mp4")
    copy(source, tmp_path / "out.mp4")
    assert (tmp_path / "out.mp4").is_symlink()
    assert len(times(tmp_path / "real" / "out.mp4")) == 2


@pytest.mark.parametrize("name", ["no/such/out.mp4", "in.d", "out", "out.xyz"])
def test_bad_places_are_refused(tmp_path: Path, name: str) -> None:
    source = clip(tmp_path / "in.mp4", frames=1)
    (tmp_path / "in.d").mkdir()
    form = {"format": "mp4"} if name == "in.d" else {}
    with pytest.raises((MediaError, UsageError)) as raised:
        copy(source, tmp_path / name, **form)
    assert any(word in str(raised.value) for word in ("no such folder", "is a folder", "with -f"))


def test_an_unwritable_folder_is_refused_before_the_first_frame(open_folder: Path) -> None:
    source = clip(open_folder / "in.mp4", frames=1)
    source.chmod(0o644)
    for name in ("out.mp4", "out%02d.png"):
        with as_nobody(), pytest.raises(MediaError, match=r"may not write there"):
            copy(source, open_folder / name)
    assert left(open_folder) == []


@pytest.mark.parametrize("form", ["mp4", "matroska", "rawvideo", "framemd5", "mpegts", "avi"])
def test_a_full_disk_is_one_line(tmp_path: Path, form: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    source = clip(tmp_path / "in.mp4", frames=5)
    with pytest.raises(MediaError, match="/dev/full: no space left on device"):
        copy(source, "/dev/full", format=form)


_SMALL_DISK = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from avdnn.errors import MediaError
from avdnn.job import InputSpec, OutputSpec, Tag
from avdnn.media.reader import Reader
from avdnn.versions import side_data
from avdnn.media.writer import Writer
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    with Reader(InputSpec(sys.argv[1])) as reader:
        with Writer(OutputSpec(sys.argv[2]), reader) as writer:
            for item in reader:
                writer.write(item)
except MediaError as error:
    print(error)
"""


def test_a_disk_that_fills_up_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4", frames=5)
    whole = clip(tmp_path / "in.whole.mkv", frames=5).stat().st_size
    for name, room in (("o.mp4", 1500), ("o.mkv", whole - 200), ("o.y4m", 5000)):
        command = ["python", "-c", _SMALL_DISK, source, tmp_path / name, str(room)]
        done = subprocess.run(
            [sys.executable, *command[1:]], capture_output=True, text=True, check=False
        )
        assert f"{name}: file too large" in done.stdout
        assert left(tmp_path) == []


def test_any_name_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = clip(tmp_path / "in.mp4", frames=2)
    monkeypatch.chdir(tmp_path)
    for name in ("sp ace 'q' \"d\" a:b,c;[x]=\\ ünï 100%.mp4", "a:b.mkv", "-x.mp4"):
        copy(source, name)
        assert len(times(Path(f"./{name}").absolute())) == 2


def test_no_frame_is_no_file(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4", frames=2)
    with Reader(InputSpec(str(source))) as reader:
        writer = Writer(OutputSpec(str(tmp_path / "out.mp4")), reader)
        with pytest.raises(MediaError, match="no frame came"), writer:
            pass
    assert left(tmp_path) == []
