"""The unfinished file beside an output: named at random, locked while its writer lives."""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

_log = logging.getLogger(__name__)


class Part:
    """A new file `.NAME.RANDOM.part` beside `final`, and a lock on it until `release`.

    What earlier runs for the same name left behind, killed before they could remove it, goes:
    the kernel drops a process' locks with it, so a free lock means that nobody writes there.
    Where a file system has no locks, nothing is removed. OSError if the file cannot be made.
    """

    def __init__(self, final: Path) -> None:
        name = os.fsdecode(os.fsencode(final.name)[:200])
        _remove_stale(final.parent, name)
        self._lock = -1
        while self._lock < 0:
            self.path = final.with_name(f".{name}.{secrets.token_hex(4)}.part")
            self._lock = _make(self.path)

    def release(self) -> None:
        """Drop the lock, after the file has gone or got its final name."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _make(path: Path) -> int:
    """The descriptor of a new, locked file; -1 if another run took it for a stale one meanwhile."""
    made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        flock(made, LOCK_EX | LOCK_NB)
        taken = not _is_at(made, path)
    except BlockingIOError:
        taken = True
    except OSError as error:
        _log.debug("%s: no locks here: %s", path, error)
        return made
    if taken:
        os.close(made)
        return -1
    return made


def _remove_stale(folder: Path, name: str) -> None:
    for path in _parts(folder, name):
        with suppress(OSError):
            found = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                flock(found, LOCK_EX | LOCK_NB)
                if _is_at(found, path):
                    path.unlink()
                    _log.info("%s is removed: the run that wrote it was killed", path)
            finally:
                os.close(found)


def _parts(folder: Path, name: str) -> Iterator[Path]:
    pattern = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{8}}\.part")
    with suppress(OSError):
        yield from (folder / entry for entry in os.listdir(folder) if pattern.fullmatch(entry))


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one under that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False
