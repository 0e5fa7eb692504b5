"""Whether the end of a file is missing: by the times that it promises, and by its layout."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

import av.container

from .cut import MICROSECOND
from .ebml import elements
from .opening import is_local, local_path

_DECLARES_DURATION = ("mov", "matroska", "avi", "flv", "asf", "nut")
_BOXES = frozenset({b"mdat", b"moof", b"moov"})
_PACKETS = {188: 0, 192: 4, 204: 0}
"""Sizes of a transport stream's packets, and the bytes of each before its sync byte."""
_SYNC = 0x47
_ALIKE = 8
"""Packets in a row whose sync bytes show where packets begin."""


def missing(container: av.container.InputContainer, read: Fraction) -> str:
    """What is missing at the end of a file that was read to its end, as a sentence, or "".

    `read` is how many seconds came, from the file's own beginning.
    """
    name = container.format.name.split(",")[0]
    if container.duration is not None and name in _DECLARES_DURATION:
        promised = container.duration * MICROSECOND
        if promised - read > Fraction(1, 2):
            return (
                f"the file ends early: {float(promised - read):.3f} s of the "
                f"{float(promised):.3f} s that its header promises are missing"
            )
    check, path = _CHECKS.get(name), _path(container.name)
    if check is None or path is None:
        return ""
    with path.open("rb") as file:
        return check(file, os.fstat(file.fileno()).st_size)


def is_cut_jpeg(data: bytes) -> bool:
    """Whether a JPEG picture lacks the marker of its end; data that is none is not cut."""
    at = 2
    while data[at : at + 1] == b"\xff":
        if data[at + 1 : at + 2] == b"\xda":
            return b"\xff\xd9" not in data[at:]
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return False


def _path(name: str) -> Path | None:
    path = local_path(name) if is_local(name) else None
    return path if path is not None and path.is_file() else None


def _boxes(file: BinaryIO, size: int) -> str:
    """MP4: every box tells its size."""
    at = 0
    while at + 8 <= size:
        file.seek(at)
        head = file.read(16)
        length, kind = int.from_bytes(head[:4], "big"), head[4:8]
        if length == 1:
            length = int.from_bytes(head[8:16], "big")
        if length < 8:
            return ""
        if at + length > size:
            return _short(at + length - size) if kind in _BOXES else ""
        at += length
    return ""


def _segment(file: BinaryIO, size: int) -> str:
    """Matroska: the segment tells its size, unless it was written to a pipe."""
    head = file.read(4096)
    for place in elements(head, 0, len(head)):
        if place.ident == "18538067":
            unknown = set(head[place.start + 4 : place.body]) <= {0x01, 0xFF}
            return "" if unknown or place.end <= size else _short(place.end - size)
    return ""


def _riff(file: BinaryIO, size: int) -> str:
    """AVI: so does each of its parts, once it is finished."""
    at = 0
    while at + 12 <= size:
        file.seek(at)
        head = file.read(8)
        length = int.from_bytes(head[4:8], "little")
        if head[:4] != b"RIFF" or not length:
            return ""
        at += 8 + length
        if at > size:
            return _short(at - size)
        at += length % 2
    return ""


def _packets(file: BinaryIO, size: int) -> str:
    """MPEG-TS: the last packet is as long as those before it."""
    for packet, lead in _PACKETS.items():
        begin = max(0, size - packet * (_ALIKE + 2))
        file.seek(begin)
        tail = file.read()
        for first in range(min(packet, len(tail))):
            syncs = tail[first::packet]
            if len(syncs) >= _ALIKE and set(syncs) == {_SYNC}:
                rest = (len(tail) - first + lead) % packet
                return f"the file ends early, within a packet of {packet} bytes" if rest else ""
    return ""


def _short(count: int) -> str:
    missing = (
        "1 byte that its header promises is"
        if count == 1
        else (f"{count} bytes that its header promises are")
    )
    return f"the file ends early: {missing} missing"


_CHECKS: dict[str, Callable[[BinaryIO, int], str]] = {
    "mov": _boxes,
    "matroska": _segment,
    "avi": _riff,
    "mpegts": _packets,
}
