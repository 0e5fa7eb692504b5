"""The whole way on a real GPU: NVDEC, networks, downloads, and what goes wrong."""

from __future__ import annotations

import resource
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from avdnn import cuda, filters, host, pipeline
from avdnn.acceleration import plan
from avdnn.cuda.blocks import Memory, Pool
from avdnn.cuda.decode import DeviceReader
from avdnn.errors import AvdnnError, DeviceError, ModelError
from avdnn.filters import Context
from avdnn.filters._device_jobs import Jobs
from avdnn.filters._replay import Replay
from avdnn.filters.hwdownload import HwDownload
from avdnn.frame import Frame, Meta
from avdnn.job import InputSpec, Job, OutputSpec
from avdnn.notes import NOTE
from avdnn.pixfmt import pixel_format

from ..conftest import require

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

RGB = ["rgb24", "bgr24", "rgb0", "bgr0", "0rgb", "0bgr"]
REFRESHED = "keyint=24:intra-refresh=1:bframes=0:scenecut=0"
WIDTHS = [16, 62, 100, 352, 720, 960, 1280, 1920]


@pytest.fixture(autouse=True)
def _gpu(cuda_device: Any) -> None:
    """Skip without a GPU, before anything else is made."""


@pytest.fixture(scope="session")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small TorchScript networks: ident, half, affine, frac, bgr, and x2 enlargers."""
    import torch
    from torch import nn

    folder = tmp_path_factory.mktemp("networks")

    class Line(nn.Module):
        def __init__(self, factor: float, offset: float) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(factor), requires_grad=False)
            self.offset = nn.Parameter(torch.tensor(offset), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor + self.offset

    class Swap(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, [2, 1, 0]]

    def enlarger(channels: int) -> nn.Module:
        torch.manual_seed(channels)
        body = nn.Sequential(
            nn.Conv2d(channels, 16, 5, padding=2),
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 4 * channels, 3, padding=1),
            nn.PixelShuffle(2),
            nn.Sigmoid(),
        )
        return body.requires_grad_(False)

    made: dict[str, tuple[nn.Module, int]] = {
        "ident": (Line(1.0, 0.0), 3),
        "half": (Line(0.5, 0.0), 3),
        "affine": (Line(2.0, -0.5), 3),
        "frac": (Line(1.0, 0.3 / 255), 3),
        "swap": (Swap(), 3),
        "luma2x": (enlarger(1), 1),
        "rgb2x": (enlarger(3), 3),
    }
    for name, (module, channels) in made.items():
        traced = torch.jit.trace(module.eval(), torch.rand(1, channels, 24, 24))
        traced.save(str(folder / f"{name}.pt"))

    class Fixed(nn.Module):
        """Takes pictures of one size."""

        def __init__(self, body: nn.Module, side: int) -> None:
            super().__init__()
            self.body = body
            self.side = side

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.shape[2] != self.side or x.shape[3] != self.side:
                raise RuntimeError("pictures of another size")
            return self.body(x)

    class Looks(nn.Module):
        """Takes another way for bright pictures."""

        def __init__(self, body: nn.Module) -> None:
            super().__init__()
            self.body = body

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if bool(x.mean() > 0.45):
                return self.body(x)
            return 1 - self.body(x)

    for side in (64, 512):
        for name, channels in (("luma", 1), ("rgb", 3)):
            fixed = torch.jit.script(Fixed(enlarger(channels), side).eval())
            fixed.save(str(folder / f"{name}2x-{side}.pt"))
    torch.jit.script(Looks(enlarger(1)).eval()).save(str(folder / "looks.pt"))
    return folder


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Short clips: H.264 with closed and open groups, 10-bit HEVC, 4:2:2 H.264, long and short."""
    folder = tmp_path_factory.mktemp("clips")
    x264 = "keyint=24:min-keyint=24:scenecut=0:bframes=3"
    kinds = {
        "closed": ("libx264", "yuv420p", 320, 240, 150, {"x264-params": f"{x264}:open-gop=0"}),
        "open": ("libx264", "yuv420p", 320, 240, 150, {"x264-params": f"{x264}:open-gop=1"}),
        "odd": ("libx264", "yuv420p", 354, 242, 30, {}),
        "small": ("libx264", "yuv420p", 160, 128, 300, {"x264-params": f"{x264}:open-gop=1"}),
        "ten": ("libx265", "yuv420p10le", 320, 240, 48, {"x265-params": "log-level=none"}),
        "vp9": ("libvpx-vp9", "yuv420p", 320, 240, 60, {"g": "24"}),
        "av1": ("libsvtav1", "yuv420p", 320, 240, 60, {"preset": "10", "g": "24"}),
        "422": ("libx264", "yuv422p10le", 320, 240, 12, {}),
        "refreshed": ("libx264", "yuv420p", 320, 240, 150, {"x264-params": REFRESHED}),
    }
    made = {}
    for name, (codec, form, width, height, count, options) in kinds.items():
        made[name] = folder / f"{name}.mkv"
        source = f"testsrc2=size={width}x{height}:rate=30:duration={count / 30}"
        with (
            av.open(source, format="lavfi") as scene,
            av.open(str(made[name]), "w") as out,
        ):
            stream = out.add_stream(codec, rate=30, options=options)
            stream.width, stream.height, stream.pix_fmt = width, height, form
            for frame in scene.decode(video=0):
                frame.pts, frame.pict_type = None, 0
                out.mux(stream.encode(frame.reformat(format=form)))
            out.mux(stream.encode(None))
    return made


def on_device(path: Path, text: str, decoders: int = 1, said: list[str] | None = None) -> list[Any]:
    """Host frames of a chain that NVDEC feeds."""
    context = Context(say=(said if said is not None else []).append)
    chain = [*(filters.build(text, context) if text else []), HwDownload(context)]
    with (
        DeviceReader(InputSpec(str(path), decoders=decoders), cuda.device(0)) as reader,
        closing(filters.connect(chain, iter(reader))) as items,
    ):
        return [item for item in items if isinstance(item, Frame)]


def on_host(path: Path, text: str = "") -> list[Frame]:
    """The same with FFmpeg's software decoder and no GPU."""
    with av.open(str(path)) as container:
        frames = [host.from_av(frame) for frame in container.decode(video=0)]
    chain = filters.build(text, Context(say=lambda line: None)) if text else []
    return list(filters.connect(chain, (frame for frame in frames)))


def luma(frame: Frame) -> Any:
    return frame.planes[0].astype(int) >> pixel_format(frame.format).shift


def psnr(one: Any, other: Any, peak: int = 255) -> float:
    error = float(np.square(one.astype(float) - other).mean())
    return 99.0 if error == 0 else 10 * np.log10(peak**2 / error)


# ---- decoding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("decoders", [1, 2, 4])
@pytest.mark.parametrize("name", ["closed", "open", "odd", "ten", "vp9", "av1", "refreshed"])
def test_nvdec_gives_the_software_decoders_frames(
    clips: dict[str, Path], name: str, decoders: int
) -> None:
    before = cuda.device(0).traffic.up
    got, expected = on_device(clips[name], "", decoders), on_host(clips[name])
    assert [frame.meta.pts for frame in got] == [frame.meta.pts for frame in expected]
    for one, other in zip(got, expected, strict=True):
        assert np.array_equal(luma(one), luma(other))
        known = pixel_format(one.format)
        chroma = np.stack(other.planes[1:], axis=-1)
        assert np.array_equal(one.planes[1] >> known.shift, chroma)
    assert cuda.device(0).traffic.up == before


def test_stream_that_nvdec_cannot_decode_is_an_error_of_one_line(clips: dict[str, Path]) -> None:
    with pytest.raises(DeviceError, match="cannot decode") as caught:
        on_device(clips["422"], "")
    assert "\n" not in str(caught.value)


def test_hwaccel_auto_says_which_it_took(clips: dict[str, Path]) -> None:
    for name, device, words in (("422", None, "on the CPU"), ("closed", "cuda:0", "on cuda:0")):
        said: list[str] = []
        spec = InputSpec(str(clips[name]), hwaccel="auto")
        chosen = plan(Job(spec, OutputSpec("out.mkv"), vf="null"), said.append)
        assert (chosen.device and chosen.device.label) == device
        assert words in said[0]


def test_gpu_out_of_range_is_named() -> None:
    with pytest.raises(DeviceError, match="no GPU cuda:99"):
        cuda.device(99)


# ---- networks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", RGB)
@pytest.mark.parametrize("width", WIDTHS)
def test_rgb_frames_are_the_cpu_paths_frames(networks: Path, form: str, width: int) -> None:
    height = 17
    frame = host.empty(form, width, height, Meta(0, 1, Fraction(1, 25)))
    frame.planes[0][...] = np.random.default_rng(width).integers(0, 256, frame.planes[0].shape)
    if "0" in form:
        frame.planes[0][..., form.index("0")] = 255
    limits = {"ident": 0, "half": 1, "affine": 1, "frac": 1, "swap": 0, "rgb2x": 1}
    for name, limit in limits.items():
        text = f"dnn_processing=dnn_backend=torch:model={networks}/{name}.pt:precision=float32"
        context = Context(say=lambda line: None)
        there = filters.build(f"hwupload,{text},hwdownload", context)
        here = filters.build(f"{text}:device=cpu", context)
        (got,) = filters.connect(there, (item for item in [frame]))
        (expected,) = filters.connect(here, (item for item in [frame]))
        assert got.format == form
        assert np.abs(got.planes[0].astype(int) - expected.planes[0]).max() <= limit


def test_identity_through_rgb_changes_yuv_by_at_most_1_lsb(
    networks: Path, clips: dict[str, Path]
) -> None:
    text = f"dnn_processing=dnn_backend=torch:model={networks}/ident.pt:precision=float32"
    got = on_device(clips["closed"], text)
    worst = 0
    for one, other in zip(got, on_device(clips["closed"], ""), strict=True):
        inside = _inside_rgb(other)
        worst = max(worst, int(np.abs(luma(one) - luma(other))[inside].max()))
    assert worst <= 1


def _inside_rgb(frame: Frame) -> Any:
    """Pixels whose colour exists in RGB; the others are clipped, as they must be."""
    y = (frame.planes[0].astype(float) - 16) / 219
    u, v = ((frame.planes[1][..., i].astype(float) - 128) / 224 for i in (0, 1))
    u, v = (plane.repeat(2, 0).repeat(2, 1) for plane in (u, v))
    rgb = np.stack([y + 1.402 * v, y - 0.344136 * u - 0.714136 * v, y + 1.772 * u])
    return ((rgb >= 0) & (rgb <= 1)).all(0)


_EXPECTED: dict[str, list[Frame]] = {}


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("options", ["", ":options=compile=1", ":options=capture=0"])
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_luma_network_matches_the_cpu(
    networks: Path, clips: dict[str, Path], precision: str, options: str, batch: int
) -> None:
    model = f"dnn_processing=dnn_backend=torch:model={networks}/luma2x.pt"
    got = on_device(
        clips["closed"], f"{model}:precision={precision}:batch_size={batch}{options}", 2
    )
    key = str(clips["closed"])
    if key not in _EXPECTED:
        text = f"{model}:precision=float32:device=cpu:batch_size=8"
        _EXPECTED[key] = on_host(clips["closed"], text)
    expected = _EXPECTED[key]
    assert len(got) == len(expected) == 150
    limit, quality = (1, 60) if precision == "float32" else (2, 50)
    for one, other in zip(got, expected, strict=True):
        assert (one.width, one.height) == (640, 480)
        assert one.meta.pts == other.meta.pts
        assert np.abs(luma(one) - luma(other)).max() <= limit
        assert psnr(luma(one), luma(other)) >= quality
        for component in (0, 1):
            # libswscale's SIMD rounds some samples down, hence 1 LSB.
            delta = one.planes[1][..., component].astype(int) - other.planes[1 + component]
            assert np.abs(delta).max() <= 1


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("more", ["", ":fit=tile:overlap=40"])
@pytest.mark.parametrize("model", ["luma2x", "rgb2x", "luma2x-64", "rgb2x-64", "rgb2x-512"])
def test_recorded_jobs_give_the_frames_of_step_by_step(
    networks: Path, clips: dict[str, Path], model: str, more: str, precision: str, batch: int
) -> None:
    text = f"dnn_processing=dnn_backend=torch:model={networks}/{model}.pt"
    text = f"{text}:precision={precision}:batch_size={batch}{more}"
    said: list[str] = []
    got = on_device(clips["odd"], text, 1, said)
    assert "step by step" not in "".join(said)
    expected = on_device(clips["odd"], f"{text}:options=capture=0")
    assert len(got) == len(expected) == 30
    for one, other in zip(got, expected, strict=True):
        for a, b in zip(one.planes, other.planes, strict=True):
            # A recorded network may take other kernels.
            assert np.abs(a.astype(int) - b).max() <= 1


def test_jobs_of_several_threads_are_recorded_beside_each_other(
    networks: Path, clips: dict[str, Path]
) -> None:
    texts = [
        f"dnn_processing=dnn_backend=torch:model={networks}/{model}.pt"
        f":precision=float32:batch_size={batch}"
        for model, batch in (("luma2x", 1), ("rgb2x", 4), ("luma2x", 8))
    ]
    texts.append(f"scale=200:100,{texts[0]}")
    alone = [on_device(clips["closed"], f"{text}:options=capture=0") for text in texts]
    with ThreadPoolExecutor(len(texts)) as pool:
        for _ in range(4):
            said: list[str] = []
            runs = [pool.submit(on_device, clips["closed"], text, 2, said) for text in texts]
            for run, expected in zip(runs, alone, strict=True):
                got = run.result()
                assert len(got) == len(expected) == 150
                for one, other in zip(got, expected, strict=True):
                    assert np.abs(luma(one) - luma(other)).max() <= 1
            assert "step by step" not in "".join(said)


def test_network_that_looks_at_its_pixels_goes_step_by_step(
    networks: Path, clips: dict[str, Path]
) -> None:
    said: list[str] = []
    text = f"dnn_processing=dnn_backend=torch:model={networks}/looks.pt"
    for precision in ("float32", "float16"):
        got = on_device(clips["odd"], f"{text}:precision={precision}", 1, said)
        expected = on_host(clips["odd"], f"{text}:precision=float32:device=cpu")
        assert [line for line in said if "step by step" in line]
        for one, other in zip(got, expected, strict=True):
            assert np.abs(luma(one) - luma(other)).max() <= (1 if precision == "float32" else 2)
    with pytest.raises(ModelError, match="capture=1"):
        on_device(clips["odd"], f"{text}:options=capture=1")
    # The stream is as it was.
    after = f"dnn_processing=dnn_backend=torch:model={networks}/luma2x.pt:precision=float32"
    assert len(on_device(clips["odd"], after)) == 30


@pytest.mark.parametrize("batch", [1, 6])
@pytest.mark.parametrize(
    ("model", "more", "words"),
    [
        ("luma2x-64", "", "tiles of 64x64"),
        ("luma2x-64", ":overlap=5", "blended"),
        ("luma2x-64", ":fit=scale", "are scaled"),
        ("luma2x-512", "", "padded to 512x512"),
        ("luma2x", ":fit=tile", "tiles of"),
    ],
)
@pytest.mark.parametrize("name", ["odd", "ten"])
def test_model_of_another_size_is_fitted_as_on_the_cpu(
    networks: Path,
    clips: dict[str, Path],
    name: str,
    model: str,
    more: str,
    words: str,
    batch: int,
) -> None:
    said: list[str] = []
    text = f"dnn_processing=dnn_backend=torch:model={networks}/{model}.pt:precision=float32{more}"
    got = on_device(clips[name], f"{text}:batch_size={batch}", 1, said)
    assert words in said[0]
    expected = on_host(clips[name], f"{text}:device=cpu:batch_size=4")
    for one, other in zip(got, expected, strict=True):
        assert one.meta.pts == other.meta.pts
        assert np.abs(luma(one) - luma(other)).max() <= 1


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("more", ["", ":options=compile=1"])
def test_colour_model_in_tiles_is_the_model_on_the_whole_frame(
    networks: Path, clips: dict[str, Path], precision: str, more: str
) -> None:
    text = f"dnn_processing=dnn_backend=torch:model={networks}/rgb2x"
    said: list[str] = []
    tiled = on_device(
        clips["odd"], f"{text}-64.pt:precision={precision}:batch_size=8{more}", 1, said
    )
    assert "cut in the middle" in said[0]
    whole = on_device(clips["odd"], f"{text}.pt:precision={precision}")
    for one, other in zip(tiled, whole, strict=True):
        for a, b in zip(one.planes, other.planes, strict=True):
            assert np.abs(a.astype(int) - b).max() <= (1 if precision == "float32" else 2)


def test_ten_bit_frames_keep_their_depth(networks: Path, clips: dict[str, Path]) -> None:
    text = f"dnn_processing=dnn_backend=torch:model={networks}/luma2x.pt:precision=float32"
    got = on_device(clips["ten"], text)
    expected = on_host(clips["ten"], f"{text}:device=cpu:batch_size=8")
    for one, other in zip(got, expected, strict=True):
        assert one.format == "p010le"
        assert np.abs(luma(one) - luma(other)).max() <= 1
        assert (one.planes[0] & 63 == 0).all()


def test_auto_precision_takes_float16_and_says_so(networks: Path, clips: dict[str, Path]) -> None:
    said: list[str] = []
    on_device(clips["odd"], f"dnn_processing=model={networks}/luma2x.pt", 1, said)
    assert "in float16" in said[0]


def test_bfloat16_runs(networks: Path, clips: dict[str, Path]) -> None:
    text = f"dnn_processing=model={networks}/luma2x.pt:precision=bfloat16"
    exact = on_device(clips["odd"], f"dnn_processing=model={networks}/luma2x.pt:precision=float32")
    for one, other in zip(on_device(clips["odd"], text), exact, strict=True):
        assert psnr(luma(one), luma(other)) >= 38  # 8 bits of mantissa


def test_exhausted_memory_says_how_much_was_needed(clips: dict[str, Path]) -> None:
    device = cuda.device(0)
    with pytest.raises(DeviceError, match=r"MiB more are needed.*batch_size="):
        device.pool.take(1 << 45, device.compute)


# ---- life and load -------------------------------------------------------------------------------


def repeated(clip: Path, target: Path, frames: int) -> Path:
    """The clip's packets over and over."""
    with av.open(str(clip)) as source, av.open(str(target), "w") as out:
        video = source.streams.video[0]
        made = out.add_stream_from_template(video)
        packets = [packet for packet in source.demux(video) if packet.size]
        length = max((packet.pts or 0) + (packet.duration or 0) for packet in packets)
        for turn in range(frames // len(packets)):
            for packet in packets:
                copy = av.Packet(bytes(packet))
                copy.pts = (packet.pts or 0) + turn * length
                copy.dts = (packet.dts or 0) + turn * length
                copy.duration, copy.time_base = packet.duration, packet.time_base
                copy.is_keyframe, copy.stream = packet.is_keyframe, made
                out.mux(copy)
    return target


def digest(frames: Iterator[Any]) -> tuple[int, str]:
    """How many frames, and one hash of all their samples."""
    total, count = 0, 0
    for frame in frames:
        if isinstance(frame, Frame):
            count += 1
            for plane in frame.planes:
                total = zlib.crc32(np.ascontiguousarray(plane), total)
    return count, f"{total:08x}"


@pytest.mark.timeout(300)
def test_twenty_runs_under_stress_give_one_hash(
    networks: Path, clips: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow compute stream, several sessions, memory overwritten when it is given back."""
    import torch

    device = cuda.device(0)
    give, infer, play = Pool.give, Jobs._inferred, Replay._play

    def poisoned(pool: Pool, memory: Memory, streams: dict[int, Any]) -> None:
        if pool is device.pool:
            # What still reads the block later than its events say finds this instead.
            for stream in streams.values():
                device.copies.wait_event(device.mark(stream))
            runtime = device._cp.cuda.runtime
            runtime.memsetAsync(memory.pointer, 0xDD, memory.size, device.copies.ptr)
            streams = {device.copies.ptr: device.copies}
        give(pool, memory, streams)

    def sleep() -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(device.compute.ptr)):
            torch.cuda._sleep(200_000)

    def slow(jobs: Jobs, inputs: Any) -> Any:
        sleep()
        return infer(jobs, inputs)

    def slowly_played(replay: Replay) -> None:
        sleep()
        play(replay)

    long = repeated(clips["small"], tmp_path / "long.mkv", 2100)
    text = f"dnn_processing=dnn_backend=torch:model={networks}/luma2x.pt:precision=float32"
    wanted = None
    monkeypatch.setattr(Pool, "give", poisoned)
    monkeypatch.setattr(Jobs, "_inferred", slow)
    monkeypatch.setattr(Replay, "_play", slowly_played)
    for turn in range(20):
        context = Context(say=lambda line: None)
        batch, capture = (1, 4, 8)[turn % 3], turn // 10
        options = f"batch_size={batch}:options=capture={capture}"
        chain = [*filters.build(f"{text}:{options}", context), HwDownload(context)]
        reader = DeviceReader(
            InputSpec(str(long), decoders=(1, 2, 4)[turn // 3 % 3]),
            device,
            slot_frames=(2, 8)[turn % 2],
        )
        with reader, closing(filters.connect(chain, iter(reader))) as items:
            got = digest(items)
        assert got[0] == 2100
        wanted = wanted or got
        # cuDNN takes other kernels for other batches; the luma of each batch size is compared.
        assert got[0] == wanted[0]
        key = f"hash {batch}"
        seen = _HASHES.setdefault(key, got[1])
        assert seen == got[1], f"run {turn}, batch {batch}"


_HASHES: dict[str, str] = {}


@pytest.mark.timeout(200)
def test_memory_does_not_grow_over_20000_frames(
    networks: Path, clips: dict[str, Path], tmp_path: Path
) -> None:
    import torch

    device = cuda.device(0)
    long = repeated(clips["small"], tmp_path / "long.mkv", 20100)
    text = f"dnn_processing=dnn_backend=torch:model={networks}/luma2x.pt:batch_size=8"
    context = Context(say=lambda line: None)
    chain = [*filters.build(text, context), HwDownload(context)]
    seen: list[tuple[int, int]] = []
    with (
        DeviceReader(InputSpec(str(long), decoders=4), device) as reader,
        closing(filters.connect(chain, iter(reader))) as items,
    ):
        count = 0
        for item in items:
            count += isinstance(item, Frame)
            del item
            if count % 5000 == 0 and count:
                resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
                own = device.pool.held + device.pinned.held + torch.cuda.memory_reserved()
                seen.append((own, resident))
    assert count == 20100
    first, last = seen[0], seen[-1]
    # One block more or less may be in use when it is looked at.
    assert last[0] - first[0] <= 64 << 20
    assert last[1] - first[1] <= 64  # MiB


# ---- the program ---------------------------------------------------------------------------------


def run(job: Job, caplog: pytest.LogCaptureFixture) -> tuple[pipeline.Report, str]:
    with caplog.at_level(NOTE):
        report = pipeline.run(job)
    return report, caplog.text


def test_ffmpegs_own_example_runs_unchanged(
    networks: Path, clips: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vf = (
        f"format=rgb24,hwupload,dnn_processing=dnn_backend=torch:model={networks}/ident.pt,"
        f"hwdownload,format=rgb0"
    )
    output = OutputSpec(str(tmp_path / "out.mkv"), codec="ffv1", overwrite=True)
    job = Job(
        InputSpec(str(clips["closed"])),
        output,
        vf=vf,
        init_hw_device="cuda=cuda",
        filter_hw_device="cuda",
    )
    report, _ = run(job, caplog)
    assert report.frames == 150
    assert report.host_to_device_bytes >= 150 * 320 * 240 * 3
    with av.open(output.url) as made:
        assert sum(1 for _ in made.decode(video=0)) == 150


def test_job_without_a_filter_takes_the_gpu_and_says_so(
    clips: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = cuda.device(0).traffic.up
    output = OutputSpec(str(tmp_path / "out.mp4"), overwrite=True, options={"preset": "ultrafast"})
    report, said = run(Job(InputSpec(str(clips["open"])), output), caplog)
    assert report.frames == 150
    assert "frames stay on it" in said
    assert report.host_to_device_bytes == before
    assert report.device_to_host_bytes > 0
    assert report.device_peak_bytes > 0
    with av.open(output.url) as made:
        frames = list(made.decode(video=0))
    assert [(frame.width, frame.height) for frame in frames] == [(640, 480)] * 150


def test_hwaccel_cuda_alone_brings_the_frames_to_the_host(
    clips: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = OutputSpec(str(tmp_path / "out.mkv"), codec="ffv1", overwrite=True)
    spec = InputSpec(str(clips["closed"]), hwaccel="cuda")
    report, _ = run(Job(spec, output, vf="hflip"), caplog)
    assert report.frames == 150


def test_filter_of_libavfilter_on_device_frames_says_to_download(
    clips: dict[str, Path], tmp_path: Path
) -> None:
    spec = InputSpec(str(clips["closed"]), hwaccel="cuda", hwaccel_output_format="cuda")
    output = OutputSpec(str(tmp_path / "out.mkv"), overwrite=True)
    with pytest.raises(AvdnnError, match="hwdownload"):
        pipeline.run(Job(spec, output, vf="hflip"))
    assert not Path(output.url).exists()


def test_two_gpus_frames_and_model_apart_is_a_named_error(
    networks: Path, clips: dict[str, Path]
) -> None:
    import torch

    require("two-gpus", torch.cuda.device_count() > 1, "one GPU")
    text = f"dnn_processing=model={networks}/luma2x.pt:device='cuda\\:1'"
    with pytest.raises(DeviceError, match="the same GPU"):
        on_device(clips["odd"], text)
