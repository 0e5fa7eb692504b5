"""Tensors of pictures to tensors of their parts and back: launches of the last kernels.

`sample` is that of the frames: kernels are compiled for a pair of types, and this one is there.
"""

from __future__ import annotations

from ..frame import Array, Layout, TensorSpec
from ._device import Device
from .kernels import grid_for, tensor_args

Taps = tuple[Array, Array]
"""Tables of the device: where the taps of each pixel begin, and their weights (pixels, taps)."""


def cut(
    device: Device, pictures: Array, tiles: Array, spec: TensorSpec, places: Array, sample: str
) -> None:
    """Fill `tiles` from pictures; `places`, a table (tiles, 3), has their frames, tops and lefts.

    Beyond the right and bottom edge of a picture its edge goes on.
    """
    _, height, width = sizes(pictures, spec)
    channels, rows, columns = sizes(tiles, spec)
    args = [
        *tensor_args(device, pictures, spec),
        width,
        height,
        *tensor_args(device, tiles, spec),
        channels,
        columns,
        rows,
        device.pointer(places),
    ]
    grid = grid_for(columns, rows, tiles.shape[0])
    device.launch("cut_tiles", sample, spec.dtype, grid, args, device.compute)


def add(
    device: Device,
    tiles: Array,
    picture: Array,
    spec: TensorSpec,
    box: tuple[int, int, int, int],
    places: Array,
    weights: tuple[Array, Array],
    sample: str,
) -> None:
    """Add tiles by their weights to the (top, left, height, width) `box` of a float32 picture.

    `places`, a table (tiles, 4), has each tile's top and left in the picture and where its
    weights begin in the two tables, of lines and of columns. Pixels without weight may be NaN.
    """
    channels, height, width = sizes(tiles, spec)
    pointer, _, *strides = tensor_args(device, picture, spec)
    top, left, rows, columns = box
    args = [
        *tensor_args(device, tiles, spec),
        width,
        height,
        len(places),
        pointer,
        *strides,
        channels,
        left,
        top,
        columns,
        rows,
        device.pointer(places),
        *(device.pointer(table) for table in weights),
    ]
    grid = grid_for(columns, rows, 1)
    device.launch("add_tiles", sample, spec.dtype, grid, args, device.compute)


def stretch(
    device: Device,
    pictures: Array,
    made: Array,
    spec: TensorSpec,
    across: Taps,
    down: Taps,
    sample: str,
) -> None:
    """Fill `made` with the pictures at its size."""
    channels, rows, columns = sizes(made, spec)
    args = [*tensor_args(device, pictures, spec), *tensor_args(device, made, spec)]
    args += [channels, columns, rows]
    for first, weights in (across, down):
        args += [device.pointer(first), device.pointer(weights), weights.shape[1]]
    grid = grid_for(columns, rows, made.shape[0])
    device.launch("stretch", sample, spec.dtype, grid, args, device.compute)


def sizes(tensor: Array, spec: TensorSpec) -> tuple[int, int, int]:
    """Channels, height and width of a tensor's pictures."""
    _, one, two, three = tensor.shape
    return (one, two, three) if spec.layout is Layout.NCHW else (three, one, two)
