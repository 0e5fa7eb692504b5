"""The only thread code: an iterator that runs ahead on its own thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Stage(Generic[T]):
    """Runs `items` on a named thread and hands them on, at most `depth` ahead.

    Iterate it from one thread. An error of `items` is raised by `next` once the items before it
    are taken. Leaving the context stops the thread, closes `items` on it, and waits for it.
    """

    def __init__(self, items: Iterator[T], depth: int, name: str) -> None:
        self._items = items
        self._depth = depth
        self._ready: deque[T] = deque()
        self._change = threading.Condition()
        self._stop = False
        self._ended = False
        self._error: BaseException | None = None
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
        with self._change:
            while not self._ready and not self._ended:
                self._change.wait()
            if self._ready:
                item = self._ready.popleft()
                self._change.notify_all()
                return item
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def close(self) -> None:
        """Stop the thread and wait for it; what it had ready is dropped."""
        with self._change:
            self._stop = True
            self._ready.clear()
            self._change.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            try:
                for item in self._items:
                    if not self._put(item):
                        break
                    del item
            finally:
                close = getattr(self._items, "close", None)
                if close is not None:
                    close()
        except BaseException as error:
            self._error = error
        with self._change:
            self._ended = True
            self._change.notify_all()

    def _put(self, item: T) -> bool:
        """Wait for room and hand `item` on; False when the stage is being closed."""
        with self._change:
            while len(self._ready) >= self._depth and not self._stop:
                self._change.wait()
            if self._stop:
                return False
            self._ready.append(item)
            self._change.notify_all()
            return True
