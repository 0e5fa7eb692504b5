"""Turns pictures upright for outputs that cannot say how to show them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import atan2, degrees, hypot

import av
import av.filter

from ..versions import fraction

KEEPS_MATRIX = frozenset(
    {"3g2", "3gp", "ipod", "ismv", "matroska", "mov", "mp4", "null", "psp", "webm"}
)
"""Formats that store a display matrix; `null` shows nothing."""

_FORGET = ("sidedata", "mode=delete:type=DISPLAYMATRIX")


def turns(matrix: Sequence[int]) -> list[tuple[str, str]] | None:
    """Filters, with their arguments, that do what a display matrix asks for; None for an angle
    that is no multiple of 90 degrees."""
    across, down = hypot(matrix[0], matrix[3]), hypot(matrix[1], matrix[4])
    if not across or not down:
        return []
    angle = degrees(atan2(matrix[1] / down, matrix[0] / across)) % 360
    quarters = round(angle / 90)
    if abs(angle - 90 * quarters) > 1:
        return None
    mirrored = matrix[0] * matrix[4] - matrix[1] * matrix[3] < 0
    match quarters % 4:
        case 0:
            return [("vflip", "")] if mirrored else []
        case 1:
            return [("transpose", "cclock_flip" if mirrored else "clock")]
        case 2:
            return [("hflip", "")] if mirrored else [("hflip", ""), ("vflip", "")]
        case _:
            return [("transpose", "clock_flip" if mirrored else "cclock")]


def swaps_sides(filters: Sequence[tuple[str, str]]) -> bool:
    """Whether width and height change places."""
    return any(name == "transpose" for name, _ in filters)


class Turner:
    """Runs frames through filters; what they carry stays, the display matrix aside."""

    def __init__(self, filters: Sequence[tuple[str, str]]) -> None:
        self._filters = [*filters, _FORGET]
        self._kind: tuple[int, int, str] | None = None
        self._graph: av.filter.Graph

    def turn(self, frame: av.VideoFrame) -> av.VideoFrame:
        """A new frame, or for a mirrored one its own memory read backwards."""
        kind = (frame.width, frame.height, frame.format.name)
        if kind != self._kind:
            self._graph, self._kind = self._built(frame), kind
        pts, unit, duration = frame.pts, frame.time_base, frame.duration
        self._graph.push(frame)
        made = self._graph.pull()
        assert isinstance(made, av.VideoFrame)
        made.pts, made.duration = pts, duration
        if unit:
            made.time_base = unit
        return made

    def _built(self, frame: av.VideoFrame) -> av.filter.Graph:
        graph = av.filter.Graph()
        last = graph.add_buffer(
            width=frame.width,
            height=frame.height,
            format=frame.format,
            time_base=fraction(frame.time_base) or Fraction(1),
        )
        for name, arguments in [*self._filters, ("buffersink", "")]:
            following = graph.add(name, arguments or None)
            last.link_to(following)
            last = following
        graph.configure()
        return graph
