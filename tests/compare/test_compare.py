"""Comparing videos: figures, limits, formats, times, and the picture of the worst frame."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.reformatter import VideoReformatter

from avdnn import host
from avdnn.compare import compare, difference, quality
from avdnn.compare.comparison import Limits
from avdnn.compare.components import EXACT, readable
from avdnn.errors import FormatError, MediaError, UsageError
from avdnn.frame import Frame, Meta
from avdnn.pixfmt import FORMATS

from ..clips import clip, picture

SIZE = 64, 48
"""A multiple of what swscale's threads write at once: at 40 columns they race into 10-bit rows."""


def _frames(
    count: int, form: str = "yuv420p", *, size: tuple[int, int] = SIZE, start: int = 0
) -> Iterator[av.VideoFrame]:
    for index in range(count):
        frame = picture(index, *size, form)
        frame.pts, frame.time_base = start + index, Fraction(1, 25)
        yield frame


def _changed(frames: Iterator[av.VideoFrame], number: int, by: int) -> Iterator[av.VideoFrame]:
    """The same frames, one luma or first-component sample of frame `number` moved by `by`."""
    for index, frame in enumerate(frames):
        if index == number:
            samples = np.frombuffer(frame.planes[0], np.uint8)
            changed = samples.copy()
            at = 3 * frame.planes[0].line_size + 5
            changed[at] = int(changed[at]) + by
            frame.planes[0].update(changed.tobytes())
        yield frame


def test_equal_frames_are_the_same() -> None:
    found = compare(_frames(3), _frames(3), limits=Limits(max_diff=0, min_psnr=100))
    assert found.same
    assert found.exit_code == 0
    assert found.frames == (3, 3)
    assert found.max_diff == 0
    assert found.psnr == math.inf
    assert found.ssim == 1.0
    assert [plane.name for plane in found.planes] == ["y", "u", "v"]


def test_one_changed_sample_is_found_and_measured() -> None:
    found = compare(_frames(3), _changed(_frames(3), 1, 9), limits=Limits(max_diff=8))
    luma, chroma = found.planes[0], found.planes[1]
    assert luma.max_diff == 9
    assert luma.psnr == pytest.approx(10 * math.log10(255**2 * 3 * 64 * 48 / 81))
    assert chroma.max_diff == 0
    assert found.worst_frame == 1
    assert found.exit_code == 1
    assert found.problems == ("plane y by 9, --max-diff 8",)


def test_least_psnr_holds_for_the_worst_frame_not_the_mean() -> None:
    a, b = lambda: _frames(10), lambda: _changed(_frames(10), 7, 40)
    worst = compare(a(), b()).worst_psnr
    assert compare(a(), b()).psnr > worst + 5
    assert compare(a(), b(), limits=Limits(min_psnr=worst - 0.1)).same
    failed = compare(a(), b(), limits=Limits(min_psnr=worst + 0.1))
    assert failed.problems[0].startswith("frame 7 has")


def test_without_limits_figures_do_not_decide() -> None:
    assert compare(_frames(2), _changed(_frames(2), 0, 20)).exit_code == 0


def test_missing_frames_are_counted() -> None:
    found = compare(_frames(5), _frames(3))
    assert found.problems == ("5 and 3 frames",)
    assert found.frames == (5, 3)
    assert not compare(iter(()), iter(())).same


def test_times_are_compared_to_half_a_tick() -> None:
    shifted = compare(_frames(3), _frames(3, start=1))
    assert shifted.pts_differ == 3
    assert shifted.problems == ("frame 0 is at 0.000000 s and 0.040000 s, and 2 more",)

    def rounded() -> Iterator[av.VideoFrame]:
        for index, frame in enumerate(_frames(4)):
            frame.pts, frame.time_base = round(index * 1000 / 25), Fraction(1, 1000)
            yield frame

    assert compare(_frames(4), rounded()).same


def test_other_size_is_a_difference_without_figures() -> None:
    found = compare(_frames(2), _frames(2, size=(64, 50)))
    assert found.problems[0] == "frame 0 has the sizes 64x48 and 64x50"
    assert found.compared == 0
    assert "0 frames of 64x48 yuv420p and 64x50 yuv420p compared" in found.as_text()
    assert found.planes == ()
    assert math.isnan(found.psnr)
    assert json.loads(found.as_json())["psnr"] is None


@pytest.mark.parametrize(
    ("one", "other"),
    [("yuv420p", "nv12"), ("yuv420p10le", "p010le"), ("rgb24", "bgr24"), ("rgb24", "gbrp")],
)
def test_formats_that_pack_the_same_samples_otherwise_are_equal(one: str, other: str) -> None:
    def packed(form: str) -> Iterator[av.VideoFrame]:
        for frame in _frames(2, one):
            made = frame.reformat(format=form)
            made.pts, made.time_base = frame.pts, frame.time_base
            yield made

    found = compare(packed(one), packed(other), limits=Limits(max_diff=0))
    assert found.same, found.problems
    assert found.formats == (one, other)


RANDOM = np.random.default_rng(4)
ODD = 41, 31


def _random(form: str) -> Frame:
    """A frame of random codes."""
    known = FORMATS[form]
    frame = host.empty(form, *ODD, Meta(0, 1, Fraction(1, 25)))
    for plane in frame.planes:
        plane[...] = (
            RANDOM.random(plane.shape)
            if known.dtype == "float32"
            else RANDOM.integers(0, known.peak + 1, plane.shape).astype(plane.dtype) << known.shift
        )
    return frame


def _converted(frame: Frame, form: str, color_range: int = 0) -> Frame:
    made = VideoReformatter().reformat(host.to_av(frame), format=form, threads=1)
    made.color_range = color_range
    return host.from_av(made)


BIG = [
    *("gray10be", "gray16be", "grayf32be", "yuv420p10be", "yuv422p16be", "yuva444p10be"),
    *("p010be", "p216be", "rgb48be", "gbrp10be", "gbrap16be", "rgba64be", "xv36be", "ayuv64be"),
]
UNWRITTEN = {"pal8", "ya8", "ya16le", "monow", "monob", "rgb565le", "bgr565le"}
UNWRITTEN |= {"rgb555le", "bgr555le"}
"""What cannot hold every code of what it is read as."""


@pytest.mark.parametrize("color_range", [0, 1, 2])
@pytest.mark.parametrize("form", sorted([*BIG, *(EXACT.keys() - UNWRITTEN)]))
def test_formats_of_other_order_are_read_exactly(form: str, color_range: int) -> None:
    little = form.removesuffix("be") + "le" if form.endswith("be") else form
    plain = EXACT.get(little, little)
    frame = _random(plain)
    frame.owner.color_range = color_range
    found = readable(_converted(frame, form, color_range))
    assert found.format == plain
    for one, other in zip(frame.planes, found.planes, strict=True):
        np.testing.assert_array_equal(one, other)


def _raw(form: str, rows: np.ndarray, width: int) -> Frame:
    """A frame whose one plane holds these bytes, as limited range."""
    frame = av.VideoFrame(width, rows.shape[0], form)
    plane = frame.planes[0]
    held = np.zeros((rows.shape[0], plane.line_size), np.uint8)
    held[:, : rows.shape[1]] = rows
    plane.update(held.tobytes())
    frame.color_range = 1
    return host.from_av(frame)


def test_palettes_are_read_exactly() -> None:
    codes = RANDOM.integers(0, 256, (31, 41), np.uint8)
    palette = RANDOM.integers(0, 256, (256, 4), np.uint8)
    frame = host.from_av(av.VideoFrame.from_ndarray((codes, palette), format="pal8"))
    argb = palette[codes]
    np.testing.assert_array_equal(readable(frame).planes[0], argb[..., [1, 2, 3, 0]])


@pytest.mark.parametrize("form", ["monow", "monob"])
def test_single_bits_are_read_exactly(form: str) -> None:
    rows = RANDOM.integers(0, 256, (31, 5), np.uint8)
    bits = np.unpackbits(rows, axis=1) ^ (form == "monow")
    np.testing.assert_array_equal(readable(_raw(form, rows, 40)).planes[0], 255 * bits)


@pytest.mark.parametrize("form", ["ya8", "ya16le", "ya16be"])
def test_gray_with_alpha_is_read_exactly(form: str) -> None:
    dtype = {"ya8": "u1", "ya16le": "<u2", "ya16be": ">u2"}[form]
    codes = RANDOM.integers(0, 256 ** np.dtype(dtype).itemsize, (31, 41, 2)).astype(dtype)
    found = readable(_raw(form, codes.reshape(31, -1).view(np.uint8), 41)).planes
    for plane in found[:3]:
        np.testing.assert_array_equal(plane, codes[..., 0])
    np.testing.assert_array_equal(found[3], codes[..., 1])


@pytest.mark.parametrize("byte_order", ["le", "be"])
@pytest.mark.parametrize("green", [5, 6])
@pytest.mark.parametrize("order", ["rgb", "bgr"])
def test_sixteen_bit_colours_are_read_exactly(order: str, green: int, byte_order: str) -> None:
    codes = np.arange(1 << (10 + green), dtype=np.uint16).reshape(-1, 256)
    high, middle, low = codes >> (5 + green), codes >> 5 & (1 << green) - 1, codes & 31
    wide = [part << 3 | part >> 2 for part in (high, low)]
    wide.insert(1, middle << 8 - green | middle >> 2 * green - 8)
    stored = codes.astype("<u2" if byte_order == "le" else ">u2").view(np.uint8)
    found = readable(_raw(f"{order}5{green}5{byte_order}", stored, 256)).planes[0]
    wanted = wide if order == "rgb" else wide[::-1]
    np.testing.assert_array_equal(found, np.stack(wanted, -1))


def test_videos_of_other_byte_order_are_equal() -> None:
    def gray(form: str, by: int = 0) -> Iterator[av.VideoFrame]:
        codes = np.arange(64 * 48, dtype=np.uint16).reshape(48, 64) * 16 + by
        frame = host.from_av(av.VideoFrame.from_ndarray(codes, format="gray16le"))
        made = host.to_av(_converted(frame, form))
        made.pts, made.time_base = 0, Fraction(1, 25)
        yield made

    found = compare(gray("gray16be"), gray("gray16le"), limits=Limits(max_diff=0))
    assert found.same
    assert found.formats == ("gray16be", "gray16le")
    assert compare(gray("gray16be"), gray("gray16be", 3)).max_diff == 3


def _paletted(alpha: int) -> Iterator[av.VideoFrame]:
    codes = np.arange(64 * 48, dtype=np.uint32).astype(np.uint8).reshape(48, 64)
    palette = np.random.default_rng(5).integers(0, 256, (256, 4), np.uint8)
    palette[:, 0] = alpha
    frame = av.VideoFrame.from_ndarray((codes, palette), format="pal8")
    frame.pts, frame.time_base = 0, Fraction(1, 25)
    yield frame


def test_opaque_palette_equals_colour_without_alpha() -> None:
    def colours() -> Iterator[av.VideoFrame]:
        for frame in _paletted(255):
            made = frame.reformat(format="rgb24")
            made.pts, made.time_base = frame.pts, frame.time_base
            yield made

    found = compare(_paletted(255), colours(), limits=Limits(max_diff=0))
    assert found.same, found.problems
    assert [plane.name for plane in found.planes] == ["b", "g", "r"]
    with pytest.raises(FormatError, match="pal8 and rgb24 hold different samples"):
        compare(_paletted(254), colours())
    assert compare(_paletted(254), _paletted(255)).max_diff == 1


@pytest.mark.parametrize("form", ["bayer_rggb8", "xyz12le", "y210be"])
def test_formats_that_are_not_read_exactly_are_refused(form: str) -> None:
    def frames() -> Iterator[av.VideoFrame]:
        frame = av.VideoFrame(64, 48, form)
        frame.pts, frame.time_base = 0, Fraction(1, 25)
        yield frame

    with pytest.raises(FormatError, match=f"cannot read the samples of pixel format {form}"):
        compare(frames(), frames())


def test_ten_bit_samples_are_compared_as_ten_bit_codes() -> None:
    def brighter() -> Iterator[av.VideoFrame]:
        for frame in _frames(1, "yuv420p10le"):
            samples = np.frombuffer(frame.planes[0], np.uint16) + np.uint16(2)
            frame.planes[0].update(samples.tobytes())
            yield frame

    found = compare(_frames(1, "yuv420p10le"), brighter())
    assert found.planes[0].max_diff == 2
    assert found.planes[0].psnr == pytest.approx(20 * math.log10(1023 / 2))


def test_not_a_number_in_a_float_frame_is_a_difference() -> None:
    def gray(value: float) -> Iterator[av.VideoFrame]:
        samples = np.linspace(0, 1, 64 * 48, dtype=np.float32).reshape(48, 64)
        samples[5, 6] = value
        frame = av.VideoFrame.from_ndarray(samples, format="grayf32le")
        frame.pts, frame.time_base = 0, Fraction(1, 25)
        yield frame

    assert compare(gray(0.5), gray(0.5), limits=Limits(max_diff=0)).same
    assert compare(gray(np.nan), gray(np.nan), limits=Limits(max_diff=0)).same
    found = compare(gray(0.5), gray(np.nan), limits=Limits(max_diff=1, min_psnr=0))
    assert len(found.problems) == 2
    assert found.psnr == -math.inf


def test_full_and_limited_range_are_told_apart() -> None:
    def tagged(value: int) -> Iterator[av.VideoFrame]:
        for frame in _frames(1):
            frame.color_range = value
            yield frame

    assert compare(tagged(1), tagged(0)).same
    found = compare(tagged(1), tagged(2))
    assert found.problems == ("one is limited range, the other full",)


def test_formats_that_hold_different_samples_are_refused() -> None:
    with pytest.raises(FormatError, match="yuv420p and rgb24 hold different samples"):
        compare(_frames(1), _frames(1, "rgb24"))
    with pytest.raises(FormatError, match="different samples"):
        compare(_frames(1), _frames(1, "yuv420p10le"))


def test_files_are_compared(tmp_path: Path) -> None:
    clip(tmp_path / "good.mkv", frames=6, options={"crf": "10"})
    clip(tmp_path / "poor.mkv", frames=6, options={"crf": "40"})
    assert compare(tmp_path / "good.mkv", str(tmp_path / "good.mkv"), limits=Limits(0)).same
    found = compare(tmp_path / "good.mkv", tmp_path / "poor.mkv")
    assert found.frames == (6, 6)
    assert 15 < found.psnr < 45
    assert 0.3 < found.ssim < 0.999


def test_worst_frame_is_shown(tmp_path: Path) -> None:
    target = tmp_path / "worst.png"
    compare(_frames(4), _changed(_frames(4), 2, 60), picture=target)
    with av.open(str(target)) as container:
        (frame,) = container.decode(video=0)
    shown = frame.to_ndarray(format="rgb24")
    width = 64 * 2 + 6
    assert shown.shape == (48 * 2 + 26 + 6, 3 * width + 6, 3)
    first, second, apart = (
        shown[26:-6, 6 + i * width :][:, :128].astype(int)[::2, ::2] for i in range(3)
    )
    changed = np.abs(first - second).max(2)
    assert np.unravel_index(changed.argmax(), changed.shape) == (3, 5)
    assert apart[3, 5].max() == 255


def test_report_names_what_differs() -> None:
    text = compare(_frames(5), _changed(_frames(4), 1, 9)).as_text()
    assert "4 frames of 64x48 yuv420p compared" in text
    assert "y: max difference 9" in text
    assert "u: max difference 0, PSNR inf (equal), SSIM 1.00000" in text
    assert "differs: 5 and 4 frames" in text


def test_difference_is_exact_over_many_strips() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 65536, (2, 700, 900), np.uint16)
    wanted = a.astype(np.int64) - b
    assert difference(a, b) == (np.abs(wanted).max(), (wanted**2).sum())


def _ssim_by_definition(a: np.ndarray, b: np.ndarray) -> float:
    """The formula of the paper, one window at a time, in float64."""
    x = np.arange(11) - 5
    line = np.exp(-(x**2) / 4.5)
    window = np.outer(line, line) / line.sum() ** 2
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    found = []
    for row in range(a.shape[0] - 10):
        for column in range(a.shape[1] - 10):
            p, q = (v[row : row + 11, column : column + 11].astype(float) for v in (a, b))
            mp, mq = (window * p).sum(), (window * q).sum()
            pp, qq = (window * (p - mp) ** 2).sum(), (window * (q - mq) ** 2).sum()
            pq = (window * (p - mp) * (q - mq)).sum()
            above = (2 * mp * mq + c1) * (2 * pq + c2)
            found.append(above / ((mp**2 + mq**2 + c1) * (pp + qq + c2)))
    return float(np.mean(found))


def test_ssim_is_the_formula_of_the_paper() -> None:
    rng = np.random.default_rng(2)
    a = rng.integers(0, 256, (90, 23), np.uint8)
    b = np.clip(a + rng.integers(-40, 41, a.shape), 0, 255).astype(np.uint8)
    # the fast version sums in float32: its variances are good to about 1e-5
    assert quality.ssim(a, b, 255) == pytest.approx(_ssim_by_definition(a, b), abs=1e-5)


def test_ssim_of_a_plane_smaller_than_its_window() -> None:
    a = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
    assert quality.ssim(a, a, 255) == pytest.approx(1.0)
    assert quality.ssim(a, a[::-1], 255) < 0.9


def test_psnr_of_integers_does_not_wrap() -> None:
    a, b = np.zeros((3, 3), np.uint8), np.full((3, 3), 255, np.uint8)
    assert quality.psnr(a, b, 255) == 0
    assert quality.psnr(a, a, 255) == math.inf


def test_a_picture_that_cannot_be_written_is_refused_before_frames_are_read(
    tmp_path: Path,
) -> None:
    for name, error, said in (
        ("worst.jpg", UsageError, "a PNG is written"),
        ("no/worst.png", MediaError, "no such folder"),
    ):
        left = _frames(2)
        with pytest.raises(error, match=said):
            compare(left, _frames(2), picture=tmp_path / name)
        assert next(left).pts == 0
    assert not list(tmp_path.iterdir())


def test_limits_that_no_video_keeps_are_refused() -> None:
    for limits, said in (
        ({"max_diff": -1}, "--max-diff: expected 0 codes or more, got -1"),
        ({"max_diff": math.nan}, "--max-diff: expected 0 codes or more, got nan"),
        ({"min_psnr": math.nan}, "--min-psnr: expected a number of dB, got nan"),
    ):
        with pytest.raises(UsageError, match=said):
            Limits(**limits)


def test_one_frame_is_told_in_the_singular() -> None:
    text = compare(_frames(1), _frames(1)).as_text()
    assert text.startswith("1 frame of 64x48 yuv420p compared")


def test_a_picture_never_replaces_a_video(tmp_path: Path) -> None:
    video = tmp_path / "a.mkv"
    clip(video, frames=2)
    before = video.read_bytes()
    (tmp_path / "link.png").symlink_to(video)
    for target in (video, tmp_path / "link.png"):
        with pytest.raises(MediaError, match="is one of the videos"):
            compare(video, video, picture=target)
    assert video.read_bytes() == before
