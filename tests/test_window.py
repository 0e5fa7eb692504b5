"""Order, batches, flush and errors of the window."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from avdnn.window import window


def run(items: object, *, batch: int, in_flight: int) -> tuple[list[object], list[int]]:
    sizes: list[int] = []
    with ThreadPoolExecutor(in_flight) as pool:

        def start(work: list[object]) -> Future[list[object]]:
            sizes.append(len(work))
            return pool.submit(lambda: [2 * value for value in work])  # type: ignore[operator]

        out = list(
            window(
                items,  # type: ignore[arg-type]
                is_work=lambda item: isinstance(item, int),
                start=start,
                finish=lambda _, future: future.result(),
                batch=batch,
                in_flight=in_flight,
            )
        )
    return out, sizes


@pytest.mark.parametrize("in_flight", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 10])
def test_every_item_comes_out_once_in_order(count: int, batch: int, in_flight: int) -> None:
    out, sizes = run(range(count), batch=batch, in_flight=in_flight)
    assert out == [2 * value for value in range(count)]
    assert sum(sizes) == count


def test_partial_batch_is_flushed() -> None:
    assert run(range(10), batch=4, in_flight=2)[1] == [4, 4, 2]


def test_packets_keep_their_place() -> None:
    out, _ = run([0, "a", 1, "b", "c", 2, "d"], batch=2, in_flight=2)
    assert out == [0, "a", 2, "b", "c", 4, "d"]


def test_packets_do_not_use_up_slots() -> None:
    items: list[object] = ["a"] * 5 + [1] + ["b"] * 5 + [2, 3]
    out, _ = run(items, batch=1, in_flight=2)
    assert out == ["a"] * 5 + [2] + ["b"] * 5 + [4, 6]


def test_jobs_may_finish_in_any_order() -> None:
    pending: list[tuple[list[int], Future[list[int]]]] = []

    def start(batch: list[int]) -> Future[list[int]]:
        future: Future[list[int]] = Future()
        pending.append((batch, future))
        if len(pending) % 3 == 0:
            for work, waiting in reversed(pending[-3:]):
                waiting.set_result([-value for value in work])
        return future

    out = window(
        range(9),
        is_work=lambda _: True,
        start=start,
        finish=lambda _, future: future.result(),
        batch=1,
        in_flight=3,
    )
    assert list(out) == [-value for value in range(9)]


def test_jobs_in_flight_are_bounded() -> None:
    alive = 0
    most = 0

    def start(batch: list[int]) -> Future[list[int]]:
        nonlocal alive, most
        alive += 1
        most = max(most, alive)
        future: Future[list[int]] = Future()
        future.set_result(batch)
        return future

    def finish(_: list[int], future: Future[list[int]]) -> list[int]:
        nonlocal alive
        alive -= 1
        return future.result()

    list(
        window(
            range(50),
            is_work=lambda _: True,
            start=start,
            finish=finish,
            batch=2,
            in_flight=3,
        )
    )
    assert most <= 3


def test_error_comes_in_turn_and_running_jobs_are_awaited() -> None:
    finished: list[int] = []

    def job(work: list[int]) -> list[int]:
        if work == [2]:
            raise RuntimeError("frame 2")
        finished.extend(work)
        return work

    with ThreadPoolExecutor(4) as pool:
        out: Iterator[int] = window(
            range(100),
            is_work=lambda _: True,
            start=lambda work: pool.submit(job, work),
            finish=lambda _, future: future.result(),
            batch=1,
            in_flight=4,
        )
        assert [next(out), next(out)] == [0, 1]
        with pytest.raises(RuntimeError, match="frame 2"):
            next(out)
        assert len(finished) <= 2 + 4


def test_closing_early_awaits_running_jobs() -> None:
    futures: list[Future[list[int]]] = []

    with ThreadPoolExecutor(2) as pool:

        def start(work: list[int]) -> Future[list[int]]:
            futures.append(pool.submit(lambda: work))
            return futures[-1]

        out = window(
            range(10),
            is_work=lambda _: True,
            start=start,
            finish=lambda _, future: future.result(),
            batch=1,
            in_flight=2,
        )
        next(out)
        out.close()  # type: ignore[attr-defined]
        assert all(future.done() for future in futures)
