"""Why a folder cannot be written, and what the caller of a container does about it."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

AS_CALLER = 'run the container with --user "$(id -u):$(id -g)"'


def write_error(folder: Path) -> OSError | None:
    """The error that creating a file in `folder` gives, or None where it works."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error


def in_container() -> bool:
    """Whether this process runs in a container, by the marks that the engines leave."""
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"))
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(mark.exists() for mark in marks)


def explain(folder: Path, error: OSError, *, container: bool) -> tuple[str, str]:
    """What is wrong with writing to `folder`, and the one-line fix."""
    if error.errno == errno.ENOENT:
        return f"{folder} does not exist", f"mkdir -p {folder}"
    if error.errno == errno.EROFS:
        fix = "mount it writable: without :ro" if container else "choose a writable folder"
        return f"{folder} is on a read-only file system", fix
    if error.errno == errno.ENOSPC:
        return f"{folder} is full", "free some space, or write elsewhere"
    if error.errno not in (errno.EACCES, errno.EPERM):
        return f"{folder} cannot be written: {error.strerror}", "choose a writable folder"
    me = f"{os.geteuid()}:{os.getegid()}"
    try:
        owner = folder.stat()
    except OSError:
        message = f"{folder} cannot even be looked at as {me}"
    else:
        message = (
            f"{folder} belongs to {owner.st_uid}:{owner.st_gid} (mode {owner.st_mode & 0o7777:o}) "
            f"and this process, {me}, may not write there"
        )
    return message, AS_CALLER if container else f"run as the owner, or chown {me} {folder}"


def cannot_write(folder: Path) -> str:
    """One line with cause and fix, or "" where `folder` can be written."""
    error = write_error(folder)
    if error is None:
        return ""
    message, fix = explain(folder, error, container=in_container())
    return f"{message}: {fix}"
