"""What libav's libraries say about a failure, which their error codes do not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import av
import av.error
import av.logging


def heard(attempt: Callable[[], object]) -> str:
    """The errors that libav logs on this thread while `attempt` fails once more; "" if none.

    Listening is off otherwise: libav's threads would wait for the interpreter at every line.
    """
    level = av.logging.get_level()
    av.logging.set_level(av.logging.ERROR)
    try:
        with (
            av.logging.Capture() as logs,
            suppress(av.error.FFmpegError, ValueError, OSError, RuntimeError),
        ):
            attempt()
    finally:
        av.logging.set_level(level)
    said = dict.fromkeys(" ".join(message.split()) for _, _, message in logs)
    return "; ".join(line.removesuffix(".") for line in said if line)
