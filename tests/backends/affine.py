"""The network y = gain * x + offset in the format of every backend, with free batch and size."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ..conftest import require_module


def write(backend: str, folder: Path, *, channels: int, gain: float, offset: float) -> Path:
    """Write the network for `backend` and return the file; skips where a writer is missing."""
    with warnings.catch_warnings():
        # What a framework deprecates in its own writer is no concern of the reader under test.
        warnings.simplefilter("ignore")
        return WRITERS[backend](folder, channels, gain, offset)


def _onnx(folder: Path, channels: int, gain: float, offset: float) -> Path:
    require_module("onnx")
    import onnx
    from onnx import TensorProto, helper

    shape = ["n", channels, "h", "w"]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "gain"], ["z"]), helper.make_node("Add", ["z", "o"], ["y"])],
        "affine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor("gain", TensorProto.FLOAT, [], [gain]),
            helper.make_tensor("o", TensorProto.FLOAT, [], [offset]),
        ],
    )
    path = folder / "affine.onnx"
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def _openvino(folder: Path, channels: int, gain: float, offset: float) -> Path:
    require_module("openvino")
    from avdnn.backends.openvino import runtime

    openvino = runtime()
    ops = openvino.opset8
    x = ops.parameter([-1, channels, -1, -1], np.float32, name="x")
    z = ops.multiply(x, ops.constant(np.float32(gain)))
    y = ops.add(z, ops.constant(np.float32(offset)), name="y")
    y.output(0).tensor.set_names({"y"})
    path = folder / "affine.xml"
    openvino.save_model(openvino.Model([ops.result(y)], [x], "affine"), path, False)
    return path


def _tensorflow(folder: Path, channels: int, gain: float, offset: float) -> Path:
    require_module("tensorflow")
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, None, None, channels], name="x")
        z = tf.multiply(x, tf.constant(gain, tf.float32))
        tf.add(z, tf.constant(offset, tf.float32), name="y")
    path = folder / "affine.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


def _torch(folder: Path, channels: int, gain: float, offset: float) -> Path:
    require_module("torch")
    import torch

    class Affine(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.full((1, channels, 1, 1), gain))
            self.offset = torch.nn.Parameter(torch.full((1, channels, 1, 1), offset))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.gain + self.offset

    path = folder / "affine.pt"
    torch.jit.trace(Affine(), torch.zeros(1, channels, 8, 8)).save(str(path))
    return path


def _native(folder: Path, channels: int, gain: float, offset: float) -> Path:
    """A file of FFmpeg's own format: two math_binary layers, their second operand a constant."""
    math_binary, add, multiply = 5, 1, 2
    constant, variable = 1, 0
    layers = b"".join(
        struct.pack("<5ifii", math_binary, kind, variable, source, constant, value, target, 0)[:-4]
        for kind, value, source, target in ((multiply, gain, 0, 1), (add, offset, 1, 2))
    )
    operands = b""
    for index, (name, kind) in enumerate((("x", 1), ("z", 3), ("y", 2))):
        dims = (1, -1, -1, channels)
        operands += struct.pack("<2i", index, len(name)) + name.encode()
        operands += struct.pack("<6i", kind, 1, *dims)
    head = b"FFMPEGDNNNATIVE" + struct.pack("<2i", 1, 0)
    path = folder / "affine.model"
    path.write_bytes(head + layers + operands + struct.pack("<2i", 2, 3))
    return path


WRITERS: dict[str, Callable[[Path, int, float, float], Path]] = {
    "onnx": _onnx,
    "openvino": _openvino,
    "tensorflow": _tensorflow,
    "torch": _torch,
    "native": _native,
}
