"""An iterator that runs ahead on its own thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Generic, TypeVar

from .channel import Channel, close_items

T = TypeVar("T")


class Stage(Generic[T]):
    """Runs `items` on a named thread and hands them on, at most `depth` ahead.

    Iterate it from one thread. An error of `items` is raised by `next` once the items before it
    are taken. Leaving the context stops the thread, closes `items` on it, and waits for it.
    """

    def __init__(self, items: Iterator[T], depth: int, name: str) -> None:
        self._items = items
        self._ready: Channel[T] = Channel(depth)
        self._thread = threading.Thread(target=self._run, name=name, daemon=False)

    def __enter__(self) -> Stage[T]:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Stage[T]:
        return self

    def __next__(self) -> T:
        return next(self._ready)

    def close(self) -> None:
        """Stop the thread and wait for it; what it had ready is dropped."""
        self._ready.close()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            try:
                for item in self._items:
                    if not self._ready.put(item):
                        break
                    del item
            finally:
                close_items(self._items)
        except BaseException as error:
            self._ready.end(error)
        else:
            self._ready.end()
