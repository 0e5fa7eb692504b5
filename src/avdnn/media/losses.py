"""What a change of pixel format loses, in words."""

from __future__ import annotations

import av
import numpy as np
from av.codec import find_best_pix_fmt_of_list
from av.codec.codec import PixFmtLoss

_LOSSES = (
    (PixFmtLoss.DEPTH, "depth"),
    (PixFmtLoss.ALPHA, "transparency"),
    (PixFmtLoss.RESOLUTION, "chroma resolution"),
    (PixFmtLoss.CHROMA, "colour"),
    (PixFmtLoss.COLORQUANT, "colours"),
)


def losses(own: str, chosen: str, transparent: bool | None = None) -> list[str]:
    """What frames of format `own` lose as `chosen`.

    `transparent` tells whether they have transparency to lose; a palette by itself has none.
    """
    alpha = has_alpha(own) if transparent is None else transparent
    _, loss = find_best_pix_fmt_of_list([chosen], own, alpha)
    if is_gray(own):
        loss &= ~PixFmtLoss.RESOLUTION  # there is no chroma to lose it
    return [name for flag, name in _LOSSES if loss & flag]


def nearest(own: str, offered: list[str]) -> str:
    """The one of `offered` that loses least; gray rather becomes YUV than RGB."""
    if is_gray(own) and not any(is_gray(name) for name in offered):
        offered = _for_gray(own, offered) or offered
    best, _ = find_best_pix_fmt_of_list(offered, own, has_alpha(own))
    return best.name if best else offered[0]


def _for_gray(own: str, offered: list[str]) -> list[str]:
    """The smallest YUV format that holds the samples, or the deepest."""
    start = "yuva420p" if has_alpha(own) else "yuv420p"
    known = sorted((_depth(name), name) for name in offered if name.startswith(start))
    known = known or sorted((_depth(name), name) for name in offered if name.startswith("yuv420p"))
    holding = [name for depth, name in known if depth >= _depth(own)]
    return holding[:1] or [name for _, name in known[-1:]]


def is_gray(name: str) -> bool:
    """Whether a format holds luma alone, with or without transparency."""
    form = av.VideoFormat(name)
    return not form.has_palette and all(p.is_luma or p.is_alpha for p in form.components)


def has_alpha(name: str) -> bool:
    """Whether a format says for every sample how transparent it is."""
    return any(component.is_alpha for component in av.VideoFormat(name).components)


def palette_is_transparent(frame: av.VideoFrame) -> bool:
    """Whether a frame has a palette, and an entry that it uses is not opaque."""
    if frame.format.name != "pal8":
        return False
    alpha = np.frombuffer(memoryview(frame.planes[1]), np.uint8)[3::4]
    plane = frame.planes[0]
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)[: frame.height]
    return bool((alpha[np.unique(rows[:, : frame.width])] < 255).any())


def _depth(name: str) -> int:
    return av.VideoFormat(name).components[0].bits
