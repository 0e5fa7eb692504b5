"""-aspect sets the shown picture's ratio of width to height."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import pytest

from ..clips import clip
from .test_writer import FAST, copy


def _ratio(path: Path) -> Fraction | None:
    with av.open(str(path)) as opened:
        return opened.streams.video[0].sample_aspect_ratio


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
@pytest.mark.parametrize("aspect", ["16/9", "37/20"])
def test_the_pixels_are_stretched_to_it(tmp_path: Path, suffix: str, aspect: str) -> None:
    source = clip(tmp_path / "in.mp4", settings={"sample_aspect_ratio": Fraction(2)})
    target = tmp_path / f"out.{suffix}"
    copy(source, target, options=FAST, aspect=Fraction(aspect))
    assert _ratio(target) == Fraction(aspect) * 48 / 64


def test_it_is_that_of_the_picture_as_it_is_shown(tmp_path: Path) -> None:
    source = clip(tmp_path / "in.mp4", rotation=90)
    copy(source, tmp_path / "turned.mp4", options=FAST, aspect=Fraction(9, 16))
    assert _ratio(tmp_path / "turned.mp4") == Fraction(16, 9) * 48 / 64
    copy(source, tmp_path / "upright.ts", options=FAST, aspect=Fraction(9, 16))
    assert _ratio(tmp_path / "upright.ts") == Fraction(9, 16) * 64 / 48
