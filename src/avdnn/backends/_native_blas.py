"""Keeps NumPy's BLAS to one thread while bands of rows are the threads.

The threads of OpenBLAS spin while they wait for each other: on a busy machine, products of a few
rows on two threads were measured ten times slower than on one.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np

_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)
_lock = threading.Lock()
_users = 0
_before = 0


@dataclass(frozen=True, slots=True)
class Threads:
    """OpenBLAS's own functions for the number of its threads."""

    read: Callable[[], int]
    write: Callable[[int], None]


@cache
def threads() -> Threads | None:
    """Those of the library that NumPy uses; None if it has another BLAS."""
    core = np._core._multiarray_umath  # type: ignore[attr-defined]
    library = ctypes.CDLL(core.__file__)
    for name in _NAMES:
        if hasattr(library, name.format("set")):
            write = getattr(library, name.format("set"))
            write.restype = None
            return Threads(getattr(library, name.format("get")), write)
    return None


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS runs on one thread until the last user leaves; then on as many as before."""
    global _before, _users
    found = threads()
    if found is None:
        yield
        return
    with _lock:
        if _users == 0:
            _before = found.read()
            found.write(1)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                found.write(_before)
