"""Recording beside other threads: what they put behind `compute` waits until it is over."""

from __future__ import annotations

import threading
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from avdnn.cuda import Device
from avdnn.filters._device_jobs import Job, Jobs
from avdnn.frame import Frame

from ..cuda.fake_gpu import FakeGpu
from .test_device import Setup, frames, setup, values

__all__ = ["setup"]


def test_events_of_other_threads_wait_while_a_job_is_recorded(kernels: Path) -> None:
    gpu = FakeGpu(kernels)
    began, marked = threading.Event(), threading.Event()

    def elsewhere() -> None:
        began.set()
        gpu.mark(gpu.compute)
        marked.set()

    thread = threading.Thread(target=elsewhere)
    with gpu.recording():
        thread.start()
        began.wait()
        gpu.mark(gpu.compute)
        assert not marked.wait(0.1)
        assert len(gpu.compute.work) == 1
    thread.join()
    assert marked.is_set()
    assert len(gpu.compute.work) == 2


def test_jobs_of_other_threads_wait_while_one_is_recorded(
    setup: Setup,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu, made = setup.gpu, []
    put, began = Jobs._put, threading.Event()

    def counted(jobs: Jobs, sources: list[Frame]) -> Job:
        made.append(sources)
        return put(jobs, sources)

    monkeypatch.setattr(Jobs, "_put", counted)
    sources = frames(setup, 2)
    done: list[Any] = []

    def elsewhere() -> None:
        began.set()
        done.extend(setup.run("dnn_processing=model=net.pt:precision=float32", sources))

    thread = threading.Thread(target=elsewhere)
    with gpu.recording():
        thread.start()
        began.wait()
        thread.join(0.2)
        assert not made
        with gpu.job():
            gpu.mark(gpu.compute)
    thread.join()
    assert values(setup, done) == [(0, 20), (1, 21)]
    assert len(made) == 2


def test_tables_are_copied_when_nothing_is_recorded() -> None:
    waited: list[str] = []

    class Owner:
        def __enter__(self) -> Owner:
            return self

        def __exit__(self, *_: object) -> None: ...

        def synchronize(self) -> None:
            waited.append(threading.current_thread().name)

    device: Any = Device.__new__(Device)
    device._taking, device._jobs, device._lock = threading.RLock(), threading.RLock(), Lock()
    device._tables, device._cp, device.use = {}, np, lambda: None
    device.compute = SimpleNamespace(owner=Owner())
    values = np.arange(3)
    thread = threading.Thread(target=lambda: device.table(values), name="other")
    with device.recording():
        thread.start()
        thread.join(0.1)
        assert not waited
    thread.join()
    assert waited == ["other"]
    assert device.table(values) is device.table(values)
    assert waited == ["other"]
