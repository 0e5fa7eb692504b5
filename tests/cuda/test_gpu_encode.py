"""Frames from GPU memory to an encoder on a real GPU; NVENC itself where the card has it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from avdnn import acceleration, cuda, host, pipeline
from avdnn.cuda import frames as cuda_frames
from avdnn.cuda.decode import DeviceReader
from avdnn.cuda.encode import Feed
from avdnn.errors import AvdnnError, DeviceError
from avdnn.frame import Frame, Meta
from avdnn.job import InputSpec, Job, OutputSpec
from avdnn.media import nvenc
from avdnn.properties import BOTTOM_FIRST, TOP_FIRST, field_order

from ..clips import scene
from ..conftest import require
from .test_gpu import clips, networks, psnr  # noqa: F401

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

FLAG = 4
"""Bytes a frame that come down in any case: whether the network's output held NaN."""


@pytest.fixture(autouse=True)
def _gpu(cuda_device: Any) -> None:
    """Skip without a GPU, before anything else is made."""


def noise(form: str, width: int, height: int, number: int) -> Frame:
    """A host frame of random samples."""
    template = av.VideoFrame(width, height, form)
    template.colorspace, template.color_range = 9, 1
    made = host.empty(form, width, height, Meta(number, 2, Fraction(1, 30), template=template))
    random = np.random.default_rng(number)
    for plane in made.planes:
        top = 256 if plane.dtype == np.uint8 else 1024
        plane[...] = random.integers(0, top, plane.shape) << (6 if top == 1024 else 0)
    return made


def landed(picture: av.VideoFrame) -> Frame:
    """A CUDA frame as libav downloads it, behind what is in the frame's stream."""
    assert picture.sw_format is not None
    return host.from_av(picture.reformat(format=picture.sw_format.name))


# ---- frames --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["nv12", "p010le", "p016le"])
@pytest.mark.parametrize(("width", "height"), [(64, 48), (354, 242), (1920, 1080)])
def test_cuda_frames_hold_the_samples_the_times_and_the_tags(
    form: str, width: int, height: int
) -> None:
    device, feed = cuda.device(0), Feed()
    for number in range(3):
        source = noise(form, width, height, number)
        made = feed(cuda_frames.upload(device, source))
        down = device.traffic.down
        assert made.format.name == "cuda"
        assert made.sw_format is not None
        assert made.sw_format.name == form
        assert (made.width, made.height) == (width, height)
        assert (made.pts, made.duration, made.time_base) == (number, 2, Fraction(1, 30))
        assert (made.colorspace, made.color_range) == (9, 1)
        luma, chroma = made.planes
        assert luma.line_size == chroma.line_size
        assert chroma.buffer_ptr == luma.buffer_ptr + luma.line_size * height
        got = landed(made)
        assert got.format == form
        for one, other in zip(got.planes, source.planes, strict=True):
            assert np.array_equal(one, other)
        assert device.traffic.down == down


@pytest.mark.parametrize("name", ["closed", "ten", "odd"])
def test_decoded_frames_reach_the_encoder_as_they_are(clips: dict[str, Path], name: str) -> None:  # noqa: F811
    device, feed, count = cuda.device(0), Feed(), 0
    with DeviceReader(InputSpec(str(clips[name])), device) as reader:
        for frame in reader:
            if not isinstance(frame, Frame):
                continue
            expected, got = cuda_frames.to_host(device, frame), landed(feed(frame))
            assert got.meta.pts == frame.meta.pts
            for one, other in zip(got.planes, expected.planes, strict=True):
                assert np.array_equal(one, other)
            count += 1
    assert count >= 24


def test_surfaces_stay_untouched_while_an_encoder_holds_them() -> None:
    device, feed = cuda.device(0), Feed()
    held: list[tuple[Frame, av.VideoFrame]] = []
    seen = set()
    for number in range(120):
        source = noise("nv12", 640, 360, number)
        held.append((source, feed(cuda_frames.upload(device, source))))
        seen.add(held[-1][1].planes[0].buffer_ptr)
        if len(held) == 16:
            check(*held.pop(0))
    while held:
        check(*held.pop(0))
    assert len(seen) <= 17


def check(source: Frame, picture: av.VideoFrame) -> None:
    for one, other in zip(landed(picture).planes, source.planes, strict=True):
        assert np.array_equal(one, other)


# ---- whole jobs ----------------------------------------------------------------------------------


def job(source: Path, target: Path, vf: str, codec: str, **output: Any) -> Job:
    told = InputSpec(str(source), hwaccel="cuda", hwaccel_output_format="cuda", decoders=2)
    return Job(told, OutputSpec(str(target), codec=codec, overwrite=True, **output), vf=vf)


def decoded(path: Path) -> list[av.VideoFrame]:
    with av.open(str(path)) as container:
        return list(container.decode(video=0))


def test_whole_job_with_an_encoder_that_downloads_by_itself_gives_the_same_file(
    networks: Path,  # noqa: F811
    clips: dict[str, Path],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """libx264 in the place of NVENC: CUDA frames go up to it, and libav brings them down there."""
    # Recording a job brings its trial to the host.
    text = "precision=float32:batch_size=8:options=capture=0"
    vf = f"dnn_processing=model={networks}/luma2x.pt:{text}"
    lossless = {"qp": "0", "preset": "ultrafast"}
    plain, direct = tmp_path / "plain.mkv", tmp_path / "direct.mkv"
    pipeline.run(job(clips["open"], plain, vf, "libx264", options=lossless))

    unwrapper, passed = acceleration.unwrapper, []

    def lands() -> Callable[[Frame], av.VideoFrame]:
        unwrap = unwrapper()

        def unwrapped(frame: Frame) -> av.VideoFrame:
            picture = unwrap(frame)
            passed.append(picture.format.name)
            return picture.reformat(format="nv12")

        return unwrapped

    monkeypatch.setattr(nvenc, "ON_CPU", {"libx264": "libx265"})
    monkeypatch.setattr(acceleration, "unwrapper", lands)
    device = cuda.device(0)
    before = device.traffic.down
    report = pipeline.run(job(clips["open"], direct, vf, "libx264", options=lossless))
    assert passed == ["cuda"] * report.frames
    assert device.traffic.down - before <= FLAG * (report.frames + 16)
    got, expected = decoded(direct), decoded(plain)
    assert [frame.time for frame in got] == [frame.time for frame in expected]
    for one, other in zip(got, expected, strict=True):
        assert np.array_equal(one.to_ndarray(), other.to_ndarray())


@pytest.mark.parametrize("mode", ["tff", "bff"])
def test_order_of_fields_stays_through_nvdec(tmp_path: Path, mode: str) -> None:
    source = tmp_path / "fields.mkv"
    scene(source, (320, 240), 0.6, fields=mode)
    target = tmp_path / "out.mkv"
    pipeline.run(job(source, target, "scale=160:120", "libx264"))
    wanted = TOP_FIRST if mode == "tff" else BOTTOM_FIRST
    assert {field_order(frame) for frame in decoded(target)} == {wanted}


# ---- NVENC ---------------------------------------------------------------------------------------


def why_not(name: str) -> str:
    """Why an encoder does not open here; "" if it does."""
    try:
        nvenc.check(av.Codec(name, "w"), {})
    except AvdnnError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", nvenc.ON_CPU)
def test_card_without_nvenc_is_told_in_one_line(
    clips: dict[str, Path],  # noqa: F811
    tmp_path: Path,
    name: str,
) -> None:
    if not why_not(name):
        pytest.skip(f"{name} opens here")
    wanted = rf"-c:v {name}: no GPU here encodes with it \(.+\); take -c:v {nvenc.ON_CPU[name]}"
    with pytest.raises(DeviceError, match=wanted) as raised:
        pipeline.run(job(clips["closed"], tmp_path / "out.mp4", "scale=640:480", name))
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", nvenc.ON_CPU)
@pytest.mark.parametrize(("clip", "quality"), [("closed", 36), ("ten", 36)])
def test_nvenc_encodes_from_gpu_memory(
    networks: Path,  # noqa: F811
    clips: dict[str, Path],  # noqa: F811
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    clip: str,
    quality: float,
) -> None:
    why = why_not(name)
    require("nvenc", not why, why)
    if clip == "ten" and name == "h264_nvenc":
        pytest.skip("most cards have no H.264 of 10 bits")
    vf = f"dnn_processing=model={networks}/luma2x.pt:precision=float32:batch_size=8"
    plain, direct = tmp_path / "plain.mkv", tmp_path / "direct.mp4"
    pipeline.run(job(clips[clip], plain, vf, "ffv1"))
    device = cuda.device(0)
    before = device.traffic.down
    options = {"rc": "constqp", "qp": "12"}
    with caplog.at_level(logging.WARNING):
        report = pipeline.run(job(clips[clip], direct, vf, name, options=options))
    assert device.traffic.down - before <= FLAG * (report.frames + 16)
    assert "downloaded" not in caplog.text
    got, expected = decoded(direct), decoded(plain)
    assert [frame.time for frame in got] == pytest.approx([frame.time for frame in expected])
    depth = 10 if clip == "ten" else 8
    for one, other in zip(got, expected, strict=True):
        assert "10le" in one.format.name if depth == 10 else one.format.name == "yuv420p"
        planes = [host.from_av(frame).planes[0] for frame in (one, other)]
        shift = 6 if other.format.name == "p010le" else 0
        # constqp 12 is close to lossless; a wrong plane or a torn picture is below 30 dB.
        assert psnr(planes[0], planes[1] >> shift, 2**depth - 1) >= quality
