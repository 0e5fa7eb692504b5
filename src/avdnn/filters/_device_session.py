"""A model opened for frames on a GPU, its jobs put into a stream; nothing waits for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import host
from ..backends import Backend, Options
from ..cuda import Device, OutOfDeviceMemory
from ..cuda import frames as cuda_frames
from ..errors import (
    FormatError,
    HostMemoryOnly,
    InferenceError,
    ModelError,
    NonFiniteError,
)
from ..fit import Plan, decided
from ..frame import Arrays, Frame, ModelInfo, Precision
from . import Context
from ._device_fit import Place, wrapped
from ._device_jobs import Job, Jobs, exhausted
from ._options import DnnOptions, OnNan
from ._pictures import picture_input, picture_output
from ._replay import Replay, Route
from ._session import Session

LEAST_IN_FLIGHT, MOST_IN_FLIGHT = 2, 8
"""Jobs in the stream: enough for the GPU while Python's threads wait for each other."""

IN_FLIGHT_BYTES = 2 << 30
"""Device memory for the frames of these jobs, about."""

ENLARGED = 4
"""Samples out for one in, where it is not known yet."""

RECORDING = frozenset(("compile", "capture"))
"""Keys of torch that make a model ready for one shape."""


class DeviceSession(Session):
    """A Session whose tensors never leave the GPU; errors of one run name the frame."""

    def __init__(
        self,
        device: Device,
        options: DnnOptions,
        backend_name: str,
        model: Path,
        first: Frame,
        context: Context,
        number: int = 0,
    ) -> None:
        self._device = device
        self._checking = False
        self._packed = backend_name == "torch"
        self._fitting: Plan | None = None
        self._retired: list[Backend] = []
        device.use()
        super().__init__(options, backend_name, model, first, context, number)
        itemsize = 2 if self._form.depth > 8 else 1
        picture = first.width * first.height * itemsize * 3 // 2
        self._job_bytes = self.batch * picture * (1 + ENLARGED)
        self._jobs = self._jobs_of(self._backend, first)
        self._records = self._records_from()

    def _load(self, first: Frame, precision: Precision) -> Backend:
        # What is compiled is tried on `compute`.
        with self._device.job():
            return super()._load(first, precision)

    def _wanted(self, size: tuple[int, int] | None, precision: Precision) -> Options:
        told = super()._wanted(size, precision)
        config = dict(told.config)
        if self._checking and precision is Precision.FLOAT32:
            for key in RECORDING:
                config.pop(key, None)
        stream = self._device.compute
        return replace(told, sample="float32", peak=255, stream=stream, config=config)

    def _faster(self, first: Frame, fast: Precision) -> Backend:
        """As on the host; what float32 is checked with is neither compiled nor captured."""
        self._checking = True
        try:
            chosen = super()._faster(first, fast)
        finally:
            self._checking = False
        asked = RECORDING & set(self._options.backend_configs)
        if chosen.info.precision is Precision.FLOAT32 and asked:
            chosen.close()
            return self._load(first, Precision.FLOAT32)
        return chosen

    def _where(self, first: Frame, made: Frame) -> Frame:
        return cuda_frames.upload(self._device, made)

    def _in_host(self, frame: Frame) -> Frame:
        return cuda_frames.to_host(self._device, frame)

    def _fits(self, info: ModelInfo, first: Frame) -> None:
        if "cuda" not in info.memory:
            raise HostMemoryOnly(
                f"{self._model.name}: {self._name} on {info.device} takes no frames on "
                f"{self._device.label}",
                device=info.device,
            )
        spec = picture_input(info, self._model)
        if spec.channels == 3 and self._form.channels == 1:
            if not self._form.interleaved or self._form.log2_chroma != (1, 1):
                raise FormatError(
                    f"{self._model.name} takes 3 channels and {first.format} frames on a GPU have "
                    f"no way to RGB: put hwdownload,format=rgb24,hwupload before the filter",
                    wanted="nv12",
                    got=first.format,
                )
            info = replace(info, inputs=(replace(spec, shape=_free_channels(spec.shape, spec)),))
        super()._fits(info, first)

    def _at_size(self, load: Callable[[Options], Backend], wanted: Options) -> Backend:
        """The model made to take frames of `wanted.size`; that is decided and said once."""
        backend: Backend | None = None
        if self._fitting is None:
            plain = _measurable(wanted)
            backend, self._fitting = self._decided(load, plain)
            if plain != wanted:
                backend.close()
                backend = None
        plan = self._fitting
        if backend is None:
            backend = load(replace(wanted, size=(plan.model.height, plan.model.width)))
        place = Place(self._device, self._form.dtype, self._packed)
        try:
            return wrapped(place, backend, plan, self._options.batch_size)
        except BaseException:
            backend.close()
            raise

    def _decided(self, load: Callable[[Options], Backend], wanted: Options) -> tuple[Backend, Plan]:
        try:
            found = decided(
                load,
                wanted,
                fit=self._options.fit,
                overlap=self._options.overlap,
                channels=self._form.channels,
                title=self._model.name,
            )
        except (ModelError, InferenceError) as error:
            exhausted(self._device, error)
            raise
        self._say_plan(found.plan)
        return found.backend, found.plan

    # ---- jobs ----------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        room = IN_FLIGHT_BYTES // max(1, self._job_bytes)
        return max(self._options.nireq, LEAST_IN_FLIGHT, min(MOST_IN_FLIGHT, room))

    def output_size(self, frame: Frame) -> tuple[int, int]:
        spec = picture_input(self._backend.info, self._model)
        channels = _channels(spec.channels, frame)
        planar = (channels, frame.height, frame.width)
        shape = planar if spec.layout == "nchw" else (frame.height, frame.width, channels)
        out = picture_output(self._backend.info, spec, self._model)
        made = self._backend.output_shapes({spec.name: (self.batch, *shape)})[out.name]
        return host.output_size(made, out)

    def start(self, frames: list[Frame]) -> Future[Arrays]:
        if self._records == 0:
            self._record(frames[0])
        self._records -= 1
        with self._context.clock.measure("put into the stream"):
            return self._jobs.put(frames)

    def finish(self, frames: list[Frame], future: Future[Arrays]) -> Iterator[Frame]:
        with self._context.clock.measure("infer (waiting)"):
            future.result()
        assert isinstance(future, Job)
        made = list(future.frames)
        for index in future.bad():
            number = self.number + index
            made[index] = self._in_float32(frames[index], number, future.precision)
        self.number += len(frames)
        yield from made

    def _in_float32(self, frame: Frame, number: int, running: Precision) -> Frame:
        """A frame whose output held NaN or infinity, run again; an error where that is not wanted.

        A fast precision that was chosen automatically is given up for the rest of the job.
        """
        what = f"frame {number}: the model's output holds NaN or infinity"
        gives_up = self._options.precision is Precision.AUTO and running is not Precision.FLOAT32
        if self._options.on_nan is not OnNan.RETRY and not gives_up:
            more = "; on_nan=retry runs such frames again in float32"
            raise NonFiniteError(f"{what}{more}", backend=self._name)
        if self._exact is None:
            self._exact = self._load(frame, Precision.FLOAT32)
        try:
            made = self._alone(self._exact, frame)
        except NonFiniteError as again:
            raise NonFiniteError(f"{what}, in float32 too", backend=self._name) from again
        if not gives_up:
            self._context.say(f"{what}; done again in float32")
        elif self._backend is not self._exact:
            self._retired.append(self._backend)
            self._backend = self._exact
            self._jobs = self._jobs_of(self._exact, frame)
            self._records = self._records_from()
            self._context.say(f"{what} in {running}; float32 from here on")
        return made

    def close(self) -> None:
        """Wait for what runs and free the models."""
        self._device.mark(self._device.compute).synchronize()
        self._jobs.replay = None
        super().close()
        for backend in self._retired:
            backend.close()

    @property
    def _asked(self) -> bool:
        """Whether recording was asked for, and not only the default."""
        return self._options.backend_configs.get("capture") == "1"

    def _records_from(self) -> int:
        """Jobs until one is recorded, which is not worth it for a single one; -1 for never."""
        captures = getattr(self._backend, "captures", False)
        return -1 if not captures else 0 if self._asked else 1

    def _record(self, frame: Frame) -> None:
        """Record the job for frames like this one; say why where that is not possible."""
        jobs = self._jobs
        with self._context.clock.measure("open"), self._device.job():
            try:
                jobs.replay = Replay(self._device, self._backend, jobs.route, frame, self.batch)
            except (ModelError, InferenceError, OutOfDeviceMemory) as error:
                if self._asked:
                    exhausted(self._device, error)
                    raise ModelError(f"{self._model.name}: capture=1: {error}") from error
                self._context.say(
                    f"{self._model.name}: jobs are put into the stream step by step: {error}"
                )

    def _jobs_of(self, backend: Backend, frame: Frame) -> Jobs:
        """Jobs of a backend on frames like this one."""
        return Jobs(self._device, backend, self._route(backend, frame))

    def _route(self, backend: Backend, frame: Frame) -> Route:
        given = picture_input(backend.info, self._model)
        out = picture_output(backend.info, given, self._model)
        channels = _channels(given.channels, frame)
        return Route(given, out, self._order(given), channels, self._packed)

    def _once(self, backend: Backend, frame: Frame) -> Frame:
        return self._alone(backend, frame)

    def _alone(self, backend: Backend, frame: Frame) -> Frame:
        job = self._jobs_of(backend, frame).put([frame])
        job.event.synchronize()
        if job.bad():
            raise NonFiniteError("the model's output holds NaN or infinity")
        return job.frames[0]

    def _frames(self, backend: Backend, frames: list[Frame], arrays: Arrays) -> list[Frame]:
        raise InferenceError("device jobs are finished in the stream", backend=self._name)


def _measurable(wanted: Options) -> Options:
    """For trials on pictures of several sizes in host memory, where NumPy has no bfloat16."""
    exact = wanted.precision is Precision.BFLOAT16
    precision = Precision.FLOAT32 if exact else wanted.precision
    config = {key: value for key, value in wanted.config.items() if key != "compile"}
    return replace(wanted, precision=precision, config=config)


def _channels(wanted: int, frame: Frame) -> int:
    """Channels of the tensor for a model of `wanted` channels, -1 where it takes any."""
    own = cuda_frames.known_format(frame.format).channels
    return own if wanted == -1 else wanted


def _free_channels(shape: tuple[int, ...], spec: Any) -> tuple[int, ...]:
    axis = 1 if spec.layout == "nchw" else 3
    return tuple(-1 if index == axis else size for index, size in enumerate(shape))
