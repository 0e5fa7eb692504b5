"""Whole jobs whose frames stay in GPU memory up to the encoder: libx264 in the place of NVENC."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from avdnn import pipeline
from avdnn.cuda.encode import Feed
from avdnn.errors import DeviceError, MediaError
from avdnn.frame import Frame
from avdnn.job import InputSpec, Job, OutputSpec
from avdnn.media import nvenc
from avdnn.properties import display_matrix

from ..clips import scene
from ..filters.test_device import Setup, setup  # noqa: F401
from .test_decode import FRAMES, clip, gpu  # noqa: F401
from .test_job import machine, sounds  # noqa: F401

FLAG = 4
"""Bytes a frame that come down in any case: whether the network's output held NaN."""

DOUBLED = "dnn_processing=model=net.pt:precision=float32:batch_size=4"
LOSSLESS = {"qp": "0", "preset": "ultrafast"}


@pytest.fixture
def fed(machine: Setup, monkeypatch: pytest.MonkeyPatch) -> list[Frame]:  # noqa: F811
    """The device frames that reach the encoder, which waits for its stream as NVENC does."""
    monkeypatch.setattr(nvenc, "ON_CPU", {"libx264": "libx265"})
    plain, seen = Feed.__call__, []

    def waited(feed: Feed, frame: Frame) -> av.VideoFrame:
        made = plain(feed, frame)
        seen.append(frame)
        machine.gpu.mark(machine.gpu.encode).synchronize()
        return made

    monkeypatch.setattr(Feed, "__call__", waited)
    return seen


def job(source: Path, target: Path, vf: str = DOUBLED, **output: Any) -> Job:
    told = InputSpec(str(source), hwaccel="cuda", hwaccel_output_format="cuda")
    output.setdefault("options", LOSSLESS)
    return Job(told, OutputSpec(str(target), codec="libx264", overwrite=True, **output), vf=vf)


def decoded(path: Path) -> list[av.VideoFrame]:
    with av.open(str(path)) as container:
        return list(container.decode(video=0))


@pytest.mark.parametrize("pix_fmt", ["", "nv12", "yuv420p"])
def test_frames_reach_the_encoder_without_a_trip_to_the_host(
    machine: Setup,  # noqa: F811
    fed: list[Frame],
    clip: Path,  # noqa: F811
    tmp_path: Path,
    pix_fmt: str,
) -> None:
    target = tmp_path / "out.mkv"
    report = pipeline.run(job(clip, target, pix_fmt=pix_fmt))
    assert report.frames == len(fed) == FRAMES
    assert {frame.device for frame in fed} == {"cuda:0"}
    assert machine.gpu.traffic.up == 0
    assert machine.gpu.traffic.down <= FLAG * (FRAMES + 4)
    got, expected = decoded(target), decoded(clip)
    assert [frame.time for frame in got] == [frame.time for frame in expected]
    assert {int(frame.colorspace) for frame in got} == {1}
    for one, other in zip(got, expected, strict=True):
        assert np.array_equal(one.to_ndarray()[:96:2, ::2], other.to_ndarray()[:48])
    assert sounds(target) == sounds(clip)


@pytest.mark.parametrize(
    ("vf", "output", "said"),
    [
        (f"{DOUBLED},format=rgb24", {}, "takes nv12, p010le, p016le from GPU memory, not rgb24"),
        (DOUBLED, {"pix_fmt": "yuv444p"}, "-pix_fmt yuv444p is made in host memory"),
        (f"{DOUBLED},scale=63:47", {}, "takes even sizes from GPU memory, not 63x47"),
        (f"{DOUBLED},hwdownload", {}, ""),
    ],
)
def test_what_cannot_go_directly_is_downloaded_and_told(
    machine: Setup,  # noqa: F811
    fed: list[Frame],
    clip: Path,  # noqa: F811
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    vf: str,
    output: dict[str, Any],
    said: str,
) -> None:
    output = {"pix_fmt": "yuv444p"} | output if "63" in vf else output
    target = tmp_path / "out.mkv"
    with caplog.at_level(logging.WARNING):
        report = pipeline.run(job(clip, target, vf, **output))
    assert report.frames == FRAMES
    assert not fed
    assert machine.gpu.traffic.down > FRAMES * 32 * 48
    assert said in caplog.text
    assert caplog.text.count("downloaded for the encoder") == bool(said)
    assert len(decoded(target)) == FRAMES


def test_encoder_of_the_cpu_gets_host_frames_without_a_word(
    machine: Setup,  # noqa: F811
    clip: Path,  # noqa: F811
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        pipeline.run(job(clip, tmp_path / "out.mkv"))
    assert machine.gpu.traffic.down > FRAMES * 128 * 96
    assert "encoder" not in caplog.text


def test_strict_allows_no_download(
    fed: list[Frame],
    clip: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    target = tmp_path / "out.mkv"
    with pytest.raises(DeviceError, match=r"-pix_fmt yuv444p .*strict=1 allows no download"):
        pipeline.run(job(clip, target, f"{DOUBLED}:strict=1", pix_fmt="yuv444p"))
    assert [path.name for path in tmp_path.iterdir()] == ["net.pt"]
    pipeline.run(job(clip, target, f"{DOUBLED}:strict=1"))
    assert len(fed) == FRAMES


def test_frames_are_repeated_and_cut_as_on_the_host(
    fed: list[Frame],
    clip: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    target = tmp_path / "out.mkv"
    pipeline.run(job(clip, target, rate="50", frames=20))
    got = decoded(target)
    assert [frame.time for frame in got] == pytest.approx(
        [0.2 + number / 50 for number in range(20)]
    )
    assert 10 <= len(fed) < FRAMES
    expected = decoded(clip)
    for number, frame in enumerate(got):
        source = expected[number // 2].to_ndarray()
        assert np.array_equal(frame.to_ndarray()[:96:2, ::2], source[:48])


def test_encoder_that_fails_leaves_nothing_behind(
    fed: list[Frame],
    clip: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    with pytest.raises(MediaError, match=r"encoder libx264 does not open: .*-c:v libx265 encodes"):
        pipeline.run(job(clip, tmp_path / "out.mkv", options={"profile": "nonsense"}))
    assert [path.name for path in tmp_path.iterdir()] == ["net.pt"]
    assert len(fed) == 1


@pytest.mark.parametrize("suffix", ["mp4", "ts"])
def test_rotation_stays_or_is_done_in_host_memory(
    machine: Setup,  # noqa: F811
    fed: list[Frame],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    suffix: str,
) -> None:
    source, target = tmp_path / "turned.mp4", tmp_path / f"out.{suffix}"
    scene(source, rotation=90)
    pipeline.run(job(source, target))
    got = decoded(target)[0]
    if suffix == "mp4":
        assert len(fed) == 10
        assert display_matrix(got) == display_matrix(decoded(source)[0]) != []
        assert (got.width, got.height) == (128, 96)
    else:
        assert not fed
        assert "turned in host memory: mpegts cannot store their rotation" in caplog.text
        assert (got.width, got.height) == (96, 128)
