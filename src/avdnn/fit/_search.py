"""One decision: the first way of `fit` that the model's measures allow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from ..backends import Backend, Options
from ..errors import InferenceError, ModelError
from ..frame import TensorSpec
from ._grid import Grid, starts
from ._measure import SMALL, Sight, Trial, multiple, sight, smallest
from ._pictures import Area, picture_input, ratios, scales
from ._plan import Fit, Plan

TILE = 512
"""Side of the tiles where the model leaves it open."""

PERIOD = 192
"""Multiples that models want divide this."""


@dataclass(slots=True)
class Search:
    """One decision; `backend` is what is loaded at the moment, in the end for the plan."""

    load: Callable[[Options], Backend]
    options: Options
    fit: Fit
    overlap: int
    channels: int
    title: str
    frame: Area
    backend: Backend

    def decide(self) -> Plan:
        spec = picture_input(self.backend)
        if spec is None:
            return self._as_is()
        size = _own_size(spec, self.frame)
        if self.fit is Fit.TILE:
            return self._in_tiles(spec)
        if size != self.frame:
            return self._fixed(spec, size)
        if self.fit in (Fit.AUTO, Fit.PAD):
            return self._free(spec)
        self._refuse_too_small(spec)
        return self._as_is()

    def _as_is(self) -> Plan:
        before = self.backend.info.facts.get("reshaped from", "")
        how, why = (Fit.RESHAPE, f"made for {before}") if before else (None, "")
        return Plan(how, self.frame, self.frame, why=why)

    def _reload(self, size: Area) -> TensorSpec:
        self.backend.close()
        self.backend = self.load(replace(self.options, size=(size.height, size.width)))
        spec = picture_input(self.backend)
        if spec is None or _own_size(spec, size) != size:
            raise ModelError(f"{self.title} cannot be loaded for pictures of {size}")
        return spec

    # ---- models that take the frame's size -----------------------------------------------------

    def _free(self, spec: TensorSpec) -> Plan:
        """As it is, or padded to a multiple where the model fails or loses the last pixels."""
        failure: ModelError | InferenceError | None = None
        sizes = {_stand_in(self.frame), self.frame} if -1 in spec.size else {self.frame}
        for size in sorted(sizes, key=lambda size: size.height * size.width):
            try:
                if scales(ratios(self.backend, spec, size, self.channels)) is not None:
                    return self._as_is()
            except (ModelError, InferenceError) as error:
                failure = error
        number, larger = self._larger(spec)
        padded = self.frame.up_to(number or 1)
        if larger is None and padded == self.frame:
            if failure is not None:
                raise ModelError(f"{self.title}: frames of {self.frame}: {failure}") from failure
            if self.fit is Fit.PAD:
                raise ModelError(f"{self.title}: {self._no_scale(self.frame)}, so fit=pad has none")
            return self._as_is()
        size = larger or padded
        if -1 not in spec.size:
            spec = self._reload(size)
        found = scales(ratios(self.backend, spec, size, self.channels))
        if found is None:
            raise ModelError(f"{self.title}: {self._no_scale(size)}")
        why = f"multiple of {number}" if size == padded else "the model fails on smaller ones"
        return self._padded(size, found, why)

    def _larger(self, spec: TensorSpec) -> tuple[int | None, Area | None]:
        """The model's multiple, and the smallest size above the frame's that it takes."""
        able = -1 in spec.size or self.backend.info.reshapeable
        number = multiple(self._scaled) if able else None
        return number, smallest(self._scaled, self.frame, number) if number else None

    def _refuse_too_small(self, spec: TensorSpec) -> None:
        """Refuse frames that the model fails on only because they are small."""
        if min(self.frame.height, self.frame.width) >= SMALL:
            return
        try:
            ratios(self.backend, spec, self.frame, self.channels)
        except (ModelError, InferenceError) as error:
            if self._larger(spec)[1] is None:
                raise
            raise ModelError(
                f"{self.title} does not take frames as small as {self.frame}: fit=auto and "
                f"fit=pad pad them"
            ) from error

    def _scaled(self, size: Area) -> bool:
        """Whether the model takes a size and scales it exactly."""
        spec = picture_input(self.backend)
        if spec is not None and -1 in spec.size:
            return scales(ratios(self.backend, spec, size, self.channels)) is not None
        other = self.load(replace(self.options, size=(size.height, size.width)))
        try:
            spec = picture_input(other)
            if spec is None or _own_size(spec, size) != size:
                return False
            return scales(ratios(other, spec, size, self.channels)) is not None
        finally:
            other.close()

    def _no_scale(self, size: Area) -> str:
        return f"its output is no whole multiple or part of a frame of {size}"

    def _padded(self, size: Area, found: Mapping[str, Fraction], why: str) -> Plan:
        made = {name: self.frame.times(scale) for name, scale in found.items()}
        return Plan(Fit.PAD, self.frame, size, exact=False, why=why, made=made)

    # ---- models of another size ----------------------------------------------------------------

    def _fixed(self, spec: TensorSpec, size: Area) -> Plan:
        """Padded if the frame is smaller, else in tiles, else scaled."""
        if self.fit in (Fit.ERROR, Fit.RESHAPE):
            cannot = "" if self.fit is Fit.ERROR else " and cannot be reshaped"
            raise ModelError(
                f"{self.title} takes pictures of {size}{cannot}, the frames are {self.frame}: "
                f"scale them, or use fit=auto, pad, tile or scale"
            )
        ratio = ratios(self.backend, spec, size, self.channels)
        found = scales(ratio)
        if self.fit is Fit.SCALE or (self.fit is Fit.AUTO and found is None):
            return self._rescaled(size, ratio)
        if found is None:
            raise ModelError(
                f"{self.title}: {self._no_scale(size)}, so fit={self.fit} is not possible; "
                f"fit=scale may be"
            )
        if self.fit is not Fit.TILE and size.holds(self.frame):
            return self._padded(size, found, f"the model's size is {size}")
        if self.fit is Fit.PAD:
            raise ModelError(
                f"{self.title} takes pictures of {size}, smaller than the frames of {self.frame}: "
                f"fit=pad is not possible; fit=tile or scale is"
            )
        return self._tiled(spec, size, found)

    def _rescaled(self, size: Area, ratio: Mapping[str, tuple[Fraction, Fraction] | None]) -> Plan:
        made = {}
        for name, factors in ratio.items():
            if factors is None:
                raise ModelError(
                    f"{self.title}: output {name!r} is no picture, and frames of {self.frame} do "
                    f"not have the model's size {size}: scale them before the filter"
                )
            height, width = self.frame.height * factors[0], self.frame.width * factors[1]
            made[name] = Area(max(round(height), 1), max(round(width), 1))
        return Plan(Fit.SCALE, self.frame, size, exact=False, why="detail may be lost", made=made)

    def _in_tiles(self, spec: TensorSpec) -> Plan:
        """Tiles of the model's size; where it takes any, small ones."""
        tile = tile_for(self.frame)
        size = _own_size(spec, tile)
        if size != tile:
            return self._fixed(spec, size)
        found = scales(ratios(self.backend, spec, tile, self.channels))
        if found is None:
            raise ModelError(f"{self.title}: {self._no_scale(tile)}, so fit=tile is not possible")
        return self._tiled(spec, tile, found)

    def _tiled(self, spec: TensorSpec, tile: Area, found: Mapping[str, Fraction]) -> Plan:
        trial = Trial(self.backend, spec, tile, self.channels)
        seen = sight(trial, list(found.values()))
        whole = max(scale.denominator for scale in found.values())
        phase = _phase(seen, tile, whole)
        need, overlap = self._overlap(seen, tile, whole)
        side = min(tile.height, tile.width)
        if overlap > side - phase:
            raise ModelError(
                f"{self.title}: overlap={overlap} leaves nothing of tiles of {tile}: "
                f"at most {side - phase} is possible"
            )
        grid = Grid(
            tile,
            starts(self.frame.height, tile.height, overlap, phase),
            starts(self.frame.width, tile.width, overlap, phase),
            blend=need is None or overlap < need or seen.phase is None,
        )
        covered = Area(grid.rows[-1] + tile.height, grid.columns[-1] + tile.width)
        return Plan(
            Fit.TILE,
            self.frame,
            tile,
            (len(grid.rows), len(grid.columns)),
            overlap,
            exact=not grid.blend and seen.exact and covered == self.frame,
            why=_why(seen, grid, need),
            grid=grid,
            scales=found,
        )

    def _overlap(self, seen: Sight, tile: Area, whole: int) -> tuple[int | None, int]:
        """The overlap that hides the borders of tiles, if there is one, and the one to use."""
        side = min(tile.height, tile.width)
        need = None if seen.reach is None else 2 * (-(-seen.reach // whole) * whole)
        if self.overlap >= 0:
            return need, self.overlap
        if need is not None and need <= side * 3 // 4:
            return need, need
        return need, side // 4


def tile_for(frame: Area) -> Area:
    """The size of tiles where the model leaves it open."""
    side = frame.up_to(32)
    return Area(min(side.height, TILE), min(side.width, TILE))


def opened(load: Callable[[Options], Backend], options: Options, frame: Area, fit: Fit) -> Backend:
    """The model loaded for the frame; where that fails and the frame is small, for any size.

    For tiles it is loaded for those: what loads it may run it. A backend that has reshaped the
    model where the model's own size counts loads it again for that.
    """
    first = tile_for(frame) if fit is Fit.TILE else frame
    try:
        backend = load(replace(options, size=(first.height, first.width)))
    except ModelError:
        if min(frame.height, frame.width) >= SMALL:
            raise
    else:
        if fit in (Fit.AUTO, Fit.RESHAPE) or "reshaped from" not in backend.info.facts:
            return backend
        backend.close()
    return load(replace(options, size=None))


def _stand_in(frame: Area) -> Area:
    """A small size that leaves the same remainders by all usual multiples."""
    sides = (frame.height, frame.width)
    return Area(*(side if side < 2 * PERIOD else PERIOD + side % PERIOD for side in sides))


def _own_size(spec: TensorSpec, frame: Area) -> Area:
    """The size that a model takes; where it is free, the frame's."""
    height, width = spec.size
    return Area(height if height > 0 else frame.height, width if width > 0 else frame.width)


def _phase(seen: Sight, tile: Area, whole: int) -> int:
    """What tiles may be moved by; if it could not be measured, a large power of two."""
    if seen.phase is not None:
        return seen.phase
    phase = whole
    while phase < 32 and tile.height % (2 * phase) == 0 and tile.width % (2 * phase) == 0:
        phase *= 2
    return phase


def _why(seen: Sight, grid: Grid, need: int | None) -> str:
    if not grid.blend:
        return f"the model sees {seen.reach} pixels far; cut in the middle"
    if seen.reach is None:
        why = "the model sees further than half a tile"
    elif seen.phase is None:
        why = "the model does not treat all places alike"
    else:
        why = f"{need} would hide the borders"
    return f"{why}; {'blended' if grid.shares else 'side by side'}" if len(grid) > 1 else why
