"""Frames to tensors and back, on every format."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from avdnn import host
from avdnn.chroma import ChromaScaler
from avdnn.errors import ModelError, NonFiniteError
from avdnn.frame import Frame, Layout, TensorSpec
from avdnn.pixfmt import FORMATS, Family

WIDTH, HEIGHT = 21, 13
"""Odd on purpose: chroma sizes round up, pitches are padded."""


def random_frame(form: str, width: int = WIDTH, height: int = HEIGHT, seed: int = 1) -> Frame:
    """A frame with a random legal code in every sample."""
    made = av.VideoFrame(width, height, form)
    made.pts, made.time_base = 7, Fraction(1, 25)
    frame = host.from_av(made, Fraction(4, 3))
    known = FORMATS[form]
    random = np.random.default_rng(seed)
    for plane in frame.planes:
        if known.dtype == "float32":
            plane[...] = random.random(plane.shape, np.float32)
        else:
            plane[...] = random.integers(0, known.peak + 1, plane.shape) << known.shift
    return frame


def spec(layout: Layout, dtype: str = "float32", **more: Any) -> TensorSpec:
    return TensorSpec("x", (-1, -1, -1, -1), dtype, layout, **more)


def through(frame: Frame, layout: Layout, dtype: str = "float32", **more: Any) -> Frame:
    """The identity model."""
    wanted = spec(layout, dtype, **more)
    tensor = host.pack([frame], wanted)
    return host.unpack(tensor[0], wanted, frame, ChromaScaler())


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("form", FORMATS)
def test_identity_gives_the_same_frame_in_every_format(form: str, layout: Layout) -> None:
    frame = random_frame(form)
    out = through(frame, layout)
    assert (out.format, out.width, out.height) == (form, WIDTH, HEIGHT)
    for index, (got, plane) in enumerate(zip(out.planes, frame.planes, strict=True)):
        if FORMATS[form].order.strip("0") != FORMATS[form].order and index == 0:
            pad = FORMATS[form].order.index("0")
            assert (got[..., pad] == 255).all()
            got, plane = np.delete(got, pad, -1), np.delete(plane, pad, -1)
        assert np.array_equal(got, plane)


@pytest.mark.parametrize("form", ["gray", "yuv420p", "nv12", "rgb24", "bgr24"])
@pytest.mark.parametrize("layout", list(Layout))
def test_bytes_go_through_as_codes_without_a_copy(form: str, layout: Layout) -> None:
    frame = random_frame(form)
    tensor = host.pack([frame], spec(layout, "uint8"))
    assert tensor.dtype == np.uint8
    assert np.shares_memory(tensor, frame.planes[0])
    out = through(frame, layout, "uint8")
    for got, plane in zip(out.planes, frame.planes, strict=True):
        assert np.array_equal(got, plane)


@pytest.mark.parametrize("form", ["yuv420p10le", "p010le", "gbrp12le", "rgb48le", "gray16le"])
def test_deep_formats_keep_every_code_as_uint16(form: str) -> None:
    frame = random_frame(form)
    out = through(frame, Layout.NCHW, "uint16")
    for got, plane in zip(out.planes, frame.planes, strict=True):
        assert np.array_equal(got, plane)


def test_values_are_codes_over_the_peak() -> None:
    frame = random_frame("p010le")
    tensor = host.pack([frame], spec(Layout.NCHW))
    assert tensor.shape == (1, 1, HEIGHT, WIDTH)
    assert np.array_equal(tensor[0, 0], (frame.planes[0] >> 6) * np.float32(1 / 1023))


def test_rounding_is_half_to_even_and_clips() -> None:
    frame = random_frame("gray", 6, 1)
    values = np.array([0.5, 1.5, 2.5, -3.0, 254.5, 300.0], np.float32) / np.float32(255)
    wanted = spec(Layout.NCHW)
    out = host.unpack(values.reshape(1, 1, 6), wanted, frame, ChromaScaler())
    assert out.planes[0].tolist() == [[0, 2, 2, 0, 254, 255]]


def test_scale_and_mean_are_undone_on_the_way_out() -> None:
    frame = random_frame("gray")
    wanted = spec(Layout.NCHW, scale=58.0, mean=103.5)
    tensor = host.pack([frame], wanted)
    assert np.allclose(tensor[0, 0], (frame.planes[0] - 103.5) / 58.0, atol=1e-5)
    assert np.array_equal(
        through(frame, Layout.NCHW, scale=58.0, mean=103.5).planes[0], frame.planes[0]
    )


@pytest.mark.parametrize(
    ("form", "order", "wanted"),
    [
        ("rgb24", "", [0, 1, 2]),
        ("rgb24", "bgr", [2, 1, 0]),
        ("bgr24", "", [0, 1, 2]),
        ("bgr24", "rgb", [2, 1, 0]),
        ("0rgb", "rgb", [1, 2, 3]),
        ("bgra", "rgb", [2, 1, 0]),
    ],
)
def test_channel_order_is_the_models_or_the_frames(
    form: str, order: str, wanted: list[int]
) -> None:
    frame = random_frame(form)
    tensor = host.pack([frame], spec(Layout.NHWC, "uint8"), order)
    assert np.array_equal(tensor[0], frame.planes[0][..., wanted])
    out = host.unpack(tensor[0], spec(Layout.NHWC, "uint8"), frame, ChromaScaler(), order)
    assert np.array_equal(out.planes[0][..., wanted], frame.planes[0][..., wanted])


def test_planar_rgb_is_given_in_order() -> None:
    frame = random_frame("gbrp")
    green, blue, red = frame.planes
    tensor = host.pack([frame], spec(Layout.NCHW, "uint8"), "rgb")
    assert np.array_equal(tensor[0], np.stack([red, green, blue]))


def test_a_batch_holds_its_frames_in_order() -> None:
    frames = [random_frame("yuv420p", seed=seed) for seed in range(3)]
    tensor = host.pack(frames, spec(Layout.NHWC, "uint8"))
    assert tensor.shape == (3, HEIGHT, WIDTH, 1)
    for slot, frame in zip(tensor, frames, strict=True):
        assert np.array_equal(slot[..., 0], frame.planes[0])


@pytest.mark.parametrize("form", [name for name in FORMATS if FORMATS[name].family is Family.LUMA])
def test_chroma_and_alpha_follow_an_enlarged_luma(form: str) -> None:
    if FORMATS[form].dtype == "float32":
        pytest.skip("float gray has no other planes")
    frame = random_frame(form)
    tensor = np.full((1, 2 * HEIGHT, 2 * WIDTH), 0.25, np.float32)
    out = host.unpack(tensor, spec(Layout.NCHW), frame, ChromaScaler())
    assert (out.width, out.height) == (2 * WIDTH, 2 * HEIGHT)
    sizes = FORMATS[form].plane_sizes(2 * WIDTH, 2 * HEIGHT)
    assert [plane.shape[:2] for plane in out.planes] == list(sizes)
    for got, plane in zip(out.planes[1:], frame.planes[1:], strict=True):
        # Enlarging keeps the mean; bicubic overshoot and edges move it a little.
        assert abs(float(got.mean()) / float(plane.mean()) - 1) < 0.1


def test_time_and_tags_are_the_source_frames() -> None:
    frame = random_frame("yuv420p")
    frame.owner.color_range = 2
    frame.owner.colorspace = 1
    out = through(frame, Layout.NCHW)
    made = host.to_av(out)
    assert (made.pts, made.time_base) == (7, Fraction(1, 25))
    assert (int(made.color_range), int(made.colorspace)) == (2, 1)
    assert out.meta.sar == Fraction(4, 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_is_an_error(value: float) -> None:
    tensor = np.zeros((1, HEIGHT, WIDTH), np.float32)
    tensor[0, HEIGHT - 1, 3] = value
    with pytest.raises(NonFiniteError):
        host.unpack(tensor, spec(Layout.NCHW), random_frame("gray"), ChromaScaler())


def test_large_finite_values_are_clipped() -> None:
    tensor = np.full((1, HEIGHT, WIDTH), 1e36, np.float32)  # its sum over a strip overflows
    out = host.unpack(tensor, spec(Layout.NCHW), random_frame("gray"), ChromaScaler())
    assert (out.planes[0] == 255).all()


def test_a_wrong_number_of_channels_is_an_error() -> None:
    tensor = np.zeros((2, HEIGHT, WIDTH), np.float32)
    with pytest.raises(ModelError, match=r"2 channels.*rgb24 needs 3"):
        host.unpack(tensor, spec(Layout.NCHW), random_frame("rgb24"), ChromaScaler())


def test_float16_outputs_are_read() -> None:
    frame = random_frame("gray")
    tensor = host.pack([frame], spec(Layout.NCHW)).astype(np.float16)
    out = host.unpack(tensor[0], spec(Layout.NCHW, "float16"), frame, ChromaScaler())
    assert np.array_equal(out.planes[0], frame.planes[0])  # half has 11 bits for 8
