"""Writes PNG files from RGB pixels."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from ..errors import MediaError
from ..frame import Array


def encode(picture: Array) -> bytes:
    """The bytes of an 8-bit PNG of (rows, columns, 3)."""
    height, width, _ = picture.shape
    rows = np.ascontiguousarray(picture, np.uint8).reshape(height, width * 3)
    # filter 2: each row as its difference from the row above
    lines = np.empty((height, width * 3 + 1), np.uint8)
    lines[:, 0], lines[0, 1:] = 2, rows[0]
    np.subtract(rows[1:], rows[:-1], out=lines[1:, 1:])
    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def write(path: Path, picture: Array) -> None:
    """Write (rows, columns, 3) to `path`."""
    try:
        path.write_bytes(encode(picture))
    except OSError as error:
        raise MediaError(f"{path}: {error.strerror or error}", path=str(path)) from error
