"""JPEG's loss on the GPU: 4:2:0, 8x8 DCT, the example tables of ITU-T T.81 annex K scaled by
quality as libjpeg does."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

_LUMA = [
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55,
    14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51, 87, 80, 62,
    18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
]  # fmt: skip
_CHROMA = [
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99,
    24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99, 99, 99, 99, 99,
    *[99] * 32,
]  # fmt: skip
_TO_YCC = [
    [0.299, 0.587, 0.114],
    [-0.168736, -0.331264, 0.5],
    [0.5, -0.418688, -0.081312],
]


@functools.cache
def _dct(device: torch.device) -> Tensor:
    k = torch.arange(8, dtype=torch.float32)
    basis = torch.cos(math.pi / 8 * (k + 0.5) * k[:, None]) * math.sqrt(2 / 8)
    basis[0] /= math.sqrt(2)
    return basis.to(device)


def _quantized(plane: Tensor, table: list[int], quality: Tensor) -> Tensor:
    """One plane (N, H, W) through 8x8 DCT and quantization, sides multiples of 8."""
    count, height, width = plane.shape
    basis = _dct(plane.device)
    scale = torch.where(quality < 50, 5000 / quality, 200 - 2 * quality)
    steps = torch.tensor(table, device=plane.device, dtype=torch.float32).reshape(8, 8)
    steps = ((steps * scale[:, None, None] + 50) / 100).floor().clamp(1, 255)
    blocks = plane.reshape(count, height // 8, 8, width // 8, 8).transpose(2, 3)
    steps = steps[:, None, None]
    coded = basis @ blocks @ basis.T
    coded = (coded / steps).round() * steps
    return (basis.T @ coded @ basis).transpose(2, 3).reshape(count, height, width)


def compressed(rgb: Tensor, quality: Tensor) -> Tensor:
    """RGB codes (N, 3, H, W) in 0..255 after JPEG; sides are multiples of 16."""
    matrix = torch.tensor(_TO_YCC, device=rgb.device)
    ycc = torch.einsum("ij,njhw->nihw", matrix, rgb)
    y = _quantized(ycc[:, 0] - 128, _LUMA, quality) + 128
    small = F.avg_pool2d(ycc[:, 1:], 2)
    chroma = torch.stack([_quantized(small[:, i], _CHROMA, quality) for i in range(2)], 1)
    chroma = F.interpolate(chroma, scale_factor=2, mode="bilinear", align_corners=False)
    back = torch.linalg.inv(matrix)
    out = torch.einsum("ij,njhw->nihw", back, torch.cat((y[:, None], chroma), 1))
    return out.round().clamp(0, 255)
