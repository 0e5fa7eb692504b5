"""Frames in overlapping tiles: one output is stitched, few tiles are in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from fractions import Fraction
from threading import BoundedSemaphore
from typing import Any

import numpy as np

from ..backends import Backend
from ..frame import Array, Arrays, Shapes, TensorSpec
from ._grid import Grid, ramp
from ._pictures import Area, axis, picture_outputs, region, resized, shape_for

FRAMES = 2
"""Frames that may wait for their tiles: one is at work, one is ready to follow."""


class Stitcher:
    """Puts the tiles of one output, which come row by row, into one picture (rows, columns, ...).

    A cut lies in the middle of an overlap. For blending, the tiles of a row are first joined in
    a strip, then the strip with what lies above it.
    """

    def __init__(self, grid: Grid, scale: Fraction, out: Any) -> None:
        self.grid = grid
        self.down, self.across = grid.down(scale), grid.across(scale)
        self.out = out
        self.strip: Any = None

    def put(self, row: int, column: int, tile: Any) -> None:
        top, left = self.down.begin(row), self.across.begin(column)
        if not self.grid.blend:
            below, beside = self.down.join(row), self.across.join(column)
            _paste(self.out, below, beside, tile[below - top :, beside - left :])
            return
        if self.strip is None:
            self.strip = np.empty((tile.shape[0], *self.out.shape[1:]), np.float32)
        shared = self.across.shared(column)
        _blend(self.strip.swapaxes(0, 1), left, shared, tile.swapaxes(0, 1))
        if column + 1 == len(self.grid.columns):
            _blend(self.out, top, self.down.shared(row), self.strip)


def _paste(out: Any, top: int, left: int, part: Any) -> None:
    room = out[top : top + part.shape[0], left : left + part.shape[1]]
    room[...] = part[: room.shape[0], : room.shape[1]]


def _blend(out: Any, at: int, shared: int, part: Any) -> None:
    """Lay lines over `out` from line `at`, the first `shared` of them with a growing weight."""
    room = out[at : at + part.shape[0]]
    lines = np.asarray(part[: room.shape[0]], np.float32)
    shared = min(shared, room.shape[0])
    if shared:
        weight = ramp(shared).reshape(-1, *[1] * (lines.ndim - 1))
        mixed = room[:shared] * (1 - weight) + lines[:shared] * weight
        lines = np.concatenate((mixed, lines[shared:]))
    whole = np.issubdtype(out.dtype, np.integer)
    room[...] = np.rint(lines).astype(out.dtype) if whole else lines


class Tiled:
    """Runs a model of one size on frames of another, tile by tile.

    `batch_size` tiles go into one inference. Tiles are started by one thread, as the seam wants.
    """

    def __init__(
        self,
        inner: Backend,
        given: TensorSpec,
        frame: Area,
        grid: Grid,
        scales: Mapping[str, Fraction],
        batch: int,
    ) -> None:
        self._inner = inner
        self._given = given
        self._grid = grid
        self._scales = scales
        self._batch = inner.info.max_batch or batch
        self._specs = {spec.name: spec for spec in picture_outputs(inner, given)}
        made = {name: frame.times(scale) for name, scale in scales.items()}
        self._made = made
        self.info = replace(
            inner.info,
            inputs=(_single(resized(given, frame)),),
            outputs=tuple(_single(resized(self._specs[name], made[name])) for name in made),
            memory=frozenset({"host"}),
            max_batch=1,
            max_in_flight=FRAMES,
        )
        self._slots = BoundedSemaphore(FRAMES)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="avdnn-tiles")

    def output_shapes(self, inputs: Shapes) -> Shapes:
        """From the shapes for one tile, and the scales."""
        given = replace(self._given, shape=tuple(inputs[self._given.name]))
        batch = self._inner.info.max_batch or 1
        tile = shape_for(replace(given, shape=(batch, *given.shape[1:])), self._grid.tile, -1)
        inside = self._inner.output_shapes({given.name: tile})
        return {
            name: (1, *resized(replace(spec, shape=inside[name]), self._made[name]).shape[1:])
            for name, spec in self._specs.items()
        }

    def infer_async(self, inputs: Arrays) -> Future[Arrays]:
        """Start the tiles of one frame; waits while two frames wait for theirs."""
        self._slots.acquire()
        future = self._thread.submit(self._infer, np.asarray(inputs[self._given.name]))
        future.add_done_callback(lambda _: self._slots.release())
        return future

    def _infer(self, array: Array) -> Arrays:
        found: dict[str, Any] = {}
        stitchers: dict[str, Stitcher] = {}
        running: deque[tuple[list[tuple[int, int]], Any, Future[Arrays]]] = deque()

        def finish() -> None:
            tiles, _, future = running.popleft()
            made = future.result()
            for name, spec in self._specs.items():
                if name not in found:
                    found[name] = self._empty(spec, made[name])
                    picture = _rows_first(found[name][0], spec)
                    stitchers[name] = Stitcher(self._grid, self._scales[name], picture)
                for index, (row, column) in enumerate(tiles):
                    stitchers[name].put(row, column, _rows_first(made[name][index], spec))

        try:
            for tiles in self._batches():
                if len(running) >= self._inner.info.max_in_flight:
                    finish()
                fed = self._cut(array, tiles)
                running.append((tiles, fed, self._inner.infer_async({self._given.name: fed})))
            while running:
                finish()
        finally:
            wait([future for _, _, future in running])
        return found

    def _batches(self) -> Iterator[list[tuple[int, int]]]:
        tiles = list(self._grid.tiles())
        for start in range(0, len(tiles), self._batch):
            yield tiles[start : start + self._batch]

    def _cut(self, array: Array, tiles: list[tuple[int, int]]) -> Array:
        """A batch of tiles; a fixed batch is filled up with the last one."""
        grid, rows = self._grid, axis(self._given)
        parts = [
            region(array, rows, grid.rows[row], grid.columns[column], grid.tile)
            for row, column in tiles
        ]
        missing = (self._inner.info.max_batch or len(tiles)) - len(tiles)
        return np.concatenate(parts + parts[-1:] * missing)

    def _empty(self, spec: TensorSpec, made: Array) -> Array:
        shape = resized(replace(spec, shape=made.shape), self._made[spec.name]).shape
        return np.empty((1, *shape[1:]), made.dtype)

    def close(self) -> None:
        """Wait for running frames and close the model inside."""
        self._thread.shutdown()
        self._inner.close()


def _single(spec: TensorSpec) -> TensorSpec:
    return replace(spec, shape=(1, *spec.shape[1:]))


def _rows_first(picture: Any, spec: TensorSpec) -> Any:
    """A view of one picture as (rows, columns, channels)."""
    return picture.transpose(1, 2, 0) if axis(spec) == 2 else picture
