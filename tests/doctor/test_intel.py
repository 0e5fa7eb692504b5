"""Intel findings, on stand-in nodes: plain files, and real ones where root may make them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from avdnn.devices import Machine
from avdnn.doctor import Finding, Status
from avdnn.doctor.intel import check_intel

from ..conftest import require
from ..test_access import as_nobody, open_folder
from .stand_in import machine, node

RUNTIME: dict[str, Any] = {"libze_intel_gpu.so.1": object()}
__all__ = ["open_folder"]


def named(found: list[Finding], name: str) -> Finding:
    return next(item for item in found if item.name == name)


def test_no_gpu_is_worth_a_warning_in_the_openvino_image_only(tmp_path: Path) -> None:
    assert check_intel(machine(tmp_path))[0].status is Status.OK
    (found,) = check_intel(machine(tmp_path, env={"AVDNN_IMAGE": "openvino"}))
    assert (found.name, found.status) == ("intel-gpu", Status.WARN)
    assert "--device /dev/dri" in found.fix


def test_a_closed_node_prints_the_group(tmp_path: Path) -> None:
    group = node(tmp_path, "dri/renderD128").stat().st_gid
    found = check_intel(machine(tmp_path, libraries=RUNTIME, open_error=errno.EACCES))
    access = named(found, "intel-access")
    assert access.status is Status.FAIL
    assert access.fix == f"docker run --device /dev/dri --group-add {group}"


def test_outside_a_container_the_user_joins_the_group(tmp_path: Path) -> None:
    node(tmp_path, "dri/renderD128")
    found = check_intel(machine(tmp_path, container=False, open_error=errno.EACCES))
    assert "usermod -aG" in named(found, "intel-access").fix


def test_a_node_mounted_as_a_folder_is_told_apart(tmp_path: Path) -> None:
    node(tmp_path, "dri/renderD129")
    found = check_intel(machine(tmp_path, open_error=errno.EPERM))
    assert "--device /dev/dri/renderD129" in named(found, "intel-access").fix


def test_a_node_without_a_driver_says_so(tmp_path: Path) -> None:
    node(tmp_path, "dri/renderD128")
    found = check_intel(machine(tmp_path, open_error=errno.ENXIO))
    assert "no driver stands behind it" in named(found, "intel-access").message


def test_a_missing_compute_runtime_names_the_image(tmp_path: Path) -> None:
    node(tmp_path, "dri/renderD128")
    found = check_intel(machine(tmp_path))
    assert named(found, "intel-access").status is Status.OK
    assert named(found, "intel-runtime").status is Status.FAIL
    assert "avdnn:openvino" in named(found, "intel-runtime").fix


def test_everything_there_is_ok(tmp_path: Path) -> None:
    node(tmp_path, "dri/renderD128")
    assert {item.status for item in check_intel(machine(tmp_path, libraries=RUNTIME))} == {
        Status.OK
    }


def test_a_real_node_is_closed_to_others_and_open_to_its_group(open_folder: Path) -> None:
    path = open_folder / "dev/dri/renderD128"
    path.parent.mkdir(parents=True)
    require("root", os.geteuid() == 0, "only root makes device nodes")
    try:
        os.mknod(path, 0o020660, os.makedev(226, 128))
    except PermissionError:
        require("mknod", False, "this container may not make device nodes")
    os.chown(path, 0, 44)
    path.chmod(0o660)
    here = Machine(root=open_folder, env={}, container=True)
    with as_nobody():
        closed = named(check_intel(here), "intel-access")
        os.seteuid(0)
        os.setgroups([44])
        os.seteuid(65534)
        opened = named(check_intel(here), "intel-access")
    assert closed.fix == "docker run --device /dev/dri --group-add 44"
    assert "Permission denied" in closed.message
    # No card is behind the node here, or one is: either way the group lets it through.
    assert opened.status is Status.OK or "no driver stands behind" in opened.message
