"""Resampling with a triangle filter.

Pixel centres lie at half pixels of the same rectangle in both sizes. Enlarging is linear
interpolation; when shrinking, the triangle is as much wider as the picture gets smaller, so that
every source pixel counts. Beyond the edge the edge goes on. Weights of a pixel sum to 1. Whole
numbers are rounded half to even.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..frame import Array
from ._pictures import Area


@lru_cache(maxsize=8)
def weights(source: int, target: int) -> NDArray[np.float32]:
    """The (target, source) matrix of the filter along one axis."""
    ratio = source / target
    wide = max(ratio, 1.0)
    centres = (np.arange(target) + 0.5) * ratio - 0.5
    first = np.floor(centres - wide).astype(int)
    taps = first[:, None] + np.arange(int(2 * wide) + 3)
    values = np.maximum(1 - np.abs(taps - centres[:, None]) / wide, 0)
    values /= values.sum(axis=1, keepdims=True)
    found = np.zeros((target, source))
    lines = np.broadcast_to(np.arange(target)[:, None], taps.shape)
    np.add.at(found, (lines, np.clip(taps, 0, source - 1)), values)
    return found.astype(np.float32)


@lru_cache(maxsize=32)
def taps(source: int, target: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The matrix of `weights` without most of its zeros: where a pixel's taps begin, and they."""
    matrix = weights(source, target)
    first = (matrix != 0).argmax(axis=1)
    wide = int(((matrix != 0).cumsum(axis=1).argmax(axis=1) - first).max()) + 1
    first = np.minimum(first, source - wide)
    found = np.take_along_axis(matrix, first[:, None] + np.arange(wide), axis=1)
    return first.astype(np.int32), np.ascontiguousarray(found)


def resample(array: Array, rows_axis: int, size: Area) -> Array:
    """Pictures of another size; `rows_axis` is the axis of rows, columns follow it."""
    found = array
    for along, length in ((rows_axis, size.height), (rows_axis + 1, size.width)):
        if found.shape[along] != length:
            matrix = weights(found.shape[along], length)
            found = np.moveaxis(
                np.tensordot(matrix, found.astype(np.float32), (1, along)), 0, along
            )
    if np.issubdtype(array.dtype, np.integer):
        limits = np.iinfo(array.dtype)
        return np.clip(np.rint(found), limits.min, limits.max).astype(array.dtype)
    return np.ascontiguousarray(found.astype(array.dtype, copy=False))
