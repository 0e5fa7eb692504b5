"""The planes of av frames, as arrays that share their memory."""

from __future__ import annotations

from typing import Any

import av
import numpy as np

from .frame import Array
from .pixfmt import PixelFormat


def views(frame: av.VideoFrame, known: PixelFormat) -> tuple[Array, ...]:
    """The planes of an av frame as arrays, (rows, columns) or (rows, columns, components)."""
    sizes = known.plane_sizes(frame.width, frame.height)
    itemsize = np.dtype(known.dtype).itemsize
    found = []
    for index, (plane, (rows, columns)) in enumerate(zip(frame.planes, sizes, strict=False)):
        pair = known.interleaved and index == 1
        components = 2 if pair else known.components
        shape = (rows, columns, components) if components > 1 else (rows, columns)
        strides = (plane.line_size, itemsize * components, itemsize)[: len(shape)]
        buffer: Any = plane
        found.append(np.ndarray(shape, known.dtype, buffer, strides=strides))
    return tuple(found)
