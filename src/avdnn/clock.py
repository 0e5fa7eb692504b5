"""Where the time of a job goes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from .channel import close_items

T = TypeVar("T")


@dataclass(slots=True)
class Clock:
    """Seconds by name of the step. Each name is used by one thread."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the time that the block takes to `name`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def iterate(self, name: str, items: Iterable[T]) -> Iterator[T]:
        """`items`, with the time that each takes to come added to `name`."""
        source = iter(items)
        try:
            while True:
                with self.measure(name):
                    try:
                        item = next(source)
                    except StopIteration:
                        return
                yield item
                del item
        finally:
            close_items(source)
