"""Kernels and their arguments against host.py: on a device made of host memory, and on a GPU."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from avdnn import host
from avdnn.chroma import ChromaScaler
from avdnn.cuda import frames as cuda_frames
from avdnn.cuda import tensors as cuda_tensors
from avdnn.errors import FormatError, ModelError
from avdnn.frame import Frame, Layout, Meta, TensorSpec
from avdnn.pixfmt import Family, pixel_format

from .fake_gpu import FakeGpu

SIZES = [(16, 16), (62, 34), (100, 18), (352, 20), (720, 16), (1920, 8)]
RGB = ["rgb24", "bgr24", "rgb0", "bgr0", "0rgb", "0bgr"]


@pytest.fixture(params=["fake", pytest.param("cuda", marks=pytest.mark.gpu)])
def gpu(request: pytest.FixtureRequest) -> Any:
    if request.param == "cuda":
        return request.getfixturevalue("cuda_device")
    return FakeGpu(request.getfixturevalue("kernels"))


def put(gpu: Any, array: Any) -> Any:
    """A NumPy array on the device."""
    return array if isinstance(gpu, FakeGpu) else gpu._cp.asarray(array)


def get(gpu: Any, array: Any) -> Any:
    """What a device array holds when all is done."""
    gpu.mark(gpu.compute).synchronize()
    return array if isinstance(gpu, FakeGpu) else gpu._cp.asnumpy(array)


def noise(form: str, width: int, height: int, seed: int = 0) -> Frame:
    """A host frame of random codes."""
    known = pixel_format(form)
    frame = host.empty(form, width, height, Meta(0, 1, Fraction(1, 25)))
    random = np.random.default_rng(seed)
    for plane in frame.planes:
        plane[...] = random.integers(0, known.peak + 1, plane.shape) << known.shift
    return frame


def spec(layout: Layout, channels: int, **more: Any) -> TensorSpec:
    shape = (-1, channels, -1, -1) if layout is Layout.NCHW else (-1, -1, -1, channels)
    return TensorSpec("x", shape, layout=layout, **more)


def back(gpu: Any, frame: Frame) -> Frame:
    return cuda_frames.to_host(gpu, frame)


def codes(frame: Frame) -> list[Any]:
    known = pixel_format(frame.format)
    return [plane.astype(int) >> known.shift for plane in frame.planes]


def most(one: Frame, other: Frame) -> int:
    """The largest difference of two frames in codes."""
    assert (one.format, one.width, one.height) == (other.format, other.width, other.height)
    pairs = zip(codes(one), codes(other), strict=True)
    return max(int(np.abs(a - b).max()) for a, b in pairs)


@pytest.mark.parametrize("form", [*RGB, "nv12", "p010le", "p016le", "yuv420p", "gray", "yuv444p"])
@pytest.mark.parametrize("size", SIZES)
def test_upload_and_download_change_nothing(gpu: Any, form: str, size: tuple[int, int]) -> None:
    frame = noise(form, *size)
    assert most(back(gpu, cuda_frames.upload(gpu, frame)), frame) == 0
    assert gpu.traffic.up >= sum(plane.nbytes for plane in frame.planes)


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("form", [*RGB, "nv12", "p010le", "gray"])
@pytest.mark.parametrize("size", [(16, 16), (63, 17), (352, 20)])
def test_pack_is_the_hosts_pack_bit_for_bit(
    gpu: Any, form: str, size: tuple[int, int], layout: Layout
) -> None:
    if form in ("nv12", "p010le"):
        size = (size[0] & ~1, size[1] & ~1)
    frame = noise(form, *size)
    channels = pixel_format(form).channels
    for more in ({}, {"scale": 1.0}, {"scale": 58.0, "mean": 127.5}):
        wanted = spec(layout, channels, **more)
        order = "rgb" if layout is Layout.NCHW else ""
        tensor = cuda_tensors.pack(gpu, [cuda_frames.upload(gpu, frame)], wanted, order)
        assert np.array_equal(get(gpu, tensor), host.pack([frame], wanted, order))


@pytest.mark.parametrize("form", [*RGB, "nv12", "p010le", "p016le", "gray"])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_unpack_is_the_hosts_unpack(gpu: Any, form: str, factor: int) -> None:
    source = noise(form, 62, 34)
    channels = pixel_format(form).channels
    wanted = spec(Layout.NCHW, channels)
    random = np.random.default_rng(1)
    values = random.uniform(-0.2, 1.2, (1, channels, 34 * factor, 62 * factor))
    tensor = values.astype(np.float32)
    tensor[0, :, :4] = (np.arange(62 * factor) + 0.5) / 255  # ties: half to even on both sides
    bad = np.zeros(1, np.int32)
    uploaded = cuda_frames.upload(gpu, source)
    flags = put(gpu, bad)
    (made,) = cuda_tensors.unpack(gpu, put(gpu, tensor), wanted, [uploaded], flags, "rgb")
    expected = host.unpack(tensor[0], wanted, source, ChromaScaler(), "rgb")
    got = back(gpu, made)
    assert not get(gpu, flags).any()
    count = 1 if pixel_format(form).family is Family.LUMA else 3
    for index, (one, other) in enumerate(zip(codes(got), codes(expected), strict=True)):
        # Chroma: libswscale's SIMD rounds some samples down, hence 1 LSB.
        limit = 0 if index == 0 or factor == 1 or count == 3 else 1
        assert np.abs(one - other).max() <= limit


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", ["nv12", "rgb24"])
def test_nan_and_infinity_raise_the_flag_of_their_frame(gpu: Any, form: str, value: float) -> None:
    sources = [cuda_frames.upload(gpu, noise(form, 16, 16)) for _ in range(3)]
    channels = pixel_format(form).channels
    tensor = np.zeros((3, channels, 16, 16), np.float32)
    tensor[1, -1, 7, 9] = value
    bad = np.zeros(3, np.int32)
    flags = put(gpu, bad)
    cuda_tensors.unpack(gpu, put(gpu, tensor), spec(Layout.NCHW, channels), sources, flags, "rgb")
    assert get(gpu, flags).tolist() == [0, 1, 0]


@pytest.mark.parametrize("form", ["nv12", "p010le"])
@pytest.mark.parametrize(("space", "span"), [(1, 1), (5, 1), (9, 1), (1, 2), (6, 2)])
def test_yuv_to_rgb_and_back_is_at_most_1_lsb(gpu: Any, form: str, space: int, span: int) -> None:
    frame = noise(form, 64, 32)
    frame.owner.colorspace, frame.owner.color_range = space, span
    meta = Meta(0, 1, Fraction(1, 25), template=frame.owner)
    known = pixel_format(form)
    step = 1 << (known.depth - 8)
    random = np.random.default_rng(2)
    # Colours inside the RGB cube; others are clipped, as they must be.
    frame.planes[0][...] = random.integers(100 * step, 150 * step, (32, 64)) << known.shift
    frame.planes[1][...] = random.integers(112 * step, 145 * step, (16, 32, 2)) << known.shift
    uploaded = cuda_frames.upload(gpu, Frame(frame.planes, form, 64, 32, meta, owner=frame.owner))
    wanted = spec(Layout.NCHW, 3)
    tensor = cuda_tensors.pack(gpu, [uploaded], wanted, "rgb", channels=3)
    bad = put(gpu, np.zeros(1, np.int32))
    exact = _exact_rgb(codes(frame), known.depth, space, span)
    assert np.abs(get(gpu, tensor)[0] - exact).max() < 2e-6
    (made,) = cuda_tensors.unpack(gpu, tensor, wanted, [uploaded], bad, "rgb")
    assert most(back(gpu, made), frame) <= 1


def _exact_rgb(planes: list[Any], depth: int, space: int, span: int) -> Any:
    """ITU's definition in float64, a chroma sample standing for its 2x2 block."""
    red, blue = {1: (0.2126, 0.0722), 9: (0.2627, 0.0593)}.get(space, (0.299, 0.114))
    step, peak = 1 << (depth - 8), (1 << depth) - 1
    luma, chroma = planes[0].astype(float), planes[1].astype(float)
    chroma = chroma.repeat(2, 0).repeat(2, 1) - 128 * step
    if span == 2:
        y, chroma = luma / peak, chroma / peak
    else:
        y, chroma = (luma - 16 * step) / (219 * step), chroma / (224 * step)
    r = y + 2 * (1 - red) * chroma[..., 1]
    b = y + 2 * (1 - blue) * chroma[..., 0]
    g = (y - red * r - blue * b) / (1 - red - blue)
    return np.clip([r, g, b], 0, 1)


def test_yuv_to_rgb_stays_near_libswscale(gpu: Any) -> None:
    """libswscale's fast path rounds down in each of three terms: 3 LSB below the definition."""
    planar = noise("yuv420p", 64, 32)
    planar.owner.colorspace, planar.owner.color_range = 1, 1
    planar.planes[0][...] = np.random.default_rng(3).integers(60, 200, (32, 64))
    for plane in planar.planes[1:]:
        plane[...] = np.random.default_rng(4).integers(100, 156, (16, 32))
    frame = host.empty("nv12", 64, 32, Meta(0, 1, Fraction(1, 25), template=planar.owner))
    frame.planes[0][...] = planar.planes[0]
    frame.planes[1][...] = np.stack(planar.planes[1:], axis=-1)
    made = cuda_tensors.convert(gpu, cuda_frames.upload(gpu, frame), "rgb24")
    graph = av.filter.Graph()
    source = graph.add(
        "buffer", "video_size=64x32:pix_fmt=yuv420p:time_base=1/25:colorspace=1:range=1"
    )
    form, sink = graph.add("format", "rgb24"), graph.add("buffersink")
    source.link_to(form)
    form.link_to(sink)
    graph.configure()
    graph.push(host.to_av(planar))
    expected = host.from_av(graph.pull())
    delta = codes(back(gpu, made))[0] - codes(expected)[0]
    assert delta.min() >= -1
    assert delta.max() <= 3


@pytest.mark.parametrize("one", RGB)
@pytest.mark.parametrize("other", RGB)
def test_rgb_layouts_convert_exactly(gpu: Any, one: str, other: str) -> None:
    frame = noise(one, 20, 6)
    got = codes(back(gpu, cuda_tensors.convert(gpu, cuda_frames.upload(gpu, frame), other)))[0]
    before, after = pixel_format(one).order, pixel_format(other).order
    for name in "rgb":
        assert np.array_equal(got[..., after.index(name)], frame.planes[0][..., before.index(name)])
    if one != other and "0" in after:
        assert (got[..., after.index("0")] == 255).all()


@pytest.mark.parametrize("size", [(124, 68), (31, 17), (90, 50)])
def test_scale_follows_libswscales_bicubic(gpu: Any, size: tuple[int, int]) -> None:
    frame = noise("gray", 62, 34)
    expected = np.empty(size[::-1], np.uint8)
    ChromaScaler().resize(frame.planes[0], expected, pixel_format("gray"))
    made = back(gpu, cuda_tensors.scale(gpu, cuda_frames.upload(gpu, frame), *size))
    # libswscale's SIMD rounds some samples down, hence 1 LSB.
    assert np.abs(codes(made)[0] - expected).max() <= 1


def test_bgr_model_gets_blue_first_from_every_format(gpu: Any) -> None:
    colour = noise("rgb24", 16, 16)
    colour.planes[0][...] = (200, 100, 50)
    for form in [*RGB, "nv12"]:
        frame = cuda_tensors.convert(gpu, cuda_frames.upload(gpu, colour), form)
        tensor = cuda_tensors.pack(gpu, [frame], spec(Layout.NCHW, 3), "bgr", channels=3)
        assert np.abs(get(gpu, tensor)[0, :, 8, 8] * 255 - (50, 100, 200)).max() < 1.5


def test_short_batch_is_filled_with_its_last_frame(gpu: Any) -> None:
    frames = [cuda_frames.upload(gpu, noise("nv12", 16, 16, seed)) for seed in range(2)]
    tensor = cuda_tensors.pack(gpu, frames, spec(Layout.NCHW, 1), batch=4)
    assert tensor.shape == (4, 1, 16, 16)
    tensor = get(gpu, tensor)
    assert np.array_equal(tensor[1], tensor[3])
    assert not np.array_equal(tensor[0], tensor[1])


def test_bfloat16_is_rounded_to_even(gpu: Any) -> None:
    frame = noise("gray", 64, 8)
    tensor = cuda_tensors.pack(
        gpu, [cuda_frames.upload(gpu, frame)], spec(Layout.NCHW, 1, dtype="bfloat16")
    )
    exact = frame.planes[0].astype(np.float32) * np.float32(1 / 255)
    got = (get(gpu, tensor)[0, 0].astype(np.uint32) << 16).view(np.float32)
    assert np.abs(got - exact).max() <= 2**-9  # half a step of 8 bits below 1.0


@pytest.mark.parametrize("form", ["nv12", "p010le", "rgb24", "0bgr"])
def test_float16_is_at_most_1_lsb_of_8_bit_off(gpu: Any, form: str) -> None:
    if isinstance(gpu, FakeGpu):
        pytest.skip("the C++ compiler has no half")
    frame = noise(form, 352, 20)
    known = pixel_format(form)
    if "0" in known.order:
        frame.planes[0][..., known.order.index("0")] = 255
    wanted = spec(Layout.NCHW, known.channels, dtype="float16")
    uploaded = cuda_frames.upload(gpu, frame)
    tensor = cuda_tensors.pack(gpu, [uploaded], wanted, "rgb")
    flags = put(gpu, np.zeros(1, np.int32))
    (made,) = cuda_tensors.unpack(gpu, tensor, wanted, [uploaded], flags, "rgb")
    # Half has 11 bits: 8-bit codes return exactly, 10-bit ones within half a step of 2^-11.
    assert most(back(gpu, made), frame) <= (0 if known.depth == 8 else 1)


def test_frames_of_one_slot_are_packed_at_once(gpu: Any) -> None:
    sources = [cuda_frames.upload(gpu, noise("nv12", 62, 34, seed)) for seed in range(5)]
    wanted = spec(Layout.NCHW, 1)
    flags = put(gpu, np.zeros(5, np.int32))
    tensor = cuda_tensors.pack(gpu, sources, wanted)
    slot = cuda_tensors.unpack(gpu, tensor, wanted, sources, flags)
    assert [length for _, length, _ in cuda_tensors.runs(sources)] == [1] * 5
    assert [length for _, length, _ in cuda_tensors.runs(slot)] == [5]
    mixed = [*slot[3:], *slot[:3], sources[0]]
    assert [length for _, length, _ in cuda_tensors.runs(mixed)] == [2, 3, 1]
    again = cuda_tensors.pack(gpu, mixed, wanted)
    assert np.array_equal(get(gpu, again), get(gpu, tensor)[[3, 4, 0, 1, 2, 0]])
    doubled = put(gpu, np.repeat(np.repeat(get(gpu, again), 2, 2), 2, 3))
    flags = put(gpu, np.zeros(6, np.int32))
    for made, source in zip(
        cuda_tensors.unpack(gpu, doubled, wanted, mixed, flags), mixed, strict=True
    ):
        alone = back(gpu, cuda_tensors.scale(gpu, source, 124, 68))
        got = back(gpu, made)
        assert np.array_equal(got.planes[1], alone.planes[1])
        assert np.array_equal(got.planes[0][::2, ::2], back(gpu, source).planes[0])


def test_wrong_formats_and_shapes_are_named(gpu: Any) -> None:
    with pytest.raises(FormatError, match="gbrp"):
        cuda_frames.upload(gpu, noise("gbrp", 16, 16))
    planar = cuda_frames.upload(gpu, noise("yuv444p", 16, 16))
    with pytest.raises(FormatError, match="hwdownload"):
        cuda_tensors.pack(gpu, [planar], spec(Layout.NCHW, 3), channels=3)
    colour = cuda_frames.upload(gpu, noise("rgb24", 16, 16))
    bad = put(gpu, np.zeros(1, np.int32))
    for shape in ((1, 16, 16), (1, 2, 16, 16), (1, 1, 16, 16)):
        tensor = put(gpu, np.zeros(shape, np.float32))
        with pytest.raises(ModelError):
            cuda_tensors.unpack(gpu, tensor, spec(Layout.NCHW, 3), [colour], bad)
