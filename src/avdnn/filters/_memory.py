"""Memory that is exhausted, told in one line whichever runtime found out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import DeviceError, InferenceError, ModelError
from ..fit import Fit
from ..frame import Frame

WORDS = (
    "bad_alloc",  # OpenVINO, and C++ at large
    "Unable to allocate",  # NumPy
    "OOM when allocating",  # TensorFlow
    "Failed to allocate",  # OpenVINO, which tells the bytes, and ONNX Runtime
    "can't allocate memory",  # torch on a CPU
    "not enough memory",  # torch on a CPU, on Windows
    "out of memory",  # torch on a GPU
)
"""How runtimes say that there is no more memory."""


@contextmanager
def memory_told(model: str, frame: Frame, fit: Fit) -> Iterator[None]:
    """InferenceError that says what needs less memory, where a runtime got none."""
    try:
        yield
    except (ModelError, InferenceError, MemoryError) as error:
        if isinstance(error, DeviceError) or not _exhausted(error):
            raise
        ways = "a smaller nireq= or batch_size="
        if fit is not Fit.TILE:
            ways = f"fit=tile, or {ways}"
        reason = next(iter(str(error).splitlines()), "")
        raise InferenceError(
            f"{model}: memory is exhausted on frames of {frame.width}x{frame.height}: use {ways}"
            + (f" ({reason})" if reason else "")
        ) from error


def _exhausted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or any(words in str(error) for words in WORDS):
            return True
        error = error.__cause__
    return False
