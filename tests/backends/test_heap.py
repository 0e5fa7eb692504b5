"""Freed memory stays in the process, on every thread."""

from __future__ import annotations

import subprocess
import sys

import pytest

from avdnn.backends._heap import keep_pages

from ..conftest import require

FAULTS = """
import resource, sys, threading
from avdnn.backends._heap import keep_pages
import numpy as np
kept = keep_pages()
def work():
    for _ in range(20):
        np.ones(50_000_000, np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(monkeypatch: pytest.MonkeyPatch, keep: str) -> tuple[bool, int]:
    """What keep_pages() said in a child, and its page faults for 20 blocks of 50 MB."""
    monkeypatch.setenv("AVDNN_KEEP_MEMORY", keep)
    child = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    )
    said, count = child.stdout.split()
    return said == "True", int(count)


def test_large_blocks_are_paged_in_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, few = faults(monkeypatch, "1")
    require("glibc", kept, "this C library has no mallopt")
    said, many = faults(monkeypatch, "0")
    assert not said
    # One block is 12,207 pages of 4 KiB, or 25 of 2 MiB where the kernel gives those.
    assert few < many / 4


def test_it_can_be_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVDNN_KEEP_MEMORY", "0")
    assert keep_pages() is False
