"""Matroska's elements: an identifier, a length, a body."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass


def element(ident: str, body: bytes) -> bytes:
    """An element of that identifier (hexadecimal) with an eight-byte length."""
    return bytes.fromhex(ident) + struct.pack(">Q", len(body) | 1 << 56) + body


def uint(ident: str, value: int) -> bytes:
    """An element that holds an unsigned number."""
    return element(ident, struct.pack(">Q", value))


def double(ident: str, value: float) -> bytes:
    """An element that holds a floating-point number."""
    return element(ident, struct.pack(">d", value))


@dataclass(frozen=True, slots=True)
class Place:
    """Where an element lies in a buffer: from `start`, its body from `body` to `end`."""

    ident: str
    start: int
    body: int
    end: int


def elements(data: bytes, start: int, end: int) -> Iterator[Place]:
    """The elements between two offsets, one behind the other; stops at what is cut off."""
    while start < end:
        length = _width(data[start])
        ident = data[start : start + length].hex().upper()
        at = start + length
        if not length or at >= len(data):
            return
        wide = _width(data[at])
        body = at + wide
        size = int.from_bytes(data[at:body], "big") & ((1 << 7 * wide) - 1)
        yield Place(ident, start, body, body + size)
        start = body + size


def _width(first: int) -> int:
    """Bytes of a number whose first byte is that; 0 if it is none."""
    return 9 - first.bit_length() if first else 0
