"""How a model meets a frame: what is asked, what was decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from ..backends import Backend
from ._grid import Grid
from ._pictures import Area


class Fit(StrEnum):
    """How a model meets a frame of another size; `auto` takes the first that is possible."""

    AUTO = "auto"
    RESHAPE = "reshape"
    PAD = "pad"
    TILE = "tile"
    SCALE = "scale"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Plan:
    """What was decided; its text is one line.

    `how` is None where frames go in as they are. `model` is the size that goes into the model,
    `tiles` the numbers of rows and columns of tiles, `overlap` what two tiles share at least.
    `exact`: the result is what the model would give for the whole frame. `made` are the sizes of
    the outputs for a frame that is padded or scaled; tiles have a `grid`, and for each output its
    size over the input's.
    """

    how: Fit | None
    frame: Area
    model: Area
    tiles: tuple[int, int] = (1, 1)
    overlap: int = 0
    exact: bool = True
    why: str = ""
    made: Mapping[str, Area] = field(default_factory=dict)
    grid: Grid | None = None
    scales: Mapping[str, Fraction] = field(default_factory=dict)

    def __str__(self) -> str:
        text = {
            None: f"frames of {self.frame} go in as they are",
            Fit.RESHAPE: f"the model is reshaped to frames of {self.frame}",
            Fit.PAD: f"frames of {self.frame} are padded to {self.model} and cropped back",
            Fit.TILE: f"frames of {self.frame} go in as {self.tiles[1]}x{self.tiles[0]} tiles of "
            f"{self.model} that overlap by {self.overlap}",
            Fit.SCALE: f"frames of {self.frame} are scaled to {self.model} and back",
        }[self.how]
        return f"{text} ({self.why})" if self.why else text


@dataclass(frozen=True, slots=True)
class Fitted:
    """A backend that takes the frames, and how it does that."""

    backend: Backend
    plan: Plan
