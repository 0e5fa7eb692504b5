"""Threads for blocking runtimes: bounded, errors kept, the end waits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from avdnn.backends._workers import Workers
from avdnn.errors import InferenceError


def test_submit_waits_while_all_slots_are_taken() -> None:
    gate, started = Event(), Event()
    workers = Workers("test", 1)

    def hold() -> dict[str, int]:
        started.set()
        assert gate.wait(20)
        return {"n": 1}

    first = workers.submit(hold)
    assert started.wait(20)
    with ThreadPoolExecutor(1) as other:
        second = other.submit(lambda: workers.submit(lambda: {"n": 2}))
        assert not second.done()
        gate.set()
        assert second.result(20).result(20) == {"n": 2}
    assert first.result(20) == {"n": 1}
    workers.close()


def test_more_slots_than_threads_queue_jobs() -> None:
    gate = Event()
    workers = Workers("test", 3, threads=1)
    futures = [workers.submit(lambda: {"waited": gate.wait(20)}) for _ in range(3)]
    gate.set()
    assert [future.result(20) for future in futures] == [{"waited": True}] * 3
    workers.close()


def test_cancelled_job_gives_its_slot_back() -> None:
    gate = Event()
    workers = Workers("test", 2, threads=1)
    running = workers.submit(lambda: {"waited": gate.wait(20)})
    waiting = workers.submit(dict)
    assert waiting.cancel()
    later = workers.submit(lambda: {"n": 3})
    gate.set()
    assert running.result(20) == {"waited": True}
    assert later.result(20) == {"n": 3}
    workers.close()


def test_error_of_a_job_is_kept_in_its_future() -> None:
    workers = Workers("test", 1)

    def fail() -> dict[str, int]:
        raise InferenceError("no", backend="test")

    for _ in range(3):
        with pytest.raises(InferenceError, match="no"):
            workers.submit(fail).result(20)
    workers.close()


def test_closed_workers_refuse_in_the_future() -> None:
    workers = Workers("test", 1)
    workers.close()
    workers.close()
    with pytest.raises(InferenceError, match="test: the model is closed"):
        workers.submit(dict).result(20)
