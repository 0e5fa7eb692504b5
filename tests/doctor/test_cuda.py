"""NVIDIA findings, on drivers made of Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from avdnn.devices import Outcome
from avdnn.doctor import Finding, Status
from avdnn.doctor import cuda as check
from avdnn.doctor.cuda import CAPABILITIES, check_cudnn, check_nvidia

from .stand_in import UUIDS, Cuda, Nvml, machine, node, uuid_text

VIDEO: dict[str, Any] = {"libnvcuvid.so.1": object(), "libnvidia-encode.so.1": object()}


def driver(**changes: Any) -> dict[str, Any]:
    return {"libcuda.so.1": Cuda(**changes), "libnvidia-ml.so.1": Nvml(), **VIDEO}


def named(found: list[Finding], name: str) -> Finding:
    return next(item for item in found if item.name == name)


def test_no_gpu_matters_only_in_the_images_for_them(tmp_path: Path) -> None:
    assert check_nvidia(machine(tmp_path))[0].status is Status.OK
    (found,) = check_nvidia(machine(tmp_path, env={"AVDNN_IMAGE": "cuda"}))
    assert (found.name, found.status) == ("nvidia-gpu", Status.FAIL)
    assert "no NVIDIA GPU is passed in" in found.message
    assert "--gpus all" in found.fix


def test_a_working_gpu_is_listed_with_both_indexes(tmp_path: Path) -> None:
    node(tmp_path, "nvidia0")
    found = check_nvidia(machine(tmp_path, libraries=driver()))
    assert [item.name for item in found] == ["nvidia-driver", "nvidia-gpu", "nvdec", "nvenc"]
    assert {item.status for item in found} == {Status.OK}
    uuid = uuid_text(UUIDS[0])
    assert named(found, "nvidia-gpu").message == (f"cuda:0 Card {uuid} 0000:00:00.0 (nvidia-smi 0)")


def test_a_gpu_without_the_compute_capability_names_it(tmp_path: Path) -> None:
    node(tmp_path, "nvidia0")
    (found,) = check_nvidia(machine(tmp_path, libraries=VIDEO))
    assert (found.name, found.status) == ("nvidia-driver", Status.FAIL)
    assert CAPABILITIES in found.fix


@pytest.mark.parametrize(("has", "image"), [(12040, True), (11080, False)])
def test_a_driver_too_old_for_the_wheels_fails(
    tmp_path: Path, monkeypatch, has: int, image: bool
) -> None:
    monkeypatch.setattr(check, "package", lambda name: "13.2.1" if name.endswith("time") else "")
    node(tmp_path, "nvidia0")
    found = named(check_nvidia(machine(tmp_path, libraries=driver(version=has))), "nvidia-driver")
    assert found.status is Status.FAIL
    assert "built for 13.2" in found.message
    assert "update the driver" in found.fix
    assert ("avdnn:tensorflow" in found.fix) is image


def test_an_older_minor_version_is_not_too_old(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(check, "package", lambda name: "13.2.1" if name.endswith("time") else "")
    node(tmp_path, "nvidia0")
    found = check_nvidia(machine(tmp_path, libraries=driver(version=13000)))
    assert named(found, "nvidia-driver").status is Status.OK


def test_a_driver_that_does_not_start_shows_its_error(tmp_path: Path) -> None:
    node(tmp_path, "nvidia0")
    found = check_nvidia(machine(tmp_path, libraries=driver(init=100)))
    assert "CUDA_ERROR_NO_DEVICE (100)" in named(found, "nvidia-driver").message


def test_indexes_in_another_order_than_nvidia_smi_are_warned_of(tmp_path: Path) -> None:
    node(tmp_path, "nvidia0")
    libraries = driver(order=(1, 0)) | {"libnvidia-ml.so.1": Nvml(count=2)}
    found = named(check_nvidia(machine(tmp_path, libraries=libraries)), "nvidia-order")
    assert found.status is Status.WARN
    assert f"CUDA_VISIBLE_DEVICES={uuid_text(UUIDS[1])}" in found.fix


def test_a_missing_video_capability_is_named(tmp_path: Path) -> None:
    node(tmp_path, "nvidia0")
    libraries = driver()
    del libraries["libnvcuvid.so.1"], libraries["libnvidia-encode.so.1"]
    found = check_nvidia(machine(tmp_path, libraries=libraries))
    assert named(found, "nvdec").status is Status.FAIL
    assert CAPABILITIES in named(found, "nvdec").fix
    assert named(found, "nvenc").status is Status.WARN


def test_a_card_without_nvenc_gets_the_cpu_encoder(tmp_path: Path) -> None:
    node(tmp_path, "nvidia0")
    child = Outcome(1, "", "av.error.ExternalError: no capable devices found")
    found = named(check_nvidia(machine(tmp_path, libraries=driver(), child=child)), "nvenc")
    assert found.status is Status.WARN
    assert found.fix == "encode on the CPU: -c:v libx264"


def test_cudnn_is_not_asked_for_on_a_cpu(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(check, "package", lambda name: "")
    assert check_cudnn(machine(tmp_path)) == []


def test_a_missing_cudnn_names_its_package(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(check.sys, "path", [str(tmp_path)])
    monkeypatch.setattr(check, "package", lambda name: "12.4.1" if name.endswith("12") else "")
    (found,) = check_cudnn(machine(tmp_path))
    assert found.status is Status.FAIL
    assert "nvidia-cudnn-cu12" in found.fix


def test_cudnn_is_found_where_its_wheel_puts_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(check.sys, "path", [str(tmp_path)])
    library = tmp_path / "nvidia/cudnn/lib/libcudnn.so.9"
    library.parent.mkdir(parents=True)
    library.touch()
    assert check_cudnn(machine(tmp_path, env={"AVDNN_IMAGE": "cuda"}))[0].status is Status.OK
