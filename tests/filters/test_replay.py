"""Recording beside other threads: what they put behind `compute` waits until it is over."""

from __future__ import annotations

import threading
from pathlib import Path

from ..cuda.fake_gpu import FakeGpu


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
