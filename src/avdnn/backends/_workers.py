"""Threads that run a blocking runtime call, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore

from ..errors import InferenceError
from ..frame import Arrays


class Workers:
    """At most `slots` jobs at once, on as many threads or on fewer.

    `submit` waits while all slots are taken; errors end up in the future.
    """

    def __init__(self, backend: str, slots: int, threads: int = 0) -> None:
        self._backend = backend
        self._free = BoundedSemaphore(slots)
        self._threads = ThreadPoolExecutor(threads or slots, thread_name_prefix=f"avdnn-{backend}")
        self._closed = False

    def submit(self, job: Callable[[], Arrays]) -> Future[Arrays]:
        """Run `job` on a thread; after close() the future holds an InferenceError."""
        if self._closed:
            refused: Future[Arrays] = Future()
            message = f"{self._backend}: the model is closed"
            refused.set_exception(InferenceError(message, backend=self._backend))
            return refused
        self._free.acquire()
        future = self._threads.submit(job)
        future.add_done_callback(lambda _: self._free.release())
        return future

    def close(self) -> None:
        """Wait for what runs and end the threads; a second call does nothing."""
        self._closed = True
        self._threads.shutdown(wait=True)
