"""Model files told from their bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from avdnn.backends import NAMES
from avdnn.backends._formats import READERS, Kind, identify

ONNX = bytes([0x08, 8, 0x3A, 4, 1, 2, 3, 4, 0x42, 2, 0x10, 17])
GRAPH_DEF = bytes([0x0A, 3, 1, 2, 3, 0x22, 2, 0x08, 1])


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.onnx", ONNX, Kind.ONNX),
        ("a.pb", ONNX, Kind.ONNX),
        ("a.pb", GRAPH_DEF, Kind.GRAPH_DEF),
        ("a.pdmodel", GRAPH_DEF, Kind.PADDLE),
        ("a.xml", b"<?xml version='1.0'?><net></net>\n", Kind.IR),
        ("a.pt", b"PK\x03\x04rest", Kind.TORCH),
        ("a.tflite", b"\x1c\0\0\0TFL3rest", Kind.TFLITE),
        ("a.safetensors", b'\x02\0\0\0\0\0\0\0{"}', Kind.SAFETENSORS),
        ("a.model", b"FFMPEGDNNNATIVE\x01", Kind.NATIVE),
        ("a.pb", b"", Kind.UNKNOWN),
        ("a.pb", b"not a model", Kind.UNKNOWN),
        ("a.xml", b"<?xml version='1.0'?><page/>", Kind.UNKNOWN),
    ],
)
def test_kind_is_told_from_the_bytes(tmp_path: Path, name: str, data: bytes, kind: Kind) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert identify(path) == (kind, True)


@pytest.mark.parametrize("data", [ONNX[:6], ONNX[:-1], GRAPH_DEF[:-1], b"<net><layers>"])
def test_cut_file_is_not_whole(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "cut"
    path.write_bytes(data)
    assert not identify(path)[1]


def test_folder_is_a_saved_model_or_nothing(tmp_path: Path) -> None:
    assert identify(tmp_path) == (Kind.UNKNOWN, True)
    (tmp_path / "saved_model.pb").write_bytes(bytes([0x08, 1, 0x12, 1, 0]))
    assert identify(tmp_path) == (Kind.SAVED_MODEL, True)
    assert identify(tmp_path / "saved_model.pb") == (Kind.SAVED_MODEL, True)


def test_every_kind_names_backends_that_exist() -> None:
    assert set(READERS) == set(Kind)
    assert {name for readers in READERS.values() for name in readers} == set(NAMES)


def test_seed_files_are_whole_and_of_their_kind(seed: Path, reference: Path) -> None:
    kinds = {".xml": Kind.IR, ".pb": Kind.GRAPH_DEF, ".model": Kind.NATIVE, ".onnx": Kind.ONNX}
    files = [*seed.iterdir(), *(reference / "models").iterdir()]
    known = [path for path in files if path.suffix in kinds and path.stem != "broken"]
    assert len(known) > 20
    for path in known:
        assert identify(path) == (kinds[path.suffix], True), path.name
