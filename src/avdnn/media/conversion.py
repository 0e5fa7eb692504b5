"""Brings frames to the encoder's size and pixel format, minding matrix and range."""

from __future__ import annotations

from dataclasses import dataclass

import av
from av.video.reformatter import ColorRange, VideoReformatter

UNSPECIFIED = 2
GBR = 0
_BT601 = 6
_LIMITED, _FULL = 1, 2

_ONLY_FULL = frozenset({"mjpeg", "ljpeg"})
_ONLY_LIMITED = frozenset(
    {
        "cinepak", "dnxhd", "dvvideo", "flv", "h261", "h263", "h263p", "libtheora", "libvpx",
        "libwebp", "libwebp_anim", "libxvid", "mpeg1video", "mpeg2video", "mpeg4", "msmpeg4",
        "msmpeg4v2", "prores", "prores_aw", "prores_ks", "snow", "wmv1", "wmv2",
    }
)  # fmt: skip
"""Encoders whose stream cannot say that it is full range, so that it has to be limited."""

_ONLY_BT601 = frozenset({"mjpeg", "ljpeg", "libwebp", "libwebp_anim"})
"""Encoders whose format fixes the matrix: every JPEG and lossy WebP reader assumes BT.601."""


@dataclass(frozen=True, slots=True)
class Colours:
    """FFmpeg's numbers for the matrix and range of encoded frames; 0 and 2 mean unspecified."""

    matrix: int
    range: int


def samples(frame: av.VideoFrame) -> str:
    """The pixel format of a frame's samples; of a CUDA frame that of its memory."""
    return (frame.sw_format or frame.format).name


def is_rgb(pix_fmt: str) -> bool:
    """Whether a format holds RGB rather than YUV or gray."""
    return av.VideoFormat(pix_fmt).is_rgb or pix_fmt == "pal8"


def target_colours(encoder: str, pix_fmt: str, frame: av.VideoFrame, source_matrix: int) -> Colours:
    """What frames like `frame` will be in `pix_fmt`.

    RGB that becomes YUV takes the matrix of the file it came from; a file without one keeps none
    and is converted by swscale's default, BT.601, the inverse of how its RGB was made.
    """
    if is_rgb(pix_fmt):
        return Colours(GBR, _FULL)
    from_rgb = is_rgb(frame.format.name)
    matrix = source_matrix if from_rgb or frame.colorspace == GBR else frame.colorspace
    if matrix == GBR:
        matrix = _BT601
    if encoder in _ONLY_BT601 and matrix != UNSPECIFIED:
        matrix = _BT601
    range_ = _LIMITED if from_rgb else frame.color_range
    if frame.format.name.startswith("yuvj"):
        range_ = _FULL
    if encoder in _ONLY_FULL or pix_fmt.startswith("yuvj"):
        range_ = _FULL
    elif encoder in _ONLY_LIMITED and range_ == _FULL and not pix_fmt.startswith("gray"):
        range_ = _LIMITED
    return Colours(matrix, range_)


class Converter:
    """Converts frames to one size and format; frames that are right already pass untouched.

    So do CUDA frames, which come only where they are right.
    """

    def __init__(self, width: int, height: int, pix_fmt: str, colours: Colours) -> None:
        self.size = (width, height)
        self.pix_fmt = pix_fmt
        self.colours = colours
        self._scaler = VideoReformatter()

    def convert(self, frame: av.VideoFrame) -> av.VideoFrame:
        """The frame as the encoder wants it, with all properties of the one given."""
        if frame.sw_format is not None or self._fits(frame):
            return frame
        matrix, range_ = self.colours.matrix, self.colours.range
        full = frame.format.name.startswith("yuvj") or is_rgb(frame.format.name)
        source_range = _FULL if full else frame.color_range or _LIMITED
        made = self._scaler.reformat(
            frame,
            width=self.size[0],
            height=self.size[1],
            format=self.pix_fmt,
            interpolation="BICUBIC",
            src_color_range=ColorRange(source_range),
            dst_color_range=ColorRange(range_ or source_range),
            dst_colorspace=_SWSCALE.get(matrix),
            threads=1,  # its slices may write over each other's borders in narrow pictures
        )
        made.colorspace, made.color_range = matrix, range_
        return made

    def _fits(self, frame: av.VideoFrame) -> bool:
        if (frame.width, frame.height) != self.size or frame.format.name != self.pix_fmt:
            return False
        if is_rgb(self.pix_fmt) or frame.format.name.startswith("gray"):
            return True
        known = frame.colorspace not in (GBR, UNSPECIFIED)
        same_matrix = not known or frame.colorspace == self.colours.matrix
        now = _FULL if self.pix_fmt.startswith("yuvj") else frame.color_range or _LIMITED
        return same_matrix and now == (self.colours.range or _LIMITED)


_SWSCALE = {1: 1, 4: 4, 5: 5, 6: 5, 7: 7, 9: 9, 10: 9}
"""swscale's number of a matrix by FFmpeg's number of it."""
