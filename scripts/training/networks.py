"""The networks, as data: a chain of convolutions, a shortcut, and depth to space.

Every bundled network has this one shape, so that training and each exported form are made from
the same description:

    y = depth_to_space(conv_n(... conv_1(x)) + shortcut(x))

The shortcut repeats each input channel `scale`^2 times, which after depth to space is x enlarged
by nearest neighbour; ESPCN has none. Padding is zeros, the output as large as the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

SLOPE = 0.2
"""Negative slope of the leaky ReLU; the one that FFmpeg's .model format knows."""


class Activation(StrEnum):
    RELU = "relu"
    TANH = "tanh"
    LEAKY_RELU = "leaky_relu"


@dataclass(frozen=True, slots=True)
class Network:
    """`layers` are (kernel, output channels); `activation` follows all but the last."""

    name: str
    channels: int
    scale: int
    layers: tuple[tuple[int, int], ...]
    activation: Activation = Activation.LEAKY_RELU
    shortcut: bool = True

    @property
    def shapes(self) -> tuple[tuple[int, int, int, int], ...]:
        """OIHW shape of each kernel."""
        inputs = (self.channels, *(width for _, width in self.layers[:-1]))
        return tuple(
            (width, fan_in, kernel, kernel)
            for (kernel, width), fan_in in zip(self.layers, inputs, strict=True)
        )

    @property
    def parameters(self) -> int:
        return sum(int(np.prod(shape)) + shape[0] for shape in self.shapes)

    def repeat(self) -> np.ndarray:
        """The shortcut as a 1x1 kernel, OIHW, channels ordered as PyTorch's pixel shuffle."""
        return np.repeat(np.eye(self.channels, dtype=np.float32), self.scale**2, axis=0)[
            :, :, None, None
        ]


def _compact(name: str, scale: int, *, width: int, depth: int) -> Network:
    body = ((3, width),) * (depth + 1)
    return Network(name, 3, scale, (*body, (3, 3 * scale * scale)))


NETWORKS: Mapping[str, Network] = {
    network.name: network
    for network in (
        Network("espcn-x2", 1, 2, ((5, 64), (3, 32), (3, 4)), shortcut=False),
        _compact("compact-x2", 2, width=64, depth=10),
        _compact("compact-x4", 4, width=64, depth=10),
        _compact("deblock", 1, width=64, depth=10),
    )
}


def depth_to_space_order(network: Network) -> np.ndarray:
    """Where each channel of TensorFlow's depth to space lies in PyTorch's pixel shuffle.

    Pixel shuffle takes channel c*s*s + i for sub-pixel i of colour c, depth to space i*C + c.
    """
    area = network.scale**2
    return np.arange(network.channels * area).reshape(network.channels, area).T.reshape(-1)
