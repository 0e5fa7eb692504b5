"""What libav's libraries say about a failure, which their error codes do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import av
import av.error
import av.logging


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collects the errors that libav logs on this thread; the list is filled at the block's end.

    For short blocks: libav's own threads would wait for the interpreter at every line.
    """
    said: list[str] = []
    level = av.logging.get_level()
    av.logging.set_level(av.logging.ERROR)
    try:
        with av.logging.Capture() as logs:
            yield said
    finally:
        av.logging.set_level(level)
        lines = dict.fromkeys(" ".join(message.split()) for _, _, message in logs)
        said += [line.removesuffix(".") for line in lines if line]


def heard(attempt: Callable[[], object]) -> str:
    """The errors that libav logs while `attempt` fails once more; "" if none."""
    with listening() as said, suppress(av.error.FFmpegError, ValueError, OSError, RuntimeError):
        attempt()
    return "; ".join(said)
