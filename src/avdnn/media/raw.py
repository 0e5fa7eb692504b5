"""Whether a container that holds raw video can say in which pixel format it is."""

from __future__ import annotations

import io

import av
import av.error

from ..errors import FormatError

_ANY = frozenset({"avi", "mov", "nut"})
"""Containers that take raw video of any format, whether they have a name for it or not."""


def check(form: str, pix_fmt: str) -> None:
    """FormatError if raw video of that format would be read as another: one frame is tried."""
    if form not in _ANY:
        return
    read = _read_as(form, pix_fmt)
    if read != pix_fmt.replace("yuvj", "yuv"):
        raise FormatError(
            f"{form} cannot say that raw video is {pix_fmt}: it would be read as "
            f"{read or 'nothing at all'}; take -c:v ffv1 or another -pix_fmt",
            got=pix_fmt,
        )


def _read_as(form: str, pix_fmt: str) -> str:
    file = io.BytesIO()
    with av.open(file, "w", format=form) as output:
        made = output.add_stream("rawvideo", rate=25)
        made.width, made.height, made.pix_fmt = 16, 16, pix_fmt
        output.mux([*made.encode(av.VideoFrame(16, 16, pix_fmt)), *made.encode(None)])
    file.seek(0)
    try:
        with av.open(file, "r", format=form) as opened:
            return opened.streams.video[0].codec_context.pix_fmt or ""
    except (av.error.FFmpegError, IndexError):
        return ""
