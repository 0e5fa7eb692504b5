"""Chooses and opens the video encoder: codec, pixel format, options, tags."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
from av.codec import Codec
from av.codec.codec import UnknownCodecError
from av.codec.context import Flags, OptionFlags, ThreadType

from ..errors import FormatError, UsageError
from ..job import OutputSpec
from . import nvenc
from .conversion import Colours
from .listening import heard
from .losses import losses, nearest

_PREFERRED = {
    "avi": "mpeg4",
    "flv": "libx264",
    "gif": "gif",
    "h264": "libx264",
    "hevc": "libx265",
    "ipod": "libx264",
    "matroska": "libx264",
    "mov": "libx264",
    "mp4": "libx264",
    "mpegts": "libx264",
    "nut": "ffv1",
    "segment": "libx264",
    "stream_segment": "libx264",
    "webm": "libvpx-vp9",
    "webp": "libwebp_anim",
    "avif": "libsvtav1",
}
_PICTURES = {
    "bmp": "bmp", "dpx": "dpx", "exr": "exr", "jp2": "jpeg2000", "j2k": "jpeg2000",
    "jpeg": "mjpeg", "jpg": "mjpeg", "jxl": "libjxl", "pam": "pam", "pbm": "pbm", "pfm": "pfm",
    "pgm": "pgm", "png": "png", "ppm": "ppm", "qoi": "qoi", "tga": "targa", "tif": "tiff",
    "tiff": "tiff", "webp": "libwebp",
}  # fmt: skip
_COARSE = frozenset({"mjpeg", "mpeg1video", "mpeg2video", "mpeg4"})
"""Encoders whose default bit rate spoils the picture; they get a fine quantizer instead."""

_INTERLACED = frozenset({"libx264", "mpeg2video", "mpeg4", "prores_ks", "prores_aw", "dnxhd"})
"""Encoders that code fields when told to."""

_EXPERIMENTAL = {"libvpx-vp9": frozenset({"yuva422p", "yuva444p", "gbrap"})}
"""Formats that an encoder lists and takes with -strict experimental only."""


def choose_encoder(spec: OutputSpec, form: str, default: str, depth: int) -> Codec:
    """The encoder that -c:v names, else the one for the container or the picture's suffix.

    `depth` is the source's bits a sample: WebM's usual VP9 encoder takes no more than 8.
    """
    name = spec.codec
    if not name and form in ("image2", "image2pipe"):
        name = _PICTURES.get(Path(spec.url).suffix[1:].lower(), "")
    if not name and form == "webm" and depth > 8:
        name = "libsvtav1"
    name = name or _PREFERRED.get(form, default)
    if name == "copy":
        raise UsageError("-c:v copy: filtered video has to be encoded; name an encoder or none")
    if name == "none":
        raise UsageError(f"-f {form}: this format holds no video")
    try:
        codec = Codec(name, "w")
    except UnknownCodecError as error:
        what = f"-c:v {name}" if spec.codec else f"-f {form}: its usual {name}"
        raise UsageError(f"{what}: no such encoder in this build of libavcodec") from error
    if codec.type != "video":
        raise UsageError(f"-c:v {name}: encodes {codec.type}, not video")
    return codec


@dataclass(frozen=True, slots=True)
class Choice:
    """The pixel format to encode, and a sentence where it is not the frames' own.

    `loses` tells that something of the frames goes with it.
    """

    pix_fmt: str
    note: str = ""
    loses: bool = False


def choose_format(codec: Codec, wanted: str, own: str) -> Choice:
    """The frames' own format where the encoder takes it, else the nearest that loses least."""
    offered = [offer.name for offer in codec.video_formats or () if offer.name != "cuda"]
    if wanted == "cuda":
        raise FormatError(
            "-pix_fmt cuda: the frames come from host memory; leave it out, frames on a GPU go to "
            "an NVENC encoder as they are",
            wanted=", ".join(offered),
            got=wanted,
        )
    if wanted:
        wanted = wanted if wanted in offered or f"{wanted}le" not in offered else f"{wanted}le"
        if offered and wanted not in offered:
            raise FormatError(
                f"-pix_fmt {wanted}: {codec.name} takes {', '.join(offered)}",
                wanted=", ".join(offered),
                got=wanted,
            )
        return Choice(wanted)
    offered = [name for name in offered if name not in _EXPERIMENTAL.get(codec.name, ())]
    if codec.name in ("mjpeg", "ljpeg"):
        offered = [name for name in offered if name.startswith("yuvj")]
        own = own.replace("yuv4", "yuvj4") if own.replace("yuv4", "yuvj4") in offered else own
    if not offered or own in offered:
        return Choice(own)
    plain = own.replace("yuvj", "yuv")
    if plain in offered:
        return Choice(plain)
    chosen = nearest(own, offered)
    lost = losses(own, chosen)
    note = f"{codec.name} does not take {own}; encoding {chosen}"
    if lost:
        note += f", which loses {' and '.join(lost)} (-pix_fmt or -c:v chooses otherwise)"
    return Choice(chosen, note, bool(lost))


# ---- settings ----------------------------------------------------------------------------------


def encoder_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options under libavcodec's names: `b:v` is b, `q:v` and `qscale:v` are q."""
    plain = {key.removesuffix(":v"): value for key, value in options.items()}
    for old, new in (("qscale", "q"), ("vtag", "tag")):
        if old in plain:
            plain[new] = plain.pop(old)
    return plain


@dataclass(frozen=True, slots=True)
class Like:
    """What the encoder is to know of the frames beside their size and format."""

    time_base: Fraction
    rate: Fraction | None
    sar: Fraction | None
    colours: Colours
    primaries: int
    transfer: int
    field_order: int = 0
    """FFmpeg's number; above 1 for interlaced frames."""


def configure(
    context: av.VideoCodecContext, frame: av.VideoFrame, like: Like, options: Mapping[str, str]
) -> None:
    """Set up an unopened encoder for frames like `frame`; CUDA frames bring their own device."""
    context.width, context.height = frame.width, frame.height
    context.pix_fmt = frame.format.name
    if frame.sw_format is not None:
        context.sw_format = frame.sw_format.name
    context.time_base = like.time_base
    context.framerate = like.rate or Fraction(0)
    context.thread_type = ThreadType.AUTO
    context.flags |= Flags.frame_duration
    if like.sar:
        context.sample_aspect_ratio = like.sar
    context.color_range = like.colours.range
    context.colorspace = like.colours.matrix
    context.color_primaries = like.primaries
    context.color_trc = like.transfer
    if like.field_order > 1:
        context.field_order = like.field_order
        if context.name in _INTERLACED:
            context.flags |= Flags.interlaced_dct
    context.options = _quiet(context.name, _own_settings(context, options))


def _quiet(encoder: str, options: dict[str, str]) -> dict[str, str]:
    """Keep libraries that print by themselves from doing so, unless they are told how to."""
    if encoder == "libsvtav1":
        os.environ.setdefault("SVT_LOG", "1")
    if encoder != "libx265" or "log-level" in options.get("x265-params", ""):
        return options
    given = options.get("x265-params")
    return {**options, "x265-params": ":".join(filter(None, (given, "log-level=error")))}


def _own_settings(context: av.VideoCodecContext, options: Mapping[str, str]) -> dict[str, str]:
    """Apply the settings that are no AVOptions; the others are returned."""
    plain = dict(options)
    quality = plain.pop("q", None)
    if quality is None and context.name in _COARSE and "b" not in plain:
        quality = "3"
    if quality is not None:
        try:
            context.global_quality = round(float(quality))
        except ValueError as error:
            raise UsageError(f"-q:v {quality}: not a number") from error
        context.qscale = True
    tag = plain.pop("tag", None)
    if tag is not None:
        if len(tag) != 4 or not tag.isascii():
            raise UsageError(f"-tag:v {tag}: a codec tag has four characters, such as hvc1")
        context.codec_tag = tag
    return plain


def depth_of(pix_fmt: str) -> int:
    """Bits of the first component of a pixel format; 0 for an unknown one."""
    try:
        return av.VideoFormat(pix_fmt).components[0].bits
    except (ValueError, IndexError):
        return 0


def option_names(codec: Codec) -> set[str]:
    """Every option that an encoder has."""
    known = av.CodecContext.create(codec, "w").supported_options
    encoding = [entry for entry in known.generic if OptionFlags.ENCODING_PARAM in entry.flags]
    return {entry.name for entry in (*encoding, *known.private)} | {"q", "tag"}


# ---- opening -----------------------------------------------------------------------------------


def why_not_open(codec: Codec, frame: av.VideoFrame, like: Like, options: Mapping[str, str]) -> str:
    """The encoder's own words on why it does not open for frames like `frame`, and a way out."""

    def attempt() -> None:
        context = av.CodecContext.create(codec, "w")
        assert isinstance(context, av.VideoCodecContext)
        configure(context, frame, like, options)
        if frame.sw_format is None:
            context.open()
        else:
            context.encode(frame)

    said = heard(attempt)
    odd = frame.width % 2 or frame.height % 2
    if odd and "yuv420" in frame.format.name:
        said += " (an odd size needs -pix_fmt yuv444p, -c:v ffv1, or a scale or pad filter)"
    if codec.name in nvenc.ON_CPU:
        said += f" (-c:v {nvenc.ON_CPU[codec.name]} encodes on the CPU)"
    return said.lstrip()
