"""Device frames on their way to NVENC, on a GPU made of host memory."""

from __future__ import annotations

import gc
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import pytest

from avdnn import host
from avdnn.cuda import encode
from avdnn.cuda import frames as cuda_frames
from avdnn.cuda.encode import Feed
from avdnn.errors import DeviceError, FormatError
from avdnn.filters import Context
from avdnn.filters.hwdownload import Direct, HwDownload
from avdnn.frame import Frame, Meta

from .fake_gpu import FakeGpu
from .test_frames import HEIGHT, WIDTH, decoded


@pytest.fixture
def gpu(kernels: Path) -> FakeGpu:
    return FakeGpu(kernels, 3)


def uploaded(gpu: FakeGpu, form: str, number: int, width: int = 20, height: int = 8) -> Frame:
    """A device frame of picture `number`, not there yet."""
    template = av.VideoFrame(width, height, form)
    template.colorspace, template.color_range, template.color_trc = 9, 2, 16
    meta = Meta(number, 2, Fraction(1, 30), template=template)
    made = host.empty(form, width, height, meta)
    for plane, value in zip(made.planes, (number, 255 - number), strict=False):
        plane[...] = value << (6 if form == "p010le" else 0)
    return cuda_frames.upload(gpu, made)


# ---- frames --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["nv12", "p010le", "p016le"])
def test_frames_arrive_whole_with_times_and_tags(gpu: FakeGpu, form: str) -> None:
    feed = Feed(lambda index: gpu)
    made = feed(uploaded(gpu, form, 40))
    assert (made.format.name, made.width, made.height) == (form, 20, 8)
    assert (made.pts, made.duration, made.time_base) == (40, 2, Fraction(1, 30))
    assert (made.colorspace, made.color_range, made.color_trc) == (9, 2, 16)
    down = gpu.traffic.down
    gpu.mark(gpu.encode).synchronize()  # NVENC's work would stand there
    shift = 6 if form == "p010le" else 0
    picture = host.from_av(made)
    assert (picture.planes[0] == 40 << shift).all()
    assert (picture.planes[1] == 215 << shift).all()
    assert gpu.traffic.down == down == 0


def test_chroma_stands_right_behind_luma_whatever_the_decoder_does(gpu: FakeGpu) -> None:
    feed = Feed(lambda index: gpu)
    for frame in decoded(gpu, 3, slot_frames=3):
        far = frame.planes[1].pointer + 64
        frame = replace(frame, planes=(frame.planes[0], frame.planes[1]._replace(pointer=far)))
        luma, chroma = feed(frame).planes
        assert luma.line_size == chroma.line_size
        assert chroma.buffer_ptr == luma.buffer_ptr + luma.line_size * HEIGHT


def test_source_may_go_before_the_copy_has_run_and_surfaces_before_the_source(
    gpu: FakeGpu,
) -> None:
    """An encoder that holds four pictures, fed by a decoder with two surfaces."""
    feed = Feed(lambda index: gpu)
    held: list[Any] = []
    for number, frame in enumerate(decoded(gpu, 24, slot_frames=2)):
        held.append((number, feed(frame)))
        del frame
        if len(held) > 4:
            check(gpu, *held.pop(0))
    while held:
        check(gpu, *held.pop(0))


def check(gpu: FakeGpu, number: int, picture: av.VideoFrame) -> None:
    gpu.mark(gpu.encode).synchronize()
    got = host.from_av(picture)
    assert (got.planes[0] == number).all()
    assert (got.planes[1] == 255 - number).all()
    assert got.planes[0].shape == (HEIGHT, WIDTH)


def test_surfaces_are_as_many_as_the_encoder_holds(gpu: FakeGpu) -> None:
    feed = Feed(lambda index: gpu)
    seen = set()
    held: list[Any] = []
    for number in range(40):
        held.append(feed(uploaded(gpu, "nv12", number)))
        seen.add(held[-1].planes[0].buffer_ptr)
        del held[:-3]
        gpu.settle()
    assert len(seen) == 4  # three held, one being filled


def test_surfaces_go_back_to_the_pool_at_the_end(gpu: FakeGpu) -> None:
    feed = Feed(lambda index: gpu)
    picture = feed(uploaded(gpu, "nv12", 1))
    gpu.settle()
    pointer = picture.planes[0].buffer_ptr
    del picture
    gc.collect()
    assert pointer not in idle(gpu)  # the encoder knows this address; nobody else may have it
    del feed
    gc.collect()
    assert pointer in idle(gpu)


def idle(gpu: FakeGpu) -> set[int]:
    return {memory.pointer for group in gpu.pool._idle.values() for memory in group}


@pytest.mark.parametrize(("form", "width"), [("rgb24", 20), ("nv12", 21)])
def test_frames_that_nvenc_cannot_take_are_an_error(gpu: FakeGpu, form: str, width: int) -> None:
    with pytest.raises(FormatError, match=rf"nv12, p010le, p016le of even size.*{form} of {width}"):
        Feed(lambda index: gpu)(uploaded(gpu, form, 1, width))


def test_host_frames_are_their_own(gpu: FakeGpu) -> None:
    frame = host.empty("rgb24", 6, 4, Meta(3, 1, Fraction(1, 5)))
    assert Feed(lambda index: gpu)(frame) is host.to_av(frame)


@pytest.mark.parametrize(("index", "own", "named"), [(0, 3, 3), (1, 0, 1)])
def test_encoder_has_a_stream_of_its_own_on_the_first_gpu(
    kernels: Path, monkeypatch: pytest.MonkeyPatch, index: int, own: int, named: int
) -> None:
    gpu = FakeGpu(kernels, index=index)
    gpu.dlpack_type = 2
    told: dict[str, Any] = {}

    class Picture:
        @staticmethod
        def from_dlpack(planes: Any, **options: Any) -> Any:
            told.update(options, devices=[plane.__dlpack_device__() for plane in planes])
            return SimpleNamespace()

    monkeypatch.setattr(encode, "av", SimpleNamespace(VideoFrame=Picture))
    Feed(lambda asked: gpu)(uploaded(gpu, "nv12", 1))
    context = told["cuda_context"]
    assert (context.device_id, context.cuda_stream) == (index, own)
    assert (context.primary_ctx, context.current_ctx) == (False, True)
    assert (told["stream"], told["format"]) == (named, "nv12")
    assert told["devices"] == [(2, index)] * 2


def test_frames_of_two_gpus_are_an_error(gpu: FakeGpu, kernels: Path) -> None:
    feed = Feed(lambda index: gpu)
    feed(uploaded(gpu, "nv12", 1))
    with pytest.raises(DeviceError, match="begun on cuda:0 and this frame is on cuda:1"):
        feed(uploaded(FakeGpu(kernels, index=1), "nv12", 2))


# ---- the choice ----------------------------------------------------------------------------------


def test_frames_unlike_the_first_come_down_in_their_place(gpu: FakeGpu) -> None:
    said: list[str] = []
    direct = Direct(lambda frame: None, said.append)
    down = HwDownload(Context(say=print), lenient=True, stays=direct, device=lambda index: gpu)
    one, wide, deep, two = (
        uploaded(gpu, "nv12", 1),
        uploaded(gpu, "nv12", 2, width=24),
        uploaded(gpu, "p010le", 3),
        uploaded(gpu, "nv12", 4),
    )
    retagged = uploaded(gpu, "nv12", 5)
    retagged.meta.template.colorspace = 1
    items = [one, wide, "packet", deep, two, retagged]
    got = list(down(iter(items)))
    assert [got[0], got[2], got[4]] == [one, "packet", two]
    assert [got[index].device for index in (1, 3, 5)] == ["cpu"] * 3
    assert [got[index].meta.pts for index in (1, 3, 5)] == [2, 3, 5]
    assert said == []


def test_after_a_first_frame_that_cannot_none_goes_directly(gpu: FakeGpu) -> None:
    said: list[str] = []
    asked: list[Frame] = []

    def why(frame: Frame) -> str:
        asked.append(frame)
        return "no rgb24 here"

    direct = Direct(why, said.append)
    frames = [uploaded(gpu, "rgb24", 1), uploaded(gpu, "nv12", 2)]
    assert [direct(frame) for frame in frames] == [False, False]
    assert asked == frames[:1]
    assert said == ["no rgb24 here: the frames are downloaded for the encoder"]
