"""Back-pressure, errors and stopping of the thread stage."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from avdnn.stage import Stage


class Source:
    """Counts up; knows how far it came and whether it was closed."""

    def __init__(self, count: int = 1_000_000, error_at: int = -1) -> None:
        self.made = 0
        self.closed_by = ""
        self._items = self._run(count, error_at)

    def _run(self, count: int, error_at: int) -> Iterator[int]:
        try:
            for number in range(count):
                if number == error_at:
                    raise ValueError(f"item {number}")
                self.made += 1
                yield number
        finally:
            self.closed_by = threading.current_thread().name

    def __iter__(self) -> Source:
        return self

    def __next__(self) -> int:
        return next(self._items)

    def close(self) -> None:
        self._items.close()  # type: ignore[attr-defined]


def wait_until(condition: object) -> None:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.001)


def test_items_pass_in_order_and_the_thread_ends() -> None:
    with Stage(Source(100), 3, "numbers") as stage:
        assert list(stage) == list(range(100))
    assert not [thread for thread in threading.enumerate() if thread.name == "numbers"]


def test_it_runs_ahead_by_its_depth_only() -> None:
    source = Source()
    with Stage(source, 3, "numbers") as stage:
        next(stage)
        wait_until(lambda: source.made == 5)
        time.sleep(0.02)
        assert source.made == 5  # one taken, three ready, one at the door


def test_an_error_comes_after_the_items_before_it() -> None:
    with Stage(Source(error_at=2), 8, "numbers") as stage:
        assert [next(stage), next(stage)] == [0, 1]
        with pytest.raises(ValueError, match="item 2"):
            next(stage)
        with pytest.raises(StopIteration):
            next(stage)


def test_leaving_early_closes_the_source_on_its_own_thread() -> None:
    source = Source()
    with Stage(source, 2, "numbers") as stage:
        next(stage)
    assert source.closed_by == "numbers"


def test_stages_chain_and_stop_together() -> None:
    source = Source()
    with Stage(source, 2, "first") as first:

        def doubled() -> Iterator[int]:
            for number in first:
                yield 2 * number

        with Stage(doubled(), 2, "second") as second:
            assert [next(second) for _ in range(3)] == [0, 2, 4]
    assert source.closed_by == "first"
    assert {thread.name for thread in threading.enumerate()}.isdisjoint({"first", "second"})
