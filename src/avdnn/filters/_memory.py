"""Memory that is exhausted, told in one line whichever runtime found out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..backends._memory import exhausted
from ..errors import DeviceError, InferenceError, ModelError
from ..fit import Fit
from ..frame import Frame


@contextmanager
def memory_told(model: str, frame: Frame, fit: Fit) -> Iterator[None]:
    """InferenceError that says what needs less memory, where a runtime got none."""
    try:
        yield
    except (ModelError, InferenceError, MemoryError) as error:
        if isinstance(error, DeviceError) or not exhausted(error):
            raise
        ways = "a smaller nireq= or batch_size="
        if fit is not Fit.TILE:
            ways = f"fit=tile, or {ways}"
        reason = next(iter(str(error).splitlines()), "")
        raise InferenceError(
            f"{model}: memory is exhausted on frames of {frame.width}x{frame.height}: use {ways}"
            + (f" ({reason})" if reason else "")
        ) from error
