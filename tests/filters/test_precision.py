"""The picture that precision=auto tries, and what it measures."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from avdnn import host
from avdnn.filters._precision import Apart, difference, trial_picture
from avdnn.frame import Frame, Meta
from avdnn.pixfmt import FORMATS, pixel_format


def blank(form: str, width: int = 61, height: int = 35) -> Frame:
    return host.empty(form, width, height, Meta(0, 1, Fraction(1, 25)))


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_trial_picture_goes_over_the_range_of_each_component(form: str) -> None:
    peak, shift = pixel_format(form).peak, pixel_format(form).shift
    picture = trial_picture(blank(form))
    assert (picture.format, picture.width, picture.height) == (form, 61, 35)
    for plane in picture.planes:
        for part in np.moveaxis(np.atleast_3d(plane), 2, 0):
            codes = part >> shift if shift else part
            assert codes.min() < 0.1 * peak
            assert 0.9 * peak < codes.max() <= peak
            steps = np.abs(np.diff(codes.astype(np.float64), axis=1))
            assert 0.02 * peak < steps.mean() < 0.2 * peak


def test_trial_picture_depends_on_format_and_size_alone() -> None:
    first = blank("rgb24")
    first.planes[0][...] = 200
    one, other = trial_picture(first), trial_picture(blank("rgb24"))
    np.testing.assert_array_equal(one.planes[0], other.planes[0])
    red, green, blue = (one.planes[0][..., index] for index in range(3))
    assert (red != green).mean() > 0.9
    assert (green != blue).mean() > 0.9


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (2, 2)])
def test_trial_picture_of_any_size(size: tuple[int, int]) -> None:
    assert trial_picture(blank("yuv420p", *size)).planes[0].shape == size[::-1]


def test_difference_is_in_codes_of_eight_bits() -> None:
    one, other = blank("yuv420p10le"), blank("yuv420p10le")
    for frame in (one, other):
        for plane in frame.planes:
            plane[...] = 512
    assert difference(one, other) == Apart(0, math.inf)
    other.planes[0][3, 4] = 516
    other.planes[1][...] = 0
    found = difference(one, other)
    assert found.lsb == pytest.approx(4 * 255 / 1023)
    assert found.psnr == pytest.approx(10 * math.log10(1023**2 * 61 * 35 / 16))
    assert found.small


def test_both_limits_count() -> None:
    assert Apart(4, 48).small
    assert not Apart(4.1, 60).small
    assert not Apart(1, 47.9).small
    assert Apart(1, 50).worse(Apart(3, 60)) == Apart(3, 50)
