"""A clip that is hard to enlarge: four panels of moving detail, computed frame by frame.

Panels are functions of time in [0, 1) and give RGB in [0, 1], (rows, columns, 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from avdnn.compare import lettering

HEIGHT, WIDTH = 270, 480
"""Size of a panel; the picture is two by two."""

_TEXT = ("AVDNN 0123456789", "EVERY FRAME, ANY NETWORK", "(small print: +-/=%) 4:2:0")


def _grid() -> tuple[np.ndarray, np.ndarray]:
    """Pixel coordinates from the middle, as float32."""
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
    return y - (HEIGHT - 1) / 2, x - (WIDTH - 1) / 2


def zone_plate(time: float) -> np.ndarray:
    """Rings that get finer outwards, to the finest that half the size can hold."""
    y, x = _grid()
    radius = y * y + x * x
    reach = (WIDTH / 2) ** 2
    wave = 0.5 + 0.5 * np.cos(np.pi * 0.25 * radius / np.sqrt(reach) - 2 * np.pi * 2 * time)
    tint = np.array([1.0, 0.94, 0.82], np.float32)
    return wave[..., None] * tint


def text(time: float) -> np.ndarray:
    """Three lines that turn about the middle, with smooth edges."""
    y, x = _grid()
    angle = np.float32(0.5 * np.sin(2 * np.pi * time))
    along = x * np.cos(angle) + y * np.sin(angle)
    down = y * np.cos(angle) - x * np.sin(angle)
    ink = np.zeros((HEIGHT, WIDTH), np.float32)
    for line, size, place in zip(_TEXT, (4.0, 2.6, 1.8), (-45.0, 15.0, 60.0), strict=True):
        dots = np.pad(lettering.mask(line, size=8), 8).astype(np.float32)
        for axis in (0, 1):
            dots = (dots + np.roll(dots, 1, axis) + np.roll(dots, -1, axis)) / 3
        rows = (down - place) / size * 8 + dots.shape[0] / 2
        columns = along / size * 8 + dots.shape[1] / 2
        ink = np.maximum(ink, _sampled(dots, rows, columns))
    paper, colour = np.array([0.07, 0.10, 0.16]), np.array([0.98, 0.86, 0.45])
    return (paper + ink[..., None] * (colour - paper)).astype(np.float32)


def _sampled(source: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Bilinear samples of `source`, 0 outside."""
    top, left = np.floor(rows).astype(int), np.floor(columns).astype(int)
    inside = (top >= 0) & (left >= 0)
    inside &= (top < source.shape[0] - 1) & (left < source.shape[1] - 1)
    top, left = np.where(inside, top, 0), np.where(inside, left, 0)
    down, right = rows - top, columns - left
    upper = source[top, left] * (1 - right) + source[top, left + 1] * right
    lower = source[top + 1, left] * (1 - right) + source[top + 1, left + 1] * right
    return np.where(inside, upper * (1 - down) + lower * down, 0)


def gratings(time: float) -> np.ndarray:
    """A turning star of wedges between two sets of bars that slide."""
    y, x = _grid()
    angle, radius = np.arctan2(y, x), np.hypot(y, x)
    wedges = np.sin(36 * (angle + 2 * np.pi * time / 18)) * np.clip(radius - 14, 0, None)
    star = np.clip(0.5 + wedges * 0.05, 0, 1)
    steps = np.array([16, 12, 9, 7, 6, 5], np.float32)
    period = steps[np.clip((y + HEIGHT / 2) * len(steps) / HEIGHT, 0, len(steps) - 1).astype(int)]
    phase = np.where(x < 0, x + 0.6 * y, x - 0.6 * y) / period
    bars = 0.5 + 0.5 * np.cos(2 * np.pi * (phase + 2 * time))
    mixed = np.where(radius < HEIGHT * 0.46, star, bars)
    warm, cool = np.array([0.96, 0.93, 0.88]), np.array([0.10, 0.22, 0.34])
    return (cool + mixed[..., None] * (warm - cool)).astype(np.float32)


def fractal(time: float) -> np.ndarray:
    """A Julia set whose parameter goes round, coloured by escape time."""
    y, x = _grid()
    z = (x + 1j * y).astype(np.complex64) * np.complex64(3.1 / WIDTH)
    turn = 2 * np.pi * (0.53 + 0.025 * np.sin(2 * np.pi * time))
    c = np.complex64(0.7885 * np.exp(1j * turn))
    escaped = np.full(z.shape, 48, np.float32)
    for step in range(48):
        z = np.where(np.abs(z) < 32, z * z + c, z)
        size = np.abs(z)
        first = (size >= 32) & (escaped == 48)
        with np.errstate(divide="ignore"):
            smooth = step + 1 - np.log2(np.log2(np.maximum(size, 2)))
        escaped = np.where(first, smooth, escaped)
    shade = np.sqrt(np.clip(escaped / 48, 0, 1))[..., None]
    return (0.5 + 0.5 * np.cos(2 * np.pi * (shade * [1.4, 1.3, 1.1] + [0.55, 0.45, 0.30]))).astype(
        np.float32
    )


PANELS: Mapping[str, Callable[[float], np.ndarray]] = {
    "zone plate": zone_plate,
    "text": text,
    "gratings": gratings,
    "fractal": fractal,
}


def frame(time: float) -> np.ndarray:
    """The whole picture at `time` in [0, 1): 8-bit RGB, (540, 960, 3)."""
    panels = [np.rint(np.clip(panel(time), 0, 1) * 255) for panel in PANELS.values()]
    rows = [np.concatenate(panels[:2], 1), np.concatenate(panels[2:], 1)]
    return np.concatenate(rows).astype(np.uint8)
