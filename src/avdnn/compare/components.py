"""The components of a frame as planes of codes, whatever its format packs together."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import FormatError
from ..frame import Array, Frame
from ..pixfmt import FORMATS, Family, PixelFormat


def known_format(frame: Frame) -> PixelFormat:
    """The frame's format; FormatError if its samples cannot be read."""
    known = FORMATS.get(frame.format)
    if known is None or not frame.planes:
        raise FormatError(
            f"cannot read the samples of pixel format {frame.format}: convert to rgb24 or yuv420p",
            got=frame.format,
        )
    return known


def components(frame: Frame) -> Mapping[str, Array]:
    """2-D views by name, codes in 0..peak: y u v, r g b, and a."""
    known = known_format(frame)
    if known.family is Family.PACKED:
        named = [(name, frame.planes[0][..., i]) for i, name in enumerate(known.order)]
        return {name: plane for name, plane in sorted(named) if name != "0"}
    if known.family is Family.PLANAR:
        return dict(sorted(zip("gbra", frame.planes, strict=False)))
    planes = list(frame.planes)
    if known.interleaved:
        planes[1:2] = [planes[1][..., 0], planes[1][..., 1]]
    names = "yuva" if known.log2_chroma is not None else "ya"
    shifted = [plane >> known.shift if known.shift else plane for plane in planes]
    return dict(zip(names, shifted, strict=False))
