"""Keeps NumPy's BLAS to one thread while bands of rows are the threads.

The threads of OpenBLAS spin while they wait for each other: on a busy machine, products of a few
rows on two threads were measured ten times slower than on one.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@cache
def _threads() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """OpenBLAS's own getter and setter; None if NumPy has another BLAS."""
    core = np._core._multiarray_umath  # type: ignore[attr-defined]
    library = ctypes.CDLL(core.__file__)
    for name in _NAMES:
        if hasattr(library, name.format("set")):
            read = getattr(library, name.format("get"))
            write = getattr(library, name.format("set"))
            write.restype = None
            return read, write
    return None


def limited() -> bool:
    """Whether the threads of NumPy's BLAS can be limited."""
    return _threads() is not None


@contextmanager
def one_thread() -> Iterator[None]:
    """BLAS runs on one thread until the last user leaves; then on as many as before."""
    global _before, _users
    found = _threads()
    if found is None:
        yield
        return
    read, write = found
    with _lock:
        if _users == 0:
            _before = read()
            write(1)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                write(_before)
