"""Batches and jobs in flight: frames in, results out in the same order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class _Job(Generic[T, R]):
    """Items in order, of which `work` went into `future`; without a future nothing is awaited."""

    items: list[T]
    work: list[T]
    future: Future[R] | None = None


def window(
    items: Iterable[T],
    *,
    is_work: Callable[[T], bool],
    start: Callable[[list[T]], Future[R]],
    finish: Callable[[list[T], Future[R]], Iterable[T]],
    batch: int,
    in_flight: int,
) -> Iterator[T]:
    """Run every work item through `start` in batches and yield what `finish` makes, in order.

    `finish` gets the batch and its future, and yields one item for each of the batch. Items that
    are no work (packets) keep their place. At most `in_flight` jobs run at once; the window waits
    only when it is full or at the end. The last batch goes short. A job's error is raised when
    its turn comes; whatever makes the window end, it first waits for the jobs that still run, so
    that their memory outlives them.
    """
    queue: deque[_Job[T, R]] = deque()
    filling: _Job[T, R] = _Job([], [])
    running = 0

    def emit(limit: int) -> Iterator[T]:
        """Yield finished jobs from the left until at most `limit` are left running."""
        nonlocal running
        while queue:
            future = queue[0].future
            if future is None:
                yield from queue.popleft().items
                continue
            if running <= limit and not future.done():
                return
            job = queue.popleft()
            running -= 1
            made = iter(finish(job.work, future))
            del future
            for item in job.items:
                yield next(made) if is_work(item) else item

    def launch() -> Iterator[T]:
        nonlocal filling, running
        yield from emit(in_flight - 1)
        filling.future = start(filling.work)
        running += 1
        queue.append(filling)
        filling = _Job([], [])

    try:
        for item in items:
            filling.items.append(item)
            if is_work(item):
                filling.work.append(item)
            del item
            if len(filling.work) == batch:
                yield from launch()
            elif not filling.work:
                queue.append(filling)
                filling = _Job([], [])
            yield from emit(in_flight)
        if filling.work:
            yield from launch()
        yield from emit(0)
    finally:
        for job in queue:
            if job.future is not None and not job.future.cancel():
                job.future.exception()
