"""A 7x7 convolution behind a border of 3 mirrored pixels, in the format of every backend."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from avdnn.backends import _native_model as nm
from avdnn.backends._native_file import write as write_native

from ..conftest import require_module

PAD = 3
KERNEL = (np.random.default_rng(7).random((7, 7), np.float32) - 0.25) / 12


def expected(picture: Any) -> Any:
    """What the network makes of a picture (rows, columns)."""
    wide = np.pad(picture.astype(np.float64), PAD, mode="reflect")
    rows, columns = picture.shape
    return sum(
        KERNEL[y, x] * wide[y : y + rows, x : x + columns] for y in range(7) for x in range(7)
    )


def write(backend: str, folder: Path, size: tuple[int, int] | None = None) -> Path:
    """Write the network, of free size or of a fixed one, and return its file."""
    with warnings.catch_warnings():
        # What a framework deprecates in its own writer is no concern of the reader under test.
        warnings.simplefilter("ignore")
        return WRITERS[backend](folder, size)


def _native(folder: Path, size: tuple[int, int] | None) -> Path:
    borders = ((0, 0), (PAD, PAD), (PAD, PAD), (0, 0))
    layers = [
        nm.MirrorPad("x", "a", nm.PadMode.REFLECT, borders),
        nm.Conv2d("a", "y", KERNEL[None, :, :, None], None, padding=nm.Padding.VALID),
    ]
    path = folder / "mirrored.model"
    write_native(path, nm.model(layers, {"x": (1, *(size or (-1, -1)), 1)}))
    return path


def _onnx(folder: Path, size: tuple[int, int] | None) -> Path:
    require_module("onnx")
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rows, columns = size or ("h", "w")
    pads = np.array([0, 0, PAD, PAD] * 2, np.int64)
    graph = helper.make_graph(
        [
            helper.make_node("Pad", ["x", "pads"], ["a"], mode="reflect"),
            helper.make_node("Conv", ["a", "kernel"], ["y"], kernel_shape=[7, 7]),
        ],
        "mirrored",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, rows, columns])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, "p", "q"])],
        [
            numpy_helper.from_array(pads, "pads"),
            numpy_helper.from_array(KERNEL[None, None], "kernel"),
        ],
    )
    path = folder / "mirrored.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def _tensorflow(folder: Path, size: tuple[int, int] | None) -> Path:
    require_module("tensorflow")
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [1, *(size or (None, None)), 1], name="x")
        a = tf.pad(x, [[0, 0], [PAD, PAD], [PAD, PAD], [0, 0]], mode="REFLECT")
        tf.nn.conv2d(a, KERNEL[:, :, None, None], 1, "VALID", name="y")
    path = folder / "mirrored.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def _torch(folder: Path, size: tuple[int, int] | None) -> Path:
    require_module("torch")
    import torch

    class Mirrored(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = torch.nn.Parameter(torch.from_numpy(KERNEL[None, None].copy()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = torch.nn.functional.pad(x, (3, 3, 3, 3), mode="reflect")
            return torch.nn.functional.conv2d(wide, self.kernel)

    path = folder / "mirrored.pt"
    torch.jit.script(Mirrored().eval()).save(str(path))
    return path


WRITERS = {
    "native": _native,
    "onnx": _onnx,
    "openvino": _onnx,
    "tensorflow": _tensorflow,
    "torch": _torch,
}
