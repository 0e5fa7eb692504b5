"""-loglevel sets what avdnn and libav say."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import av.logging
import pytest

from avdnn.command import loglevel
from avdnn.notes import NOTE


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """Put back what a test sets for the process."""
    loggers = [logging.getLogger(name) for name in ("avdnn", "libav")]
    before = [logger.level for logger in loggers]
    libav = av.logging.get_level()
    yield
    av.logging.set_level(libav)
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("quiet", logging.CRITICAL),
        ("error", logging.ERROR),
        ("warning", logging.WARNING),
        ("info", NOTE),
        ("verbose", logging.INFO),
    ],
)
def test_levels_of_our_own_notes(level: str, expected: int) -> None:
    av.logging.set_level(av.logging.ERROR)
    libav = av.logging.get_level()
    loglevel.apply(level)
    assert logging.getLogger("avdnn").level == expected
    assert (av.logging.get_level() == libav) == (level != "verbose")


def test_no_level_changes_nothing() -> None:
    before = logging.getLogger("avdnn").level
    loglevel.apply("")
    assert logging.getLogger("avdnn").level == before


def test_verbose_lets_libav_speak() -> None:
    loglevel.apply("verbose")
    assert av.logging.get_level() == av.logging.VERBOSE
    assert logging.getLogger("libav").level == logging.DEBUG


def test_debug_shows_all_of_ours() -> None:
    loglevel.apply("error", debug=True)
    assert logging.getLogger("avdnn").level == logging.DEBUG
