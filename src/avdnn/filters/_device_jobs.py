"""Jobs on a GPU: frames to a tensor, the network, a tensor to frames, put into one stream."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np

from .. import cuda
from ..backends import Backend
from ..cuda import Device, OutOfDeviceMemory
from ..cuda import frames as cuda_frames
from ..cuda import tensors as cuda_tensors
from ..errors import InferenceError
from ..frame import Array, Arrays, Frame, Precision
from ._replay import Replay, Route


class Job(Future[Any]):
    """Frames in the stream, done when the GPU has passed the job's event.

    `flags` tell by then of which frames the tensor holds NaN. `keep` is what the job reads.
    """

    def __init__(
        self,
        frames: list[Frame],
        flags: Array,
        precision: Precision,
        event: Any,
        keep: tuple[Any, ...],
    ) -> None:
        super().__init__()
        self.frames = frames
        self.flags = flags
        self.precision = precision
        self.event = event
        self.keep = keep
        self.set_running_or_notify_cancel()

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
        self.route = route
        self.replay: Replay | None = None

    def put(self, frames: list[Frame]) -> Job:
        """Start a job; errors are raised here."""
        device = self._device
        cuda_frames.same_device(device, frames)
        if self.replay and self.replay.fits(frames):
            made, flags, keep = self.replay.run(frames), self.replay.flags, ()
        else:
            made, flags, keep = self._step_by_step(frames)
        size = 4 * len(frames)
        landed = device.pinned.take(size, device.compute)
        source = device.pointer(flags)
        device.copy(landed.pointer, size, source, size, size, 1, device.compute, way="down")
        told = cuda.pinned_array(landed, size).view(np.int32)
        event = device.mark(device.compute)
        return Job(made, told, self._backend.info.precision, event, (*keep, *frames))

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
