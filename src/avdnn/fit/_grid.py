"""Where tiles begin, and what two of them share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ._pictures import Area


def starts(length: int, tile: int, overlap: int, phase: int) -> tuple[int, ...]:
    """Where tiles begin that cover `length` pixels and overlap by `overlap` or more.

    All are multiples of `phase`; the last tile may go beyond the end by less than that.
    """
    last = max(-(-(length - tile) // phase), 0)
    step = max((tile - overlap) // phase, 1)
    count = -(-last // step) + 1
    return tuple(number * last // max(count - 1, 1) * phase for number in range(count))


@dataclass(frozen=True, slots=True)
class Grid:
    """Tiles of one size: where they begin, in input pixels. `blend`: ramps instead of cuts."""

    tile: Area
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    blend: bool

    def __len__(self) -> int:
        return len(self.rows) * len(self.columns)

    @property
    def shares(self) -> bool:
        """Whether two tiles have any pixel in common."""
        along = ((self.rows, self.tile.height), (self.columns, self.tile.width))
        return any(
            first + size > second for begins, size in along for first, second in pairwise(begins)
        )

    def tiles(self) -> Iterator[tuple[int, int]]:
        """(row, column) numbers, row by row."""
        for row in range(len(self.rows)):
            for column in range(len(self.columns)):
                yield row, column

    def down(self, scale: Fraction) -> Along:
        """The tiles of a column in an output of that scale."""
        return Along(self.rows, self.tile.height, scale, self.blend)

    def across(self, scale: Fraction) -> Along:
        """The tiles of a row in an output of that scale."""
        return Along(self.columns, self.tile.width, scale, self.blend)


@dataclass(frozen=True, slots=True)
class Along:
    """Tiles along one axis of an output; `begins` and `size` are in input pixels."""

    begins: tuple[int, ...]
    size: int
    scale: Fraction
    blend: bool

    def begin(self, number: int) -> int:
        """Output pixel where a tile begins."""
        return int(self.begins[number] * self.scale)

    def shared(self, number: int) -> int:
        """Output pixels that a tile shares with the one before."""
        if number == 0:
            return 0
        return int((self.begins[number - 1] + self.size - self.begins[number]) * self.scale)

    def join(self, number: int) -> int:
        """Output pixel from which a tile is used: the middle of what it shares."""
        return self.begin(number) + self.shared(number) // 2

    def weights(self, length: int) -> NDArray[np.float32]:
        """What each pixel of each tile (tiles, pixels) counts in an output of `length` pixels.

        Tiles are laid over those before, as in Stitcher. Weights of an output pixel sum to 1.
        """
        size = int(self.size * self.scale)
        whole = np.zeros((len(self.begins), self.begin(len(self.begins) - 1) + size), np.float32)
        for number in range(len(self.begins)):
            begin, shared = self.begin(number), self.shared(number)
            own = np.ones(size, np.float32)
            if self.blend:
                shared = min(shared, length - begin)
                own[:shared] = ramp(shared)
            else:
                own[: shared // 2] = 0
            whole[:number, begin : begin + size] *= 1 - own
            whole[number, begin : begin + size] = own
        parts = [row[self.begin(number) :][:size] for number, row in enumerate(whole)]
        return np.stack(parts)


def ramp(length: int) -> NDArray[np.float32]:
    """Weights that grow from 0 to 1, those of the middles of `length` pixels."""
    steps = np.arange(length, dtype=np.float32) + np.float32(0.5)
    return steps / np.float32(max(length, 1))
