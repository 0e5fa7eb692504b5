"""The networks that FFmpeg's `.model` files hold, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError

FLOAT = 1
"""The element type of every operand that a network may have."""

Floats: TypeAlias = NDArray[np.float32]
Dims: TypeAlias = tuple[int, int, int, int]


class Kind(IntEnum):
    """What an operand is to the network."""

    INPUT = 1
    OUTPUT = 2
    INTERMEDIATE = 3


class Padding(IntEnum):
    """What a convolution or pool reads beyond the border."""

    VALID = 0
    SAME = 1
    SAME_CLAMP_TO_EDGE = 2


class Activation(IntEnum):
    RELU = 0
    TANH = 1
    SIGMOID = 2
    NONE = 3
    LEAKY_RELU = 4


class PadMode(IntEnum):
    CONSTANT = 0
    REFLECT = 1
    SYMMETRIC = 2


class BinaryOp(IntEnum):
    SUB = 0
    ADD = 1
    MUL = 2
    REALDIV = 3
    MINIMUM = 4
    FLOORMOD = 5


class UnaryOp(IntEnum):
    ABS = 0
    SIN = 1
    COS = 2
    TAN = 3
    ASIN = 4
    ACOS = 5
    ATAN = 6
    SINH = 7
    COSH = 8
    TANH = 9
    ASINH = 10
    ACOSH = 11
    ATANH = 12
    CEIL = 13
    FLOOR = 14
    ROUND = 15
    EXP = 16


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor of the network: batch, height, width, channels, -1 where free."""

    name: str
    kind: Kind
    dims: Dims = (-1, -1, -1, -1)
    dtype: int = FLOAT


@dataclass(frozen=True, slots=True)
class Conv2d:
    """`kernel` is (outputs, size, size, inputs)."""

    source: str
    target: str
    kernel: Floats
    bias: Floats | None = None
    dilation: int = 1
    padding: Padding = Padding.SAME
    activation: Activation = Activation.NONE


@dataclass(frozen=True, slots=True)
class DepthToSpace:
    source: str
    target: str
    block: int


@dataclass(frozen=True, slots=True)
class MirrorPad:
    """`paddings` are (before, after) for batch, height, width, channels."""

    source: str
    target: str
    mode: PadMode
    paddings: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Maximum:
    source: str
    target: str
    value: float


@dataclass(frozen=True, slots=True)
class MathBinary:
    """Each side is an operand's name or a number; at least one is a name."""

    left: str | float
    right: str | float
    target: str
    op: BinaryOp


@dataclass(frozen=True, slots=True)
class MathUnary:
    source: str
    target: str
    op: UnaryOp


@dataclass(frozen=True, slots=True)
class AvgPool:
    source: str
    target: str
    size: int
    stride: int
    padding: Padding = Padding.SAME


@dataclass(frozen=True, slots=True)
class Dense:
    """`kernel` is (outputs, inputs)."""

    source: str
    target: str
    kernel: Floats
    bias: Floats | None = None
    activation: Activation = Activation.NONE


Layer: TypeAlias = (
    Conv2d | DepthToSpace | MirrorPad | Maximum | MathBinary | MathUnary | AvgPool | Dense
)


@dataclass(frozen=True, slots=True)
class Model:
    """A network: layers in the order in which they run, and the operands between them."""

    layers: tuple[Layer, ...]
    operands: tuple[Operand, ...]

    def names(self, kind: Kind) -> tuple[str, ...]:
        return tuple(operand.name for operand in self.operands if operand.kind is kind)


def sources(layer: Layer) -> tuple[str, ...]:
    """The operands that a layer reads."""
    if isinstance(layer, MathBinary):
        return tuple(side for side in (layer.left, layer.right) if isinstance(side, str))
    return (layer.source,)


def model(layers: Sequence[Layer], inputs: Mapping[str, Dims]) -> Model:
    """A network from its layers: what nothing reads is an output."""
    read = {name for layer in layers for name in sources(layer)}
    made = [
        Operand(layer.target, Kind.INTERMEDIATE if layer.target in read else Kind.OUTPUT)
        for layer in layers
    ]
    given = [Operand(name, Kind.INPUT, dims) for name, dims in inputs.items()]
    found = Model(tuple(layers), (*given, *made))
    check_order(found)
    return found


def check_order(found: Model) -> None:
    """Every operand is known, made once, and made before it is read."""
    known = set(found.names(Kind.INPUT))
    for number, layer in enumerate(found.layers):
        where = f"layer {number} ({type(layer).__name__})"
        for name in sources(layer):
            if name not in known:
                raise ModelError(f"{where} reads {name!r} before any layer makes it")
        if layer.target in known:
            raise ModelError(f"{where} makes {layer.target!r}, which is there already")
        known.add(layer.target)
    if not found.layers or not found.names(Kind.INPUT):
        raise ModelError(f"{len(found.layers)} layers and {len(found.names(Kind.INPUT))} inputs")
