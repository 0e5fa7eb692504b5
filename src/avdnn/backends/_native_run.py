"""Runs a native network over rows, so that only a few rows of each operand exist at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import ModelError
from ._native_layers import step
from ._native_model import Floats, Model, sources
from ._native_rows import Block, Push, Size, Span, Step

PIXELS = 4096
"""Pixels that go through the network together; products of fewer are slow, more leave the cache."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A layer of the network, ready to run."""

    step: Step
    sources: tuple[str, ...]
    target: str
    title: str


class Network:
    """The layers that the wanted outputs depend on."""

    def __init__(self, model: Model, outputs: Sequence[str]) -> None:
        wanted = set(outputs)
        stages: list[Stage] = []
        for number, layer in reversed(list(enumerate(model.layers))):
            if layer.target in wanted:
                title = f"layer {number} ({type(layer).__name__})"
                stages.append(Stage(step(layer), sources(layer), layer.target, title))
                wanted.update(sources(layer))
        self.stages = stages[::-1]
        self.outputs = tuple(outputs)
        self.operands = frozenset(wanted)

    def sizes(self, inputs: Mapping[str, Size]) -> dict[str, Size]:
        """The sizes of all operands; ModelError names the layer that cannot take its input."""
        found = dict(inputs)
        for stage in self.stages:
            try:
                found[stage.target] = stage.step.size([found[name] for name in stage.sources])
            except ModelError as error:
                raise ModelError(f"{stage.title}: {error}", backend="native") from error
        return found

    def spans(self, sizes: Mapping[str, Size], shares: Mapping[str, Span]) -> dict[str, Span]:
        """The rows of each operand that some rows of the outputs depend on."""
        found = dict(shares)
        for stage in reversed(self.stages):
            for name in stage.sources:
                need = stage.step.needs(found[stage.target], sizes[name])
                have = found.get(name, need)
                found[name] = Span(min(have.lo, need.lo), max(have.hi, need.hi))
        return found

    def parts(self, sizes: Mapping[str, Size], most: int) -> int:
        """How many bands are worth while: rows that two bands both compute are wasted."""
        for parts in range(most, 1, -1):
            rows = sum(self._rows(sizes, part, parts) for part in range(parts))
            if rows <= 1.25 * self._rows(sizes, 0, 1):
                return parts
        return 1

    def _rows(self, sizes: Mapping[str, Size], part: int, parts: int) -> int:
        shares = {name: _share(sizes[name].height, part, parts) for name in self.outputs}
        if any(share.lo == share.hi for share in shares.values()):
            return 1 << 30
        spans = self.spans(sizes, shares)
        return sum(spans[stage.target].hi - spans[stage.target].lo for stage in self.stages)

    def run(
        self,
        inputs: Mapping[str, Floats],
        outputs: Mapping[str, Floats],
        sizes: Mapping[str, Size],
        part: int = 0,
        parts: int = 1,
    ) -> None:
        """Compute one of `parts` horizontal bands: (H, W, C) pictures in, (H, W, C) filled."""
        shares = {name: _share(sizes[name].height, part, parts) for name in self.outputs}
        spans = self.spans(sizes, shares)
        with np.errstate(all="ignore"):
            _Pass(self, sizes, spans, shares, outputs).run(inputs)


def _share(rows: int, part: int, parts: int) -> Span:
    return Span(rows * part // parts, rows * (part + 1) // parts)


class _Pass:
    """One walk down the picture, from the inputs' rows to the outputs'."""

    def __init__(
        self,
        network: Network,
        sizes: Mapping[str, Size],
        spans: Mapping[str, Span],
        shares: Mapping[str, Span],
        outputs: Mapping[str, Floats],
    ) -> None:
        self.spans = spans
        self.shares = shares
        self.outputs = outputs
        self.opened: list[tuple[Stage, list[Span], Push]] = []
        for stage in network.stages:
            given = [sizes[name] for name in stage.sources]
            span = spans[stage.target]
            needs = [stage.step.needs(span, size) for size in given]
            self.opened.append((stage, needs, stage.step.open(given, span)))

    def run(self, inputs: Mapping[str, Floats]) -> None:
        at = {name: self.spans[name].lo for name in inputs}
        while any(at[name] < self.spans[name].hi for name in inputs):
            blocks: dict[str, Block] = {}
            for name, picture in inputs.items():
                rows = max(1, PIXELS // picture.shape[1])
                lo, hi = at[name], min(at[name] + rows, self.spans[name].hi)
                if lo < hi:
                    data = np.ascontiguousarray(picture[lo:hi].transpose(2, 0, 1))
                    blocks[name] = Block(lo, data)
                at[name] = hi
            self.push(blocks)

    def push(self, blocks: dict[str, Block]) -> None:
        for stage, needs, push in self.opened:
            given = [
                blocks[name].within(need) if name in blocks else None
                for name, need in zip(stage.sources, needs, strict=True)
            ]
            made = push(given)
            if made is not None:
                blocks[stage.target] = made
        for name, picture in self.outputs.items():
            block = blocks[name].within(self.shares[name]) if name in blocks else None
            if block is not None:
                picture[block.first : block.end] = block.data.transpose(1, 2, 0)
