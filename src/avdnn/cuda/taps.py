"""Bicubic resampling as tables of taps: the phase, curve and rounding of libswscale's BICUBIC."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..frame import Array

SHARPNESS = 0.6
"""libswscale's cubic: minus the slope at distance one."""

ACROSS_BITS = 14
DOWN_BITS = 12
"""Fraction bits of its horizontal and vertical weights."""


@dataclass(frozen=True, slots=True, eq=False)
class Taps:
    """For each output sample the first input sample and its weights, (size,) and (size, n).

    Positions outside the picture stand for its edge sample.
    """

    first: Array
    weights: Array


@lru_cache(maxsize=64)
def bicubic(source: int, target: int, bits: int) -> Taps:
    """Taps from `source` to `target` samples whose outer edges coincide.

    Downscaling widens the curve; planes narrower than the curve get fewer taps.
    """
    step = ((source << 16) + (target >> 1)) // target / 65536
    stretch = max(source / target, 1.0)
    count = 5 if target >= source else 1 + -(-4 * source // target)
    count = max(1, min(count, source - 2))
    centre = (np.arange(target) + 0.5) * step - 0.5
    first = np.trunc(centre - (count - 2) / 2).astype(np.int32)
    distance = np.abs(first[:, None] + np.arange(count) - centre[:, None]) / stretch
    return Taps(first, _fixed(_cubic(distance), bits))


def fine_steps(depth: int) -> tuple[float, float]:
    """(steps a code, largest value) of the fixed-point line between the two passes."""
    bits = 15 if depth < 16 else 19
    steps = float(1 << (bits - depth))
    return steps, ((1 << bits) - 1) / steps


def _cubic(d: Array) -> Array:
    a = SHARPNESS
    near = (2 - a) * d**3 - (3 - a) * d**2 + 1
    far = -a * d**3 + 5 * a * d**2 - 8 * a * d + 4 * a
    return np.where(d < 1, near, np.where(d < 2, far, 0.0))


def _fixed(weights: Array, bits: int) -> Array:
    """Weights that add up to one, rounded to `bits` with the error carried from tap to tap."""
    one = float(1 << bits)
    weights = weights / weights.sum(axis=1, keepdims=True) * one
    rounded = np.diff(np.rint(np.cumsum(weights, axis=1)), axis=1, prepend=0.0)
    return (rounded / one).astype(np.float32)
