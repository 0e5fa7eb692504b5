"""The lists of backends and models."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from avdnn import backends
from avdnn.command import listing
from avdnn.devices import Gpu, Nvidia
from avdnn.errors import BackendUnavailable


def _module(name: str) -> SimpleNamespace:
    if name == "torch":
        raise BackendUnavailable("no torch", backend=name)
    if name == "onnx":
        raise ImportError("libfoo.so: cannot open\nmore")
    return SimpleNamespace(
        describe=lambda: {"version": f"{name} 1.0", "devices": {"cpu": "a processor"}}
    )


@pytest.fixture
def facts(monkeypatch: pytest.MonkeyPatch) -> list[listing.BackendFacts]:
    monkeypatch.setattr(backends, "module", _module)
    monkeypatch.setattr(backends, "NAMES", ("native", "onnx", "torch"))
    monkeypatch.setattr(backends, "suffixes", lambda name: (f".{name}", ""))
    monkeypatch.setattr(backends, "keys", lambda name: {"key": "help"})
    return listing.backend_facts()


def test_installed_missing_and_broken_are_three_things(
    facts: list[listing.BackendFacts],
) -> None:
    native, onnx, torch = facts
    assert (native.installed, native.version) == (True, "native 1.0")
    assert (onnx.installed, onnx.error) == (True, "ImportError: libfoo.so: cannot open")
    assert (torch.installed, torch.install) == (False, "pip install 'avdnn[torch]'")


def test_text_of_backends(facts: list[listing.BackendFacts]) -> None:
    lines = listing.backends_text(facts).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "native native 1.0",
        "cpu: a processor",
        "reads .native folders",
        "onnx does not load: ImportError: libfoo.so: cannot open",
        "reads .onnx folders",
        "torch not installed: pip install 'avdnn[torch]'",
        "reads .torch folders",
    ]


def test_json_of_backends(facts: list[listing.BackendFacts]) -> None:
    native = json.loads(listing.as_json(facts))[0]
    assert native == {
        "name": "native",
        "installed": True,
        "version": "native 1.0",
        "devices": {"cpu": "a processor"},
        "reads": [".native", ""],
        "options": {"key": "help"},
        "error": "",
        "install": "",
    }


def test_the_native_backend_is_always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "NAMES", ("native",))
    (native,) = listing.backend_facts()
    assert native.installed
    assert native.error == ""
    assert ".model" in native.reads


def test_gpus_are_told_by_all_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA's index beside the UUID, the PCI address and nvidia-smi's index."""
    gpus = (
        Gpu(0, 1, "H200", "GPU-aa", "0000:0b:00.0"),
        Gpu(1, -1, "H200", "GPU-bb", "0000:0c:00.0"),
    )
    told = {"version": "1", "devices": {"cpu": "AVX2", "cuda:0": "H200", "gpu:1": "H200"}}
    module = SimpleNamespace(describe=lambda: told)
    monkeypatch.setattr(listing, "nvidia", lambda machine: Nvidia(gpus=gpus))
    monkeypatch.setattr(backends, "module", lambda name: module)
    monkeypatch.setattr(backends, "NAMES", ("torch",))
    (torch,) = listing.backend_facts()
    assert torch.devices == {
        "cpu": "AVX2",
        "cuda:0": "H200, GPU-aa, 0000:0b:00.0, nvidia-smi 1",
        "gpu:1": "H200, GPU-bb, 0000:0c:00.0",
    }
