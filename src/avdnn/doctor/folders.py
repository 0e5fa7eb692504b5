"""Folders that a job writes to: data, cache, /tmp and shared memory."""

from __future__ import annotations

import os
from pathlib import Path

from ..access import explain, write_error
from ..devices import Machine
from .finding import Finding, Findings, Status, ok, warn

SHM_BYTES = 64 << 20
"""What the engines give by default; below it somebody made it small."""


def check_folders(machine: Machine) -> Findings:
    found = _data(Path.cwd(), machine)
    cache = machine.env.get("AVDNN_CACHE", "")
    if cache:
        found += _folder("cache", machine.path(cache), machine, Status.WARN)
    return found + _folder("tmp", machine.path("/tmp"), machine, Status.WARN) + _shm(machine)


def _data(folder: Path, machine: Machine) -> Findings:
    if machine.container and not any(path.is_mount() for path in (folder, *folder.parents[:-1])):
        what = f"nothing is mounted at {folder}: files written there go when the container goes"
        return warn("data", what, f'docker run -v "$PWD:{folder}" --user "$(id -u):$(id -g)"')
    return _folder("data", folder, machine, Status.FAIL)


def _folder(name: str, folder: Path, machine: Machine, status: Status) -> Findings:
    error = write_error(folder)
    if error is None:
        return ok(name, f"{folder} can be written")
    message, fix = explain(folder, error, container=machine.container)
    if name == "cache" and machine.container:
        fix = f"docker run -v avdnn-cache:{folder} (without it models compile at every start)"
    if name == "tmp" and machine.container:
        fix = "docker run --tmpfs /tmp"
    return [Finding(name, status, message, fix)]


def _shm(machine: Machine) -> Findings:
    fix = "docker run --shm-size 256m" if machine.container else "mount a larger tmpfs there"
    try:
        size = os.statvfs(machine.path("/dev/shm"))
    except OSError:
        return warn("shm", "there is no /dev/shm", fix)
    total = size.f_blocks * size.f_frsize
    if total < SHM_BYTES:
        text = f"/dev/shm has {total >> 20} MiB; frameworks that use several processes need more"
        return warn("shm", text, fix)
    return ok("shm", f"/dev/shm has {total >> 20} MiB")
