# mypy: disable-error-code="untyped-decorator,no-untyped-def,misc"
"""A convolution of one channel with its activation, as one Triton kernel for half precision.

What a network for luma begins with: it reads little and writes a lot, so that the library's
convolution, its bias and its activation are bound by passing the result through memory three
times. Here it is written once, channels last.
"""

import functools

import triton
import triton.language as tl

BLOCK, WARPS = 128, 4
"""Pixels of one program, and its warps."""


@triton.jit
def _wide_convolution(
    source,
    kernel,
    bias,
    slope,
    target,
    rows,
    columns,
    total,
    size: tl.constexpr,
    taps: tl.constexpr,
    outputs: tl.constexpr,
    block: tl.constexpr,
):
    pixel = tl.program_id(0) * block + tl.arange(0, block)
    inside = pixel < total
    column = pixel % columns
    row = (pixel // columns) % rows
    tap = tl.arange(0, taps)
    y = row[:, None] + (tap // size)[None, :] - size // 2
    x = column[:, None] + (tap % size)[None, :] - size // 2
    known = inside[:, None] & (tap < size * size)[None, :]
    known = known & (y >= 0) & (y < rows) & (x >= 0) & (x < columns)
    shift = (tap // size - size // 2) * columns + tap % size - size // 2
    values = tl.load(source + pixel[:, None] + shift[None, :], mask=known, other=0.0)
    channel = tl.arange(0, outputs)
    weights = tl.load(kernel + tap[:, None] * outputs + channel[None, :])
    made = tl.dot(values, weights)
    made += tl.load(bias + channel).to(tl.float32)[None, :]
    made = tl.where(made > 0, made, made * tl.load(slope + channel).to(tl.float32)[None, :])
    place = pixel.to(tl.int64)[:, None] * outputs + channel[None, :]
    tl.store(target + place, made.to(target.dtype.element_ty), mask=inside[:, None])


@functools.cache
def operation():
    """Register avdnn::wide_convolution: (tensor, kernel, bias, slope, size) -> NHWC tensor."""
    import torch

    schema = "(Tensor tensor, Tensor kernel, Tensor bias, Tensor slope, int size) -> Tensor"

    def run(tensor, kernel, bias, slope, size):
        batch, _, rows, columns = tensor.shape
        taps, outputs = kernel.shape
        flat = tensor.contiguous()
        made = tensor.new_empty((batch, rows, columns, outputs))
        total = batch * rows * columns
        _wide_convolution[(triton.cdiv(total, BLOCK),)](
            flat,
            kernel,
            bias,
            slope,
            made,
            rows,
            columns,
            total,
            size=size,
            taps=taps,
            outputs=outputs,
            block=BLOCK,
            num_warps=WARPS,
        )
        return made

    made = torch.library.custom_op(
        "avdnn::wide_convolution", run, mutates_args=(), schema=schema, device_types="cuda"
    )

    def shape(tensor, kernel, bias, slope, size):
        batch, _, rows, columns = tensor.shape
        return tensor.new_empty((batch, rows, columns, kernel.shape[1]))

    made.register_fake(shape)
    return made


def packed_kernel(kernel):
    """Weights (outputs, 1, k, k) as (taps, outputs), taps padded with zeros to a power of two."""
    outputs, _, size, _ = kernel.shape
    taps = max(16, triton.next_power_of_2(size * size))
    made = kernel.new_zeros(taps, outputs)
    made[: size * size] = kernel.reshape(outputs, size * size).T
    return made.contiguous()


def wide_convolution(tensor, kernel, bias, slope, size):
    """The convolution and a (leaky, parametric) ReLU, as an NCHW view of the NHWC result."""
    import torch

    made = torch.ops.avdnn.wide_convolution(tensor, kernel, bias, slope, size)
    return made.permute(0, 3, 1, 2)
