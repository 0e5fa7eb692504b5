"""The components of a frame as planes of codes, whatever its format packs together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from av.video.reformatter import ColorRange, VideoReformatter

from .. import host
from ..errors import FormatError
from ..frame import Array, Frame
from ..pixfmt import FORMATS, Family, PixelFormat

_ALIKE = {
    "gray": "monow monob",
    "yuv420p": "nv21",
    "yuv422p": "yuyv422 yvyu422 uyvy422",
    "yuv422p10le": "nv20le y210le",
    "yuv422p12le": "y212le",
    "yuv422p16le": "y216le",
    "yuv444p": "nv42 vyu444 vuyx",
    "yuv444p10le": "xv30le v30xle yuv444p10msble",
    "yuv444p12le": "xv36le yuv444p12msble",
    "yuv444p16le": "xv48le",
    "yuva444p": "ayuv vuya uyva",
    "yuva444p16le": "ayuv64le",
    "rgb24": "rgb565le bgr565le rgb555le bgr555le",
    "rgba": "pal8",
    "gbrap": "ya8",
    "gbrp10le": "x2rgb10le x2bgr10le",
    "gbrap16le": "rgba64le bgra64le ya16le",
}
EXACT = {name: form for form, names in _ALIKE.items() for name in names.split()}
"""Formats that libswscale turns into one of `FORMATS` without a loss, and which."""


def readable(frame: Frame) -> Frame:
    """The frame, or its samples in a format whose planes can be read, unchanged in value.

    FormatError if there is none.
    """
    form = frame.format
    while form not in FORMATS and frame.owner is not None:
        little = form.removesuffix("be") + "le"
        swapped = form.endswith("be") and (little in FORMATS or little in EXACT)
        form = little if swapped else EXACT.get(form, "")
        if not form:
            break
        try:
            made = VideoReformatter().reformat(
                host.to_av(frame),
                format=form,
                src_color_range=ColorRange.JPEG,
                dst_color_range=ColorRange.JPEG,
                threads=1,  # its slices may write over each other's borders in narrow pictures
            )
        except (OSError, ValueError):
            break
        frame = replace(host.from_av(made), meta=frame.meta)
    known_format(frame)
    return frame


def known_format(frame: Frame) -> PixelFormat:
    """The frame's format; FormatError if its samples cannot be read."""
    known = FORMATS.get(frame.format)
    if known is None or not frame.planes:
        raise FormatError(
            f"cannot read the samples of pixel format {frame.format}: convert to rgb24 or yuv420p",
            got=frame.format,
        )
    return known


def matching(a: Frame, b: Frame) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """The components of both; an alpha that only one has, all opaque, is left out."""
    left, right = dict(components(a)), dict(components(b))
    for one, other, peak in ((left, right, a), (right, left, b)):
        if "a" in one and "a" not in other and (one["a"] == known_format(peak).peak).all():
            del one["a"]
    return left, right


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
