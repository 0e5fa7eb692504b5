"""Best-effort times for frames and packets whose file is not strict about them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import av

_JUMP = Fraction(10)
_BACK = Fraction(1, 10)


class FrameClock:
    """Gives every decoded frame a time that comes after that of the frame before.

    Of presentation time and decoding time, the one that has gone back less often so far is
    believed, the presentation time if even (libavcodec's best-effort rule). A frame with neither
    gets the end of the frame before; one that does not come after it is put one tick behind it,
    and `complain` hears of it.
    """

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._seen: dict[str, int] = {}
        self._faults = {"pts": 0, "dts": 0}
        self._next = 0
        self.last: int | None = None

    def time(self, frame: av.VideoFrame, unit: Fraction, rate: Fraction | None) -> int:
        """The frame's time in `unit`; `rate` stands in for a missing duration."""
        pts = self._believed(frame.pts, frame.dts)
        if pts is None:
            pts = self._next
        if self.last is not None and pts <= self.last:
            self._complain(f"timestamps go back at {float(pts * unit):.3f} s; frames stay in order")
            pts = self.last + 1
        lasts = frame.duration or (max(1, round(1 / (rate * unit))) if rate else 1)
        self.last, self._next = pts, pts + lasts
        return pts

    def _believed(self, pts: int | None, dts: int | None) -> int | None:
        for name, own, other in (("dts", dts, pts), ("pts", pts, dts)):
            if own is not None:
                self._faults[name] += own <= self._seen.get(name, own - 1)
                self._seen[name] = own
            elif other is not None:
                self._seen[name] = other
        if pts is not None and (dts is None or self._faults["pts"] <= self._faults["dts"]):
            return pts
        return dts


class Splices:
    """Joins the parts of a recording whose clock jumps, by FFmpeg's rule.

    A jump of more than 10 s, or of more than 0.1 s back, moves everything that follows so that
    the stream goes on where it ended.
    """

    def __init__(self, complain: Callable[[str], None]) -> None:
        self._complain = complain
        self._offset = Fraction(0)
        self._next: dict[int, Fraction] = {}

    def join(self, packet: av.Packet[Any]) -> None:
        """Move a packet in place."""
        if packet.dts is None or packet.stream.type not in ("video", "audio"):
            return
        unit, index = Fraction(packet.time_base), packet.stream.index
        now = packet.dts * unit + self._offset
        due = self._next.get(index)
        if due is not None and (abs(now - due) > _JUMP or now + _BACK < due):
            self._complain(f"the clock jumps at {float(due):.3f} s; the parts are joined")
            self._offset += due - now
            now = due
        self._next[index] = now + (packet.duration or 0) * unit
        shift = round(self._offset / unit)
        packet.dts += shift
        if packet.pts is not None:
            packet.pts += shift
