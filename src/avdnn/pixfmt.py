"""Pixel formats as data: what the planes of each format hold, in FFmpeg's names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .errors import FormatError


class Family(StrEnum):
    """Where the samples that a model reads lie."""

    LUMA = "luma"  # plane 0 is Y (or gray); what follows is chroma, then alpha
    PACKED = "packed"  # one plane of interleaved colour
    PLANAR = "planar"  # G, B, R planes, then alpha


@dataclass(frozen=True, slots=True)
class PixelFormat:
    """One format. Samples are stored as `dtype`, as code << `shift`, with 1.0 at `peak`.

    `log2_chroma` is (x, y), or None without chroma; `interleaved` says that U and V share a
    plane. `order` names the components of a packed pixel ("rgb", "bgr", "rgb0", ...).
    """

    name: str
    family: Family
    dtype: str = "uint8"
    depth: int = 8
    shift: int = 0
    log2_chroma: tuple[int, int] | None = None
    interleaved: bool = False
    alpha: bool = False
    order: str = ""

    @property
    def peak(self) -> int:
        """The code of 1.0; 1 for float samples."""
        return 1 if self.dtype == "float32" else (1 << self.depth) - 1

    @property
    def channels(self) -> int:
        """Channels that a model gets from this format."""
        return 1 if self.family is Family.LUMA else 3

    @property
    def components(self) -> int:
        """Components of a pixel of the first plane."""
        return max(1, len(self.order)) if self.family is Family.PACKED else 1

    def plane_sizes(self, width: int, height: int) -> tuple[tuple[int, int], ...]:
        """(rows, columns) of each plane in pixels; chroma rounds up, as FFmpeg's planes do."""
        first = (height, width)
        if self.family is Family.PLANAR:
            return (first,) * (4 if self.alpha else 3)
        if self.log2_chroma is None:
            return (first,)
        x, y = self.log2_chroma
        chroma = (-(-height // (1 << y)), -(-width // (1 << x)))
        planes = (first, chroma) if self.interleaved else (first, chroma, chroma)
        return (*planes, first) if self.alpha else planes


_CHROMA = {"420": (1, 1), "422": (1, 0), "444": (0, 0), "440": (0, 1), "410": (2, 2), "411": (2, 0)}


def _luma() -> list[PixelFormat]:
    made = [PixelFormat("gray", Family.LUMA), PixelFormat("grayf32le", Family.LUMA, "float32", 32)]
    for depth in (10, 12, 16):
        made.append(PixelFormat(f"gray{depth}le", Family.LUMA, "uint16", depth))
    for name, log2 in _CHROMA.items():
        made.append(PixelFormat(f"yuv{name}p", Family.LUMA, log2_chroma=log2))
        if name not in ("410",):
            made.append(PixelFormat(f"yuvj{name}p", Family.LUMA, log2_chroma=log2))
    for name in ("420", "422", "444"):
        log2 = _CHROMA[name]
        made.append(PixelFormat(f"yuva{name}p", Family.LUMA, log2_chroma=log2, alpha=True))
        for depth in (10, 12, 16):
            made.append(
                PixelFormat(f"yuv{name}p{depth}le", Family.LUMA, "uint16", depth, log2_chroma=log2)
            )
        for depth in (10, 16):
            made.append(
                PixelFormat(
                    f"yuva{name}p{depth}le",
                    Family.LUMA,
                    "uint16",
                    depth,
                    log2_chroma=log2,
                    alpha=True,
                )
            )
    for name, log2 in (("nv12", (1, 1)), ("nv16", (1, 0)), ("nv24", (0, 0))):
        made.append(PixelFormat(name, Family.LUMA, log2_chroma=log2, interleaved=True))
    for base, log2 in (("p0", (1, 1)), ("p2", (1, 0)), ("p4", (0, 0))):
        for depth in (10, 12, 16):
            made.append(
                PixelFormat(
                    f"{base}{depth}le",
                    Family.LUMA,
                    "uint16",
                    depth,
                    16 - depth,
                    log2_chroma=log2,
                    interleaved=True,
                )
            )
    return made


def _colour() -> list[PixelFormat]:
    made = [
        PixelFormat(order + suffix, Family.PACKED, dtype, depth, order=order)
        for order in ("rgb", "bgr")
        for suffix, dtype, depth in (("24", "uint8", 8), ("48le", "uint16", 16))
    ]
    for order in ("rgb0", "bgr0", "0rgb", "0bgr", "rgba", "bgra", "argb", "abgr"):
        alpha = "a" in order
        made.append(PixelFormat(order, Family.PACKED, order=order, alpha=alpha))
    made.append(PixelFormat("gbrp", Family.PLANAR))
    made.append(PixelFormat("gbrap", Family.PLANAR, alpha=True))
    for depth in (10, 12, 16):
        made.append(PixelFormat(f"gbrp{depth}le", Family.PLANAR, "uint16", depth))
        made.append(PixelFormat(f"gbrap{depth}le", Family.PLANAR, "uint16", depth, alpha=True))
    return made


FORMATS = {made.name: made for made in [*_luma(), *_colour()]}
"""Every format that a dnn filter takes as it is."""

_ALIASES = {"gray8": "gray", "grayf32": "grayf32le", "y8": "gray"}


def pixel_format(name: str) -> PixelFormat:
    """The format of that FFmpeg name; FormatError if no dnn filter takes it."""
    name = _ALIASES.get(name, name)
    found = FORMATS.get(name) or FORMATS.get(f"{name}le")
    if found is None:
        raise FormatError(f"dnn filters do not take pixel format {name!r}", got=name)
    return found
