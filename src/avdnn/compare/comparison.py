"""What a comparison of two videos found, and how it is told."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import UsageError


@dataclass(frozen=True, slots=True)
class Limits:
    """What is still the same: no sample further apart than `max_diff` codes, no frame's PSNR
    below `min_psnr` dB. Without either, only count, size and times decide. UsageError for limits
    that no video keeps: NaN, or fewer than 0 codes."""

    max_diff: float | None = None
    min_psnr: float | None = None

    def __post_init__(self) -> None:
        if self.max_diff is not None and not self.max_diff >= 0:
            raise UsageError(f"--max-diff: expected 0 codes or more, got {self.max_diff:g}")
        if self.min_psnr is not None and math.isnan(self.min_psnr):
            raise UsageError("--min-psnr: expected a number of dB, got nan")


@dataclass(frozen=True, slots=True)
class PlaneFigures:
    """One component over all frames: `max_diff` in codes, `psnr` in dB of the squared error of
    all frames together (inf if equal), `ssim` the mean of the frames'."""

    name: str
    max_diff: float
    psnr: float
    ssim: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found. `problems` are lines that say why `same` is false, the first first.

    `frames`, `formats` and `sizes` (width, height) are those of both inputs, sizes and formats
    of their first frames. Figures cover the `compared` frames that both have, up to a frame whose
    sizes differ; without one, psnr is nan. `psnr` is over all samples of all frames;
    `worst_frame` counts from 0 and has the PSNR `worst_psnr`.
    """

    frames: tuple[int, int]
    compared: int
    formats: tuple[str, str]
    sizes: tuple[tuple[int, int], tuple[int, int]]
    planes: tuple[PlaneFigures, ...]
    max_diff: float
    psnr: float
    ssim: float
    worst_frame: int
    worst_psnr: float
    pts_differ: int
    problems: tuple[str, ...]

    @property
    def same(self) -> bool:
        return not self.problems

    @property
    def exit_code(self) -> int:
        return 0 if self.same else 1

    def as_json(self) -> str:
        """One JSON object; a figure that is infinite (equal) or not a number is null."""
        return json.dumps({"same": self.same, **_finite(asdict(self))}, indent=2)

    def as_text(self) -> str:
        """Lines for people."""
        first, second = (
            f"{width}x{height} {form}"
            for (width, height), form in zip(self.sizes, self.formats, strict=True)
        )
        what = first if first == second else f"{first} and {second}"
        frames = "1 frame" if self.compared == 1 else f"{self.compared} frames"
        lines = [f"{frames} of {what} compared"]
        for plane in self.planes:
            lines.append(
                f"{plane.name}: max difference {plane.max_diff:g}, PSNR {_db(plane.psnr)}, "
                f"SSIM {plane.ssim:.5f}"
            )
        if self.planes:
            lines.append(f"all: PSNR {_db(self.psnr)}, SSIM {self.ssim:.5f}")
            lines.append(f"worst frame: {self.worst_frame}, PSNR {_db(self.worst_psnr)}")
        return "\n".join([*lines, *(f"differs: {problem}" for problem in self.problems)])


def _db(value: float) -> str:
    return "inf (equal)" if value == math.inf else f"{value:.2f} dB"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
