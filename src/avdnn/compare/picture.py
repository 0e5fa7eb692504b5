"""Shows where two frames differ most: both crops and their difference, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import av
import numpy as np

from .. import host
from ..frame import Array, Frame
from . import lettering

Panel: TypeAlias = tuple[str, Array]
"""A label and RGB pixels."""

_WIDTH, _HEIGHT = 240, 180
_ZOOM = 2
_BLOCK = 32
_GAP = 6
_BAR = 26
_INK, _PAPER = 235, 24


def worst_crops(a: Frame, b: Frame, *, number: int) -> Array:
    """RGB pixels: the first frame, the second, and their difference stretched to full range."""
    left, right = _rgb(a), _rgb(b)
    apart = np.abs(left.astype(np.int16) - right)
    rows, columns = _window(apart)
    scale = 255 / max(1, int(apart[rows, columns].max()))
    stretched = (apart[rows, columns] * scale).astype(np.uint8)
    top, start = rows.start, columns.start
    place = f"{start},{top}"
    panels = (
        (f"first, frame {number} at {place}", left[rows, columns]),
        ("second", right[rows, columns]),
        (f"difference x {scale:.0f}", stretched),
    )
    return side_by_side(panels, zoom=_ZOOM)


def side_by_side(panels: Sequence[Panel], *, zoom: int = 1) -> Array:
    """Labelled RGB panels of one size in a row, each pixel `zoom` wide and high."""
    height, width = (side * zoom for side in panels[0][1].shape[:2])
    bar = _BAR if any(label for label, _ in panels) else _GAP
    total = (width + _GAP) * len(panels) + _GAP
    out = np.full((height + bar + _GAP, total, 3), _PAPER, np.uint8)
    for index, (label, picture) in enumerate(panels):
        x = _GAP + index * (width + _GAP)
        out[bar : bar + height, x : x + width] = picture.repeat(zoom, 0).repeat(zoom, 1)
        size = 2 if len(label) * 12 <= width else 1
        y = (bar - lettering.HEIGHT * size) // 2
        lettering.write(out[:, : x + width], label, x=x, y=y, size=size, color=_INK)
    return out


def stacked(rows: Sequence[Sequence[Panel]], *, zoom: int = 1) -> Array:
    """Rows of panels below each other; a row whose labels are all empty has no space for them."""
    made = [side_by_side(row, zoom=zoom) for row in rows]
    return np.concatenate([made[0], *(row[_GAP:] for row in made[1:])])


def _rgb(frame: Frame) -> Array:
    made: av.VideoFrame = host.to_av(frame)
    return made.to_ndarray(format="rgb24")


def _window(apart: Array) -> tuple[slice, slice]:
    """The crop around the block with the largest squared difference."""
    height, width = apart.shape[:2]
    power = (apart.astype(np.float32) ** 2).sum(2)
    down, right = -height % _BLOCK, -width % _BLOCK
    padded = np.pad(power, ((0, down), (0, right)))
    blocks = padded.reshape(padded.shape[0] // _BLOCK, _BLOCK, -1, _BLOCK).sum((1, 3))
    row, column = np.unravel_index(int(blocks.argmax()), blocks.shape)
    return _span(int(row), height, _HEIGHT), _span(int(column), width, _WIDTH)


def _span(block: int, length: int, wanted: int) -> slice:
    size = min(wanted, length)
    start = min(max(0, block * _BLOCK + _BLOCK // 2 - size // 2), length - size)
    return slice(start, start + size)
