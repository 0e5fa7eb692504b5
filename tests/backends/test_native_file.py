"""`.model` files: written and read again, broken ones refused with one clear line."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn.backends import Options, load
from avdnn.backends import _native_model as nm
from avdnn.backends._native_file import read, write
from avdnn.errors import ModelError

KERNEL = np.arange(2 * 3 * 3 * 1, dtype=np.float32).reshape(2, 3, 3, 1)
LAYERS: list[nm.Layer] = [
    nm.MirrorPad("x", "padded", nm.PadMode.REFLECT, ((0, 0), (1, 1), (1, 1), (0, 0))),
    nm.Conv2d("padded", "a", KERNEL, np.ones(2, np.float32), 1, nm.Padding.VALID),
    nm.Dense("a", "b", np.ones((2, 2), np.float32), activation=nm.Activation.TANH),
    nm.AvgPool("b", "c", 3, 1),
    nm.Maximum("c", "d", 0.25),
    nm.MathUnary("d", "e", nm.UnaryOp.EXP),
    nm.MathBinary("e", "a", "f", nm.BinaryOp.ADD),
    nm.MathBinary(1.5, "f", "g", nm.BinaryOp.SUB),
    nm.DepthToSpace("g", "y", 1),
]
HEADER = 15


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "net.model"
    write(path, nm.model(LAYERS, {"x": (1, -1, -1, 1)}))
    return path


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(ModelError) as error:
        load("native", path, Options(**options))
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text


def test_every_layer_survives_a_round_trip(saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.model"
    network = read(saved)
    write(again, network)
    assert again.read_bytes() == saved.read_bytes()
    assert [type(layer) for layer in network.layers] == [type(layer) for layer in LAYERS]
    conv = network.layers[1]
    assert isinstance(conv, nm.Conv2d)
    np.testing.assert_array_equal(conv.kernel, KERNEL)
    assert network.names(nm.Kind.OUTPUT) == ("y",)
    assert network.names(nm.Kind.INPUT) == ("x",)


def test_public_models_are_written_as_they_were(seed: Path, tmp_path: Path) -> None:
    after_version = HEADER + 8
    for path in seed.glob("*.model"):
        write(tmp_path / "again.model", read(path))
        again = (tmp_path / "again.model").read_bytes()
        assert again[after_version:] == path.read_bytes()[after_version:]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
def test_truncated_file_is_refused(saved: Path, share: float) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data[: int(len(data) * share)])
    refused(saved)


def test_bytes_after_the_end_are_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes() + bytes(8))
    refused(saved)


def test_foreign_file_is_named(saved: Path) -> None:
    saved.write_bytes(b"\x89PNG\r\n" + bytes(100))
    assert "not a native model" in refused(saved)


def test_other_version_is_named(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    data[HEADER : HEADER + 4] = struct.pack("<i", 2)
    saved.write_bytes(data)
    assert "version 2.23" in refused(saved)


def test_unknown_layer_is_named(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    data[HEADER + 8 : HEADER + 12] = struct.pack("<i", 77)
    saved.write_bytes(data)
    assert "layer 0 is of type 77" in refused(saved)


def test_operand_out_of_range_is_named(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    source = HEADER + 8 + 4 + 36
    data[source : source + 4] = struct.pack("<i", -1)
    saved.write_bytes(data)
    assert "uses operand -1" in refused(saved)


def test_huge_counts_do_not_allocate(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    data[-8:] = struct.pack("<2i", 2**31 - 1, 2**31 - 1)
    saved.write_bytes(data)
    refused(saved)


def test_every_damaged_byte_is_an_error_or_a_network(saved: Path) -> None:
    data = saved.read_bytes()
    for at in range(HEADER, len(data)):
        saved.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            load("native", saved, Options()).close()
        except ModelError as error:
            assert str(error).startswith(f"{saved}: ")  # noqa: PT017


def test_layers_out_of_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="before any layer makes it"):
        nm.model([nm.Maximum("late", "y", 0), nm.Maximum("x", "late", 0)], {"x": (1, -1, -1, 1)})


def test_operand_made_twice_is_refused() -> None:
    with pytest.raises(ModelError, match="there already"):
        nm.model([nm.Maximum("x", "y", 0), nm.Maximum("x", "y", 0)], {"x": (1, -1, -1, 1)})


def test_name_that_ffmpeg_would_cut_is_refused(tmp_path: Path) -> None:
    network = nm.model([nm.Maximum("x", "y" * 128, 0)], {"x": (1, -1, -1, 1)})
    with pytest.raises(ModelError, match="128 bytes"):
        write(tmp_path / "long.model", network)


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ([nm.Conv2d("x", "y", np.ones((1, 3, 3, 2), np.float32))], "2 channels is given 1"),
        ([nm.DepthToSpace("x", "y", 2)], "cannot become blocks of 2x2"),
        (
            [nm.MirrorPad("x", "y", nm.PadMode.REFLECT, ((0, 0), (0, 0), (0, 0), (1, 0)))],
            "cannot be mirrored by 1",
        ),
        (
            [nm.MirrorPad("x", "y", nm.PadMode.REFLECT, ((1, 0), (0, 0), (0, 0), (0, 0)))],
            "padding of the batch",
        ),
    ],
)
def test_layers_that_do_not_fit_are_named(
    layers: list[nm.Layer], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "net.model"
    write(path, nm.model(layers, {"x": (1, -1, -1, 1)}))
    text = refused(path)
    assert "layer 0" in text
    assert reason in text
