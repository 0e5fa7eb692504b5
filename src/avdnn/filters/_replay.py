"""A device job of one size recorded as a graph: from frames to frames by one launch and two copies.

Each launch from Python costs time that the other threads of the program lack. Recorded, the
kernels that fill the tensor, the network and the kernels that empty it are one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cuda import Device
from ..cuda import tensors as cuda_tensors
from ..cuda.blocks import pinned_array
from ..cuda.frames import (
    colour_tags,
    empty_slot,
    follow,
    frame_in,
    known_format,
)
from ..cuda.geometry import PITCH, geometry
from ..errors import ModelError
from ..frame import Array, Arrays, Frame, TensorSpec
from ..pixfmt import pixel_format

NOISE = np.random.default_rng(0).integers(0, 256, 1 << 18, np.uint8)
"""Codes that a recording is tried on."""


@dataclass(frozen=True, slots=True)
class Route:
    """How frames become a backend's input, and its output frames.

    `channels` are the input's; `packed`: see `cuda.tensors.pack`.
    """

    given: TensorSpec
    out: TensorSpec
    order: str
    channels: int
    packed: bool


class Replay:
    """The job of `backend` on up to `batch` frames that lie in memory as `first` does.

    It is run some times before it is recorded, so that all that it needs is there; ModelError
    where it cannot be recorded, or where its recording makes other frames of other pixels. Use
    `fits` before `run`.
    """

    def __init__(
        self, device: Device, backend: Any, route: Route, first: Frame, batch: int
    ) -> None:
        given, out = route.given, route.out
        self._device = device
        self._batch = batch
        self._places = _places(first)
        self._colours = route.channels == 3 and not known_format(first.format).order
        self._tags = colour_tags(first.meta.template)
        self._step = _size(first)
        self._input = device.pool.take(self._step * batch, device.compute)
        sources = [self._source(first, number) for number in range(batch)]
        size = first.height, first.width
        tensor = cuda_tensors.empty_tensor(device, size, given, route.channels, batch, route.packed)
        self.flags = flags = device.array(
            device.pool.take(4 * batch, device.compute), (batch,), "int32"
        )

        def infer() -> tuple[Arrays, Array]:
            cuda_tensors.fill(device, tensor, sources, given, route.order, route.channels)
            arrays: Arrays = backend.infer_async({given.name: tensor}).result()
            return arrays, device.adopt(arrays[out.name])

        self._make_noise()
        held = infer()
        self._size = cuda_tensors.made_size(held[1], out, batch)
        self._made = made = empty_slot(device, sources, *self._size, device.compute, None)

        def work() -> None:
            nonlocal held
            held = infer()
            device.clear(flags, device.compute)
            cuda_tensors.drain(device, held[1], out, sources, made, flags, route.order)

        self._form = pixel_format(first.format)
        self._laid = geometry(self._form, *self._size)
        work()
        expected = self._codes()
        follow(first, device.compute)
        for number in range(batch):
            self._copy_in([first], number)
        work()
        with device.recording():
            self._graph = backend.capture(work)
        self._keep = (sources, tensor, held)
        handle: Callable[[], int] | None = getattr(self._graph, "raw_cuda_graph_exec", None)
        self._handle = handle() if handle is not None else 0
        self._make_noise()
        self._play()
        self._compare(expected)

    # ---- trying it -----------------------------------------------------------------------------

    def _make_noise(self) -> None:
        """Fill the input with other codes than those of any frame."""
        noise = self._device.pointer(self._device.table(NOISE))
        size = self._step * self._batch
        for start in range(0, size, NOISE.size):
            part = min(NOISE.size, size - start)
            target, stream = self._input.pointer + start, self._device.compute
            self._device.copy(target, part, noise, part, part, 1, stream)

    def _codes(self) -> Array:
        """What is in the frames that the job made, in host memory, now."""
        device, size = self._device, self._laid.size * self._batch
        landed = device.pinned.take(size, device.compute)
        source = self._made[0].owner.pointer
        device.copy(landed.pointer, size, source, size, size, 1, device.compute, way="down")
        device.mark(device.compute).synchronize()
        return pinned_array(landed, size).view(self._form.dtype).copy()

    def _compare(self, expected: Array) -> None:
        """Refuse a recording that makes other frames than its job did.

        A network may take another kernel when it is recorded, hence a code of 8 bits.
        """
        got, one = self._codes(), max(1, (self._form.peak + 1) >> 8) << self._form.shift
        if np.array_equal(got, expected):
            return
        apart = np.abs(got.astype(np.int32) - expected).max()
        if apart > one:
            raise ModelError("its recording does not give the same pixels as the model")

    def _source(self, first: Frame, number: int) -> Frame:
        """Place `number` of the input."""
        start = self._input.pointer + number * self._step - _start(first)
        planes = tuple(plane._replace(pointer=plane.pointer + start) for plane in first.planes)
        return Frame(
            planes,
            first.format,
            first.width,
            first.height,
            first.meta,
            self._input,
            None,
            first.device,
        )

    def fits(self, frames: Sequence[Frame]) -> bool:
        """Whether these frames are laid out, and go to RGB, as the recorded ones."""
        alike = len(frames) <= self._batch and all(map(self._lies_alike, frames))
        return alike and (not self._colours or all(map(self._is_tagged_alike, frames)))

    def _is_tagged_alike(self, frame: Frame) -> bool:
        return colour_tags(frame.meta.template) == self._tags

    def _lies_alike(self, frame: Frame) -> bool:
        start = _start(frame)
        return all(
            [
                plane.pointer - start == offset
                and plane.shape == shape
                and plane.strides == strides
                for plane, (offset, shape, strides) in zip(frame.planes, self._places, strict=True)
            ]
        )

    def run(self, frames: Sequence[Frame], ready: Any) -> list[Frame]:
        """New frames, one for each; `flags` tell of NaN until the next run.

        `ready` is the frames' event, which is to be recorded in `compute`.
        """
        device, stream = self._device, self._device.compute
        for start, length, step in cuda_tensors.runs(frames):
            follow(frames[start], stream)
            if length > 1 and step != self._step:
                for number in range(start, start + length):
                    self._copy_in([frames[number]], number)
            else:
                self._copy_in(frames[start : start + length], start)
        self._play()
        size = self._laid.size * len(frames)
        block = device.pool.take(size, stream)
        source = self._made[0].owner.pointer
        device.copy(block.pointer, size, source, size, size, 1, stream)
        width, height = self._size
        return [
            frame_in(
                device,
                block,
                self._form,
                width,
                height,
                self._laid,
                number * self._laid.size,
                frame.meta,
                ready,
            )
            for number, frame in enumerate(frames)
        ]

    def _play(self) -> None:
        if self._handle:
            self._device.play(self._handle)
        else:
            self._graph.replay()

    def _copy_in(self, frames: Sequence[Frame], place: int) -> None:
        """Copy frames that lie one behind the other to place `place` of the input and on."""
        last = frames[-1].planes[-1]
        size = (len(frames) - 1) * self._step
        size += last.pointer + last.strides[0] * last.shape[0] - _start(frames[-1])
        target = self._input.pointer + place * self._step
        source = _start(frames[0])
        self._device.copy(target, size, source, size, size, 1, self._device.compute)


def _start(frame: Frame) -> int:
    start: int = frame.planes[0].pointer
    return start


def _places(frame: Frame) -> tuple[Any, ...]:
    """Where the planes lie from the first one on."""
    start = _start(frame)
    return tuple((plane.pointer - start, plane.shape, plane.strides) for plane in frame.planes)


def _size(frame: Frame) -> int:
    """Bytes from frame to frame, in steps that slots have too."""
    last = frame.planes[-1]
    used: int = last.pointer + last.strides[0] * last.shape[0] - _start(frame)
    return -(-used // PITCH) * PITCH
