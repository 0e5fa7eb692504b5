"""What some containers need of their muxer, and of the place where they are written."""

from __future__ import annotations

from collections.abc import MutableMapping

from ..errors import UsageError
from .target import Target

_SEEKING = frozenset({"3g2", "3gp", "ipod", "mov", "mp4", "psp"})
"""Containers that go back to their beginning at the end."""


def settle(form: str, target: Target, muxing: MutableMapping[str, str]) -> bool:
    """Complete the muxer's options in place; whether the file holds a single picture.

    UsageError for a pipe where the container has to seek.
    """
    if form == "yuv4mpegpipe":
        muxing.setdefault("strict", "-1")  # more than 8 bits: what every reader takes
    if form in _SEEKING and target.is_pipe and "frag" not in muxing.get("movflags", ""):
        raise UsageError(
            f"{target.url}: {form} cannot be written to a pipe; take -f matroska, -f nut or "
            "-movflags frag_keyframe+empty_moov"
        )
    if form != "image2":
        return False
    single = not target.pictures and "update" not in muxing
    muxing.setdefault("atomic_writing" if target.pictures else "update", "1")
    return single
