"""format and scale on device frames."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import cuda, filters, graph
from avdnn.cuda import frames as cuda_frames
from avdnn.errors import DeviceError
from avdnn.filters import Context
from avdnn.filters._device_plain import on_device
from avdnn.frame import Frame, Meta

from ..cuda.fake_gpu import FakeGpu


@pytest.fixture
def frame(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> Frame:
    gpu = FakeGpu(kernels)
    monkeypatch.setattr(cuda, "device", lambda index: gpu)
    picture = np.full((16, 32, 3), (200, 100, 50), np.uint8)
    return cuda_frames.upload(gpu, Frame((picture,), "rgb24", 32, 16, Meta(0, 1, Fraction(1, 25))))


def after(frame: Frame, text: str) -> Frame:
    return on_device(graph.parse(text), frame)(frame)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("scale=64:32", (64, 32)),
        ("scale=w=16:h=8", (16, 8)),
        ("scale=iw*2:ih*2", (64, 32)),
        ("scale=width=iw/2:height=-1", (16, 8)),
        ("scale=-2:12", (24, 12)),
        ("scale=0:0", (32, 16)),
        ("scale=48:-1:flags=bicubic", (48, 24)),
        ("scale=iw*1.5:ih", (48, 16)),
    ],
)
def test_scale_takes_ffmpegs_sizes(frame: Frame, text: str, size: tuple[int, int]) -> None:
    made = after(frame, text)
    assert (made.width, made.height) == size
    assert (cuda_frames.to_host(cuda.device(0), made).planes[0] == (200, 100, 50)).all()


@pytest.mark.parametrize(
    ("text", "form"),
    [("format=bgr0", "bgr0"), ("format=gbrp|nv12", "nv12"), ("format=nv12|rgb24", "rgb24")],
)
def test_format_takes_the_own_one_or_the_first_possible(frame: Frame, text: str, form: str) -> None:
    assert after(frame, text).format == form


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("format=gbrp", "hwdownload"),
        ("scale=64:32:flags=lanczos", "bicubic, not lanczos"),
        ("scale=64:32:eval=frame", "eval"),
        ("scale=main_w:8", "iw"),
        ("hflip", "put hwdownload before it"),
    ],
)
def test_what_a_gpu_cannot_do_says_to_download_first(frame: Frame, text: str, words: str) -> None:
    with pytest.raises(DeviceError, match=words):
        after(frame, text)


def test_chain_runs_them_in_place_and_packets_pass(frame: Frame) -> None:
    chain = filters.build("scale=64:32,format=0bgr", Context(say=print))
    items: Any = iter(["packet", frame])
    got = list(filters.connect(chain, (item for item in items)))
    assert got[0] == "packet"
    assert (got[1].format, got[1].width, got[1].device) == ("0bgr", 64, "cuda:0")
