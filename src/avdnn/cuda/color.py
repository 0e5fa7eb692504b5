"""Colour matrices and ranges as data, and the numbers that turn YUV codes into RGB and back."""

from __future__ import annotations

from dataclasses import dataclass

MATRICES = {
    1: ("bt709", 0.2126, 0.0722),
    4: ("fcc", 0.30, 0.11),
    5: ("bt470bg", 0.299, 0.114),
    6: ("smpte170m", 0.299, 0.114),
    7: ("smpte240m", 0.212, 0.087),
    9: ("bt2020nc", 0.2627, 0.0593),
    10: ("bt2020c", 0.2627, 0.0593),
}
"""FFmpeg's AVColorSpace: name, and the weights of red and blue in luma."""

DEFAULT = 5
"""What an untagged stream is read as: libswscale takes BT.601 whatever the size."""

FULL_RANGE = 2
"""FFmpeg's AVCOL_RANGE_JPEG."""


@dataclass(frozen=True, slots=True)
class Weights:
    """One matrix at one range and depth, in units of sample codes.

    With y = (Y - black) / luma, u = (U - middle) / chroma and v alike:
    R = y + red_v * v, G = y - green_u * u - green_v * v, B = y + blue_u * u; the other way
    y = red * R + green * G + blue * B, u = (B - y) / blue_u, v = (R - y) / red_v.
    """

    black: float
    luma: float
    middle: float
    chroma: float
    red: float
    blue: float

    @property
    def green(self) -> float:
        """The weight of green in luma."""
        return 1.0 - self.red - self.blue

    @property
    def red_v(self) -> float:
        """What V adds to red."""
        return 2.0 * (1.0 - self.red)

    @property
    def blue_u(self) -> float:
        """What U adds to blue."""
        return 2.0 * (1.0 - self.blue)

    @property
    def green_u(self) -> float:
        """What U takes from green."""
        return self.blue * self.blue_u / self.green

    @property
    def green_v(self) -> float:
        """What V takes from green."""
        return self.red * self.red_v / self.green

    def numbers(self) -> tuple[float, ...]:
        """All that a kernel needs, in the order of the `Weights` struct in kernels.cu."""
        return (
            self.black,
            1.0 / self.luma,
            self.middle,
            1.0 / self.chroma,
            self.red_v,
            self.green_u,
            self.green_v,
            self.blue_u,
            self.luma,
            self.chroma,
            self.red,
            self.green,
            self.blue,
        )


def weights(colorspace: int, color_range: int, depth: int = 8) -> Weights:
    """The numbers for FFmpeg's AVColorSpace and AVColorRange values at a bit depth.

    Untagged or unknown matrices are BT.601, an untagged range is limited.
    """
    _, red, blue = MATRICES.get(colorspace, MATRICES[DEFAULT])
    step = float(1 << (depth - 8))
    middle = 128.0 * step
    if color_range == FULL_RANGE:
        peak = float((1 << depth) - 1)
        return Weights(0.0, peak, middle, peak, red, blue)
    return Weights(16.0 * step, 219.0 * step, middle, 224.0 * step, red, blue)
