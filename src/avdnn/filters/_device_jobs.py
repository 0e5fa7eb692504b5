"""Jobs on a GPU: frames to a tensor, the network, a tensor to frames, put into one stream."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from ..backends import Backend
from ..cuda import Device, OutOfDeviceMemory
from ..cuda import frames as cuda_frames
from ..cuda import tensors as cuda_tensors
from ..cuda.blocks import Block, pinned_array
from ..errors import InferenceError
from ..frame import Array, Arrays, Frame
from ._replay import Replay, Route

PLACES = 32
"""Jobs whose flags share a block of pinned memory."""


class Flags(NamedTuple):
    """A place in pinned memory for what a job tells of its frames; `block` holds it."""

    block: Block
    pointer: int
    values: Array


class Job(Future[Any]):
    """Frames in the stream, done when the GPU has passed the job's event.

    `keep` is what the job reads until then.
    """

    def __init__(
        self, jobs: Jobs, frames: list[Frame], flags: Flags, event: Any, keep: tuple[Any, ...]
    ) -> None:
        super().__init__()
        self.frames = frames
        self.precision = jobs.precision
        self.event = event
        self._jobs = jobs
        self._flags = flags
        self._keep = keep
        self.set_running_or_notify_cancel()

    def bad(self) -> list[int]:
        """Numbers of the frames whose tensor holds NaN; ask once, when the job is done."""
        told = self._flags.values[: len(self.frames)].tolist()
        self._jobs.idle.append(self._flags)
        return [number for number, flag in enumerate(told) if flag]

    def done(self) -> bool:
        finished: bool = self.event.done
        return finished

    def result(self, timeout: float | None = None) -> Any:
        self.event.synchronize()
        return {}

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.event.synchronize()
        return None

    def cancel(self) -> bool:
        return False


class Jobs:
    """Puts jobs of one backend into `compute`, replayed where `replay` has it recorded."""

    def __init__(self, device: Device, backend: Backend, route: Route) -> None:
        self._device = device
        self._backend = backend
        self.precision = backend.info.precision
        self.route = route
        self.replay: Replay | None = None
        self.idle: list[Flags] = []

    def put(self, frames: list[Frame]) -> Job:
        """Start a job; errors are raised here."""
        cuda_frames.same_device(self._device, frames)
        with self._device.job():
            return self._put(frames)

    def _put(self, frames: list[Frame]) -> Job:
        device = self._device
        event = device.event()
        if self.replay and self.replay.fits(frames):
            made, flags, keep = self.replay.run(frames, event), self.replay.flags, ()
        else:
            made, flags, keep = self._step_by_step(frames)
        size = 4 * len(frames)
        told = self._place(len(frames))
        source = device.pointer(flags)
        device.copy(told.pointer, size, source, size, size, 1, device.compute, way="down")
        device.record(event, device.compute)
        return Job(self, made, told, event, (*keep, *frames))

    def _place(self, count: int) -> Flags:
        """A place for the flags of `count` frames that no job uses."""
        if not self.idle or len(self.idle[-1].values) < count:
            size = 4 * count
            block = self._device.pinned.take(size * PLACES, self._device.compute)
            whole = pinned_array(block, size * PLACES).view(np.int32)
            self.idle = [
                Flags(block, block.pointer + number * size, whole[number * count :][:count])
                for number in range(PLACES)
            ]
        return self.idle.pop()

    def _step_by_step(self, frames: list[Frame]) -> tuple[list[Frame], Array, tuple[Any, ...]]:
        device, route = self._device, self.route
        tensor = cuda_tensors.pack(
            device,
            frames,
            route.given,
            route.order,
            channels=route.channels,
            batch=self._backend.info.max_batch or 0,
            packed_channels=route.packed,
        )
        arrays = self._inferred({route.given.name: tensor})
        result = device.adopt(arrays[route.out.name])
        count = len(frames)
        flags = device.array(device.pool.take(4 * count, device.compute), (count,), "int32")
        device.clear(flags, device.compute)
        made = cuda_tensors.unpack(device, result, route.out, frames, flags, route.order)
        return made, flags, (tensor, arrays, result, flags)

    def _inferred(self, inputs: Arrays) -> Arrays:
        """The job's outputs; exhausted memory is told as such."""
        try:
            return self._backend.infer_async(inputs).result()
        except InferenceError as error:
            exhausted(self._device, error)
            raise


def exhausted(device: Device, error: Exception) -> None:
    """OutOfDeviceMemory if that is what an error, or one that it comes from, tells of."""
    cause: BaseException | None = error
    while cause is not None:
        if "out of memory" in str(cause):
            free, total = device.memory()
            needed = str(cause).partition("Tried to allocate ")[2].partition(". ")[0]
            raise OutOfDeviceMemory(device.label, needed or "more", free, total) from error
        cause = cause.__cause__
