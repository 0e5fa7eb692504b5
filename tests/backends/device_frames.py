"""Frames of noise for models on a GPU, and a filter text run on them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from avdnn import filters, host
from avdnn.filters import Context
from avdnn.frame import Frame, Meta


def pictures(
    form: str, count: int, seed: int = 0, size: tuple[int, int] = (100, 62)
) -> list[Frame]:
    """Frames of noise of that width and height, odd in their pitch."""
    made = []
    for number in range(count):
        frame = host.empty(form, *size, Meta(number, 1, Fraction(1, 25)))
        random = np.random.default_rng(seed + number)
        for plane in frame.planes:
            plane[...] = random.integers(0, 256, plane.shape, np.uint8)
        made.append(frame)
    return made


def run(text: str, frames: list[Frame], notes: list[str] | None = None) -> list[Any]:
    """What the filters give for the frames; what they say goes to `notes`."""
    context = Context(say=(notes if notes is not None else []).append)
    return list(filters.connect(filters.build(text, context), iter(frames)))
