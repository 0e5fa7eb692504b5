"""Compares two videos frame by frame: counts, times, sizes, largest difference, PSNR, SSIM."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import av
import numpy as np

from .. import host
from ..errors import FormatError, MediaError, UsageError
from ..frame import Array, Frame
from ..job import InputSpec
from ..media.opening import is_local, local_path
from . import png
from .comparison import Comparison, Limits, PlaneFigures
from .components import known_format, matching, readable
from .picture import worst_crops
from .quality import psnr_of, ssim

Source: TypeAlias = str | Path | InputSpec | Iterable[Frame | av.VideoFrame]


def compare(
    first: Source, second: Source, *, limits: Limits | None = None, picture: Path | None = None
) -> Comparison:
    """Compare two files, or two series of frames; memory holds a few frames at a time.

    Formats may differ in how they pack (nv12 and yuv420p, p010le and yuv420p10le, rgb24 and
    bgr24, gray16be and gray16le), not in what they hold. `picture` gets a PNG of where the worst
    frame is worst.
    """
    limits, tally = limits or Limits(), _Tally()
    if picture is not None:
        _check_picture(picture, first, second)
    with contextlib.ExitStack() as stack:
        pairs = itertools.zip_longest(_frames(first, stack), _frames(second, stack))
        for a, b in pairs:
            tally.add(a, b, keep=picture is not None)
            del a, b
    if picture is not None and tally.kept is not None:
        png.write(picture, worst_crops(*tally.kept, number=tally.worst[0]))
    return tally.result(limits)


def _check_picture(picture: Path, *sources: Source) -> None:
    if any(_is_file(source, picture) for source in sources):
        raise MediaError(f"{picture}: is one of the videos; name another file", str(picture))
    if picture.suffix.lower() != ".png":
        raise UsageError(f"--picture {picture}: a PNG is written; name a file that ends in .png")
    if not picture.parent.is_dir():
        raise MediaError(f"{picture}: no such folder: {picture.parent}", str(picture))


def _is_file(source: Source, path: Path) -> bool:
    if isinstance(source, InputSpec):
        source = source.url
    if not isinstance(source, (str, Path)) or not is_local(str(source)):
        return False
    given = local_path(str(source))
    return path.exists() and given.exists() and given.samefile(path)


def _frames(source: Source, stack: contextlib.ExitStack) -> Iterator[Frame]:
    if isinstance(source, (str, Path, InputSpec)):
        from ..media.reader import Reader

        spec = source if isinstance(source, InputSpec) else InputSpec(str(source))
        items: Iterable[object] = stack.enter_context(Reader(spec))
    else:
        items = source
    for item in items:
        if isinstance(item, av.VideoFrame):
            yield host.from_av(item)
        elif isinstance(item, Frame):
            yield item
        del item


class _Plane:
    """Running figures of one component."""

    def __init__(self) -> None:
        self.max_diff, self.error, self.samples, self.ssim = 0.0, 0.0, 0, 0.0

    def add(self, a: Array, b: Array, peak: float) -> tuple[float, int]:
        """Add one frame's planes; their squared error and number of samples."""
        largest, error = difference(a, b)
        self.max_diff = max(self.max_diff, largest)
        self.error += error
        self.samples += int(a.size)
        self.ssim += 1.0 if error == 0 else ssim(a, b, peak) if math.isfinite(error) else 0.0
        return error, int(a.size)


def difference(a: Array, b: Array) -> tuple[float, float]:
    """Largest absolute difference and sum of squared differences, exact for integers.

    Both are infinite where one float sample is NaN or infinite and the other is not the same.
    """
    if a.dtype.kind == "f":
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        a, b = np.where(same, 0, a), np.where(same, 0, b)
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            return math.inf, math.inf
    kind = np.float64 if a.dtype.kind == "f" else np.int32
    largest, total = 0.0, 0.0
    rows = max(1, (1 << 18) // max(1, a.shape[1]))
    for top in range(0, a.shape[0], rows):
        part = a[top : top + rows].astype(kind) - b[top : top + rows]
        largest = max(largest, float(np.abs(part).max()))
        part = part.astype(np.float64, copy=False)
        total += float(np.vdot(part, part))
    return largest, total


class _Tally:
    """Everything that is counted, frame after frame."""

    def __init__(self) -> None:
        self.counts = [0, 0]
        self.formats, self.sizes = ["", ""], [(0, 0), (0, 0)]
        self.planes: dict[str, _Plane] = {}
        self.peak, self.compared, self.pts_differ = 1, 0, 0
        self.worst: tuple[int, float] = (-1, math.nan)
        self.kept: tuple[Frame, Frame] | None = None
        self.resized: list[str] = []
        self.ranges: list[str] = []

    def add(self, a: Frame | None, b: Frame | None, *, keep: bool) -> None:
        """One frame of each, None where a video has ended."""
        for side, frame in enumerate((a, b)):
            if frame is None:
                continue
            if self.counts[side] == 0:
                self.formats[side], self.sizes[side] = frame.format, (frame.width, frame.height)
            self.counts[side] += 1
        if a is None or b is None or self.resized:
            return
        number = self.counts[0] - 1
        if not _same_time(a, b):
            if self.pts_differ == 0:
                self.first_pts = f"frame {number} is at {_time(a)} and {_time(b)}"
            self.pts_differ += 1
        if (a.width, a.height) != (b.width, b.height):
            sizes = f"{a.width}x{a.height} and {b.width}x{b.height}"
            self.resized.append(f"frame {number} has the sizes {sizes}")
            return
        if self.compared == 0 and {_range(a), _range(b)} == {"full", "limited"}:
            self.ranges.append(f"one is {_range(a)} range, the other {_range(b)}")
        quality = self._planes(a, b)
        self.compared += 1
        if math.isnan(self.worst[1]) or quality < self.worst[1]:
            self.worst = (number, quality)
            if keep:
                self.kept = (a, b)

    def _planes(self, a: Frame, b: Frame) -> float:
        """PSNR of one pair of frames."""
        formats = a.format, b.format
        what = f"{a.format} and {b.format} hold different samples: convert one of the two first"
        a, b = readable(a), readable(b)
        one, two = known_format(a), known_format(b)
        left, right = matching(a, b)
        alike = one.peak == two.peak and one.dtype == two.dtype
        if not alike or left.keys() != right.keys() or one.log2_chroma != two.log2_chroma:
            raise FormatError(what, wanted=formats[0], got=formats[1])
        self.peak = one.peak
        parts = [
            self.planes.setdefault(name, _Plane()).add(left[name], right[name], one.peak)
            for name in left
        ]
        return psnr_of(sum(error for error, _ in parts) / sum(n for _, n in parts), one.peak)

    def result(self, limits: Limits) -> Comparison:
        planes = tuple(
            PlaneFigures(
                name,
                plane.max_diff,
                psnr_of(plane.error / plane.samples, self.peak),
                plane.ssim / self.compared,
            )
            for name, plane in self.planes.items()
        )
        samples = sum(plane.samples for plane in self.planes.values())
        error = sum(plane.error for plane in self.planes.values())
        weighted = sum(plane.ssim * plane.samples for plane in self.planes.values())
        return Comparison(
            frames=(self.counts[0], self.counts[1]),
            compared=self.compared,
            formats=(self.formats[0], self.formats[1]),
            sizes=(self.sizes[0], self.sizes[1]),
            planes=planes,
            max_diff=max((plane.max_diff for plane in planes), default=math.nan),
            psnr=psnr_of(error / samples, self.peak) if samples else math.nan,
            ssim=weighted / samples / self.compared if samples else math.nan,
            worst_frame=self.worst[0],
            worst_psnr=self.worst[1],
            pts_differ=self.pts_differ,
            problems=tuple(self._problems(planes, limits)),
        )

    def _problems(self, planes: tuple[PlaneFigures, ...], limits: Limits) -> Iterator[str]:
        if self.counts[0] != self.counts[1]:
            yield f"{self.counts[0]} and {self.counts[1]} frames"
        if not any(self.counts):
            yield "no frames"
        yield from self.resized
        yield from self.ranges
        if self.pts_differ:
            more = f", and {self.pts_differ - 1} more" if self.pts_differ > 1 else ""
            yield self.first_pts + more
        for plane in planes:
            if limits.max_diff is not None and plane.max_diff > limits.max_diff:
                yield f"plane {plane.name} by {plane.max_diff:g}, --max-diff {limits.max_diff:g}"
        number, quality = self.worst
        if limits.min_psnr is not None and quality < limits.min_psnr:
            yield f"frame {number} has {quality:.2f} dB, --min-psnr {limits.min_psnr:g}"


def _same_time(a: Frame, b: Frame) -> bool:
    """Equal to half a tick of the coarser clock: containers round to their own."""
    if a.meta.pts is None or b.meta.pts is None:
        return a.meta.pts is b.meta.pts
    apart = abs(a.meta.pts * a.meta.time_base - b.meta.pts * b.meta.time_base)
    return apart * 2 <= max(a.meta.time_base, b.meta.time_base)


def _range(frame: Frame) -> str:
    """What the codes of luma and chroma span; "" where the video does not say."""
    if frame.format.startswith("yuvj"):
        return "full"
    tag = getattr(frame.meta.template, "color_range", 0)
    return {1: "limited", 2: "full"}.get(int(tag or 0), "")


def _time(frame: Frame) -> str:
    if frame.meta.pts is None:
        return "no time"
    return f"{float(frame.meta.pts * frame.meta.time_base):.6f} s"
