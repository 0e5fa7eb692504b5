"""Holds frames back until it is their time: -re and -readrate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from fractions import Fraction

from .channel import close_items
from .filters import Item
from .frame import Frame


def at_native_rate(
    items: Iterator[Item],
    speed: float,
    wait: Callable[[float], bool],
    now: Callable[[], float] = time.monotonic,
) -> Iterator[Item]:
    """The items, each frame at its own time divided by `speed`, counted from the first frame.

    `wait` takes seconds and says whether to stop; `now` is a clock in seconds.
    """
    first: tuple[Fraction, float] | None = None
    try:
        for item in items:
            if isinstance(item, Frame) and item.meta.pts is not None:
                at = item.meta.pts * item.meta.time_base
                first = first or (at, now())
                early = float(at - first[0]) / speed - (now() - first[1])
                if early > 0 and wait(early):
                    return
            yield item
            del item
    finally:
        close_items(items)
