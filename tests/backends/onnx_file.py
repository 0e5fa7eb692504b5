"""ONNX files without the onnx package: the few fields of their protobuf that tests need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

KINDS = {"float32": 1, "uint8": 2, "int64": 7, "float16": 10, "float64": 11, "bfloat16": 16}
"""TensorProto.DataType."""

Shape = Sequence[int | str]


@dataclass(frozen=True)
class Node:
    """An operation; attributes are whole numbers or lists of them."""

    kind: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, int | Sequence[int]] = field(default_factory=dict)


def write(
    path: Path,
    nodes: Sequence[Node],
    inputs: Mapping[str, tuple[str, Shape]],
    outputs: Mapping[str, tuple[str, Shape]],
    constants: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Write a model; tensors are name -> (element type, shape), names in a shape are free."""
    graph = b"".join(
        [
            *(_part(1, _node(node)) for node in nodes),
            _part(2, b"net"),
            *(_part(5, _constant(name, array)) for name, array in (constants or {}).items()),
            *(_part(11, _value(name, *told)) for name, told in inputs.items()),
            *(_part(12, _value(name, *told)) for name, told in outputs.items()),
        ]
    )
    opset = _part(1, b"") + _number(2, 17)
    path.write_bytes(_number(1, 8) + _part(7, graph) + _part(8, opset))
    return path


def _node(node: Node) -> bytes:
    return b"".join(
        [
            *(_part(1, name.encode()) for name in node.inputs),
            *(_part(2, name.encode()) for name in node.outputs),
            _part(4, node.kind.encode()),
            *(_part(5, _attribute(name, value)) for name, value in node.attributes.items()),
        ]
    )


def _attribute(name: str, value: int | Sequence[int]) -> bytes:
    if isinstance(value, int):
        return _part(1, name.encode()) + _number(3, value) + _number(20, 2)
    items = b"".join(_number(8, item) for item in value)
    return _part(1, name.encode()) + items + _number(20, 7)


def _constant(name: str, array: np.ndarray) -> bytes:
    dims = b"".join(_number(1, size) for size in array.shape)
    kind = _number(2, KINDS[array.dtype.name])
    return dims + kind + _part(8, name.encode()) + _part(9, array.tobytes())


def _value(name: str, kind: str, shape: Shape) -> bytes:
    dims = b"".join(
        _part(1, _part(2, size.encode()) if isinstance(size, str) else _number(1, size))
        for size in shape
    )
    tensor = _number(1, KINDS[kind]) + _part(2, dims)
    return _part(1, name.encode()) + _part(2, _part(1, tensor))


def _part(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
