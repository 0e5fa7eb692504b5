"""inspect: tensors, formats, sizes, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from avdnn import backends
from avdnn.backends import Options
from avdnn.command import inspection
from avdnn.errors import ModelError, UsageError
from avdnn.frame import Arrays, Layout, ModelInfo, Shapes, TensorSpec
from avdnn.pixfmt import FORMATS, Family

from ..conftest import require_module


class Doubler:
    """A backend that doubles the picture, with whatever tensors it is told to have."""

    def __init__(self, given: TensorSpec, made: TensorSpec) -> None:
        self.info = ModelInfo((given,), (made,), facts={"producer": "test"})
        self.closed = False
        self.asked: Shapes = {}

    def output_shapes(self, inputs: Shapes) -> Shapes:
        self.asked = inputs
        (given,) = self.info.inputs
        at = 2 if given.layout is Layout.NCHW else 1
        shape = list(inputs[given.name])
        shape[at : at + 2] = [2 * side for side in shape[at : at + 2]]
        return {self.info.outputs[0].name: tuple(shape)}

    def infer_async(self, inputs: Arrays) -> Future[Arrays]:
        raise NotImplementedError

    def close(self) -> None:
        self.closed = True


class Module:
    SUFFIXES = (".fake",)
    KEYS: Mapping[str, str] = {"speed": "how fast"}

    def __init__(self, backend: Doubler) -> None:
        self.backend = backend
        self.sizes: list[tuple[int, int] | None] = []

    def load(self, model: Path, options: Options) -> Doubler:
        self.sizes.append(options.size)
        return self.backend

    def describe(self) -> Mapping[str, Any]:
        return {"version": "1.0", "devices": {}}


def _inspect(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    given: TensorSpec,
    size: tuple[int, int] | None = (64, 48),
) -> tuple[inspection.Inspection, Doubler]:
    made = TensorSpec("y", tuple(-1 for _ in given.shape), given.dtype, given.layout)
    backend = Doubler(given, made)
    module = Module(backend)
    path = tmp_path / "m.fake"
    path.touch()
    monkeypatch.setattr(backends, "module", lambda name: module)
    monkeypatch.setattr(inspection, "locate", lambda options: ("native", path))
    found = inspection.inspect(str(path), size=size)
    assert backend.closed
    assert module.sizes[0] is None
    assert module.sizes[1:] == ([] if size is None else [(size[1], size[0])])
    return found, backend


LUMA = TensorSpec("x", (-1, 1, -1, -1), layout=Layout.NCHW)
COLOUR = TensorSpec("x", (1, 48, 64, 3), "uint8", Layout.NHWC, "bgr")


def test_luma_model_takes_luma_formats_and_doubles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, backend = _inspect(monkeypatch, tmp_path, LUMA)
    assert backend.asked == {"x": (1, 1, 48, 64)}
    assert found.output_size == (128, 96)
    assert set(found.formats) == {n for n, f in FORMATS.items() if f.family is Family.LUMA}
    text = found.as_text()
    assert "x  ?x1x?x? float32, nchw, values 0..1" in text
    assert "the Y samples go through the model" in text
    assert "64x48 becomes 128x96" in text
    assert "frames of 64x48 go in as they are" in text
    assert "backend_configs may set speed" in text
    assert text.endswith("producer  test")


def test_colour_model_takes_colour_formats(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _ = _inspect(monkeypatch, tmp_path, COLOUR)
    assert set(found.formats) == {n for n, f in FORMATS.items() if f.family is not Family.LUMA}
    assert "x  1x48x64x3 uint8, nhwc bgr, values codes" in found.as_text()


def test_scale_and_mean_show_as_range(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = TensorSpec("x", (1, 3, -1, -1), layout=Layout.NCHW, scale=127.5, mean=127.5)
    found, _ = _inspect(monkeypatch, tmp_path, spec)
    assert found.as_dict()["inputs"][0]["range"] == "-1..1"


def test_other_channel_counts_say_that_nothing_fits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = TensorSpec("x", (1, 4, -1, -1), layout=Layout.NCHW)
    found, _ = _inspect(monkeypatch, tmp_path, spec, size=None)
    assert found.formats == ()
    assert "no pixel format has the 4 channels" in found.as_text()


def test_free_channels_fit_every_format(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = TensorSpec("x", (-1, -1, -1, -1), layout=Layout.NCHW)
    found, _ = _inspect(monkeypatch, tmp_path, spec)
    assert set(found.formats) == set(FORMATS)
    assert "as many channels go through the model as the format has" in found.as_text()


def test_no_picture_input_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _ = _inspect(monkeypatch, tmp_path, TensorSpec("x", (1, 10)), size=None)
    assert "no input takes a picture" in found.as_text()
    assert found.as_dict()["output_size"] is None


def test_json_has_what_the_text_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _ = _inspect(monkeypatch, tmp_path, LUMA)
    read = json.loads(found.as_json())
    assert read["inputs"] == [
        {
            "name": "x",
            "shape": [-1, 1, -1, -1],
            "dtype": "float32",
            "layout": "nchw",
            "order": "",
            "range": "0..1",
        }
    ]
    assert (read["size"], read["output_size"]) == ([64, 48], [128, 96])
    assert (read["backend"], read["version"], read["precision"]) == ("native", "1.0", "float32")


def test_unknown_backend_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no backend 'tf'; there are auto, openvino"):
        inspection.inspect("m.xml", backend="tf")
    with pytest.raises(ModelError, match="no such model file"):
        inspection.inspect(str(tmp_path / "m.xml"))


def test_how_a_model_of_another_size_meets_the_frames(reference: Path) -> None:
    require_module("onnxruntime")
    model = str(reference / "models" / "espcn_fixed.onnx")
    found = inspection.inspect(model, backend="onnx", size=(100, 75))
    assert found.info.inputs[0].size == (540, 960)
    assert found.output_size == (200, 150)
    assert "frames of 100x75 are padded to 960x540" in found.plan


def test_real_model_on_openvino(seed: Path) -> None:
    require_module("openvino")
    found = inspection.inspect(str(seed / "espcn.xml"), backend="openvino", size=(96, 54))
    assert found.output_size == (192, 108)
    assert [spec.name for spec in found.info.inputs] == ["x"]
    assert "yuv420p" in found.formats
