"""Writes a sample aspect ratio into a finished Matroska or WebM file.

libavformat takes it from a field that PyAV does not show, and VP9 and AV1 streams do not hold it.
The two display elements go into the video track; the void that the muxer leaves behind its index
of elements gives the room, so that nothing behind the tracks moves.
"""

from __future__ import annotations

import logging
import struct
import zlib
from fractions import Fraction
from pathlib import Path

from .ebml import Place, element, elements, uint

_log = logging.getLogger(__name__)

_FORMATS = frozenset({"matroska", "webm"})
_HEAD = 1 << 20
_SEGMENT, _INDEX, _VOID, _TRACKS, _CRC = "18538067", "114D9B74", "EC", "1654AE6B", "BF"
_ENTRY, _VIDEO, _WIDTH, _HEIGHT = "AE", "E0", "B0", "BA"
_DISPLAY = frozenset({"54B0", "54BA", "54B2"})
_SEEK, _SEEK_POSITION = "4DBB", "53AC"
_SMALLEST_VOID = 9


def kept(path: Path | None, form: str, track: int, ratio: Fraction) -> bool:
    """Put the ratio into the finished file, where there is one of a format that takes it."""
    return form in _FORMATS and path is not None and stretch(path, track, ratio)


def lost(ratio: Fraction, form: str) -> str:
    """The line that tells that a ratio is lost."""
    return (
        f"the sample aspect ratio {ratio} is lost: this codec in {form} cannot carry it; "
        "take another -c:v or -f mp4"
    )


def stretch(path: Path, track: int, ratio: Fraction) -> bool:
    """Give the track of that number (from 0) the ratio; False if the file is laid out otherwise."""
    with path.open("r+b") as file:
        head = file.read(_HEAD)
        patched = _patched(head, track, ratio)
        if patched is None:
            _log.debug("%s: no room for an aspect ratio", path)
            return False
        file.seek(0)
        file.write(patched)
    return True


def _patched(head: bytes, track: int, ratio: Fraction) -> bytes | None:
    """The same number of bytes with the ratio in them."""
    segment = _find(head, 0, len(head), _SEGMENT)
    if segment is None:
        return None
    found: dict[str, Place] = {}
    for place in elements(head, segment.body, min(segment.end, len(head))):
        found.setdefault(place.ident, place)
        if place.ident == _TRACKS:
            break
    index, void, tracks = (found.get(ident) for ident in (_INDEX, _VOID, _TRACKS))
    if index is None or void is None or tracks is None or tracks.end > len(head):
        return None
    if not index.end == void.start < void.end <= tracks.start:
        return None
    made = _with_ratio(head, tracks, track, ratio)
    if made is None:
        return None
    growth = len(made) - (tracks.end - tracks.start)
    room = void.end - void.start - growth
    if room < _SMALLEST_VOID:
        return None
    moved = _index(head[index.start : index.end], segment.body, void.end, tracks.end, growth)
    between = head[void.end : tracks.start]
    new = moved + element(_VOID, bytes(room - _SMALLEST_VOID)) + between + made
    return head[: index.start] + new + head[tracks.end :]


def _find(data: bytes, start: int, end: int, ident: str) -> Place | None:
    return next((place for place in elements(data, start, end) if place.ident == ident), None)


def _with_ratio(head: bytes, tracks: Place, track: int, ratio: Fraction) -> bytes | None:
    """The tracks with the display size in one of them."""
    body, number = b"", 0
    for place in elements(head, tracks.body, tracks.end):
        if place.ident == _CRC:
            continue
        if place.ident == _ENTRY:
            if number == track:
                entry = _entry_with_ratio(head, place, ratio)
                if entry is None:
                    return None
                body += entry
                number += 1
                continue
            number += 1
        body += head[place.start : place.end]
    return _checked(head, tracks, body)


def _entry_with_ratio(head: bytes, entry: Place, ratio: Fraction) -> bytes | None:
    video = _find(head, entry.body, entry.end, _VIDEO)
    if video is None:
        return None
    parts = list(elements(head, video.body, video.end))
    sizes = {place.ident: int.from_bytes(head[place.body : place.end], "big") for place in parts}
    if _WIDTH not in sizes or _HEIGHT not in sizes:
        return None
    kept = (head[place.start : place.end] for place in parts if place.ident not in _DISPLAY)
    display = uint("54B0", round(sizes[_WIDTH] * ratio)) + uint("54BA", sizes[_HEIGHT])
    return element(
        _ENTRY,
        head[entry.body : video.start]
        + element(_VIDEO, b"".join(kept) + display)
        + head[video.end : entry.end],
    )


def _checked(head: bytes, old: Place, body: bytes) -> bytes:
    """The element with a new body, and with a check sum where the old one had it."""
    first = next(elements(head, old.body, old.end), None)
    if first is not None and first.ident == _CRC:
        body = _sum(body) + body
    return element(old.ident, body)


def _sum(body: bytes) -> bytes:
    return b"\xbf\x84" + struct.pack("<I", zlib.crc32(body))


def _index(data: bytes, segment: int, first: int, last: int, growth: int) -> bytes:
    """The index of elements, with those between two offsets moved `growth` bytes to the front."""
    new = bytearray(data)
    whole = next(elements(data, 0, len(data)))
    for seek in elements(data, whole.body, whole.end):
        if seek.ident != _SEEK:
            continue
        place = _find(data, seek.body, seek.end, _SEEK_POSITION)
        if place is None:
            continue
        position = int.from_bytes(data[place.body : place.end], "big")
        if first <= segment + position < last:
            width = place.end - place.body
            new[place.body : place.end] = (position - growth).to_bytes(width, "big")
    if data[whole.body] == int(_CRC, 16):
        new[whole.body : whole.body + 6] = _sum(bytes(new[whole.body + 6 : whole.end]))
    return bytes(new)
