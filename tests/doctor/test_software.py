"""Installation, processor and backends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from avdnn import backends
from avdnn.devices import Machine, Outcome
from avdnn.doctor import Finding, Status
from avdnn.doctor.software import IMAGES, check_backends, check_cpu, check_install, check_model

from .stand_in import machine


def processor(root: Path, flags: str) -> None:
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(f"flags : {flags}\n")


def backend(found: list[Finding], name: str) -> Finding:
    return next(item for item in found if item.name == f"backend-{name}")


def test_install_names_versions_image_and_user(tmp_path: Path) -> None:
    (found,) = check_install(machine(tmp_path, env={"AVDNN_IMAGE": "cpu"}))
    for part in ("avdnn ", "Python 3.", "PyAV ", "NumPy ", "image cpu", "user ", "groups "):
        assert part in found.message


def test_wide_vectors_are_reported(tmp_path: Path) -> None:
    processor(tmp_path, "sse4_2 avx avx2 avx512f amx_bf16")
    (found,) = check_cpu(machine(tmp_path))
    assert (found.status, found.message) == (Status.OK, "avx2 avx512f amx_bf16")


def test_a_processor_without_avx2_is_slow(tmp_path: Path) -> None:
    processor(tmp_path, "sse4_2 avx")
    assert check_cpu(machine(tmp_path))[0].status is Status.WARN


def test_a_processor_that_numpy_cannot_use_fails(tmp_path: Path) -> None:
    processor(tmp_path, "sse2")
    (found,) = check_cpu(machine(tmp_path))
    assert found.status is Status.FAIL
    assert "NumPy needs sse4_2" in found.message


def test_a_processor_that_tensorflow_cannot_use_fails(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("avdnn.doctor.software.package", lambda name: "1.0")
    processor(tmp_path, "sse4_2")
    (found,) = check_cpu(machine(tmp_path))
    assert found.status is Status.FAIL
    assert "TensorFlow needs avx" in found.message


def test_a_working_backend_lists_version_and_devices(tmp_path: Path) -> None:
    found = backend(check_backends(machine(tmp_path)), "native")
    assert (found.status, found.message) == (Status.OK, "1.0; devices: CPU (a processor)")


def test_a_missing_backend_names_the_image_that_has_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(backends, "installed", lambda name: name != "torch")
    found = backend(check_backends(machine(tmp_path)), "torch")
    assert found.status is Status.OK
    assert found.fix == "use the image avdnn:cuda, or pip install 'avdnn[torch]'"


def test_a_missing_default_backend_fails(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(backends, "installed", lambda name: False)
    found = check_backends(machine(tmp_path, env={"AVDNN_BACKEND": "onnx"}))
    assert backend(found, "onnx").status is Status.FAIL
    assert backend(found, "openvino").status is Status.OK


@pytest.mark.parametrize(
    ("outcome", "message", "fix"),
    [
        (Outcome(-signal.SIGILL, "", ""), "SIGILL", "cpu-instructions"),
        (Outcome(-signal.SIGSEGV, "", ""), "SIGSEGV", "force-reinstall"),
        (Outcome(1, "", "ImportError: libcudnn.so.9: cannot open"), "libcudnn", "nvidia-cudnn"),
        (
            Outcome(1, "", "x\nImportError: libz.so: cannot open shared object file"),
            "installed, but broken: ImportError: libz.so",
            "library is missing",
        ),
        (Outcome(1, "", ""), "no message", "force-reinstall"),
    ],
)
def test_a_broken_backend_shows_its_own_error(
    tmp_path: Path, outcome: Outcome, message: str, fix: str
) -> None:
    found = backend(check_backends(machine(tmp_path, child=outcome)), "native")
    assert found.status is Status.FAIL
    assert message in found.message
    assert fix in found.fix


def test_native_answers_for_real() -> None:
    found = backend(check_backends(Machine()), "native")
    assert found.status is Status.OK, found.message


def test_a_model_for_another_image_names_that_image(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(backends, "installed", lambda name: False)
    monkeypatch.setattr(backends, "reads", lambda name, model: name == "torch")
    model = tmp_path / "net.pt"
    model.touch()
    (found,) = check_model(model)
    assert found.status is Status.FAIL
    assert "needs torch" in found.message
    assert "avdnn:cuda" in found.fix


def test_a_model_that_runs_here_lists_its_backends(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(backends, "installed", lambda name: True)
    monkeypatch.setattr(backends, "reads", lambda name, model: name in ("openvino", "onnx"))
    model = tmp_path / "net.onnx"
    model.touch()
    assert check_model(model)[0].message == f"{model} runs on openvino, onnx"


def test_a_bundled_model_is_known_by_its_name(monkeypatch) -> None:
    monkeypatch.setattr(backends, "installed", lambda name: name in ("torch", "native"))
    assert check_model(Path("espcn-x2"))[0].message == "espcn-x2 runs on torch, native"


def test_a_file_that_nothing_reads_fails(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(backends, "reads", lambda name, model: False)
    model = tmp_path / "net.txt"
    model.touch()
    assert "no backend reads .txt files" in check_model(model)[0].message


def test_a_missing_model_file_fails(tmp_path: Path) -> None:
    assert "no such file" in check_model(tmp_path / "net.pt")[0].message


def test_the_images_name_only_backends_that_exist() -> None:
    assert {name for has in IMAGES.values() for name in has} < set(backends.NAMES)
