"""Key frames at which another decoder may begin: all that follows is what it would have been.

A container calls a key frame what an H.264 decoder can begin at, and that may be a picture after
which some more are needed until all is there: intra refresh, which renews a picture part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import av

_SLICES = range(1, 6)
_IDR, _SEI = 5, 6
_RECOVERY_POINT = 6


def restarts(name: str, extradata: bytes | None) -> Callable[[av.Packet[Any]], bool]:
    """Says whether one may begin at a packet with a key frame, for FFmpeg's decoder `name`."""
    if name != "h264":
        return lambda packet: True
    own = extradata or b""
    length = (own[4] & 3) + 1 if len(own) > 4 and own[0] == 1 else 0
    return lambda packet: _whole(bytes(packet), length)


def _whole(data: bytes, length: int) -> bool:
    """Whether an H.264 picture is an IDR picture or a recovery point that needs no other."""
    for unit in _units(data, length):
        kind = unit[0] & 31
        if kind in _SLICES:
            return kind == _IDR
        if kind == _SEI and _recovers_at_once(unit[1:].replace(b"\0\0\3", b"\0\0")):
            return True
    return False


def _units(data: bytes, length: int) -> Iterator[bytes]:
    """The units of a packet, behind sizes of `length` bytes or, where that is 0, start codes."""
    if not length:
        start = data.find(b"\0\0\1")
        while start >= 0:
            end = data.find(b"\0\0\1", start + 3)
            unit = data[start + 3 : end if end >= 0 else None]
            if unit:
                yield unit
            start = end
        return
    place = 0
    while place + length < len(data):
        size = int.from_bytes(data[place : place + length], "big")
        place += length
        if size:
            yield data[place : place + size]
        place += size


def _recovers_at_once(messages: bytes) -> bool:
    """Whether there is a recovery point of 0 frames among SEI messages: a first bit that is 1."""
    place = 0
    while place + 2 < len(messages):
        numbers = []
        for _ in range(2):
            number = 0
            while place < len(messages) and messages[place] == 255:
                number += 255
                place += 1
            number += messages[place] if place < len(messages) else 0
            place += 1
            numbers.append(number)
        kind, size = numbers
        if kind == _RECOVERY_POINT:
            return place < len(messages) and bool(messages[place] & 0x80)
        place += size
    return False
