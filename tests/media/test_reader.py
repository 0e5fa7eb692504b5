"""Every frame comes, in order, at its time; what cannot be read is refused in one line."""

from __future__ import annotations

import logging
import shutil
import subprocess
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

from avdnn.errors import DeviceError, MediaError, UsageError
from avdnn.frame import Frame
from avdnn.job import InputSpec
from avdnn.media.reader import Reader
from avdnn.media.timestamps import FrameClock

from ..clips import MILLISECOND, clip, picture, tone
from ..test_access import as_nobody, open_folder

__all__ = ["open_folder"]


@dataclass(frozen=True, slots=True)
class Copied:
    """A packet of a copied stream; times are seconds."""

    stream: int
    name: str
    time: Fraction


def read(url: Path | str, **options: Any) -> tuple[list[Frame], list[Copied], Reader]:
    """All frames, all copied packets, and the reader after the end."""
    frames, packets = [], []
    with Reader(InputSpec(str(url), **options)) as reader:
        for item in reader:
            if isinstance(item, Frame):
                frames.append(item)
            else:
                time = item.pts * item.time_base
                packets.append(Copied(item.stream.index, item.stream.name, time))
    return frames, packets, reader


def seconds(frames: list[Frame]) -> list[Fraction]:
    return [frame.meta.pts * frame.meta.time_base for frame in frames]


# ---- frames and times --------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "mov", "nut"])
def test_the_tail_of_b_frames_is_decoded(tmp_path: Path, suffix: str) -> None:
    frames, _, reader = read(clip(tmp_path / f"b.{suffix}"))
    first = seconds(frames)[0]
    assert [time - first for time in seconds(frames)] == [Fraction(n, 25) for n in range(25)]
    assert reader.damage == []


def test_facts_are_those_of_the_file(tmp_path: Path) -> None:
    sar = Fraction(4, 3)
    path = clip(tmp_path / "in.mp4", audio=[0.0], settings={"sample_aspect_ratio": sar})
    with Reader(InputSpec(str(path))) as reader:
        assert (reader.width, reader.height, reader.pix_fmt) == (64, 48, "yuv420p")
        assert (reader.rate, reader.nominal_rate, reader.frames) == (25, 25, 25)
        assert reader.sar == sar
        assert reader.duration == pytest.approx(1.0, abs=0.03)  # the sound ends a packet later
        assert [stream.type for stream in reader.copied] == ["audio"]
        frame = next(item for item in reader if isinstance(item, Frame))
    assert frame.meta.sar == sar
    assert frame.meta.duration * frame.meta.time_base == Fraction(1, 25)


def test_an_unknown_frame_count_is_none(tmp_path: Path) -> None:
    with Reader(InputSpec("testsrc2=s=64x48:r=25", format="lavfi")) as reader:
        assert reader.frames is None
        assert reader.duration is None


def test_variable_rate_keeps_every_time(tmp_path: Path) -> None:
    path = clip(tmp_path / "v.mkv", pts=[0, 40, 47, 200], time_base=MILLISECOND)
    frames, _, _ = read(path)
    assert [frame.meta.pts for frame in frames] == [0, 40, 47, 200]
    assert frames[0].meta.time_base == MILLISECOND


def test_packets_of_all_other_streams_come_in_band(tmp_path: Path) -> None:
    path = clip(tmp_path / "a.mkv", audio=[0.0, 0.5])
    _, packets, reader = read(path)
    assert len(reader.copied) == 2
    for index in (1, 2):
        times = [packet.time for packet in packets if packet.stream == index]
        assert times == sorted(times)
    second = next(packet for packet in packets if packet.stream == 2)
    assert float(second.time) == pytest.approx(0.479, abs=0.001)  # 0.5 s less AAC's priming


def test_a_video_stream_that_is_not_the_first_is_flushed(tmp_path: Path) -> None:
    path = clip(tmp_path / "v.mkv")
    with av.open(str(path)) as source, av.open(str(tmp_path / "a.mkv"), "w") as output:
        sound = output.add_stream("aac", rate=48000)
        sound.codec_context.layout = "mono"
        video = output.add_stream_from_template(source.streams.video[0])
        output.mux(tone(output, sound, 1.0))
        for packet in source.demux():
            if packet.size:
                packet.stream = video
                output.mux(packet)
    frames, packets, _ = read(tmp_path / "a.mkv")
    assert {packet.stream for packet in packets} == {0}
    assert len(frames) == 25


def test_a_transport_stream_starts_at_zero_and_its_splices_are_joined(tmp_path: Path) -> None:
    one = clip(tmp_path / "one.ts", frames=5)
    two = clip(tmp_path / "two.ts", frames=5)
    (tmp_path / "both.ts").write_bytes(one.read_bytes() + two.read_bytes())
    frames, _, reader = read(tmp_path / "both.ts")
    assert seconds(frames) == [Fraction(n, 25) for n in range(10)]
    assert any("the clock jumps" in said for said in reader.damage)


def test_a_size_change_shows_in_the_frames(tmp_path: Path) -> None:
    one = clip(tmp_path / "one.ts", frames=3, size=(64, 48))
    two = clip(tmp_path / "two.ts", frames=3, size=(96, 64))
    (tmp_path / "both.ts").write_bytes(one.read_bytes() + two.read_bytes())
    frames, _, _ = read(tmp_path / "both.ts")
    sizes = [(frame.width, frame.height) for frame in frames]
    assert sizes == [(64, 48)] * 3 + [(96, 64)] * 3


def test_times_that_are_missing_or_go_back_are_mended() -> None:
    said: list[str] = []
    clock = FrameClock(said.append)
    unit = Fraction(1, 25)

    def at(pts: int | None, dts: int | None) -> int:
        frame = av.VideoFrame(16, 16, "gray")
        frame.pts, frame.dts = pts, dts
        return clock.time(frame, unit, Fraction(25))

    assert [at(None, 4), at(None, 6), at(None, None), at(9, 9), at(5, 9)] == [4, 6, 7, 9, 10]
    assert said == ["timestamps go back at 0.200 s; frames stay in order"]


def test_interlacing_depth_alpha_and_tags_reach_the_frame(tmp_path: Path) -> None:
    text = "testsrc2=s=64x48:r=25:d=0.1,format=yuva444p10le,setfield=tff,setparams=colorspace=bt709"
    frames, _, _ = read(text, format="lavfi")
    assert frames[0].format == "yuva444p10le"
    assert len(frames[0].planes) == 4
    assert frames[0].meta.template.interlaced_frame
    assert frames[0].meta.template.colorspace == 1


# ---- cuts and rates ----------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
def test_ss_and_t_cut_exactly_and_count_from_zero(tmp_path: Path, suffix: str) -> None:
    path = clip(tmp_path / f"in.{suffix}", frames=50, audio=[0.0], options={"g": "25", "bf": "3"})
    whole, _, _ = read(path)
    frames, packets, reader = read(path, start=0.5, duration=0.4)
    expected = [t - Fraction(1, 2) for t in seconds(whole) if 0.5 <= t < Fraction(9, 10)]
    near = [float(t) for t in seconds(frames)]
    assert near == pytest.approx([float(t) for t in expected], abs=0.002)  # mkv counts in ms
    assert all(0 <= packet.time < 0.4 for packet in packets)
    assert reader.frames == 10


_GOP = {"preset": "ultrafast", "g": "25", "bf": "3"}
_KINDS = {
    "closed": {**_GOP, "x264-params": "b-adapt=0:threads=1:scenecut=0:open-gop=0"},
    "open": {**_GOP, "x264-params": "b-adapt=0:threads=1:scenecut=0:open-gop=1"},
    "no B": {**_GOP, "bf": "0", "x264-params": "threads=1:scenecut=0"},
}
_CUTS: tuple[tuple[float | None, float | None, int], ...] = (
    (None, 1.5, 38),
    (0.5, None, 87),
    (0.5, 0.4, 10),
    (0.51, 0.4, 10),
    (0.99, 0.5, 13),
    (1, 0.5, 13),
    (1.01, 0.5, 13),
    (1.3, 0.7, 18),
    (1.333, 0.684, 18),
    (3.9, 5, 2),
)
"""-ss and -t before -i, and how many of 100 frames at 25 a second FFmpeg 5.1 reads."""


@pytest.mark.parametrize("audio", [[], [0.0]], ids=["alone", "with sound"])
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_cuts_hold_the_frames_of_ffmpegs(
    tmp_path: Path, suffix: str, kind: str, audio: list[float]
) -> None:
    path = clip(tmp_path / f"in.{suffix}", frames=100, options=_KINDS[kind], audio=audio)
    # mkv keeps AAC's priming before 0; whether the file then starts before 0 has changed in FFmpeg
    alike = shutil.which("ffmpeg") and not (suffix == "mkv" and audio)
    for start, duration, count in _CUTS:
        frames, packets, _ = read(path, start=start, duration=duration)
        assert len(frames) == count, (start, duration)
        assert all(packet.time < (duration or 9) for packet in packets)
        if alike:
            assert seconds(frames) == _by_ffmpeg(path, start, duration), (start, duration)


def _by_ffmpeg(path: Path, start: float | None, duration: float | None) -> list[Fraction]:
    """The times of the frames that ffmpeg reads."""
    command = ["ffmpeg", "-v", "error"]
    for name, value in (("-ss", start), ("-t", duration)):
        command += [name, str(value)] if value is not None else []
    command += ["-i", str(path), "-map", "0:v", "-fps_mode", "passthrough"]
    command += ["-enc_time_base", "-1", "-f", "framecrc", "-"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = shown.splitlines()
    unit = next(Fraction(line.split()[-1]) for line in lines if line.startswith("#tb"))
    return [int(line.split(",")[2]) * unit for line in lines if not line.startswith("#")]


def test_a_start_behind_the_end_says_how_long_the_file_is(tmp_path: Path) -> None:
    path = clip(tmp_path / "in.mp4")
    with pytest.raises(MediaError, match=r"no frame at or after -ss 5; it is 1\.000 s long"):
        read(path, start=5.0)


def test_infinite_sources_end_at_t() -> None:
    frames, _, _ = read("testsrc2=s=64x48:r=25", format="lavfi", duration=0.2)
    assert len(frames) == 5


def test_input_rate_replaces_the_times(tmp_path: Path) -> None:
    frames, _, reader = read(clip(tmp_path / "in.mp4", frames=5), rate="10")
    assert seconds(frames) == [Fraction(n, 10) for n in range(5)]
    assert reader.time_base == Fraction(1, 10)


# ---- kinds of input ----------------------------------------------------------------------------


def test_numbered_pictures_single_pictures_and_raw_video(tmp_path: Path) -> None:
    for number in range(1, 4):
        picture(number, 16, 8).save(tmp_path / f"p{number:03d}.png")
    frames, _, _ = read(tmp_path / "p%03d.png", rate="5")
    assert seconds(frames) == [Fraction(n, 5) for n in range(3)]
    shutil.copy(tmp_path / "p001.png", tmp_path / "100%d.png")
    assert len(read(tmp_path / "100%d.png")[0]) == 1
    raw = b"".join(picture(n, 16, 8).to_ndarray().tobytes() for n in range(3))
    (tmp_path / "x.raw").write_bytes(raw)
    options = {"format": "rawvideo", "pix_fmt": "yuv420p", "size": (16, 8), "rate": "50"}
    frames, _, _ = read(tmp_path / "x.raw", **options)
    assert seconds(frames) == [Fraction(n, 50) for n in range(3)]


@pytest.mark.parametrize(
    "name", ["sp ace 'q' \"d\" a:b,c;[x]=\\ ünï 100%.mp4", "a:b.mp4", "-x.mp4", "http:x.mp4"]
)
def test_any_name_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    clip(tmp_path / "in.mp4", frames=2).rename(tmp_path / name)
    assert len(read(name)[0]) == 2


def test_cover_art_is_copied_not_decoded(tmp_path: Path) -> None:
    _, packets, reader = read(clip(tmp_path / "in.mp4", frames=3, cover=True))
    assert reader.width == 64
    assert [packet.name for packet in packets] == ["mjpeg"]


# ---- damage ------------------------------------------------------------------------------------


def _truncated(path: Path, target: Path, part: float) -> Path:
    whole = path.read_bytes()
    target.write_bytes(whole[: int(len(whole) * part)])
    return target


@pytest.mark.parametrize(("suffix", "options"), [("mkv", {}), ("mp4", {"movflags": "faststart"})])
def test_a_truncated_file_gives_what_decodes_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str, options: dict[str, str]
) -> None:
    path = clip(tmp_path / f"in.{suffix}", frames=50, size=(320, 240), muxing=options)
    cut = _truncated(path, tmp_path / f"cut.{suffix}", 0.6)
    with caplog.at_level(logging.WARNING):
        frames, _, reader = read(cut)
    assert 20 < len(frames) < 40
    assert any("ends early" in said for said in reader.damage)
    assert "ends early" in caplog.text
    if shutil.which("ffmpeg"):
        command = ["ffmpeg", "-v", "quiet", "-i", cut, "-map", "0:v", "-f", "framecrc", "-"]
        lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
        assert len(frames) == sum(not line.startswith("#") for line in lines)


def test_damaged_packets_do_not_end_the_reading(tmp_path: Path) -> None:
    path = clip(tmp_path / "in.mkv", frames=50, size=(320, 240))
    data = bytearray(path.read_bytes())
    for start in range(len(data) // 3, len(data) // 3 + 2000, 700):
        data[start : start + 40] = b"\xff" * 40
    path.write_bytes(data)
    frames, _, reader = read(path)
    assert len(frames) >= 40
    assert any("damaged" in said for said in reader.damage)


# ---- bad input ---------------------------------------------------------------------------------


def _bad(tmp_path: Path) -> dict[str, tuple[Path, dict[str, Any], str]]:
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.txt").write_text("plain words\n" * 50)
    (tmp_path / "noise.mp4").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "raw.yuv").write_bytes(b"\0" * 4608)
    with av.open(str(tmp_path / "sound.m4a"), "w") as output:
        stream = output.add_stream("aac", rate=48000)
        stream.codec_context.layout = "mono"
        output.mux(tone(output, stream, 0.2))
    with av.open(str(tmp_path / "none.mkv"), "w") as output:
        video = output.add_stream("libx264", rate=25)
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        output.start_encoding()
    raw = {"format": "rawvideo"}
    return {
        "missing": (tmp_path / "no.mp4", {}, "no such file or directory"),
        "folder": (tmp_path, {}, "is a folder"),
        "empty": (tmp_path / "empty.mp4", {}, "the file is empty"),
        "text": (tmp_path / "text.txt", {}, "not a video or a picture"),
        "noise": (tmp_path / "noise.mp4", {}, "not a video or a picture"),
        "sound": (tmp_path / "sound.m4a", {}, "has no video: only audio"),
        "no frames": (tmp_path / "none.mkv", {}, "not a single frame"),
        "no pictures": (tmp_path / "q%02d.png", {}, "no pictures found"),
        "no folder": (tmp_path / "no" / "q%02d.png", {}, "no such folder"),
        "raw size": (tmp_path / "raw.yuv", raw, "needs the frame size"),
        "raw guess": (tmp_path / "raw.yuv", {}, "-f rawvideo -pix_fmt"),
        "format": (tmp_path / "noise.mp4", {"format": "nosuch"}, "no such input format"),
        "rate": (Path("testsrc2=d=1"), {"format": "lavfi", "rate": "fast"}, "not a frame rate"),
        "option": (
            Path("testsrc2=d=1"),
            {"format": "lavfi", "options": {"thraeds": "1"}},
            "-threads",
        ),
        "filter": (Path("nosuch=1"), {"format": "lavfi"}, "nosuch"),
    }


_CASES = (
    "missing", "folder", "empty", "text", "noise", "sound", "no frames", "no pictures",
    "no folder", "raw size", "raw guess", "format", "rate", "option", "filter",
)  # fmt: skip


@pytest.mark.parametrize("case", _CASES)
def test_bad_input_is_one_clear_line(tmp_path: Path, case: str) -> None:
    url, options, words = _bad(tmp_path)[case]
    with pytest.raises((MediaError, UsageError)) as raised:
        read(url, **options)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_unreadable_file_is_refused(open_folder: Path) -> None:
    path = clip(open_folder / "in.mp4", frames=1)
    path.chmod(0o600)
    with as_nobody(), pytest.raises(MediaError, match=r"in\.mp4: permission denied"):
        read(path)


def test_a_hardware_decoder_that_is_not_there_is_no_software_decoder(tmp_path: Path) -> None:
    path = clip(tmp_path / "in.mp4", frames=1)
    with pytest.raises(DeviceError, match="-hwaccel nosuch: not available"):
        read(path, hwaccel="nosuch")
