"""Convolutions of few channels in a recorded network, so that tensor cores are not left empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

IN_BLOCK = (4, 4)
"""Pixels down and across that a convolution of one channel is gathered over."""

OUT_BLOCK = (4, 4)
"""The same for a convolution that gives few channels."""

LEAST_WIDE, MOST_NARROW = 16, 4
"""Channels of the other side that are worth it, and channels that are few."""


@dataclass(frozen=True, slots=True)
class Conv:
    """A convolution of one step that keeps the size, in a recorded graph.

    `shape` is its input's, () where the recording does not tell.
    """

    source: Any
    kernel: Any
    bias: Any
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Taps across and down."""
        return int(self.kernel.shape[2])

    def offsets(self) -> Any:
        """The bias, zeros where there is none."""
        return self.kernel.new_zeros(self.kernel.shape[0]) if self.bias is None else self.bias

    def block(self) -> tuple[int, int] | None:
        """Pixels to gather, so that no channels are wasted; None where that gains nothing."""
        outputs, inputs = self.kernel.shape[:2]
        if inputs == 1 and outputs >= LEAST_WIDE:
            return IN_BLOCK
        if outputs <= MOST_NARROW and inputs >= LEAST_WIDE:
            return OUT_BLOCK
        return None


def spread(graph: Any, shape: tuple[int, ...]) -> int:
    """Gather pixels into channels around convolutions of few channels; how many were changed.

    Tensor cores take channels eight and more at a time, and waste what a convolution with one
    channel in or four out does not fill. The same sums over blocks of pixels, as more channels,
    fill them: the products are the same, and zeros fill the corners of the kernel. All tensors
    must be of the size of the input, whose shape is `shape`.
    """
    rows, columns = shape[-2:]
    changed = 0
    for node, found in convolutions(graph):
        block = found.block()
        if block is None or found.shape[-2:] != (rows, columns):
            continue
        if rows % block[0] or columns % block[1]:
            continue
        names = [f"spread_{changed}", f"spread_{changed}_bias"]
        graph.register_buffer(names[0], spread_kernel(found.kernel, block))
        if found.bias is not None:
            graph.register_buffer(names[1], found.bias.repeat(block[0] * block[1]))
        with graph.graph.inserting_before(node):
            wide = graph.graph.get_attr(names[0])
            added = None if found.bias is None else graph.graph.get_attr(names[1])
            args = (found.source, wide, added, block)
            made = graph.graph.call_function(spread_convolution, args)
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)
        changed += 1
    graph.recompile()
    return changed


def convolutions(graph: Any) -> Iterator[tuple[Any, Conv]]:
    """Nodes that can be changed, and what they are: one step, square, the size kept."""
    import torch

    for node in list(graph.graph.nodes):
        if node.target is torch.ops.aten.convolution.default:
            found = _conv(graph, node)
            if found is not None:
                yield node, found


def _conv(graph: Any, node: Any) -> Conv | None:
    source, weight, bias, stride, padding, dilation, transposed, _, groups = node.args
    kernel, offsets = constant(graph, weight), constant(graph, bias)
    if kernel is None or transposed or groups != 1 or (bias is not None and offsets is None):
        return None
    size = kernel.shape[2]
    plain = list(stride) == [1, 1] and list(dilation) == [1, 1]
    same = kernel.shape[3] == size and size in (3, 5) and list(padding) == [size // 2] * 2
    value = source.meta.get("val", source.meta.get("tensor_meta"))
    shape = () if value is None else tuple(value.shape)
    return Conv(source, kernel, offsets, shape) if plain and same else None


def constant(graph: Any, node: Any) -> Any:
    """The tensor that a node stands for in every run, None where there is none."""
    import torch

    if node is None:
        return None
    if node.op == "get_attr":
        return getattr(graph, node.target)
    views = (torch.ops.aten.view.default, torch.ops.aten.reshape.default)
    if node.target in views:
        whole = constant(graph, node.args[0])
        return None if whole is None else whole.reshape(node.args[1])
    return None


def spread_kernel(kernel: Any, block: tuple[int, int]) -> Any:
    """Weights (outputs, inputs, k, k) as (b * outputs, b * inputs, 3, 3) over blocks of b pixels.

    Output channel (oy * across + ox) * outputs + o is output o at place (oy, ox) of its block;
    input channels are ordered alike.
    """
    down, across = block
    outputs, inputs, size = kernel.shape[:3]
    made = kernel.new_zeros(down, across, outputs, down, across, inputs, 3, 3)
    for oy in range(down):
        for ox in range(across):
            for ky in range(size):
                for kx in range(size):
                    by, iy = divmod(oy + ky - size // 2, down)
                    bx, ix = divmod(ox + kx - size // 2, across)
                    made[oy, ox, :, iy, ix, :, by + 1, bx + 1] = kernel[:, :, ky, kx]
    return made.reshape(down * across * outputs, down * across * inputs, 3, 3)


def spread_convolution(tensor: Any, kernel: Any, bias: Any, block: tuple[int, int]) -> Any:
    """The convolution that `kernel` was made from by spread_kernel, zeros around the picture."""
    import torch

    down, across = block
    batch, inputs, rows, columns = tensor.shape
    high, wide, outputs = rows // down, columns // across, kernel.shape[0] // (down * across)
    blocks = tensor.reshape(batch, inputs, high, down, wide, across).permute(0, 3, 5, 1, 2, 4)
    blocks = blocks.reshape(batch, down * across * inputs, high, wide)
    blocks = blocks.contiguous(memory_format=torch.channels_last)
    made = torch.nn.functional.conv2d(blocks, kernel, bias, padding=1)
    made = made.reshape(batch, down, across, outputs, high, wide).permute(0, 3, 4, 1, 5, 2)
    return made.reshape(batch, outputs, rows, columns)
