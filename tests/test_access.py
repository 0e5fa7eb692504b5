"""Folders that cannot be written, made so for real where this process may."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from avdnn.access import AS_CALLER, cannot_write, explain, write_error

from .conftest import require

NOBODY = 65534


@contextmanager
def as_nobody() -> Iterator[None]:
    """This process with the rights of no one, if it is root."""
    require("root", os.geteuid() == 0, "only root can become another user")
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder whose parents anyone may pass."""
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(0o755)
    return tmp_path


def test_a_writable_folder_has_no_error_and_stays_empty(tmp_path: Path) -> None:
    assert write_error(tmp_path) is None
    assert cannot_write(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_said_to_be_missing(tmp_path: Path) -> None:
    assert cannot_write(tmp_path / "no") == f"{tmp_path / 'no'} does not exist: mkdir -p " + str(
        tmp_path / "no"
    )


def test_another_users_folder_names_the_user_option(open_folder: Path) -> None:
    folder = open_folder / "data"
    folder.mkdir(mode=0o755)
    with as_nobody():
        error = write_error(folder)
        assert error is not None
        message, fix = explain(folder, error, container=True)
    assert f"belongs to 0:{folder.stat().st_gid} (mode 755)" in message
    assert "65534:65534, may not write" in message
    assert fix == AS_CALLER
    assert '--user "$(id -u):$(id -g)"' in fix


def test_outside_a_container_the_fix_is_chown(open_folder: Path) -> None:
    folder = open_folder / "data"
    folder.mkdir(mode=0o755)
    with as_nobody():
        error = write_error(folder)
        assert error is not None
        assert "chown 65534:65534" in explain(folder, error, container=False)[1]


def test_a_folder_behind_a_closed_one_is_explained(open_folder: Path) -> None:
    closed = open_folder / "closed"
    (closed / "data").mkdir(parents=True)
    closed.chmod(0o700)
    with as_nobody():
        error = write_error(closed / "data")
        assert error is not None
        assert "cannot even be looked at" in explain(closed / "data", error, container=True)[0]


def test_a_read_only_mount_is_told_apart(tmp_path: Path) -> None:
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs", str(tmp_path)], capture_output=True
    )
    require("root", mount.returncode == 0, "this process may not mount")
    try:
        error = write_error(tmp_path)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert error is not None
    assert error.errno == errno.EROFS
    assert explain(tmp_path, error, container=True) == (
        f"{tmp_path} is on a read-only file system",
        "mount it writable: without :ro",
    )


def test_a_full_disk_is_told_apart(tmp_path: Path) -> None:
    message, fix = explain(tmp_path, OSError(errno.ENOSPC, "No space"), container=True)
    assert message == f"{tmp_path} is full"
    assert "free some space" in fix
