"""Ordinary FFmpeg filters in a chain."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from avdnn import host
from avdnn.errors import DeviceError, GraphError
from avdnn.filters import Context, build, connect
from avdnn.filters._libav import Converter
from avdnn.frame import Frame

from ..test_host import random_frame


def clip(count: int, form: str = "yuv420p", width: int = 64, height: int = 48) -> Iterator[Frame]:
    for number in range(count):
        frame = random_frame(form, width, height, number)
        frame.owner.pts = number
        yield host.from_av(frame.owner, Fraction(4, 3))


def run(text: str, frames: Any) -> list[Any]:
    return list(connect(build(text, Context(say=print, frame_rate="25")), frames))


@pytest.mark.parametrize(
    ("text", "size", "sar"),
    [
        ("null", (64, 48), Fraction(4, 3)),
        ("scale=32:48", (32, 48), Fraction(8, 3)),
        ("scale=32:48,setsar=1", (32, 48), Fraction(1)),
        ("setsar=64/45", (64, 48), Fraction(64, 45)),
        ("transpose", (48, 64), Fraction(3, 4)),
        ("pad=80:60:8:6", (80, 60), Fraction(4, 3)),
    ],
)
def test_size_and_aspect_follow_the_filters(
    text: str, size: tuple[int, int], sar: Fraction
) -> None:
    out = run(text, clip(2))
    assert [(frame.width, frame.height, frame.meta.sar) for frame in out] == [(*size, sar)] * 2


def test_an_unknown_aspect_stays_unknown() -> None:
    frames = (host.from_av(frame.owner) for frame in clip(1))
    assert [frame.meta.sar for frame in run("hflip", frames)] == [None]


def test_times_follow_the_filters() -> None:
    out = run("fps=50", clip(3))
    assert [frame.meta.pts for frame in out[:4]] == [0, 1, 2, 3]
    assert {frame.meta.time_base for frame in out} == {Fraction(1, 50)}


def palette(*alphas: int) -> Frame:
    """A frame of two colours, each with its transparency; a third that is clear is not used."""
    made = av.VideoFrame(64, 48, "pal8")
    index = np.zeros((48, made.planes[0].line_size), np.uint8)
    index[:, 32:64] = 1
    made.planes[0].update(index.tobytes())
    colours = [200, 100, 0, alphas[0], 0, 100, 200, alphas[1], 1, 2, 3, 0]
    made.planes[1].update(bytes(colours).ljust(1024, b"\0"))
    made.pts, made.time_base = 0, Fraction(1, 25)
    return host.from_av(made)


def test_a_palette_keeps_what_transparency_it_uses() -> None:
    said: list[str] = []
    convert = Converter(("rgb24", "rgba", "yuv420p"), Context(say=said.append), "a test")
    assert convert(palette(255, 255)).format == "rgb24"
    made = convert(palette(255, 0))
    assert made.format == "rgba"
    assert made.owner.to_ndarray()[0, [0, 63], 3].tolist() == [255, 0]
    assert not any("loses" in line for line in said)
    Converter(("rgb24",), Context(say=said.append), "a test")(palette(0, 9))
    assert said[-1] == "pal8 frames become rgb24 for a test, which loses transparency"


def test_bottom_up_frames_are_turned_into_plain_ones() -> None:
    frames = list(clip(2))
    for out, frame in zip(run("vflip", iter(frames)), frames, strict=True):
        assert out.planes[0].strides[0] > 0
        assert np.array_equal(out.planes[0], frame.planes[0][::-1])


def test_filters_that_hold_frames_back_are_flushed() -> None:
    assert len(run("tmix=frames=3", clip(5))) == 5
    assert len(run("reverse", clip(5))) == 5


def test_a_size_change_restarts_the_graph() -> None:
    frames = [*clip(2), *clip(2, width=32, height=32)]
    out = run("scale=iw*2:ih*2", iter(frames))
    assert [(frame.width, frame.height) for frame in out] == [(128, 96)] * 2 + [(64, 64)] * 2


def test_packets_pass() -> None:
    frame = next(clip(1))
    out = run("null", iter(["a", frame, "b"]))
    assert [item if isinstance(item, str) else "frame" for item in out] == ["a", "frame", "b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scal=32:48", "did you mean scale"),
        ("null,scale=foo=3", "scale=foo=3"),
        ("overlay", "overlay"),
        ("split,null", "split"),
        ("format=xyz", "format=xyz"),
        ("scale=8:8:enable=1", r"Timeline \('enable' option\) not supported with filter 'scale'"),
        ("pad=10:10", "pad"),
    ],
)
def test_what_libavfilter_refuses_is_named(text: str, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        run(text, clip(1))


def test_frames_on_a_device_must_be_downloaded_first() -> None:
    frame = next(clip(1))
    device = Frame((), "nv12", 64, 48, frame.meta, frame.owner, device="cuda:0")
    with pytest.raises(DeviceError, match="hwdownload"):
        run("hflip", iter([device]))
