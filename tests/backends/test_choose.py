"""Which backend a file's name asks for, and what is no model at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from avdnn import backends
from avdnn.errors import ModelError
from avdnn.filters._options import DnnOptions, locate


@pytest.mark.parametrize("preferred", ["", "openvino"])
@pytest.mark.parametrize("backend", ["auto", "native", "openvino"])
@pytest.mark.parametrize("name", ["passwd", "notes.txt", "clip.mp4"])
def test_a_file_that_is_no_model_is_told_by_its_ending(
    tmp_path: Path, name: str, backend: str, preferred: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AVDNN_BACKEND", preferred)
    path = tmp_path / name
    path.write_text("root:x:0:0:root:/root:/bin/sh\n")
    with pytest.raises(ModelError, match=rf"{name}: no model file by its ending; .* \.onnx, "):
        locate(DnnOptions(model=str(path), dnn_backend=backend))


def test_a_model_without_an_ending_is_told_by_its_bytes(seed: Path, tmp_path: Path) -> None:
    path = tmp_path / "espcn"
    path.write_bytes((seed / "espcn.pb").read_bytes())
    assert backends.why_no_model(path) == ""
