"""Resampling of single planes in host memory: chroma and alpha beside a model's output."""

from __future__ import annotations

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from .errors import FormatError
from .frame import Array
from .pixfmt import FORMATS, Family, PixelFormat
from .planes import views


class ChromaScaler:
    """Resamples single planes as FFmpeg's filter does: gray (UV pairs: gray and alpha), bicubic,
    plain flags.

    One object serves one thread; scaling contexts are kept by size.
    """

    def __init__(self) -> None:
        self._contexts: dict[tuple[int, ...], VideoReformatter] = {}

    def resize(self, source: Array, target: Array, known: PixelFormat) -> None:
        """Fill `target` from `source`, (rows, columns) or for 8 bit (rows, columns, 2)."""
        if known.dtype == "float32":
            raise FormatError("float chroma has no resampling rule", got=known.name)
        gray = _GRAY if known.depth == 8 else FORMATS[f"gray{known.depth}le"]
        if source.ndim == 3:
            gray = _PAIR
        (height, width), (rows, columns) = source.shape[:2], target.shape[:2]
        staged = av.VideoFrame(width, height, gray.name)
        view = views(staged, gray)[0]
        view[...] = source >> known.shift if known.shift else source
        key = (height, width, rows, columns, known.depth, source.ndim)
        context = self._contexts.setdefault(key, VideoReformatter())
        # One thread: swscale's slices may write over each other's borders in narrow pictures.
        scaled = context.reformat(
            staged, columns, rows, gray.name, interpolation="BICUBIC", threads=1
        )
        result = views(scaled, gray)[0]
        if known.shift:
            np.left_shift(result, known.shift, out=target)
        else:
            np.copyto(target, result)


_GRAY = FORMATS["gray"]
_PAIR = PixelFormat("ya8", Family.PACKED, order="ya")
