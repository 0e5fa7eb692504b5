"""Small letters for pictures: a 5x7 bitmap alphabet, so that labels need no font file.

Letters have one case; a character that is not in the alphabet becomes a space.
"""

from __future__ import annotations

import numpy as np

from ..frame import Array

HEIGHT = 7
_ADVANCE = 6

_ROWS = {
    "A": "0e11111f111111", "B": "1e11111e11111e", "C": "0e11101010110e", "D": "1e11111111111e",
    "E": "1f10101e10101f", "F": "1f10101e101010", "G": "0e11101711110f", "H": "1111111f111111",
    "I": "0e04040404040e", "J": "0702020202120c", "K": "11121418141211", "L": "1010101010101f",
    "M": "111b1515111111", "N": "11111915131111", "O": "0e11111111110e", "P": "1e11111e101010",
    "Q": "0e11111115120d", "R": "1e11111e141211", "S": "0f10100e01011e", "T": "1f040404040404",
    "U": "1111111111110e", "V": "11111111110a04", "W": "11111115151b11", "X": "11110a040a1111",
    "Y": "1111110a040404", "Z": "1f01020408101f", "0": "0e11131519110e", "1": "040c040404040e",
    "2": "0e11010204081f", "3": "1f02040201110e", "4": "02060a121f0202", "5": "1f101e0101110e",
    "6": "0608101e11110e", "7": "1f010204080808", "8": "0e11110e11110e", "9": "0e11110f01020c",
    ".": "00000000000c0c", ",": "000000000c0408", ":": "000c0c000c0c00", "-": "0000001f000000",
    "+": "0004041f040400", "/": "00010204081000", "=": "00001f001f0000", "(": "02040808080402",
    ")": "08040202020408", "%": "18190204081303", "_": "0000000000001f", "'": "0c040800000000",
    "#": "0a0a1f0a1f0a0a", "<": "02040810080402", ">": "08040201020408", "|": "04040404040404",
}  # fmt: skip


def mask(text: str, *, size: int = 1) -> Array:
    """One line of text as a boolean mask, `size` pixels for each dot of the bitmap."""
    out = np.zeros((HEIGHT, max(1, _ADVANCE * len(text) - 1)), bool)
    for index, char in enumerate(text.upper()):
        rows = bytes.fromhex(_ROWS.get(char, "00" * HEIGHT))
        dots = np.unpackbits(np.frombuffer(rows, np.uint8)[:, None], axis=1)[:, 3:]
        out[:, index * _ADVANCE :][:, :5] |= dots.astype(bool)
    return out.repeat(size, 0).repeat(size, 1)


def write(picture: Array, text: str, *, x: int, y: int, size: int = 1, color: Array) -> None:
    """Write a line into `picture` (rows, columns[, components]); what lies outside is cut."""
    dots = mask(text, size=size)
    part = picture[y : y + dots.shape[0], x : x + dots.shape[1]]
    part[dots[: part.shape[0], : part.shape[1]]] = color
