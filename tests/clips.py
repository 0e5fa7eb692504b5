"""Tiny media files for tests, made on the spot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.codec.context import Flags

MILLISECOND = Fraction(1, 1000)


def picture(index: int, width: int, height: int, form: str = "yuv420p") -> av.VideoFrame:
    """A picture that differs from its neighbours and has no flat edges."""
    rows, columns = np.mgrid[0:height, 0:width]
    red = (rows * 3 + index * 7) % 256
    green = (columns * 2 + index * 5) % 256
    blue = (rows + columns + index * 11) % 256
    rgb = np.stack([red, green, blue], axis=-1).astype(np.uint8)
    return av.VideoFrame.from_ndarray(rgb, format="rgb24").reformat(format=form)


def tone(
    output: av.container.OutputContainer,
    stream: av.AudioStream,
    seconds: float,
    start: float = 0.0,
) -> list[av.Packet]:
    """Packets of a sine, starting at `start` seconds."""
    rate, size = 48000, 1024
    packets = []
    for index in range(int(seconds * rate / size)):
        samples = np.sin((np.arange(size) + index * size) * 0.05).astype(np.float32)
        frame = av.AudioFrame.from_ndarray(samples[np.newaxis], format="fltp", layout="mono")
        frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
        frame.pts = round(start * rate) + index * size
        packets += stream.encode(frame)
    return packets + stream.encode(None)


def clip(
    path: Path,
    *,
    frames: int = 25,
    size: tuple[int, int] = (64, 48),
    form: str = "yuv420p",
    codec: str = "libx264",
    rate: Fraction | int = 25,
    pts: Sequence[int] | None = None,
    time_base: Fraction | None = None,
    audio: Iterable[float] = (),
    settings: dict[str, Any] | None = None,
    options: dict[str, str] | None = None,
    rotation: float | None = None,
    metadata: dict[str, str] | None = None,
    chapters: list[dict[str, Any]] | None = None,
    subtitles: str = "",
    cover: bool = False,
    font: bool = False,
    muxing: dict[str, str] | None = None,
) -> Path:
    """A video file. `pts` are in `time_base`; `audio` gives a start in seconds for each track.

    `settings` are attributes of the encoder's context.
    """
    with av.open(str(path), "w", container_options=muxing or {}) as output:
        video = output.add_stream(codec, rate=rate, options=options or _OPTIONS.get(codec, {}))
        video.width, video.height, video.pix_fmt = *size, form
        context = video.codec_context
        context.time_base = time_base or 1 / Fraction(rate)
        for name, value in (settings or {}).items():
            setattr(context, name, value)
        if rotation is not None:
            video.set_display_rotation(rotation)
        output.metadata.update(metadata or {})
        output.set_chapters(chapters or [])
        sounds = [_sound(output, index) for index, _ in enumerate(audio)]
        text = _text(output, path, subtitles) if subtitles else []
        art = _cover(output) if cover else []
        if font:
            output.add_attachment("a font.ttf", "font/ttf", b"not a real font")
        times = pts or range(frames)
        packets = list(art)
        for index, time in enumerate(times):
            frame = picture(index, *size, form)
            frame.pts, frame.time_base = time, context.time_base
            following = times[index + 1] if index + 1 < len(times) else time + 1
            frame.duration = following - time
            packets += video.encode(frame)
        packets += video.encode(None)
        for sound, start in zip(sounds, audio, strict=True):
            packets += tone(output, sound, 1.0, start)
        output.mux(packets + text)
    return path


_OPTIONS = {
    "libx264": {"preset": "ultrafast", "bf": "3", "x264-params": "b-adapt=0:threads=1"},
    "libx265": {"preset": "ultrafast", "x265-params": "log-level=none:pools=1"},
}


def _sound(output: av.container.OutputContainer, index: int) -> av.AudioStream:
    stream = output.add_stream("aac", rate=48000)
    stream.codec_context.layout = "mono"
    stream.metadata["language"] = ("eng", "deu", "fra")[index]
    stream.disposition = 1 if index == 0 else 0
    return stream


def _text(output: av.container.OutputContainer, path: Path, text: str) -> list[av.Packet]:
    source = path.with_suffix(".source.srt")
    source.write_text(text)
    packets = []
    with av.open(str(source)) as opened:
        stream = output.add_stream_from_template(opened.streams.subtitles[0])
        stream.metadata["language"] = "eng"
        for packet in opened.demux():
            if packet.size:
                packet.stream = stream
                packets.append(packet)
    return packets


def _cover(output: av.container.OutputContainer) -> list[av.Packet]:
    stream = output.add_stream("mjpeg", rate=1)
    stream.width, stream.height, stream.pix_fmt = 32, 32, "yuvj420p"
    stream.disposition = av.stream.Disposition.attached_pic
    frame = picture(9, 32, 32, "yuvj420p")
    frame.pts, frame.time_base = 0, Fraction(1)
    return stream.encode(frame) + stream.encode(None)


def times(path: Path) -> list[tuple[Fraction, Fraction]]:
    """(time, duration) in seconds of every decoded frame of the first video stream."""
    with av.open(str(path)) as opened:
        stream = opened.streams.video[0]
        return [
            (frame.pts * frame.time_base, frame.duration * frame.time_base)
            for frame in opened.decode(stream)
        ]


def payloads(path: Path, kind: str) -> list[list[tuple[float, bytes]]]:
    """For each stream of a kind, its packets as (time in seconds, bytes)."""
    with av.open(str(path)) as opened:
        found = {s.index: [] for s in opened.streams if s.type == kind}
        for packet in opened.demux():
            if packet.size and packet.stream_index in found:
                at = float((packet.pts or 0) * packet.time_base)
                found[packet.stream_index].append((round(at, 3), bytes(packet)))
    return list(found.values())


def scene(
    path: Path,
    size: tuple[int, int] = (64, 48),
    seconds: float = 0.4,
    *,
    fields: str = "",
    rotation: int = 0,
) -> Path:
    """H.264 of libavfilter's test picture, 25 frames a second: of two fields a picture in the
    order `fields`, tff or bff, or turned by `rotation` degrees."""
    width, height = size
    source = f"testsrc2=s={width}x{height}:d={seconds}" + (f",setfield={fields}" if fields else "")
    with av.open(source, format="lavfi") as made, av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        if fields:
            stream.codec_context.flags |= Flags.interlaced_dct
        if rotation:
            stream.set_display_rotation(rotation)
        for frame in made.decode(video=0):
            out.mux(stream.encode(frame.reformat(format="yuv420p")))
        out.mux(stream.encode(None))
    return path
