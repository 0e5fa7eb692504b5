"""What a machine has, asked of stand-ins and, where there is no choice, of this one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from avdnn.devices import Machine, cpu_flags, nvidia, render_nodes

from .doctor.stand_in import UUIDS, Cuda, Nvml, machine, node, uuid_text


def test_cpu_flags_are_those_of_the_first_processor(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    text = "processor\t: 0\nflags\t\t: fpu sse4_2 avx2\n\nprocessor\t: 1\nflags\t\t: fpu\n"
    (tmp_path / "proc/cpuinfo").write_text(text)
    assert cpu_flags(machine(tmp_path)) == {"fpu", "sse4_2", "avx2"}


def test_cpu_flags_are_empty_where_the_kernel_does_not_tell(tmp_path: Path) -> None:
    assert cpu_flags(machine(tmp_path)) == frozenset()


def test_render_nodes_carry_group_vendor_and_open_error(tmp_path: Path) -> None:
    path = node(tmp_path, "dri/renderD128")
    node(tmp_path, "dri/card0")
    vendor = tmp_path / "sys/class/drm/renderD128/device"
    vendor.mkdir(parents=True)
    (vendor / "vendor").write_text("0x8086\n")
    (found,) = render_nodes(machine(tmp_path, open_error=13))
    assert (found.path, found.group, found.error) == (path, path.stat().st_gid, 13)
    assert found.intel


def test_render_node_of_another_vendor_is_not_intel(tmp_path: Path) -> None:
    node(tmp_path, "dri/renderD128")
    vendor = tmp_path / "sys/class/drm/renderD128/device"
    vendor.mkdir(parents=True)
    (vendor / "vendor").write_text("0x1002\n")
    assert not render_nodes(machine(tmp_path))[0].intel


def test_no_driver_means_no_gpus(tmp_path: Path) -> None:
    found = nvidia(machine(tmp_path))
    assert (found.nodes, found.cuda, found.gpus) == ((), False, ())


def test_cuda_index_maps_to_the_nvidia_smi_index_by_uuid(tmp_path: Path) -> None:
    node(tmp_path, "nvidia0")
    node(tmp_path, "nvidia1")
    node(tmp_path, "nvidiactl")
    libraries = {"libcuda.so.1": Cuda(order=(1, 0)), "libnvidia-ml.so.1": Nvml(count=2)}
    found = nvidia(machine(tmp_path, libraries=libraries))
    assert found.nodes == ("nvidia0", "nvidia1")
    assert (found.version, found.driver, found.error) == ((13, 0), "580.1", "")
    assert [(g.index, g.smi_index, g.uuid, g.pci) for g in found.gpus] == [
        (0, 1, uuid_text(UUIDS[1]), "0000:01:00.0"),
        (1, 0, uuid_text(UUIDS[0]), "0000:00:00.0"),
    ]


def test_gpus_are_listed_from_nvml_alone_where_cuda_is_missing(tmp_path: Path) -> None:
    found = nvidia(machine(tmp_path, libraries={"libnvidia-ml.so.1": Nvml(count=1)}))
    assert [(g.index, g.smi_index, g.pci) for g in found.gpus] == [(-1, 0, "0000:00:00.0")]


def test_a_driver_that_does_not_start_tells_its_error(tmp_path: Path) -> None:
    found = nvidia(machine(tmp_path, libraries={"libcuda.so.1": Cuda(init=100)}))
    assert found.error == "CUDA_ERROR_NO_DEVICE (100)"
    assert found.gpus == ()


def test_a_crash_in_a_child_is_an_outcome() -> None:
    outcome = Machine().child("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert outcome.code == -signal.SIGILL


def test_a_child_does_not_import_from_the_working_folder(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert Machine().child("import json; print(json.dumps(1))").out == "1\n"


def test_opening_tells_the_errno(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.touch()
    assert Machine().open_error(there) == 0
    assert os.strerror(Machine().open_error(tmp_path / "missing")) == "No such file or directory"
