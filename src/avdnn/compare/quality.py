"""PSNR and SSIM of two planes, in NumPy.

SSIM is the index of Wang, Bovik, Sheikh and Simoncelli, "Image Quality Assessment: From Error
Visibility to Structural Similarity", IEEE Transactions on Image Processing 13(4), 2004:

    SSIM = (2 ma mb + C1) (2 sab + C2) / ((ma^2 + mb^2 + C1) (sa^2 + sb^2 + C2))

with means, variances and covariance under an 11x11 Gaussian window (sigma 1.5) that lies wholly
inside the plane, C1 = (0.01 peak)^2, C2 = (0.03 peak)^2, averaged over all window positions.
"""

from __future__ import annotations

import math

import numpy as np

from ..frame import Array

_WINDOW = 11
_SIGMA = 1.5
_STRIP = 64  # output rows at a time: the temporaries stay in the cache


def _gaussian(size: int) -> Array:
    offsets = np.arange(size) - (size - 1) / 2
    weights = np.exp(-(offsets**2) / (2 * _SIGMA**2))
    return (weights / weights.sum()).astype(np.float32)


def squared_error(a: Array, b: Array) -> float:
    """Mean squared difference of two planes of one shape, exact for integers."""
    total, step = 0.0, max(1, (1 << 20) // max(1, a[:1].size))
    for row in range(0, a.shape[0], step):
        part = a[row : row + step].astype(np.float64) - b[row : row + step]
        total += float(np.vdot(part, part))
    return total / int(a.size)


def psnr_of(error: float, peak: float) -> float:
    """PSNR in dB of a mean squared error; infinite for 0, minus infinity for infinity."""
    if error == 0 or math.isinf(error):
        return math.inf if error == 0 else -math.inf
    return 10 * math.log10(peak * peak / error)


def psnr(a: Array, b: Array, peak: float) -> float:
    """PSNR of two planes in dB."""
    return psnr_of(squared_error(a, b), peak)


def _blur(plane: Array, rows: Array, columns: Array) -> Array:
    """Separable filter, valid part only; both kernels are symmetric."""
    return _along(_along(plane, rows, 0), columns, 1)


def _along(plane: Array, kernel: Array, axis: int) -> Array:
    size, half = len(kernel), len(kernel) // 2
    length = plane.shape[axis] - size + 1

    def shifted(offset: int) -> Array:
        span = slice(offset, offset + length)
        return plane[span] if axis == 0 else plane[:, span]

    out = kernel[half] * shifted(half) if size % 2 else np.zeros_like(shifted(0))
    for i in range(half):
        pair = shifted(i) + shifted(size - 1 - i)
        pair *= kernel[i]
        out += pair
    return out


def ssim(a: Array, b: Array, peak: float) -> float:
    """Mean SSIM of two planes of one shape; the window shrinks to fit a smaller plane."""
    height, width = a.shape
    rows, columns = (_gaussian(min(_WINDOW, side)) for side in (height, width))
    c1, c2 = np.float32(0.01**2), np.float32(0.03**2)
    total, count = 0.0, 0
    last = height - len(rows) + 1
    for top in range(0, last, _STRIP):
        span = slice(top, min(top + _STRIP, last) + len(rows) - 1)
        x = a[span].astype(np.float32) / np.float32(peak)
        y = b[span].astype(np.float32) / np.float32(peak)
        mx, my = _blur(x, rows, columns), _blur(y, rows, columns)
        product, squares = mx * my, mx * mx + my * my
        power = _blur(x * x + y * y, rows, columns) - squares
        cross = _blur(x * y, rows, columns) - product
        index = (2 * product + c1) * (2 * cross + c2) / ((squares + c1) * (power + c2))
        total += float(index.sum(dtype=np.float64))
        count += index.size
    return total / count
