"""Convolutions through BLAS, a few rows at a time.

Weights are a matrix, and so are the pixels of a few rows: columns are pixels, lines are what a
pixel depends on. Which lines are gathered depends on the layer's form:

- *gather* (few channels in): all size * size neighbours are gathered, one product gives the
  result.
- *scatter* (many in): only the neighbours in a row are gathered; one product gives what the row
  adds to each of `size` result rows, and that is summed where it belongs. It moves a third of
  the memory for a 3x3 kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import ModelError
from ._native_model import Activation, Conv2d, Dense, Floats, Padding
from ._native_rows import Block, Push, Size, Span, Window

FACTORS = {Activation.TANH: -2, Activation.SIGMOID: -1}
"""What weights are multiplied by beforehand, without loss, so that `activate` need not."""


def activate(kind: Activation, x: Floats, out: Floats) -> None:
    """Write the activation to out, which may be x itself; x comes with its factor."""
    match kind:
        case Activation.RELU:
            np.maximum(x, 0, out=out)
        case Activation.TANH:
            # 2 / (1 + exp(-2 x)) - 1, as FFmpeg has it: a third less time than NumPy's tanh.
            np.exp(x, out=out)
            np.add(out, 1, out=out)
            np.divide(2, out, out=out)
            np.subtract(out, 1, out=out)
        case Activation.SIGMOID:
            np.exp(x, out=out)
            np.add(out, 1, out=out)
            np.divide(1, out, out=out)
        case Activation.LEAKY_RELU:
            np.maximum(x, np.float32(0.2) * x, out=out)
        case Activation.NONE if out is not x:
            out[...] = x


@dataclass(frozen=True, slots=True)
class Frame:
    """Rows and columns around a picture: filled with zeros, or with its edge."""

    top: int
    bottom: int
    left: int
    right: int
    edge: bool

    def width(self, width: int) -> int:
        return self.left + width + self.right

    def put(self, block: Block, height: int, out: Floats) -> None:
        """Fill `out`, (channels, self.rows(block, height), self.width(...)), from the block."""
        top = self.top if block.first == 0 else 0
        rows, width = block.data.shape[1:]
        inner = out[:, top : top + rows]
        inner[:, :, self.left : self.left + width] = block.data
        if self.edge:
            inner[:, :, : self.left] = block.data[:, :, :1]
            inner[:, :, self.left + width :] = block.data[:, :, -1:]
            out[:, :top] = inner[:, :1]
            out[:, top + rows :] = inner[:, -1:]
        else:
            inner[:, :, : self.left] = 0
            inner[:, :, self.left + width :] = 0
            out[:, :top] = 0
            out[:, top + rows :] = 0

    def rows(self, block: Block, height: int) -> int:
        """How many framed rows a block becomes."""
        top = self.top if block.first == 0 else 0
        bottom = self.bottom if block.end == height else 0
        return top + (block.end - block.first) + bottom


class Conv:
    """A 2-D convolution with its bias and activation."""

    def __init__(self, layer: Conv2d) -> None:
        outputs, size, _, inputs = layer.kernel.shape
        self.inputs, self.outputs, self.kernel_size = inputs, outputs, size
        self.dilation = layer.dilation
        self.reach = (size - 1) * layer.dilation
        self.activation = layer.activation
        factor = np.float32(FACTORS.get(layer.activation, 1))
        bias = np.zeros(outputs, np.float32) if layer.bias is None else factor * layer.bias
        self.bias: Floats = bias
        self.scatters = size > 1 and inputs * (size - 1) >= 3 * outputs
        kernel = factor * layer.kernel
        self.matrix: Floats
        if self.scatters:
            self.matrix = kernel.transpose(1, 0, 2, 3).reshape(size * outputs, -1)
        else:
            self.matrix = np.column_stack((kernel.reshape(outputs, -1), bias))
        # For even kernels FFmpeg reads one row and column of zeros above and left, VALID too.
        radius = size // 2 * layer.dilation
        inside = (size - 1) // 2 * layer.dilation
        self.cut = inside if layer.padding is Padding.VALID else 0
        before, after = radius - self.cut, self.reach - radius - self.cut
        edge = layer.padding is Padding.SAME_CLAMP_TO_EDGE
        self.frame = Frame(before, after, before, after, edge)

    @classmethod
    def dense(cls, layer: Dense) -> Conv:
        """A dense layer is a 1x1 convolution."""
        outputs, inputs = layer.kernel.shape
        kernel = layer.kernel.reshape(outputs, 1, 1, inputs)
        conv = Conv2d(layer.source, layer.target, kernel, layer.bias, activation=layer.activation)
        return cls(conv)

    def size(self, sources: Sequence[Size]) -> Size:
        channels, height, width = sources[0]
        if channels != self.inputs:
            raise ModelError(f"a convolution of {self.inputs} channels is given {channels}")
        height, width = height - 2 * self.cut, width - 2 * self.cut
        if height < 1 or width < 1:
            raise ModelError(
                f"a picture of {sources[0].width}x{sources[0].height} is too small for a "
                f"{self.kernel_size}x{self.kernel_size} convolution with dilation {self.dilation}"
            )
        return Size(self.outputs, height, width)

    def needs(self, span: Span, source: Size) -> Span:
        lo, hi = span.lo - self.frame.top, span.hi + self.reach - self.frame.top
        return Span(max(lo, 0), min(hi, source.height))

    def open(self, sources: Sequence[Size], span: Span) -> Push:
        run = _Scatter if self.scatters else _Gather
        return run(self, sources[0], span).push


class _Pass:
    """What both forms share: framed rows in, one matrix product, finished rows out."""

    def __init__(self, conv: Conv, source: Size, span: Span) -> None:
        self.conv = conv
        self.source = source
        self.span = span
        self.next = span.lo
        self.width = conv.size([source]).width
        self.framed_width = conv.frame.width(source.width)
        self.framed = conv.frame != Frame(0, 0, 0, 0, conv.frame.edge)
        self._scratch: dict[str, Floats] = {}

    def scratch(self, name: str, *shape: int) -> Floats:
        """Memory for one push, reused by the next."""
        count = math.prod(shape)
        if name not in self._scratch or self._scratch[name].size < count:
            self._scratch.pop(name, None)
            self._scratch[name] = np.empty(count, np.float32)
        return self._scratch[name][:count].reshape(shape)

    def first(self, block: Block) -> int:
        """The framed row that a block begins with."""
        return 0 if block.first == 0 else block.first + self.conv.frame.top

    def put(self, block: Block, out: Floats) -> None:
        self.conv.frame.put(block, self.source.height, out)

    def rows(self, block: Block) -> int:
        return self.conv.frame.rows(block, self.source.height)

    def take(self, end: int) -> Span | None:
        """The result rows that framed rows up to `end` complete and that were not given yet."""
        hi = min(self.span.hi, end - self.conv.reach)
        if hi <= self.next:
            return None
        found = Span(self.next, hi)
        self.next = hi
        return found


class _Gather(_Pass):
    def __init__(self, conv: Conv, source: Size, span: Span) -> None:
        super().__init__(conv, source, span)
        self.window: Window | None = None

    def push(self, blocks: Sequence[Block | None]) -> Block | None:
        block = blocks[0]
        if block is None:
            return None
        if self.window is None:
            self.window = Window(self.source.channels, self.framed_width, self.first(block))
        self.put(block, self.window.grow(self.rows(block)))
        ready = self.take(self.window.end)
        if ready is None:
            return None
        gathered = self.gather(self.window, ready)
        self.window.drop(ready.hi)
        conv, rows = self.conv, ready.hi - ready.lo
        result = np.empty((conv.outputs, rows * self.width), np.float32)
        np.matmul(conv.matrix, gathered, out=result)
        activate(conv.activation, result, result)
        return Block(ready.lo, result.reshape(conv.outputs, rows, self.width))

    def gather(self, window: Window, ready: Span) -> Floats:
        """The neighbours of each pixel, and a line of ones for the bias."""
        conv, rows = self.conv, ready.hi - ready.lo
        size, step = conv.kernel_size, conv.dilation
        count = size * size * conv.inputs
        gathered = self.scratch("in", count + 1, rows * self.width)
        gathered[count] = 1
        found = gathered[:count].reshape(size, size, conv.inputs, rows, self.width)
        for y in range(size):
            lines = window.rows(ready.lo + y * step, ready.hi + y * step)
            for x in range(size):
                found[y, x] = lines[:, :, x * step : x * step + self.width]
        return gathered


class _Scatter(_Pass):
    def __init__(self, conv: Conv, source: Size, span: Span) -> None:
        super().__init__(conv, source, span)
        self.sums = Window(conv.outputs, self.width, span.lo)

    def push(self, blocks: Sequence[Block | None]) -> Block | None:
        block = blocks[0]
        if block is None:
            return None
        conv, rows, first = self.conv, self.rows(block), self.first(block)
        added = self.scratch("out", conv.kernel_size * conv.outputs, rows * self.width)
        np.matmul(conv.matrix, self.gather(block, rows), out=added)
        self.add(added.reshape(conv.kernel_size, conv.outputs, rows, self.width), first)
        ready = self.take(first + rows)
        if ready is None:
            return None
        result = np.empty((conv.outputs, ready.hi - ready.lo, self.width), np.float32)
        activate(conv.activation, self.sums.rows(*ready), result)
        self.sums.drop(ready.hi)
        return Block(ready.lo, result)

    def gather(self, block: Block, rows: int) -> Floats:
        conv, step = self.conv, self.conv.dilation
        lines = block.data
        if self.framed:
            lines = self.scratch("framed", conv.inputs, rows, self.framed_width)
            self.put(block, lines)
        found = self.scratch("in", conv.kernel_size, conv.inputs, rows, self.width)
        for x in range(conv.kernel_size):
            found[x] = lines[:, :, x * step : x * step + self.width]
        return found.reshape(conv.kernel_size * conv.inputs, rows * self.width)

    def add(self, added: Floats, first: int) -> None:
        """Add what framed rows from `first` give to each result row they belong to."""
        rows, begin = added.shape[2], self.sums.end
        end = max(begin, min(self.span.hi, first + rows))
        bias = self.conv.bias[:, None, None]
        np.add(added[0][:, begin - first : end - first], bias, out=self.sums.grow(end - begin))
        for y, part in enumerate(added[1:], 1):
            shift = first - y * self.conv.dilation
            lo, hi = max(self.span.lo, shift), min(self.span.hi, shift + rows)
            if lo < hi:
                target = self.sums.rows(lo, hi)
                np.add(target, part[:, lo - shift : hi - shift], out=target)
