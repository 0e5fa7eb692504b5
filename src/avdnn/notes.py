"""The level of notes: what is good to know, above INFO; what has to be known is a WARNING."""

from __future__ import annotations

import logging
from collections.abc import Callable

NOTE = 25

logging.addLevelName(NOTE, "NOTE")


def teller(log: logging.Logger, level: int) -> Callable[[str], None]:
    """Logs a line at a level."""
    return lambda text: log.log(level, text)
