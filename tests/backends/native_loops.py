"""FFmpeg's native layers written as plain loops over pixels: the reference of the tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from avdnn.backends import _native_model as nm


def activation(kind: nm.Activation, x: float) -> float:
    return {
        nm.Activation.RELU: lambda: max(x, 0.0),
        nm.Activation.TANH: lambda: math.tanh(x),
        nm.Activation.SIGMOID: lambda: 1 / (1 + math.exp(-x)),
        nm.Activation.NONE: lambda: x,
        nm.Activation.LEAKY_RELU: lambda: max(x, 0.0) + 0.2 * min(x, 0.0),
    }[kind]()


def conv2d(x: Any, layer: nm.Conv2d) -> Any:
    height, width, _ = x.shape
    outputs, size = layer.kernel.shape[:2]
    valid = layer.padding is nm.Padding.VALID
    pad = (size - 1) // 2 * layer.dilation if valid else 0
    out = np.zeros((height - 2 * pad, width - 2 * pad, outputs))
    for y, col in np.ndindex(out.shape[:2]):
        total = np.zeros(outputs) if layer.bias is None else layer.bias.astype(float)
        for ky, kx in np.ndindex(size, size):
            row = y + pad + (ky - size // 2) * layer.dilation
            at = col + pad + (kx - size // 2) * layer.dilation
            if layer.padding is nm.Padding.SAME_CLAMP_TO_EDGE:
                row, at = min(max(row, 0), height - 1), min(max(at, 0), width - 1)
            if 0 <= row < height and 0 <= at < width:
                total = total + layer.kernel[:, ky, kx].astype(float) @ x[row, at]
        out[y, col] = [activation(layer.activation, value) for value in total]
    return out


def dense(x: Any, layer: nm.Dense) -> Any:
    bias = 0 if layer.bias is None else layer.bias
    total = x @ layer.kernel.T.astype(float) + bias
    return np.vectorize(lambda value: activation(layer.activation, value))(total)


def depth_to_space(x: Any, layer: nm.DepthToSpace) -> Any:
    size, channels = layer.block, x.shape[2] // layer.block**2
    out = np.zeros((x.shape[0] * size, x.shape[1] * size, channels))
    for y, col, channel in np.ndindex(out.shape):
        depth = (y % size * size + col % size) * channels + channel
        out[y, col, channel] = x[y // size, col // size, depth]
    return out


def mirror_pad(x: Any, layer: nm.MirrorPad) -> Any:
    mode = {0: "constant", 1: "reflect", 2: "symmetric"}[layer.mode]
    return np.pad(x, layer.paddings[1:], mode=mode)


def avg_pool(x: Any, layer: nm.AvgPool) -> Any:
    same, size, stride = layer.padding is nm.Padding.SAME, layer.size, layer.stride
    lost = 0 if same else size - 1
    before = [max(size - ((n - 1) % stride + 1), 0) // 2 if same else 0 for n in x.shape[:2]]
    shape = [math.ceil((n - lost) / stride) for n in x.shape[:2]]
    out = np.zeros((*shape, x.shape[2]))
    for y, col in np.ndindex(*shape):
        top, left = y * stride - before[0], col * stride - before[1]
        square = x[max(top, 0) : top + size, max(left, 0) : left + size]
        out[y, col] = square.mean((0, 1))
    return out


def c_remainder(left: float, right: float) -> float:
    return math.fmod(math.trunc(left), math.trunc(right))


BINARY: dict[nm.BinaryOp, Any] = {
    nm.BinaryOp.SUB: lambda a, b: a - b,
    nm.BinaryOp.ADD: lambda a, b: a + b,
    nm.BinaryOp.MUL: lambda a, b: a * b,
    nm.BinaryOp.REALDIV: lambda a, b: a / b,
    nm.BinaryOp.MINIMUM: min,
    nm.BinaryOp.FLOORMOD: c_remainder,
}


def c_round(x: float) -> float:
    return math.copysign(math.floor(abs(x) + 0.5), x)


UNARY: dict[nm.UnaryOp, Any] = {
    op: getattr(math, op.name.lower())
    for op in nm.UnaryOp
    if op not in (nm.UnaryOp.ABS, nm.UnaryOp.ROUND)
} | {nm.UnaryOp.ABS: abs, nm.UnaryOp.ROUND: c_round}


def run(network: nm.Model, x: Any) -> dict[str, Any]:
    """All operands of a one-input network for one (H, W, C) picture, in float64."""
    values = {network.names(nm.Kind.INPUT)[0]: x.astype(float)}
    for layer in network.layers:
        given = [values[name] for name in nm.sources(layer)]
        values[layer.target] = _layer(layer, given)
    return values


def _layer(layer: nm.Layer, given: list[Any]) -> Any:
    match layer:
        case nm.Conv2d():
            return conv2d(given[0], layer)
        case nm.Dense():
            return dense(given[0], layer)
        case nm.DepthToSpace():
            return depth_to_space(given[0], layer)
        case nm.MirrorPad():
            return mirror_pad(given[0], layer)
        case nm.AvgPool():
            return avg_pool(given[0], layer)
        case nm.Maximum():
            return np.maximum(given[0], layer.value)
        case nm.MathUnary():
            return np.vectorize(UNARY[layer.op])(given[0])
        case nm.MathBinary():
            sides = [
                given.pop(0) if isinstance(side, str) else side
                for side in (layer.left, layer.right)
            ]
            return np.vectorize(BINARY[layer.op])(*sides).astype(float)
    raise TypeError(layer)
