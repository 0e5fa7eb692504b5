"""Several decoders for one stream, tried with FFmpeg's software decoder."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from avdnn.channel import Channel
from avdnn.cuda import sessions
from avdnn.cuda.restart import restarts
from avdnn.cuda.sessions import Damage, Sessions

FRAMES = 100


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One clip with closed and one with open groups of pictures, both with B-frames and sound."""
    folder = tmp_path_factory.mktemp("clips")
    made = {}
    for name, gop in (("closed", "open-gop=0"), ("open", "open-gop=1")):
        path = folder / f"{name}.mkv"
        with av.open(str(path), "w") as out:
            params = f"keyint=10:min-keyint=10:scenecut=0:bframes=3:b-adapt=0:{gop}"
            stream = out.add_stream("libx264", rate=25, options={"x264-params": params})
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            sound = out.add_stream("pcm_s16le", rate=8000, layout="mono")
            for number in range(FRAMES):
                picture = np.full((72, 64), 40 + number, np.uint8)
                picture[:48, (number * 3) % 64] = 255
                out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "yuv420p")))
                samples = np.full((1, 320), number, np.int16)
                frame = av.AudioFrame.from_ndarray(samples, "s16", "mono")
                frame.sample_rate, frame.pts = 8000, number * 320
                out.mux(sound.encode(frame))
            out.mux(stream.encode(None))
        made[name] = path
    return made


class Pictures:
    """Collects pairs, so that a run's rest is seen to come."""

    def __init__(self) -> None:
        self._held: list[tuple[int, bytes]] = []

    def add(self, picture: av.VideoFrame) -> Iterable[list[tuple[int, bytes]]]:
        assert picture.pts is not None
        self._held.append((picture.pts, picture.to_ndarray().tobytes()))
        if len(self._held) == 2:
            yield from self.flush()

    def flush(self) -> Iterable[list[tuple[int, bytes]]]:
        if self._held:
            yield self._held
        self._held = []


def opener(video: av.VideoStream) -> Callable[[], Any]:
    """What opens a software decoder for a stream."""

    def open_decoder() -> Any:
        made = av.CodecContext.create(video.codec_context.name, "r")
        made.extradata = video.codec_context.extradata
        return made

    return open_decoder


def decode(path: Path, count: int, **more: Any) -> tuple[list[tuple[int, bytes]], list[Any]]:
    """Pictures and all other items."""
    pictures: list[tuple[int, bytes]] = []
    others: list[Any] = []
    with av.open(str(path)) as container:
        video = container.streams.video[0]

        shared = Sessions(
            container.demux(),
            video.index,
            count=count,
            open_decoder=more.pop("open_decoder", opener(video)),
            collect=more.pop("collect", Pictures),
            **more,
        )
        with shared:
            for item in shared:
                if isinstance(item, list):
                    pictures += item
                else:
                    others.append(item)
    return pictures, others


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("name", ["closed", "open"])
@pytest.mark.parametrize("least", [1, 25, 1000])
def test_every_picture_once_in_order_and_equal_to_one_decoders(
    clips: dict[str, Path], name: str, count: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, sound = decode(clips[name], 1)
    assert [pts for pts, _ in alone] == sorted({pts for pts, _ in alone})
    assert len(alone) == FRAMES
    monkeypatch.setattr(sessions, "LEAST_RUN", least)
    shared, others = decode(clips[name], count)
    assert shared == alone
    assert [item.dts for item in others] == [item.dts for item in sound]


@pytest.fixture(scope="module")
def refreshed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A clip without key frames but the first: each of its recovery points takes 10 pictures."""
    folder = tmp_path_factory.mktemp("refreshed")
    scene = np.kron(np.random.default_rng(0).integers(16, 235, (18, 16), np.uint8), np.ones((8, 8)))
    made = {}
    for end in ("mp4", "ts"):
        path = folder / f"refreshed.{end}"
        with av.open(str(path), "w") as out:
            params = "keyint=10:intra-refresh=1:bframes=0:scenecut=0"
            stream = out.add_stream("libx264", rate=25, options={"x264-params": params})
            stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
            for number in range(FRAMES):
                picture = np.roll(scene, number, 1).astype(np.uint8)
                out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "yuv420p")))
            out.mux(stream.encode(None))
        made[end] = path
    return made


@pytest.mark.parametrize("end", ["mp4", "ts"])
def test_recovery_point_that_takes_pictures_is_no_place_to_begin(
    refreshed: dict[str, Path], end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LEAST_RUN", 10)
    path = refreshed[end]
    with av.open(str(path)) as container:
        context = container.streams.video[0].codec_context
        whole = restarts("h264", context.extradata)
        packets = [packet for packet in container.demux(video=0) if packet.is_keyframe]
    assert len(packets) > 5
    assert [whole(packet) for packet in packets] == [True] + [False] * (len(packets) - 1)
    alone, _ = decode(path, 1)
    assert len(alone) == FRAMES
    assert len(decode(path, 3)[0]) < FRAMES
    assert decode(path, 3, restarts=whole)[0] == alone


@pytest.mark.parametrize("name", ["closed", "open"])
@pytest.mark.parametrize("end", ["mkv", "ts"])
def test_key_frames_whose_pictures_are_whole_are_places_to_begin(
    clips: dict[str, Path], name: str, end: str, tmp_path: Path
) -> None:
    path = tmp_path / f"clip.{end}"
    with av.open(str(clips[name])) as source, av.open(str(path), "w") as out:
        stream = out.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                out.mux(packet)
    with av.open(str(path)) as container:
        whole = restarts("h264", container.streams.video[0].codec_context.extradata)
        told = [whole(packet) for packet in container.demux(video=0) if packet.is_keyframe]
    assert told == [True] * (FRAMES // 10)


def test_other_codecs_begin_at_every_key_frame() -> None:
    assert restarts("hevc", None)(av.Packet(b"\0\0\0\1\6"))
    assert not restarts("h264", None)(av.Packet(b"\0\0\1\6\5\xff\0\0\1\6\6\2\x40"))
    assert restarts("h264", None)(av.Packet(b"\0\0\1\6\5\2xx\6\1\x80\0\0\1\x41"))


def test_slow_first_decoder_holds_the_others_back(
    clips: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LEAST_RUN", 10)
    lock = threading.Lock()
    made = taken = most = 0

    class Counting(Pictures):
        def add(self, picture: av.VideoFrame) -> Iterator[list[tuple[int, bytes]]]:
            nonlocal made, most
            for item in super().add(picture):
                with lock:
                    made += 1
                    most = max(most, made - taken)
                yield item

    with av.open(str(clips["closed"])) as container:
        video = container.streams.video[0]

        with Sessions(
            container.demux(video),
            video.index,
            count=3,
            open_decoder=opener(video),
            collect=Counting,
            ahead=2,
        ) as shared:
            for _ in shared:
                with lock:
                    taken += 1
                time.sleep(0.001)
    assert taken == FRAMES // 2
    # Three decoders, each two waiting and one in its hand, and two runs that end with their rest.
    assert most <= 3 * 3 + 2 * 2


def test_leaving_early_ends_all_threads(clips: dict[str, Path]) -> None:
    before = threading.active_count()
    with av.open(str(clips["open"])) as container:
        video = container.streams.video[0]

        with Sessions(
            container.demux(video),
            video.index,
            count=2,
            open_decoder=opener(video),
            collect=Pictures,
            ahead=1,
        ) as shared:
            next(iter(shared))
    assert threading.active_count() == before


def test_error_of_a_decoder_reaches_the_caller(clips: dict[str, Path]) -> None:
    def refuse() -> Any:
        raise RuntimeError("no decoder")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="no decoder"):
        decode(clips["closed"], 2, open_decoder=refuse)
    assert threading.active_count() == before


def test_error_while_reading_comes_behind_what_was_read(clips: dict[str, Path]) -> None:
    seen: list[Any] = []
    with av.open(str(clips["closed"])) as container:
        video = container.streams.video[0]

        def broken() -> Iterator[Any]:
            for number, packet in enumerate(container.demux(video)):
                if number == 40:
                    raise OSError("the disk is gone")
                yield packet

        with Sessions(
            broken(), video.index, count=2, open_decoder=opener(video), collect=Pictures
        ) as shared:

            def read() -> None:
                for item in shared:
                    seen.extend(item)

            with pytest.raises(OSError, match="the disk is gone"):
                read()
    assert len(seen) == 40


def test_damaged_packet_is_reported_and_the_rest_decodes(
    clips: dict[str, Path], tmp_path: Path
) -> None:
    with av.open(str(clips["closed"])) as container:
        video = container.streams.video[0]
        packets = list(container.demux(video))
        broken = av.Packet(b"\\0\\0\\0\\5abcde")
        broken.stream, broken.time_base = video, packets[40].time_base
        broken.pts, broken.dts = packets[40].pts, packets[40].dts

        with Sessions(
            [*packets[:40], broken, *packets[41:]],
            video.index,
            count=2,
            open_decoder=opener(video),
            collect=Pictures,
        ) as shared:
            items = list(shared)
    assert any(isinstance(item, Damage) for item in items)
    assert sum(len(item) for item in items if isinstance(item, list)) >= FRAMES - 10


def test_channel_closed_by_the_reader_lets_the_writer_go() -> None:
    channel: Channel[int] = Channel(1)
    assert channel.put(1)
    results: list[bool] = []
    writer = threading.Thread(target=lambda: results.append(channel.put(2)))
    writer.start()
    channel.close()
    writer.join(5)
    assert results == [False]
    assert list(channel) == []
