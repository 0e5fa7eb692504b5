"""HDR metadata of a stream: mastering display and content light level, from frames to files.

Encoders repeat it in their stream only if told in their own options, and muxers write it only if
the stream's parameters hold it. PyAV sets neither, but copies parameters between streams: `stamp`
lets the Matroska demuxer make a stream that holds them, from a header made here.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import av.container
from av.bitstream import BitStreamFilterContext

from ..versions import side_data
from .ebml import double, element, uint

_MATROSKA_CODECS = {
    "av1": "V_AV1",
    "ffv1": "V_FFV1",
    "h264": "V_MPEG4/ISO/AVC",
    "hevc": "V_MPEGH/ISO/HEVC",
    "prores": "V_PRORES",
    "vp9": "V_VP9",
}


_HDR_TRANSFERS = (16, 18)


@dataclass(frozen=True, slots=True)
class Hdr:
    """Chromaticities are x, y of red, green, blue and white; luminances are cd/m^2.

    `mastering` is those eight numbers, then the highest and the lowest luminance; `light` is the
    highest level of a pixel and of a frame's average. Either may be missing.
    """

    mastering: tuple[Fraction, ...] = ()
    light: tuple[int, int] | None = None


def read(frame: av.VideoFrame | None, decoder: Any = None) -> Hdr | None:
    """The HDR metadata that a frame carries, or else its decoder holds, or None.

    libavcodec 63 leaves the light level of HEVC with the decoder; PyAV before 19 does not show it.
    """
    held = {key.name: data for key, data in getattr(decoder, "decoded_side_data", {}).items()}
    held |= {side.type.name: bytes(side) for side in side_data(frame)}
    mastering = _mastering(held.get("MASTERING_DISPLAY_METADATA", b""))
    level = held.get("CONTENT_LIGHT_LEVEL", b"")
    light = struct.unpack("=II", level[:8]) if len(level) >= 8 else None
    return Hdr(mastering, light) if mastering or light else None


def merged(found: Hdr | None, transfer: int, source: Hdr | None) -> Hdr | None:
    """What frames carry, completed by what their file said, if they still are HDR (PQ, HLG)."""
    if source is None or transfer not in _HDR_TRANSFERS:
        return found
    if found is None:
        return source
    return Hdr(found.mastering or source.mastering, found.light or source.light)


def _mastering(data: bytes) -> tuple[Fraction, ...]:
    """AVMasteringDisplayMetadata: ten rationals (lowest luminance before highest), two flags."""
    if len(data) < 88:
        return ()
    *pairs, has_primaries, has_luminance = struct.unpack("=22i", data[:88])
    if not has_primaries or not has_luminance:
        return ()
    numbers = [Fraction(a, b or 1) for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
    return (*numbers[:8], numbers[9], numbers[8])


def encoder_settings(encoder: str, hdr: Hdr, options: Mapping[str, str]) -> dict[str, str]:
    """`options` with the metadata in the encoder's own terms, unless they have it already."""
    known = _SETTINGS.get(encoder)
    if known is None:
        return dict(options)
    option, master, light, chroma_unit, light_unit = known
    given = options.get(option, "")
    parts = [given] if given else []
    if hdr.mastering and master not in given:
        parts.append(f"{master}={_display(hdr.mastering, chroma_unit, light_unit)}")
    if hdr.light and light not in given:
        parts.append(f"{light}={hdr.light[0]},{hdr.light[1]}")
    return {**options, option: ":".join(parts)}


_SETTINGS = {
    "libx264": ("x264-params", "mastering-display", "cll", 50000, 10000),
    "libx265": ("x265-params", "master-display", "max-cll", 50000, 10000),
    "libsvtav1": ("svtav1-params", "mastering-display", "content-light", 0, 0),
}
"""Option, its keys for display and light, and steps per unit (0: plain decimals)."""


def _display(mastering: tuple[Fraction, ...], chroma_unit: int, light_unit: int) -> str:
    def number(value: Fraction, unit: int) -> str:
        return str(round(value * unit)) if unit else f"{float(value):.6g}"

    red, green, blue, white = (
        ",".join(number(value, chroma_unit) for value in mastering[start : start + 2])
        for start in (0, 2, 4, 6)
    )
    lights = ",".join(number(value, light_unit) for value in mastering[8:10])
    return f"G({green})B({blue})R({red})WP({white})L({lights})"


# ---- the container -----------------------------------------------------------------------------


def stamp(stream: av.VideoStream, hdr: Hdr) -> bool:
    """Put the metadata into an output stream whose encoder is not yet set up.

    False if its codec cannot be had from Matroska. All other settings of the encoder are reset.
    """
    codec = _MATROSKA_CODECS.get(stream.codec_context.codec.canonical_name)
    if codec is None:
        return False
    with av.open(io.BytesIO(_document(codec, hdr)), "r", format="matroska") as made:
        BitStreamFilterContext("null", in_stream=made.streams.video[0], out_stream=stream)
    stream.codec_context.extradata = None
    return True


def _document(codec: str, hdr: Hdr) -> bytes:
    """A Matroska file of one video track and one empty access unit."""
    colour = b""
    if hdr.light:
        colour += uint("55BC", hdr.light[0]) + uint("55BD", hdr.light[1])
    if hdr.mastering:
        values = zip(range(0x55D1, 0x55DB), hdr.mastering, strict=True)
        colour += element("55D0", b"".join(double(f"{ident:X}", float(x)) for ident, x in values))
    video = uint("B0", 64) + uint("BA", 64) + element("55B0", colour)
    track = uint("D7", 1) + uint("73C5", 1) + uint("83", 1)
    track += element("86", codec.encode()) + element("E0", video)
    block = b"\x81\x00\x00\x80" + b"\x00\x00\x00\x01\x46\x01\x50"
    cluster = uint("E7", 0) + element("A3", block)
    tracks = element("1654AE6B", element("AE", track))
    segment = tracks + element("1F43B675", cluster)
    return element("1A45DFA3", element("4282", b"matroska")) + element("18538067", segment)
