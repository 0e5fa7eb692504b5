"""Times that are counted from another origin."""

from __future__ import annotations

from fractions import Fraction

from avdnn.media.cut import Cut


def test_times_are_shifted_in_the_unit_they_come_in() -> None:
    cut = Cut(Fraction(1, 2), trims=True, end=None)
    fine, coarse = Fraction(1, 1000), Fraction(1, 10)
    shifted = [cut.shift(700, unit) for unit in (fine, fine, coarse, fine, Fraction(1, 10))]
    assert shifted == [200, 200, 695, 200, 695]
