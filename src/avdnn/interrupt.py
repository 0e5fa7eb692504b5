"""Ctrl-C and SIGTERM as exceptions of the main thread that never cut a clean-up short.

Note: threads and signals. A handler may raise between any two steps of the main thread, also
between the start of a thread and the note that it has to be stopped, or while it is waited for.
What the thread uses would then be closed under it. So such steps are shielded.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType, TracebackType
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Handler: TypeAlias = Callable[[int, FrameType | None], Any]
Handlers: TypeAlias = Mapping[int, Handler]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_IMPATIENCE = 1.0
"""Seconds after which another signal means that the clean-up takes too long."""


class Terminated(BaseException):
    """SIGTERM came; like KeyboardInterrupt it is no error that code may catch."""


class _Once:
    """Raises at the first signal; a later one ends the process at once, if not too soon."""

    def __init__(self) -> None:
        self.raised: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.raised is None:
            self.raised = time.monotonic()
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated
        if time.monotonic() - self.raised >= _IMPATIENCE:
            os._exit(128 + number)


class _Later:
    """Keeps the first signal for later; another one goes through, if not too soon."""

    def __init__(self, before: Handlers) -> None:
        self._before = before
        self._came: tuple[int, float] | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._came is None:
            self._came = number, time.monotonic()
        elif time.monotonic() - self._came[1] >= _IMPATIENCE:
            self._before[number](number, frame)

    def deliver(self) -> None:
        """Handle what was kept."""
        if self._came is not None:
            self._before[self._came[0]](self._came[0], None)


@contextmanager
def signals_raise() -> Iterator[None]:
    """Within the block the first Ctrl-C or SIGTERM raises, in the main thread.

    A signal that was ignored, as for a job in the background, stays ignored.
    """
    found = {number: signal.getsignal(number) for number in _SIGNALS}
    with _handled(_Once(), {n: old for n, old in found.items() if old is not signal.SIG_IGN}):
        yield


@contextmanager
def shielded() -> Iterator[None]:
    """Within the block the first Ctrl-C or SIGTERM waits for its end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    found = {number: signal.getsignal(number) for number in _SIGNALS}
    before: Handlers = {number: old for number, old in found.items() if callable(old)}
    if any(isinstance(old, _Once) and old.raised is not None for old in before.values()):
        yield
        return
    later = _Later(before)
    with _handled(later, before):
        yield
    later.deliver()


@contextmanager
def _handled(handler: Handler, before: Mapping[int, Any]) -> Iterator[None]:
    """Within the block `handler` stands in for those of `before`."""
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class ShieldedStack(ExitStack):
    """An ExitStack whose contexts are always left whole."""

    def enter_shielded(self, context: AbstractContextManager[T]) -> T:
        """Enter one that starts a thread or a file, which is then sure to be stopped or removed."""
        with shielded():
            return self.enter_context(context)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        try:
            with shielded():
                return bool(super().__exit__(kind, error, trace))
        except BaseException as late:
            # Perhaps a signal that came before the shield: what is left is left now.
            super().__exit__(type(late), late, late.__traceback__)
            raise
