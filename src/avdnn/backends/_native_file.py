"""FFmpeg's `.model` files, read and written.

A file is the magic text, the format version (major, minor), the layers, the operands, and at the
end the numbers of both. All numbers are 32-bit little-endian. Layers name operands by index in
the file, by name in `Model`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..errors import ModelError
from ._native_model import (
    Activation,
    AvgPool,
    BinaryOp,
    Conv2d,
    Dense,
    DepthToSpace,
    Floats,
    Kind,
    Layer,
    MathBinary,
    MathUnary,
    Maximum,
    MirrorPad,
    Model,
    Operand,
    Padding,
    PadMode,
    UnaryOp,
    check_order,
)

MAGIC = b"FFMPEGDNNNATIVE"
MAJOR, MINOR = 1, 23
NAME_BYTES = 127


class _Cursor:
    """Reads numbers from bytes; ModelError where they end."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at
        self.where = "header"

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise ModelError(
                f"{self.where} needs {size} bytes at offset {self.at}, the file has "
                f"{max(len(self.data) - self.at, 0)} left"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def ints(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}i", self.take(4 * count))

    def integer(self) -> int:
        return self.ints(1)[0]

    def floats(self, *shape: int) -> Floats:
        if min(shape) <= 0:
            raise ModelError(f"{self.where} has weights of shape {shape}")
        count = 1
        for size in shape:
            count *= size
        data = np.frombuffer(self.take(4 * count), "<f4")
        return data.astype(np.float32).reshape(shape)


def read(path: Path) -> Model:
    """Read a `.model` file; ModelError says what is wrong with one that cannot be read."""
    data = path.read_bytes()
    try:
        found = _parse(data)
        check_order(found)
    except ModelError as error:
        raise ModelError(f"{path}: {error}", backend="native") from error
    return found


def _parse(data: bytes) -> Model:
    if data[: len(MAGIC)] != MAGIC:
        raise ModelError(f"not a native model: starts with {data[:15]!r}, wanted {MAGIC!r}")
    cursor = _Cursor(data, len(MAGIC))
    major, minor = cursor.ints(2)
    if major != MAJOR:
        raise ModelError(f"format version {major}.{minor}; version {MAJOR} can be read")
    tail = _Cursor(data, max(len(data) - 8, cursor.at))
    layer_count, operand_count = tail.ints(2)
    if not (0 < layer_count <= len(data) and 0 < operand_count <= len(data)):
        raise ModelError("the file is cut or damaged: its last 8 bytes are no counts of layers")
    layers = [_read_layer(cursor, number) for number in range(layer_count)]
    operands = [_read_operand(cursor, number) for number in range(operand_count)]
    if cursor.at != len(data) - 8:
        raise ModelError(
            f"{layer_count} layers and {operand_count} operands end at byte {cursor.at}, "
            f"the file's end is at {len(data) - 8}"
        )
    by_index = dict(operands)
    if len({operand.name for operand in by_index.values()}) != operand_count:
        raise ModelError("two operands have the same index or name")
    named = tuple(_named(layer, by_index, number) for number, layer in enumerate(layers))
    return Model(named, tuple(by_index.values()))


def _read_operand(cursor: _Cursor, number: int) -> tuple[int, Operand]:
    cursor.where = f"operand {number}"
    index, size = cursor.ints(2)
    name = cursor.take(size).decode("utf-8", "replace")
    kind, dtype = cursor.ints(2)
    if kind not in set(Kind):
        raise ModelError(f"operand {name!r} is of kind {kind}, not 1 (in), 2 (out) or 3 (both)")
    n, h, w, c = cursor.ints(4)
    return index, Operand(name, Kind(kind), (n, h, w, c), dtype)


def _read_layer(cursor: _Cursor, number: int) -> Layer:
    cursor.where = f"layer {number}"
    code = cursor.integer()
    if code not in _READERS:
        raise ModelError(f"layer {number} is of type {code}; types 1 to {max(_READERS)} are known")
    kind, reader = _READERS[code]
    cursor.where = f"layer {number} ({kind.__name__})"
    try:
        return reader(cursor)
    except ModelError:
        raise
    except ValueError as error:
        raise ModelError(f"{cursor.where}: {error}") from error


def _named(layer: Layer, by_index: Mapping[int, Operand], number: int) -> Layer:
    """The layer with its operands' indices (as text) turned into names."""

    def name(index: str) -> str:
        found = by_index.get(int(index))
        if found is None:
            raise ModelError(
                f"layer {number} ({type(layer).__name__}) uses operand {index} of {len(by_index)}"
            )
        return found.name

    if isinstance(layer, MathBinary):
        left = name(layer.left) if isinstance(layer.left, str) else layer.left
        right = name(layer.right) if isinstance(layer.right, str) else layer.right
        return replace(layer, left=left, right=right, target=name(layer.target))
    return replace(layer, source=name(layer.source), target=name(layer.target))


def _ends(cursor: _Cursor) -> tuple[str, str]:
    source, target = cursor.ints(2)
    return str(source), str(target)


def _read_conv2d(cursor: _Cursor) -> Conv2d:
    dilation, padding, activation, inputs, outputs, size, has_bias = cursor.ints(7)
    if dilation <= 0:
        raise ValueError(f"dilation {dilation}")
    kernel = cursor.floats(outputs, size, size, inputs)
    bias = cursor.floats(outputs) if has_bias else None
    return Conv2d(*_ends(cursor), kernel, bias, dilation, Padding(padding), Activation(activation))


def _read_depth_to_space(cursor: _Cursor) -> DepthToSpace:
    block = cursor.integer()
    if block <= 0:
        raise ValueError(f"block size {block}")
    return DepthToSpace(*_ends(cursor), block)


def _read_mirror_pad(cursor: _Cursor) -> MirrorPad:
    mode, *flat = cursor.ints(9)
    if min(flat) < 0:
        raise ValueError(f"paddings {flat}")
    pairs = tuple((flat[i], flat[i + 1]) for i in range(0, 8, 2))
    return MirrorPad(*_ends(cursor), PadMode(mode), pairs)


def _read_maximum(cursor: _Cursor) -> Maximum:
    value = float(cursor.floats(1)[0])
    return Maximum(*_ends(cursor), value)


def _read_math_binary(cursor: _Cursor) -> MathBinary:
    op = BinaryOp(cursor.integer())
    sides: list[str | float] = []
    for _ in range(2):
        scalar = cursor.integer()
        sides.append(float(cursor.floats(1)[0]) if scalar else str(cursor.integer()))
    if not any(isinstance(side, str) for side in sides):
        raise ValueError("both sides are numbers")
    return MathBinary(sides[0], sides[1], str(cursor.integer()), op)


def _read_math_unary(cursor: _Cursor) -> MathUnary:
    op = UnaryOp(cursor.integer())
    return MathUnary(*_ends(cursor), op)


def _read_avg_pool(cursor: _Cursor) -> AvgPool:
    stride, padding, size = cursor.ints(3)
    if stride <= 0 or size <= 0 or padding == Padding.SAME_CLAMP_TO_EDGE:
        raise ValueError(f"size {size}, stride {stride}, padding {padding}")
    return AvgPool(*_ends(cursor), size, stride, Padding(padding))


def _read_dense(cursor: _Cursor) -> Dense:
    activation, inputs, outputs, has_bias = cursor.ints(4)
    kernel = cursor.floats(outputs, inputs)
    bias = cursor.floats(outputs) if has_bias else None
    return Dense(*_ends(cursor), kernel, bias, Activation(activation))


_READERS: dict[int, tuple[type[Layer], Callable[[_Cursor], Layer]]] = {
    1: (Conv2d, _read_conv2d),
    2: (DepthToSpace, _read_depth_to_space),
    3: (MirrorPad, _read_mirror_pad),
    4: (Maximum, _read_maximum),
    5: (MathBinary, _read_math_binary),
    6: (MathUnary, _read_math_unary),
    7: (AvgPool, _read_avg_pool),
    8: (Dense, _read_dense),
}
_CODES = {kind: code for code, (kind, _) in _READERS.items()}


def write(path: Path, network: Model) -> None:
    """Write a network as a `.model` file that FFmpeg 4.3 to 5.1 and this package read."""
    check_order(network)
    index = {operand.name: number for number, operand in enumerate(network.operands)}
    parts = [MAGIC, _ints(MAJOR, MINOR)]
    parts += [_layer_bytes(layer, index) for layer in network.layers]
    for number, operand in enumerate(network.operands):
        name = operand.name.encode()
        if len(name) > NAME_BYTES:
            raise ModelError(f"{path}: operand name of {len(name)} bytes, at most {NAME_BYTES} fit")
        parts += [_ints(number, len(name)), name, _ints(operand.kind, operand.dtype, *operand.dims)]
    parts.append(_ints(len(network.layers), len(network.operands)))
    path.write_bytes(b"".join(parts))


def _ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def _floats(values: Floats | None) -> bytes:
    return b"" if values is None else values.astype("<f4").tobytes()


def _layer_bytes(layer: Layer, index: Mapping[str, int]) -> bytes:
    code = _ints(_CODES[type(layer)])
    if isinstance(layer, MathBinary):
        sides = [
            _ints(0, index[side]) if isinstance(side, str) else _ints(1) + struct.pack("<f", side)
            for side in (layer.left, layer.right)
        ]
        return code + _ints(layer.op) + b"".join(sides) + _ints(index[layer.target])
    return code + _parameters(layer) + _ints(index[layer.source], index[layer.target])


def _parameters(layer: Layer) -> bytes:
    match layer:
        case Conv2d():
            outputs, size, _, inputs = layer.kernel.shape
            rule = _ints(layer.dilation, layer.padding, layer.activation)
            form = _ints(inputs, outputs, size, layer.bias is not None)
            return rule + form + _floats(layer.kernel) + _floats(layer.bias)
        case DepthToSpace():
            return _ints(layer.block)
        case MirrorPad():
            return _ints(layer.mode, *(value for pair in layer.paddings for value in pair))
        case Maximum():
            return struct.pack("<f", layer.value)
        case MathUnary():
            return _ints(layer.op)
        case AvgPool():
            return _ints(layer.stride, layer.padding, layer.size)
        case Dense():
            outputs, inputs = layer.kernel.shape
            flag = _ints(layer.activation, inputs, outputs, layer.bias is not None)
            return flag + _floats(layer.kernel) + _floats(layer.bias)
    raise TypeError(f"no such layer: {layer!r}")
