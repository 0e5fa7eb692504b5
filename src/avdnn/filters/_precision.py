"""What `precision=auto` runs a model on, and how it measures what comes out."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .. import host
from ..frame import Array, Frame
from ..pixfmt import Family, pixel_format

MOST_LSB = 4.0
LEAST_PSNR = 48.0
"""What a fast precision may differ from float32."""

NOISE = 0.25
"""Of the full range: the noise of the test picture, from its lowest to its highest."""


@dataclass(frozen=True, slots=True)
class Apart:
    """How far two frames differ: largest difference in LSB of 8 bit, and PSNR in dB."""

    lsb: float
    psnr: float

    @property
    def small(self) -> bool:
        """Whether it is within the limits."""
        return self.lsb <= MOST_LSB and self.psnr >= LEAST_PSNR

    def worse(self, other: Apart) -> Apart:
        """The larger difference and the lower PSNR of two."""
        return Apart(max(self.lsb, other.lsb), min(self.psnr, other.psnr))

    def __str__(self) -> str:
        return f"{self.lsb:g} LSB and {self.psnr:.1f} dB from float32"


NOTHING_ALIKE = Apart(math.inf, 0.0)


def trial_picture(first: Frame) -> Frame:
    """A host frame of the format and size of `first`: a gradient in each plane, and fixed noise.

    Gradients go over the full range, each component's in another direction.
    """
    form = pixel_format(first.format)
    made = host.empty(first.format, first.width, first.height, first.meta)
    random = np.random.default_rng(0)
    turn = 0
    for plane in made.planes:
        for part in np.moveaxis(np.atleast_3d(plane), 2, 0):
            codes = _codes(part.shape, turn, random, form.peak)
            whole = np.issubdtype(plane.dtype, np.integer)
            part[...] = np.rint(codes).astype(plane.dtype) << form.shift if whole else codes
            turn += 1
    return made


def _codes(shape: tuple[int, ...], turn: int, random: np.random.Generator, peak: int) -> Array:
    rows, columns = (np.linspace(0, 1, length, dtype=np.float32) for length in shape)
    ways = (columns[None, :], rows[:, None], (rows[:, None] + columns[None, :]) / 2)
    slope = ways[turn % 3] if turn % 2 == 0 else 1 - ways[turn % 3]
    noise = random.random(shape, np.float32) - np.float32(0.5)
    codes: Array = np.clip(slope + np.float32(NOISE) * noise, 0, 1) * peak
    return codes


def difference(wanted: Frame, got: Frame) -> Apart:
    """How far two frames of one format are apart, over what the model wrote."""
    form = pixel_format(wanted.format)
    count = 3 if form.family is Family.PLANAR else 1
    most, total, samples = 0.0, 0.0, 0
    for one, other in zip(wanted.planes[:count], got.planes[:count], strict=True):
        if one.shape != other.shape:
            return NOTHING_ALIKE
        delta = (one >> form.shift if form.shift else one).astype(np.float64)
        delta -= other >> form.shift if form.shift else other
        most = max(most, float(np.abs(delta).max(initial=0.0)))
        total += float(np.square(delta).sum())
        samples += delta.size
    error = total / max(samples, 1) / form.peak**2
    psnr = math.inf if error == 0 else -10 * math.log10(error)
    return Apart(most * 255 / form.peak, psnr)
