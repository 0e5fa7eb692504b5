"""Copied packets that wait for their turn."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import av

from .copying import Copies
from .cut import Cut


class Held:
    """Packets of copied streams, in order; what leaves is cut and on its output stream."""

    def __init__(self, cut: Cut, copies: Copies) -> None:
        self._cut = cut
        self._copies = copies
        self._packets: list[av.Packet[Any]] = []

    def add(self, packet: av.Packet[Any]) -> None:
        """Keep a packet until it is released."""
        self._packets.append(packet)

    def release(self, reached: Fraction | None) -> Iterator[av.Packet[Any]]:
        """Those before `reached` seconds of the output's time, or all."""
        packets, self._packets = self._packets, []
        for packet in packets:
            if reached is not None and _time(packet) - self._cut.origin >= reached:
                self._packets.append(packet)
            elif self._cut.place(packet):
                routed = self._copies.route(packet)
                if routed is not None:
                    yield routed


def _time(packet: av.Packet[Any]) -> Fraction:
    time = packet.dts if packet.pts is None else packet.pts
    return (time or 0) * Fraction(packet.time_base)
