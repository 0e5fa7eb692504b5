"""A whole job on a GPU made of host memory: decoders, network, downloads, encoder, sound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from avdnn import acceleration, pipeline
from avdnn.errors import DeviceError
from avdnn.job import InputSpec, Job, OutputSpec

from ..filters.test_device import Setup, setup  # noqa: F401
from .test_decode import FRAMES, clip, gpu  # noqa: F401


@pytest.fixture
def machine(gpu: Any, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> Setup:  # noqa: F811
    """The GPU of the decoders is that of the network."""
    setup.gpu = gpu
    monkeypatch.setattr(acceleration, "_device", lambda spec: gpu)
    setup.network = lambda x: x.repeat(2, -1).repeat(2, -2)
    return setup


def job(source: Path, target: Path, vf: str, **spec: Any) -> Job:
    told = InputSpec(str(source), hwaccel="cuda", **spec)
    return Job(told, OutputSpec(str(target), codec="ffv1", overwrite=True), vf=vf)


@pytest.mark.parametrize("captures", [False, True])
@pytest.mark.parametrize("decoders", [1, 0])
def test_frames_and_sound_arrive_whole_and_in_time(
    machine: Setup,
    clip: Path,  # noqa: F811
    tmp_path: Path,
    captures: bool,
    decoders: int,
) -> None:
    machine.captures = captures
    target = tmp_path / "out.mkv"
    text = "dnn_processing=model=net.pt:precision=float32:batch_size=4"
    made = job(clip, target, text, hwaccel_output_format="cuda", decoders=decoders)
    report = pipeline.run(made)
    assert report.frames == FRAMES
    assert machine.gpu.traffic.up == 0
    with av.open(str(clip)) as source, av.open(str(target)) as out:
        expected = list(source.decode(video=0))
        got = list(out.decode(video=0))
        assert [frame.time for frame in got] == [frame.time for frame in expected]
        assert {(frame.width, frame.height) for frame in got} == {(128, 96)}
        assert {int(frame.colorspace) for frame in got} == {1}
        for one, other in zip(got, expected, strict=True):
            luma = one.to_ndarray()[:96]
            assert np.array_equal(luma[::2, ::2], other.to_ndarray()[:48])
    assert sounds(target) == sounds(clip)


def sounds(path: Path) -> list[tuple[float, bytes]]:
    """Time and bytes of each packet of sound."""
    with av.open(str(path)) as container:
        packets = container.demux(container.streams.audio[0])
        return [(float(p.pts * p.time_base), bytes(p)) for p in packets if p.size]


def test_hwaccel_alone_gives_the_filters_host_frames(
    machine: Setup,
    clip: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    target = tmp_path / "out.mkv"
    report = pipeline.run(job(clip, target, "hflip,scale=32:24"))
    assert report.frames == FRAMES
    with av.open(str(target)) as out:
        assert out.streams.video[0].width == 32


def test_filter_that_needs_host_memory_leaves_no_file_behind(
    machine: Setup,
    clip: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    target = tmp_path / "out.mkv"
    with pytest.raises(DeviceError, match="put hwdownload before it"):
        pipeline.run(job(clip, target, "hflip", hwaccel_output_format="cuda"))
    assert not target.exists()
