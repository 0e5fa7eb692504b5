"""One writer for each exported form of a network.

Weights are float16 values throughout. Where a format can hold float16 and compute in float32
(ONNX, TensorFlow, IR), they are stored so; the runtimes fold the cast when they load.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from .networks import SLOPE, Activation, Network, depth_to_space_order

Layers = Sequence[tuple[np.ndarray, np.ndarray]]
Writer = Callable[[Network, Layers, Path], None]


_ONNX_ACTIVATIONS: Mapping[Activation, tuple[str, Mapping[str, float]]] = {
    Activation.RELU: ("Relu", {}),
    Activation.TANH: ("Tanh", {}),
    Activation.LEAKY_RELU: ("LeakyRelu", {"alpha": SLOPE}),
}
_NATIVE_ACTIVATIONS = {Activation.RELU: 0, Activation.TANH: 1, Activation.LEAKY_RELU: 4}
_NATIVE_SAME, _NATIVE_LINEAR = 1, 3


def _nhwc(network: Network, layers: Layers) -> tuple[Layers, np.ndarray]:
    """Layers and shortcut with the last channels in TensorFlow's depth-to-space order."""
    order = depth_to_space_order(network)
    *body, (kernel, bias) = layers
    return [*body, (kernel[order], bias[order])], network.repeat()[order]


def write_onnx(network: Network, layers: Layers, path: Path, *, half: bool = True) -> None:
    """ONNX, opset 17, with float16 initializers unless `half` is off."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, initializers = [], []

    def constant(name: str, value: np.ndarray) -> str:
        if not half:
            initializers.append(numpy_helper.from_array(value.astype(np.float32), name))
            return name
        stored = f"{name}.half"
        initializers.append(numpy_helper.from_array(value.astype(np.float16), stored))
        nodes.append(helper.make_node("Cast", [stored], [name], to=TensorProto.FLOAT))
        return name

    tensor = "x"
    for i, (kernel, bias) in enumerate(layers):
        inputs = [
            tensor,
            constant(f"conv{i}.weight", kernel),
            constant(f"conv{i}.bias", bias),
        ]
        pads = [kernel.shape[2] // 2] * 4
        tensor = f"conv{i}"
        nodes.append(helper.make_node("Conv", inputs, [tensor], pads=pads))
        if i + 1 < len(layers):
            kind, values = _ONNX_ACTIVATIONS[network.activation]
            nodes.append(helper.make_node(kind, [tensor], [f"act{i}"], **values))
            tensor = f"act{i}"
    if network.shortcut:
        nodes.append(
            helper.make_node("Conv", ["x", constant("repeat", network.repeat())], ["near"])
        )
        nodes.append(helper.make_node("Add", [tensor, "near"], ["sum"]))
        tensor = "sum"
    if network.scale == 1:
        nodes.append(helper.make_node("Identity", [tensor], ["y"]))
    else:
        nodes.append(
            helper.make_node("DepthToSpace", [tensor], ["y"], blocksize=network.scale, mode="CRD")
        )
    ends = [
        helper.make_tensor_value_info(
            name, TensorProto.FLOAT, ["N", network.channels, f"H{name}", f"W{name}"]
        )
        for name in ("x", "y")
    ]
    graph = helper.make_graph(nodes, network.name, ends[:1], ends[1:], initializers)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="avdnn"
    )
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def write_ir(network: Network, layers: Layers, path: Path) -> None:
    """OpenVINO IR (.xml and .bin), weights compressed to float16."""
    import openvino

    source = path.with_suffix(".float.onnx")
    write_onnx(network, layers, source, half=False)
    try:
        model = openvino.convert_model(source)
        openvino.save_model(model, path, compress_to_fp16=True)
    finally:
        source.unlink()


def write_torchscript(network: Network, layers: Layers, path: Path) -> None:
    """TorchScript that runs in the type of its parameters."""
    import torch
    from torch import nn

    activate = {
        Activation.RELU: nn.ReLU(),
        Activation.TANH: nn.Tanh(),
        Activation.LEAKY_RELU: nn.LeakyReLU(SLOPE),
    }[network.activation]

    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            stack: list[nn.Module] = []
            for kernel, bias in layers:
                conv = nn.Conv2d(
                    kernel.shape[1], kernel.shape[0], kernel.shape[2], padding=kernel.shape[2] // 2
                )
                conv.weight.data = torch.from_numpy(kernel)
                conv.bias.data = torch.from_numpy(bias)
                stack += [conv, activate]
            self.body = nn.Sequential(*stack[:-1])
            self.shortcut = network.shortcut
            self.repeat = nn.Parameter(torch.from_numpy(network.repeat()), requires_grad=False)
            self.shuffle = nn.PixelShuffle(network.scale) if network.scale > 1 else nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.body(x)
            if self.shortcut:
                y = y + nn.functional.conv2d(x, self.repeat)
            return self.shuffle(y)

    module = Body().eval().requires_grad_(False)
    with torch.no_grad():
        traced = torch.jit.trace(module, torch.rand(1, network.channels, 16, 16))
    traced.save(path)


def write_tensorflow(network: Network, layers: Layers, path: Path) -> None:
    """A frozen GraphDef."""
    import tensorflow as tf

    layers, repeat = _nhwc(network, layers)

    def constant(value: np.ndarray, name: str) -> tf.Tensor:
        stored = tf.constant(value.astype(np.float16), name=f"{name}/half")
        return tf.cast(stored, tf.float32, name=name)

    activate = {
        Activation.RELU: tf.nn.relu,
        Activation.TANH: tf.nn.tanh,
        Activation.LEAKY_RELU: functools.partial(tf.nn.leaky_relu, alpha=SLOPE),
    }[network.activation]
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (None, None, None, network.channels), "x")
        y = x
        for i, (kernel, bias) in enumerate(layers):
            hwio = constant(kernel.transpose(2, 3, 1, 0), f"conv{i}/weight")
            y = tf.nn.conv2d(y, hwio, 1, "SAME", name=f"conv{i}")
            y = tf.nn.bias_add(y, constant(bias, f"conv{i}/bias"), name=f"conv{i}/sum")
            if i + 1 < len(layers):
                y = activate(y, name=f"act{i}")
        if network.shortcut:
            hwio = constant(repeat.transpose(2, 3, 1, 0), "repeat")
            y = y + tf.nn.conv2d(x, hwio, 1, "SAME", name="near")
        if network.scale == 1:
            tf.identity(y, name="y")
        else:
            tf.nn.depth_to_space(y, network.scale, name="y")
    path.write_bytes(graph.as_graph_def(add_shapes=False).SerializeToString(deterministic=True))


def write_native(network: Network, layers: Layers, path: Path) -> None:
    """FFmpeg's .model, format version 1.

    Layers (a type, its fields, its operands), then operands, then the count of each. A kernel is
    stored as output, row, column, input.
    """
    layers, repeat = _nhwc(network, layers)
    hidden = _NATIVE_ACTIVATIONS[network.activation]
    chunks: list[bytes] = []
    names: list[str] = ["x"]

    def emit(fields: Sequence[int], arrays: Sequence[np.ndarray], inputs: Sequence[int]) -> int:
        names.append(f"layer{len(names)}")
        chunks.append(struct.pack(f"<{len(fields)}i", *fields))
        chunks.extend(array.astype("<f4").tobytes() for array in arrays)
        chunks.append(struct.pack(f"<{len(inputs) + 1}i", *inputs, len(names) - 1))
        return len(names) - 1

    def conv(source: int, kernel: np.ndarray, bias: np.ndarray | None, activation: int) -> int:
        outputs, inputs, size, _ = kernel.shape
        fields = (1, 1, _NATIVE_SAME, activation, inputs, outputs, size, bias is not None)
        arrays = [kernel.transpose(0, 2, 3, 1)] + ([] if bias is None else [bias])
        return emit(fields, arrays, (source,))

    tensor = 0
    for i, (kernel, bias) in enumerate(layers):
        tensor = conv(tensor, kernel, bias, hidden if i + 1 < len(layers) else _NATIVE_LINEAR)
    if network.shortcut:
        near = conv(0, repeat, None, _NATIVE_LINEAR)
        # math_binary, add; each operand follows its flag, 0 for "no constant"
        tensor = emit((5, 1, 0, tensor, 0), (), (near,))
    if network.scale > 1:
        tensor = emit((2, network.scale), (), (tensor,))
    names[tensor] = "y"
    for index, name in enumerate(names):
        kind = 1 if index == 0 else 2 if index == tensor else 3
        shape = (1, -1, -1, network.channels) if index == 0 else (-1,) * 4
        text = name.encode()
        chunks.append(struct.pack(f"<2i{len(text)}s6i", index, len(text), text, kind, 1, *shape))
    chunks.append(struct.pack("<2i", len(names) - 1, len(names)))
    path.write_bytes(b"FFMPEGDNNNATIVE" + struct.pack("<2i", 1, 0) + b"".join(chunks))


WRITERS: dict[str, Writer] = {
    ".onnx": write_onnx,
    ".xml": write_ir,
    ".pt": write_torchscript,
    ".pb": write_tensorflow,
    ".model": write_native,
}
