"""What tiling and padding need to know of a model, measured by running it on noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends import Backend
from ..errors import InferenceError, ModelError
from ..frame import Layout, TensorSpec
from ._pictures import Area, picture_outputs, shape_for

MULTIPLES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)
SMALL = 64
"""Sides from which a model is taken to work, whatever it pads and pools."""

PHASES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
NOTHING = 1e-6
LITTLE = 1e-3
"""Of the output's range: what counts as rounding, and a quarter of an 8-bit step."""

Picture = NDArray[np.float64]


def multiple(scaled: Callable[[Area], bool]) -> int | None:
    """The smallest known number whose multiples the model takes and scales exactly.

    `scaled` tells that for one size; it may raise as the model does.
    """
    for number in MULTIPLES:
        n = -(-SMALL // number)
        trials = (Area(n * number, (n + 1) * number), Area((n + 3) * number, (n + 2) * number))
        try:
            if all(scaled(trial) for trial in trials):
                return number
        except (InferenceError, ModelError):
            continue
    return None


def smallest(scaled: Callable[[Area], bool], frame: Area, number: int) -> Area | None:
    """The smallest multiple of a number that holds a frame, is larger, and that the model takes.

    A network that mirrors its borders, or pools, needs some pixels more than a small frame has.
    """
    tried = frame
    for side in range(number, SMALL + number, number):
        size = Area(max(side, frame.height), max(side, frame.width)).up_to(number)
        if size == tried:
            continue
        tried = size
        try:
            if scaled(size):
                return size
        except (InferenceError, ModelError):
            continue
    return None


@dataclass(frozen=True, slots=True)
class Sight:
    """How far a pixel of the result sees, and how the model may be shifted.

    `reach`: pixels of the input in each direction, None if more than half a tile. `exact`: all
    that it sees lies within; else what lies beyond changes it by less than a quarter of an 8-bit
    step. `phase`: a shift of the input by this many pixels shifts the result, and nothing else
    happens; None if there is no such number.
    """

    reach: int | None
    exact: bool
    phase: int | None


class Trial:
    """Runs a model on pictures of one size, (height, width, channels) with samples in 0..1."""

    def __init__(self, backend: Backend, given: TensorSpec, size: Area, channels: int) -> None:
        self.backend = backend
        self.given = given
        self.size = size
        self.shape = shape_for(given, size, channels)
        self.channels = self.shape[1] if given.layout is Layout.NCHW else self.shape[3]
        self.random = np.random.default_rng(0)

    def noise(self, more: int = 0) -> Picture:
        """A picture of noise, larger than the trial's size by `more`."""
        shape = (self.size.height + more, self.size.width + more, self.channels)
        return self.random.random(shape)

    def run(self, picture: Picture) -> list[Picture]:
        """All outputs, as (height, width, channels)."""
        tensor: Any = 255 * picture
        if not self.given.is_integer:
            tensor = (tensor - self.given.mean) / self.given.scale
        else:
            tensor = np.rint(tensor)
        if self.given.layout is Layout.NCHW:
            tensor = tensor.transpose(2, 0, 1)
        batch = np.ascontiguousarray(np.broadcast_to(tensor, self.shape), self.given.dtype)
        made = self.backend.infer_async({self.given.name: batch}).result()
        return [
            _picture(made[spec.name], spec) for spec in picture_outputs(self.backend, self.given)
        ]


def _picture(array: Any, spec: TensorSpec) -> Picture:
    first = np.asarray(array[0], np.float64)
    return first.transpose(1, 2, 0) if spec.layout is Layout.NCHW else first


def sight(trial: Trial, scale: Sequence[Fraction]) -> Sight:
    """Measure a model whose outputs have these scales."""
    strict, loose = _reaches(trial, scale)
    reach = loose if strict is None else strict
    phase = _phase(trial, scale, reach or 0)
    return Sight(reach, exact=strict is not None, phase=phase)


def _reaches(trial: Trial, scale: Sequence[Fraction]) -> tuple[int | None, int | None]:
    """The reach by both thresholds: what half a picture does to the other half, in four ways."""
    found: list[int | None] = [0, 0]
    dark, bright = trial.noise() / 2, trial.noise() / 2 + 0.5
    for one, two in ((trial.noise(), trial.noise()), (dark, bright)):
        ones, twos = trial.run(one), trial.run(two)
        for along in (0, 1):
            half = one.shape[along] // 2
            halves = _cut(one, along, 0, half), _cut(two, along, half, None)
            mixed = trial.run(np.concatenate(halves, along))
            for number, factor in enumerate(scale):
                for index, limit in enumerate((NOTHING, LITTLE)):
                    far = _influence(
                        mixed[number], ones[number], twos[number], along, half, factor, limit
                    )
                    known = found[index]
                    found[index] = None if far is None or known is None else max(far, known)
    return found[0], found[1]


def _cut(picture: Picture, along: int, start: int, end: int | None) -> Picture:
    return picture[start:end] if along == 0 else picture[:, start:end]


def _influence(
    mixed: Picture,
    one: Picture,
    two: Picture,
    along: int,
    half: int,
    factor: Fraction,
    limit: float,
) -> int | None:
    """How far either side of the border at input pixel `half` shows on the other side."""
    step = limit * max(float(np.ptp(one)), float(np.ptp(two)), 1e-12)
    border = int(half * factor)
    left = _lines(mixed, one, along, step)[:border]
    right = _lines(mixed, two, along, step)[border:]
    far = max(
        border - int(left.argmax()) if left.any() else 0,
        len(right) - int(right[::-1].argmax()) if right.any() else 0,
    )
    if (left.any() and left[0]) or (right.any() and right[-1]):
        return None
    return -int(-far // factor)


def _lines(made: Picture, wanted: Picture, along: int, step: float) -> NDArray[np.bool_]:
    """Which rows (0) or columns (1) differ."""
    return np.asarray((np.abs(made - wanted) > step).any((1 - along, 2)))


def _phase(trial: Trial, scale: Sequence[Fraction], reach: int) -> int | None:
    """The smallest shift that only shifts the result, compared where borders are not seen."""
    noise = trial.noise(PHASES[-1])
    height, width = trial.size.height, trial.size.width
    still = trial.run(noise[:height, :width])
    for shift in PHASES:
        if 2 * reach + shift >= min(height, width):
            return None
        if any((shift * factor).denominator != 1 for factor in scale):
            continue
        moved = trial.run(noise[shift : shift + height, shift : shift + width])
        if all(
            _same(one, other, int(shift * factor), -int(-reach * factor // 1))
            for one, other, factor in zip(still, moved, scale, strict=True)
        ):
            return shift
    return None


def _same(still: Picture, moved: Picture, shift: int, border: int) -> bool:
    rows, columns = still.shape[:2]
    one = still[border + shift : rows - border, border + shift : columns - border]
    other = moved[border : rows - border - shift, border : columns - border - shift]
    return bool(np.abs(one - other).max(initial=0) <= LITTLE * max(float(np.ptp(still)), 1e-12))
