"""-loglevel, for avdnn's own notes and for libav's."""

from __future__ import annotations

import logging

from ..notes import NOTE

_PYTHON = {
    "quiet": logging.CRITICAL,
    "panic": logging.CRITICAL,
    "fatal": logging.CRITICAL,
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": NOTE,
    "verbose": logging.INFO,
    "debug": logging.DEBUG,
    "trace": logging.DEBUG,
}
LIBAV = {"verbose": 40, "debug": 48, "trace": 56}
"""Levels at which libav speaks up; its errors come as exceptions anyway."""


def apply(level: str, *, debug: bool = False) -> None:
    """Set the levels; "" leaves them as they are. `debug` shows all of avdnn's own."""
    ours = logging.getLogger("avdnn")
    if debug:
        ours.setLevel(logging.DEBUG)
    elif level:
        ours.setLevel(_PYTHON[level])
    if level in LIBAV:
        import av.logging

        logging.getLogger("libav").setLevel(logging.DEBUG)
        av.logging.set_level(LIBAV[level])
