"""Where tiles begin, and what two of them share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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

    def tiles(self) -> Iterator[tuple[int, int]]:
        """(row, column) numbers, row by row."""
        for row in range(len(self.rows)):
            for column in range(len(self.columns)):
                yield row, column
