"""A bounded hand-over between threads that either side can end."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Channel(Generic[T]):
    """At most `depth` items wait in it; iterating ends when it has been ended and is empty."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._items: deque[T] = deque()
        self._change = threading.Condition()
        self._ended = False
        self._closed = False
        self._error: BaseException | None = None

    def put(self, item: T, *, wait: bool = True) -> bool:
        """Hand `item` over, after waiting for room if `wait`; False once it is closed."""
        with self._change:
            while wait and len(self._items) >= self._depth and not self._closed:
                self._change.wait()
            if self._closed:
                return False
            self._items.append(item)
            self._change.notify_all()
            return True

    def end(self, error: BaseException | None = None) -> None:
        """No more items come; `error` is raised to the reader behind what is there."""
        with self._change:
            if not self._ended:
                self._ended, self._error = True, error
            self._change.notify_all()

    def close(self) -> None:
        """The reader wants no more: drop what is there and let writers go on."""
        with self._change:
            self._closed = self._ended = True
            self._items.clear()
            self._change.notify_all()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._change:
            while not self._items and not self._ended:
                self._change.wait()
            if self._items:
                item = self._items.popleft()
                self._change.notify_all()
                return item
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration


def close_items(items: object) -> None:
    """Close an iterator that can be closed, a generator or a stage; a plain one has nothing to."""
    close = getattr(items, "close", None)
    if close is not None:
        close()
