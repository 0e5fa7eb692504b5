"""Layers that compute each value from those at its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ..errors import ModelError
from ._native_model import BinaryOp, Floats, MathBinary, MathUnary, Maximum, UnaryOp
from ._native_rows import Block, Push, Size, Span, Step, Window


def maths(layer: Maximum | MathUnary | MathBinary) -> Step:
    """The way to run a layer."""
    match layer:
        case Maximum():
            value = np.float32(layer.value)
            return _Each(lambda x: np.maximum(x, value))
        case MathUnary():
            return _Each(_UNARY[layer.op])
        case MathBinary():
            return _binary(layer)


class _Each:
    """A function of each value."""

    def __init__(self, function: Callable[[Floats], Floats]) -> None:
        self.function = function

    def size(self, sources: Sequence[Size]) -> Size:
        return sources[0]

    def needs(self, span: Span, source: Size) -> Span:
        return span

    def open(self, sources: Sequence[Size], span: Span) -> Push:
        def push(blocks: Sequence[Block | None]) -> Block | None:
            block = blocks[0]
            return None if block is None else Block(block.first, self.function(block.data))

        return push


def _in_double(function: np.ufunc) -> Callable[[Floats], Floats]:
    """FFmpeg calls the C functions of doubles, and rounds their result to float."""

    def apply(x: Floats) -> Floats:
        out = np.empty_like(x)
        function(x, out=out, dtype=np.float64, casting="same_kind")
        return out

    return apply


def _round(x: Floats) -> Floats:
    """Round halves away from zero, as C does."""
    wide = np.abs(x, dtype=np.float64)
    return np.copysign(np.floor(wide + 0.5), x).astype(np.float32)


_UNARY: dict[UnaryOp, Callable[[Floats], Floats]] = {
    UnaryOp.ABS: np.abs,
    UnaryOp.SIN: _in_double(np.sin),
    UnaryOp.COS: _in_double(np.cos),
    UnaryOp.TAN: _in_double(np.tan),
    UnaryOp.ASIN: _in_double(np.arcsin),
    UnaryOp.ACOS: _in_double(np.arccos),
    UnaryOp.ATAN: _in_double(np.arctan),
    UnaryOp.SINH: _in_double(np.sinh),
    UnaryOp.COSH: _in_double(np.cosh),
    UnaryOp.TANH: _in_double(np.tanh),
    UnaryOp.ASINH: _in_double(np.arcsinh),
    UnaryOp.ACOSH: _in_double(np.arccosh),
    UnaryOp.ATANH: _in_double(np.arctanh),
    UnaryOp.CEIL: np.ceil,
    UnaryOp.FLOOR: np.floor,
    UnaryOp.ROUND: _round,
    UnaryOp.EXP: _in_double(np.exp),
}

Operator: TypeAlias = Callable[[Floats | np.float32, Floats | np.float32], Floats]


def _remainder(left: Floats | np.float32, right: Floats | np.float32) -> Floats:
    """C's % of the integer parts; it has the sign of the left side, and NaN for a divisor of 0."""
    found: Floats = np.fmod(np.trunc(left), np.trunc(right))
    return found


_BINARY: dict[BinaryOp, Operator] = {
    BinaryOp.SUB: np.subtract,
    BinaryOp.ADD: np.add,
    BinaryOp.MUL: np.multiply,
    BinaryOp.REALDIV: np.divide,
    BinaryOp.MINIMUM: np.minimum,
    BinaryOp.FLOORMOD: _remainder,
}


def _binary(layer: MathBinary) -> Step:
    operator, left, right = _BINARY[layer.op], layer.left, layer.right
    if not isinstance(left, str):
        number = np.float32(left)
        return _Each(lambda x: operator(number, x))
    if not isinstance(right, str):
        number = np.float32(right)
        return _Each(lambda x: operator(x, number))
    return _Pair(operator)


class _Pair:
    """A function of two pictures of one size."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator

    def size(self, sources: Sequence[Size]) -> Size:
        left, right = sources
        if left != right:
            raise ModelError(f"operands of (channels, height, width) {left} and {right}: not equal")
        return left

    def needs(self, span: Span, source: Size) -> Span:
        return span

    def open(self, sources: Sequence[Size], span: Span) -> Push:
        waiting = [Window(size.channels, size.width, span.lo) for size in sources]

        def push(blocks: Sequence[Block | None]) -> Block | None:
            for window, block in zip(waiting, blocks, strict=True):
                if block is not None:
                    window.grow(block.end - block.first)[...] = block.data
            lo, hi = waiting[0].first, min(window.end for window in waiting)
            if lo >= hi:
                return None
            found = self.operator(waiting[0].rows(lo, hi), waiting[1].rows(lo, hi))
            for window in waiting:
                window.drop(hi)
            return Block(lo, found)

        return push
