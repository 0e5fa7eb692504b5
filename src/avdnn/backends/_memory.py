"""How an error says that there is no more memory."""

from __future__ import annotations

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


def exhausted(error: BaseException | None) -> bool:
    """Whether an error, or what it came of, says so."""
    while error is not None:
        if isinstance(error, MemoryError) or any(words in str(error) for words in WORDS):
            return True
        error = error.__cause__
    return False
