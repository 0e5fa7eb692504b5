"""Folders: the cache, the data, /tmp and shared memory, made to fail."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from avdnn.doctor import Finding, Status
from avdnn.doctor.folders import check_folders

from ..conftest import require
from ..test_access import as_nobody, open_folder
from .stand_in import machine

__all__ = ["open_folder"]


def named(found: list[Finding], name: str) -> Finding:
    return next(item for item in found if item.name == name)


@pytest.fixture
def root(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("tmp", "cache", "data", "dev/shm"):
        (open_folder / name).mkdir(parents=True)
    monkeypatch.chdir(open_folder / "data")
    return open_folder


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every folder counts as a mount point, as /data does in a container."""
    monkeypatch.setattr(Path, "is_mount", lambda path: True)


@pytest.mark.usefixtures("mounted")
def test_writable_folders_are_ok(root: Path) -> None:
    found = check_folders(machine(root, env={"AVDNN_CACHE": "/cache"}))
    assert [(item.name, item.status) for item in found[:3]] == [
        ("data", Status.OK),
        ("cache", Status.OK),
        ("tmp", Status.OK),
    ]


def test_no_cache_folder_is_not_looked_for(root: Path) -> None:
    assert "cache" not in [item.name for item in check_folders(machine(root))]


@pytest.mark.usefixtures("mounted")
def test_closed_folders_get_their_options(root: Path) -> None:
    with as_nobody():
        found = check_folders(machine(root, env={"AVDNN_CACHE": "/cache"}))
    assert named(found, "data").status is Status.FAIL
    assert '--user "$(id -u):$(id -g)"' in named(found, "data").fix
    assert named(found, "cache").status is Status.WARN
    assert "-v avdnn-cache:" in named(found, "cache").fix
    assert named(found, "tmp").fix == "docker run --tmpfs /tmp"


def test_a_container_with_nothing_mounted_is_warned_of(root: Path) -> None:
    found = named(check_folders(machine(root)), "data")
    assert found.status is Status.WARN
    assert '-v "$PWD:' in found.fix


def test_a_missing_cache_folder_is_a_warning(root: Path) -> None:
    found = named(check_folders(machine(root, env={"AVDNN_CACHE": "/none"})), "cache")
    assert found.status is Status.WARN


def test_missing_shared_memory_is_a_warning(root: Path) -> None:
    (root / "dev/shm").rmdir()
    assert "no /dev/shm" in named(check_folders(machine(root)), "shm").message


def test_small_shared_memory_is_a_warning(root: Path) -> None:
    shm = root / "dev/shm"
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(shm)], capture_output=True
    )
    require("root", mount.returncode == 0, "this process may not mount")
    try:
        found = named(check_folders(machine(root)), "shm")
    finally:
        subprocess.run(["umount", str(shm)], check=True)
    assert found.status is Status.WARN
    assert found.message.startswith("/dev/shm has 1 MiB")
    assert found.fix == "docker run --shm-size 256m"
