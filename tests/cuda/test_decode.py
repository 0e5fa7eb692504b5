"""Reading for a GPU, tried with FFmpeg's software decoder behind NVDEC's face."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest

from avdnn import host
from avdnn.cuda import decode as cuda_decode
from avdnn.cuda import frames as cuda_frames
from avdnn.cuda import sessions, slots
from avdnn.cuda.decode import DeviceReader, nvdec_format
from avdnn.errors import DeviceError
from avdnn.frame import Frame
from avdnn.job import InputSpec
from avdnn.media.reader import Reader
from avdnn.properties import BOTTOM_FIRST, TOP_FIRST, display_matrix, field_order

from ..clips import scene
from .fake_gpu import FakeGpu

FRAMES = 60

FIRST_RUN = 700
"""Milliseconds that no later run begins before."""


class Surface:
    """A software frame that looks like a CUDA frame of NV12."""

    def __init__(self, frame: av.VideoFrame) -> None:
        self.host = frame
        self._frame = frame.reformat(format="nv12")
        self.sw_format = self._frame.format
        self.format = SimpleNamespace(name="cuda")
        self.time_base = frame.time_base
        self.planes = self._frame.planes
        self.width, self.height = frame.width, frame.height
        self.pts, self.dts, self.duration = frame.pts, frame.dts, frame.duration
        self.color_range, self.colorspace = frame.color_range, frame.colorspace
        self.color_primaries, self.color_trc = frame.color_primaries, frame.color_trc
        self.side_data: Any = frame.side_data
        self.interlaced_frame = frame.interlaced_frame


class Decoder:
    """A software decoder that gives such surfaces, or refuses everything."""

    def __init__(self, video: av.VideoStream, gpu: FakeGpu) -> None:
        self._context: Any = av.CodecContext.create(video.codec_context.name, "r")
        self._context.extradata = video.codec_context.extradata
        self._refuses = gpu.refuses  # type: ignore[attr-defined]
        # FFmpeg frees surfaces when the GPU is done with them; here they stay.
        self._alive: list[Any] = gpu.surfaces  # type: ignore[attr-defined]

    def decode(self, packet: Any) -> list[Any]:
        if self._refuses:
            raise self._refuses
        made = [Surface(frame) for frame in self._context.decode(packet)]
        self._alive += made
        return made

    def flush_buffers(self) -> None:
        self._context.flush_buffers()


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """H.264 with B-frames, sound beside it, a late start, BT.709 tags."""
    path = tmp_path_factory.mktemp("clip") / "clip.mkv"
    with av.open(str(path), "w") as out:
        params = "keyint=10:min-keyint=10:scenecut=0:bframes=3:open-gop=1"
        stream = out.add_stream("libx264", rate=25, options={"x264-params": params})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.codec_context.colorspace = 1
        sound = out.add_stream("pcm_s16le", rate=8000, layout="mono")
        for number in range(FRAMES):
            picture = av.VideoFrame.from_ndarray(
                np.full((72, 64), 40 + number, np.uint8), "yuv420p"
            )
            picture.pts, picture.time_base = number + 5, Fraction(1, 25)
            out.mux(stream.encode(picture))
            heard = av.AudioFrame.from_ndarray(np.zeros((1, 320), np.int16), "s16", "mono")
            heard.sample_rate, heard.pts = 8000, number * 320
            out.mux(sound.encode(heard))
        out.mux(stream.encode(None))
    return path


@pytest.fixture
def gpu(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    monkeypatch.setattr(cuda_decode, "check_library", lambda: None)
    monkeypatch.setattr(cuda_decode, "open_decoder", lambda device, video: Decoder(video, device))
    monkeypatch.setattr(
        slots, "surface_field_order", lambda device, surface: field_order(surface.host)
    )
    monkeypatch.setattr(sessions, "LEAST_RUN", 10)
    made = FakeGpu(kernels, 2)
    made.refuses, made.surfaces = None, []  # type: ignore[attr-defined]
    return made


@pytest.mark.parametrize("decoders", [1, 3])
@pytest.mark.parametrize(
    "cut", [{}, {"start": 0.7, "offset": 1.5}, {"duration": 1.1}, {"rate": "50"}]
)
def test_times_and_packets_are_the_plain_readers(
    gpu: FakeGpu, clip: Path, decoders: int, cut: dict[str, Any]
) -> None:
    seen = []
    plain = Reader(InputSpec(str(clip), **cut))
    device = DeviceReader(InputSpec(str(clip), decoders=decoders, **cut), gpu, slot_frames=4)
    for reader in (plain, device):
        with reader:
            items = list(reader)
        times = [(i.meta.pts, i.meta.duration, i.meta.time_base) for i in items if _is(i)]
        sounds = sorted(item.dts for item in items if not _is(item) and item.size)
        seen.append((times, sounds, reader.time_base, reader.frames))
    assert seen[0][0] == seen[1][0]
    assert seen[0][2:] == seen[1][2:]
    # Frames come a run later there, so that a cut may let a few more packets through.
    assert seen[1][1][: len(seen[0][1])] == seen[0][1]


def _is(item: Any) -> bool:
    return isinstance(item, Frame)


def test_frames_hold_the_pictures_and_their_tags(gpu: FakeGpu, clip: Path) -> None:
    with DeviceReader(InputSpec(str(clip), decoders=0), gpu) as reader:
        assert reader.pix_fmt == "nv12"
        frames = [item for item in reader if _is(item)]
        for number, frame in enumerate(frames):
            got = cuda_frames.to_host(gpu, frame)
            assert abs(int(got.planes[0][20, 20]) - 40 - number) <= 2  # libx264's own loss
            assert int(host.to_av(got).colorspace) == 1
    assert len(frames) == FRAMES
    assert gpu.traffic.up == 0


@pytest.fixture
def fields(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """H.264 of two fields a picture, in the order of the parameter."""
    return scene(tmp_path / "fields.mkv", fields=request.param)


@pytest.mark.parametrize(
    ("fields", "order"), [("tff", TOP_FIRST), ("bff", BOTTOM_FIRST)], indirect=["fields"]
)
def test_order_of_fields_stays_through_the_gpu(gpu: FakeGpu, fields: Path, order: int) -> None:
    with DeviceReader(InputSpec(str(fields)), gpu) as reader:
        frames = [item for item in reader if _is(item)]
        assert [frame.meta.field_order for frame in frames] == [order] * 10
        down = [cuda_frames.to_host(gpu, frame) for frame in frames]
        assert {field_order(host.to_av(frame)) for frame in down} == {order}
        again = cuda_frames.upload(gpu, down[0])
        assert again.meta.field_order == order
        made = host.empty("rgb24", 32, 24, down[0].meta)
        assert field_order(host.to_av(made)) == order


def test_progressive_pictures_stay_progressive(gpu: FakeGpu, clip: Path) -> None:
    with DeviceReader(InputSpec(str(clip)), gpu) as reader:
        first: Any = next(item for item in reader if _is(item))
        assert first.meta.field_order == 0
        assert not host.to_av(cuda_frames.to_host(gpu, first)).interlaced_frame


def test_display_matrix_of_the_container_is_told(gpu: FakeGpu, tmp_path: Path, clip: Path) -> None:
    turned = tmp_path / "turned.mp4"
    scene(turned, rotation=90)
    with av.open(str(turned)) as container:
        expected = display_matrix(next(container.decode(video=0)))
    assert expected
    for path, matrix in ((turned, expected), (clip, [])):
        with DeviceReader(InputSpec(str(path), decoders=2), gpu) as reader:
            count = sum(_is(item) for item in reader)
            assert reader.matrix == matrix
        assert count == (10 if path == turned else FRAMES)


@pytest.mark.parametrize(
    "error",
    [
        av.error.InvalidDataError(1094995529, "Invalid data found"),
        av.error.ArgumentError(22, "Invalid argument"),
    ],
)
def test_stream_that_nvdec_refuses_is_named(gpu: FakeGpu, clip: Path, error: Exception) -> None:
    gpu.refuses = error  # type: ignore[attr-defined]
    with (
        DeviceReader(InputSpec(str(clip)), gpu) as reader,
        pytest.raises(DeviceError, match=r"clip.mkv: NVDEC of this GPU cannot decode .*yuv420p"),
    ):
        list(reader)


def test_frames_have_the_tags_of_their_own_picture(
    gpu: FakeGpu, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Changing(Decoder):
        def decode(self, packet: Any) -> list[Any]:
            made = super().decode(packet)
            for surface in made:
                surface.colorspace = 5 if surface.pts >= FIRST_RUN else 1
            return made

    monkeypatch.setattr(cuda_decode, "open_decoder", lambda device, video: Changing(video, device))
    with DeviceReader(InputSpec(str(clip)), gpu) as reader:
        made = [item for item in reader if isinstance(item, Frame)]
    assert len(made) == FRAMES
    for frame in made:
        assert frame.meta.pts is not None
        assert frame.meta.template is not None
        later = frame.meta.pts >= FIRST_RUN
        assert frame.meta.template.colorspace == (5 if later else 1)


def test_decoder_that_fails_on_all_of_a_later_run_is_no_damage(
    gpu: FakeGpu, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lacking(Decoder):
        """There is no room on the GPU for another decoder than the first run's."""

        def decode(self, packet: Any) -> list[Any]:
            if packet is not None and packet.pts > FIRST_RUN:
                raise av.error.ExternalError(542398533, "Generic error in an external library")
            return super().decode(packet)

    monkeypatch.setattr(cuda_decode, "open_decoder", lambda device, video: Lacking(video, device))
    with (
        DeviceReader(InputSpec(str(clip), decoders=3), gpu) as reader,
        pytest.raises(DeviceError, match=r"clip.mkv: NVDEC failed .* external .*fewer -decoders"),
    ):
        list(reader)
    assert not reader.damage


def test_intra_refresh_is_one_sessions(gpu: FakeGpu, tmp_path: Path) -> None:
    path = tmp_path / "refreshed.mp4"
    scene = np.kron(np.random.default_rng(0).integers(16, 235, (9, 8), np.uint8), np.ones((8, 8)))
    with av.open(str(path), "w") as out:
        params = "keyint=10:intra-refresh=1:bframes=0:scenecut=0"
        stream = out.add_stream("libx264", rate=25, options={"x264-params": params})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(FRAMES):
            picture = np.roll(scene, number, 1).astype(np.uint8)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, "yuv420p")))
        out.mux(stream.encode(None))
    got = {}
    for decoders in (1, 3):
        with DeviceReader(InputSpec(str(path), decoders=decoders), gpu) as reader:
            frames = [item for item in reader if isinstance(item, Frame)]
            got[decoders] = [cuda_frames.to_host(gpu, frame).planes[0].copy() for frame in frames]
    assert len(got[1]) == FRAMES
    assert all(np.array_equal(*pair) for pair in zip(got[1], got[3], strict=True))


@pytest.mark.parametrize("pixels", ["yuv420p12le", "yuv444p"])
def test_less_is_decoded_ahead_where_frames_are_larger(
    gpu: FakeGpu, clip: Path, monkeypatch: pytest.MonkeyPatch, pixels: str
) -> None:
    with DeviceReader(InputSpec(str(clip), decoders=3), gpu) as reader:
        monkeypatch.setattr(cuda_decode, "AHEAD_BYTES", 3 * 24 * 8 * 256 * 72)
        assert reader._ahead() == 24
        monkeypatch.setattr(DeviceReader, "pix_fmt", nvdec_format(pixels))
        size = {"yuv420p12le": 72, "yuv444p": 3 * 48}[pixels]
        assert reader._ahead() == 24 * 72 // size


@pytest.mark.parametrize("damaged", [{0, 1}, {5}, {30}])
@pytest.mark.parametrize("start", [None, 1.6])
def test_damaged_packets_are_noted_wherever_they_are(
    gpu: FakeGpu,
    clip: Path,
    monkeypatch: pytest.MonkeyPatch,
    damaged: set[int],
    start: float | None,
) -> None:
    class Damaged(Decoder):
        seen = 0

        def decode(self, packet: Any) -> list[Any]:
            if packet is not None:
                self.seen += 1
                if self.seen - 1 in damaged:
                    raise av.error.InvalidDataError(1094995529, "Invalid data found")
            return super().decode(packet)

    monkeypatch.setattr(cuda_decode, "open_decoder", lambda device, video: Damaged(video, device))
    monkeypatch.setattr(sessions, "LEAST_RUN", 1000)
    with DeviceReader(InputSpec(str(clip), start=start), gpu) as reader:
        made = [item for item in reader if isinstance(item, Frame)]
    assert len(made) >= 10
    notes = [note for note in reader.damage if "cannot be decoded: Invalid data found" in note]
    assert len(notes) == len(damaged)


def test_leaving_early_ends_the_sessions(gpu: FakeGpu, clip: Path) -> None:
    with DeviceReader(InputSpec(str(clip), decoders=3), gpu) as reader:
        items: Any = iter(reader)
        next(items)
        items.close()


@pytest.mark.parametrize(
    ("decoded", "surface"),
    [
        ("yuv420p", "nv12"),
        ("yuvj420p", "nv12"),
        ("yuv420p10le", "p010le"),
        ("yuv420p12le", "p016le"),
        ("yuv444p", "yuv444p"),
        ("yuv444p10le", "yuv444p16le"),
    ],
)
def test_surface_formats(decoded: str, surface: str) -> None:
    assert nvdec_format(decoded) == surface
