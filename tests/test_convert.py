"""Model files from one format to another: the same network comes out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends
from avdnn.backends import Options
from avdnn.convert import convert
from avdnn.errors import AvdnnError, BackendUnavailable, ModelError

from .backends import affine
from .conftest import require_module


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    """Writes y = 0.5 * x + 0.25 on three channels, in a backend's format."""

    def write(name: str) -> Path:
        require_module(backends.FRAMEWORKS[name])
        return affine.write(name, tmp_path, channels=3, gain=0.5, offset=0.25)

    return write


def one_line(error: pytest.ExceptionInfo[AvdnnError], *words: str) -> None:
    text = str(error.value)
    assert "\n" not in text
    for word in words:
        assert word in text


def halved(model: Path, size: tuple[int, int], **options: Any) -> bool:
    """Whether a model gives 0.5 * x + 0.25 for a picture of that size."""
    with closing(backends.load(backends.choose(model), model, Options(**options))) as loaded:
        spec = loaded.info.inputs[0]
        shape = [1, 3, *size] if spec.layout == "nchw" else [1, *size, 3]
        given = np.random.default_rng(0).random(shape).astype(np.float32)
        made = loaded.infer_async({spec.name: given}).result()[loaded.info.outputs[0].name]
    # One rounding of float32 more or less.
    return bool(np.abs(made - (given * 0.5 + 0.25)).max() < 1e-6)


@pytest.mark.parametrize("name", ["tensorflow", "onnx", "torch"])
def test_model_becomes_ir(written: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    require_module("openvino")
    target = tmp_path / "out.xml"
    told = convert(written(name), target)
    assert "apart on a picture of 64x64" in told
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.bin", "out.xml"]
    assert halved(target, (11, 14))


def test_size_is_fixed_where_one_is_given(written: Callable[[str], Path], tmp_path: Path) -> None:
    require_module("openvino")
    target = tmp_path / "out.xml"
    told = convert(written("onnx"), target, size=(24, 32))
    assert "32x24" in told
    with closing(backends.load("openvino", target, Options())) as loaded:
        assert loaded.info.inputs[0].size == (24, 32)


@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_torchscript_becomes(written: Callable[[str], Path], tmp_path: Path, ending: str) -> None:
    require_module("onnxruntime")
    target = tmp_path / f"out.{ending}"
    convert(written("torch"), target)
    assert halved(target, (11, 14))


def test_exported_program_becomes_torchscript_and_ir(
    written: Callable[[str], Path], tmp_path: Path
) -> None:
    require_module("openvino")
    source = written("torch")
    convert(source, tmp_path / "program.pt2", size=(16, 24))
    convert(tmp_path / "program.pt2", tmp_path / "back.pt")
    convert(tmp_path / "program.pt2", tmp_path / "out.xml")
    assert halved(tmp_path / "back.pt", (16, 24))
    assert halved(tmp_path / "out.xml", (16, 24))


@pytest.mark.parametrize(("name", "ending"), [("tensorflow", "pt"), ("onnx", "pb"), ("torch", "")])
def test_what_cannot_be_done_lists_what_can(
    written: Callable[[str], Path], tmp_path: Path, name: str, ending: str
) -> None:
    target = tmp_path / f"out.{ending}".removesuffix(".")
    with pytest.raises(ModelError, match="cannot become") as error:
        convert(written(name), target)
    one_line(error, "TorchScript (.pt) to .xml, .onnx, .pt2")
    assert not target.exists()


def test_native_models_are_not_converted(written: Callable[[str], Path], tmp_path: Path) -> None:
    source = affine.write("native", tmp_path, channels=1, gain=1.0, offset=0.0)
    with pytest.raises(ModelError, match="FFmpeg native model") as error:
        convert(source, tmp_path / "out.xml")
    one_line(error, "avdnn converts")


def test_target_that_exists_is_left_alone(written: Callable[[str], Path], tmp_path: Path) -> None:
    require_module("openvino")
    source = written("onnx")
    target = tmp_path / "out.xml"
    target.write_text("mine")
    with pytest.raises(ModelError, match="exists") as error:
        convert(source, target)
    one_line(error, "out.xml")
    assert target.read_text() == "mine"
    convert(source, target, overwrite=True)
    assert halved(target, (8, 8))


@pytest.mark.parametrize("damage", [b"", b"not a model"])
def test_damaged_source_is_one_line(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "bad.onnx").write_bytes(damage)
    with pytest.raises(ModelError, match="damaged") as error:
        convert(tmp_path / "bad.onnx", tmp_path / "out.xml")
    one_line(error, "bad.onnx")


def test_missing_files_and_folders_are_one_line(
    written: Callable[[str], Path], tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="no such model file") as error:
        convert(tmp_path / "nonesuch.pb", tmp_path / "out.xml")
    one_line(error, "nonesuch.pb")
    with pytest.raises(ModelError, match="no folder") as error:
        convert(written("onnx"), tmp_path / "nowhere" / "out.xml")
    one_line(error, "nowhere")


def test_converter_that_is_not_installed_says_how(
    written: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = written("onnx")
    monkeypatch.setattr(backends, "installed", lambda name: name != "openvino")
    with pytest.raises(BackendUnavailable, match=r"pip install 'avdnn\[openvino\]'"):
        convert(source, tmp_path / "out.xml")
    assert list(tmp_path.glob("out*")) == []
    assert list(tmp_path.glob(".avdnn-*")) == []


@pytest.mark.parametrize(
    ("after", "why"),
    [(np.zeros((1, 3, 8, 8)), "the new model gives"), (np.full((1, 3, 4, 4), 0.01), "0.01 from")],
)
def test_result_that_is_another_network_is_refused(
    written: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: np.ndarray,
    why: str,
) -> None:
    require_module("openvino")
    from avdnn.convert import comparison as module

    outputs = iter([np.zeros((1, 3, 4, 4)), after])
    monkeypatch.setattr(module, "_output", lambda *_: next(outputs))
    with pytest.raises(ModelError, match=why) as error:
        convert(written("onnx"), tmp_path / "out.xml")
    one_line(error)
    assert not (tmp_path / "out.xml").exists()
