"""fit= on a GPU: pad, tile and scale with kernels, all in the order of `compute`.

What goes into the model lies in the same memory for each job, and so does a picture made of
tiles: a job lies in the stream behind the one before. Only the first output is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from .. import fit
from ..backends import Backend
from ..cuda import Device
from ..cuda import tensors as cuda_tensors
from ..cuda import tiles as cuda_tiles
from ..errors import InferenceError
from ..fit import Fit, Grid, Plan
from ..frame import Array, Arrays, Layout, Shapes, TensorSpec


@dataclass(frozen=True, slots=True)
class Place:
    """Where a wrapper works: `sample` is the frames' type; for `packed` see `cuda.tensors.pack`."""

    device: Device
    sample: str
    packed: bool


class Held(dict[str, Array]):
    """A job's outputs, and what the stream reads to make them."""

    def __init__(self, outputs: Arrays, held: tuple[Any, ...]) -> None:
        super().__init__(outputs)
        self.held = held


def wrapped(place: Place, backend: Backend, plan: Plan, batch: int) -> Backend:
    """A backend for pictures of `plan.model` as one for device arrays of `plan.frame`."""
    host = fit.wrapped(backend, plan, batch)
    if host is backend:
        return backend
    if plan.grid is not None:
        return TiledOnDevice(place, backend, host, plan, plan.grid, batch)
    kind = PaddedOnDevice if plan.how is Fit.PAD else ScaledOnDevice
    return kind(place, backend, host, plan)


class OnDevice:
    """What the wrappers share; `host` is the one for host arrays, which knows sizes and shapes."""

    def __init__(self, place: Place, inner: Backend, host: Backend, plan: Plan) -> None:
        self._place = place
        self._device = place.device
        self._inner = inner
        self._host = host
        self._plan = plan
        self._given = inner.info.inputs[0]
        self._out = host.info.outputs[0]
        self._out = replace(self._out, dtype=inner.info.outputs[0].dtype)
        self._rooms: dict[str, Array] = {}
        self.info = replace(host.info, outputs=(self._out,), memory=inner.info.memory)

    def output_shapes(self, inputs: Shapes) -> Shapes:
        """The frame's shapes; the model may run once."""
        return {self._out.name: self._host.output_shapes(inputs)[self._out.name]}

    def infer_async(self, inputs: Arrays) -> Future[Arrays]:
        """A future that is done at once: what it holds is ordered on `compute`."""
        future: Future[Arrays] = Future()
        try:
            future.set_result(self._put(inputs[self._given.name]))
        except InferenceError as error:
            future.set_exception(error)
        return future

    def _put(self, array: Array) -> Arrays:
        raise NotImplementedError

    @property
    def captures(self) -> bool:
        """Whether the model's jobs are to be recorded."""
        return bool(getattr(self._inner, "captures", False))

    def capture(self, work: Callable[[], object]) -> Any:
        """As the model's backend does it."""
        inner: Any = self._inner
        return inner.capture(work)

    def close(self) -> None:
        """Close the model inside."""
        self._rooms.clear()
        self._host.close()

    def _inside(self, array: Array, count: int) -> Array:
        """The tensor that goes into the model, for pictures of as many channels as `array`'s."""
        channels, _, _ = cuda_tiles.sizes(array, self._given)
        return self._room("inside", self._given, self._plan.model, channels, count)

    def _outside(self, inside: Array, count: int) -> Array:
        """The tensor for the frame's size, of as many channels as the model's output."""
        channels, _, _ = cuda_tiles.sizes(inside, self._out)
        return self._room("outside", self._out, fit.Area(*self._out.size), channels, count)

    def _room(self, key: str, spec: TensorSpec, size: fit.Area, channels: int, count: int) -> Array:
        kept = self._rooms.get(key)
        if kept is None or kept.shape[0] < count:
            sides, packed = (size.height, size.width), self._place.packed
            device = self._device
            kept = cuda_tensors.empty_tensor(device, sides, spec, channels, count, packed)
            self._rooms[key] = kept
        return kept[:count]

    def _inferred(self, fed: Array) -> Array:
        made = self._inner.infer_async({self._given.name: fed}).result()
        return self._device.adopt(made[self._out.name])


class PaddedOnDevice(OnDevice):
    """Frames go on to the right and below as their edge does; the result is cropped back."""

    def _put(self, array: Array) -> Arrays:
        count = array.shape[0]
        fed = self._inside(array, count)
        places = self._device.table(_frames(count))
        cuda_tiles.cut(self._device, array, fed, self._given, places, self._place.sample)
        made = self._inferred(fed)
        height, width = self._out.size
        if self._out.layout is Layout.NCHW:
            return {self._out.name: made[:, :, :height, :width]}
        return {self._out.name: made[:, :height, :width]}


class ScaledOnDevice(OnDevice):
    """Frames are resampled to the model's size, and its results from it."""

    def _put(self, array: Array) -> Arrays:
        fed = self._inside(array, array.shape[0])
        self._stretch(array, fed, self._given)
        inside = self._inferred(fed)
        made = self._outside(inside, inside.shape[0])
        self._stretch(inside, made, self._out)
        return Held({self._out.name: made}, (inside,))

    def _stretch(self, array: Array, made: Array, spec: TensorSpec) -> None:
        _, *sizes = cuda_tiles.sizes(array, spec)
        _, *others = cuda_tiles.sizes(made, spec)
        down, across = (self._taps(*pair) for pair in zip(sizes, others, strict=True))
        cuda_tiles.stretch(self._device, array, made, spec, across, down, self._place.sample)

    def _taps(self, source: int, target: int) -> cuda_tiles.Taps:
        first, weights = _taps(source, target)
        return self._device.table(first), self._device.table(weights)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Tiles of one inference: tables for cut and add, and the part of the picture they touch."""

    cut: Array
    add: Array
    box: tuple[int, int, int, int]


class TiledOnDevice(OnDevice):
    """Runs a model of one size on frames of another, one after another, in batches of tiles.

    The picture is summed up in float32, each tile by its weights: few tiles are in memory.
    """

    def __init__(
        self, place: Place, inner: Backend, host: Backend, plan: Plan, grid: Grid, batch: int
    ) -> None:
        super().__init__(place, inner, host, plan)
        self._spec = replace(self._out, dtype=inner.info.outputs[0].dtype)
        self._out = replace(self._out, dtype="float32")
        self.info = replace(self.info, outputs=(self._out,))
        self._count = inner.info.max_batch or min(batch, len(grid))
        scale = plan.scales[self._out.name]
        height, width = self._out.size
        down, across = grid.down(scale), grid.across(scale)
        weights = down.weights(height), across.weights(width)
        self._weights = self._device.table(weights[0]), self._device.table(weights[1])
        self._batches = list(self._cut_into(grid, down, across))

    def _cut_into(self, grid: Grid, down: fit.Along, across: fit.Along) -> Iterator[_Batch]:
        tall, wide = (int(side * down.scale) for side in (grid.tile.height, grid.tile.width))
        tiles = list(grid.tiles())
        for start in range(0, len(tiles), self._count):
            part = tiles[start : start + self._count]
            filled = part + part[-1:] * ((self._inner.info.max_batch or 0) - len(part))
            cut: list[tuple[int, ...]] = [
                (0, grid.rows[row], grid.columns[column]) for row, column in filled
            ]
            add: list[tuple[int, ...]] = [
                (down.begin(row), across.begin(column), row * tall, column * wide)
                for row, column in part
            ]
            top, left = min(place[0] for place in add), min(place[1] for place in add)
            bottom = min(max(place[0] for place in add) + tall, self._out.size[0])
            right = min(max(place[1] for place in add) + wide, self._out.size[1])
            box = top, left, bottom - top, right - left
            yield _Batch(self._table(cut), self._table(add), box)

    def _table(self, rows: Sequence[tuple[int, ...]]) -> Array:
        return self._device.table(np.array(rows, np.int32))

    def _put(self, array: Array) -> Arrays:
        device, sample = self._device, self._place.sample
        held: list[Array] = []
        for batch in self._batches:
            fed = self._inside(array, self._count)[: len(batch.cut)]
            cuda_tiles.cut(device, array, fed, self._given, batch.cut, sample)
            tiles = self._inferred(fed)
            if not held:
                picture = self._outside(tiles, 1)
                device.clear(picture, device.compute)
            cuda_tiles.add(
                device, tiles, picture, self._spec, batch.box, batch.add, self._weights, sample
            )
            held.append(tiles)
        return Held({self._out.name: picture}, tuple(held))


@cache
def _frames(count: int) -> Array:
    """The table for `cut` that takes frames as they are."""
    return np.array([(number, 0, 0) for number in range(count)], np.int32)


@cache
def _taps(source: int, target: int) -> tuple[Array, Array]:
    """fit.taps as arrays whose copies the device keeps, the same ones each time."""
    return fit.taps(source, target)
