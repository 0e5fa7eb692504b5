"""One opened model and the frames of one format and size that go through it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from .. import backends, host
from ..backends import Backend, Options
from ..chroma import ChromaScaler
from ..errors import FormatError, InferenceError, ModelError, NonFiniteError
from ..fit import Fit, Plan, fitted
from ..frame import Arrays, Frame, Layout, ModelInfo, Precision, TensorSpec
from ..pixfmt import pixel_format
from . import Context
from ._memory import memory_told
from ._options import DnnOptions, OnNan, backend_options
from ._pictures import fitting, one, picture_input, picture_output
from ._precision import LEAST_PSNR, MOST_LSB, NOTHING_ALIKE, Apart, difference, trial_picture


class Session:
    """Starts and finishes jobs for frames like `first`; close() frees the model.

    `number` counts the frames that are finished, over all sessions of a filter.
    """

    def __init__(
        self,
        options: DnnOptions,
        backend_name: str,
        model: Path,
        first: Frame,
        context: Context,
        number: int = 0,
    ) -> None:
        self._options = options
        self._name = backend_name
        self._model = model
        self._context = context
        self._form = pixel_format(first.format)
        self._scaler = ChromaScaler()
        self._exact: Backend | None = None
        self._plan = ""
        self.number = number
        self._backend = self._open(first)

    # ---- opening -------------------------------------------------------------------------------

    def _load(self, first: Frame, precision: Precision) -> Backend:
        wanted = self._wanted((first.height, first.width), precision)

        def load(options: Options) -> Backend:
            backend = backends.load(self._name, self._model, options)
            try:
                self._fits(backend.info, first)
            except BaseException:
                backend.close()
                raise
            return backend

        with self._memory_told(first):
            return self._at_size(load, wanted)

    def _memory_told(self, frame: Frame) -> AbstractContextManager[None]:
        return memory_told(self._model.name, frame, self._options.fit)

    def _at_size(self, load: Callable[[Options], Backend], wanted: Options) -> Backend:
        """The model made to take frames of `wanted.size`; how is said once."""
        found = fitted(
            load,
            wanted,
            fit=self._options.fit,
            overlap=self._options.overlap,
            channels=self._form.channels,
            title=self._model.name,
        )
        self._say_plan(found.plan)
        return found.backend

    def _say_plan(self, plan: Plan) -> None:
        if self._options.overlap >= 0 and plan.how is not Fit.TILE:
            self._context.say(
                f"{self._model.name}: overlap={self._options.overlap} changes nothing: there are "
                "no tiles (fit=tile makes some)"
            )
        if plan.how and str(plan) != self._plan:
            self._context.tell(f"{self._model.name}: {plan}")
        self._plan = str(plan)

    def _wanted(self, size: tuple[int, int] | None, precision: Precision) -> Options:
        """What the backend is told."""
        return backend_options(self._options, self._form, size, precision, self._context.cache)

    def _open(self, first: Frame) -> Backend:
        module = backends.module(self._name)
        able = module.precisions(self._wanted(None, Precision.FLOAT32))
        asked = self._options.precision
        if asked is not Precision.AUTO:
            if asked not in able:
                raise ModelError(
                    f"backend {self._name} does not run {asked} on "
                    f"{self._options.device or 'its default device'}; it runs {', '.join(able)}",
                    backend=self._name,
                )
            return self._load(first, asked)
        if able[0] is Precision.FLOAT32:
            backend = self._load(first, Precision.FLOAT32)
            self._say_precision(backend, "this backend and device have no faster precision")
            return backend
        return self._faster(first, able[0])

    def _faster(self, first: Frame, fast: Precision) -> Backend:
        """The fast precision if it holds on a test picture and the first frame, else float32."""
        exact = self._load(first, Precision.FLOAT32)
        try:
            quick = self._load(first, fast)
        except BaseException:
            exact.close()
            raise
        try:
            apart, on = self._apart(exact, quick, first)
        except BaseException:
            exact.close()
            quick.close()
            raise
        if apart.small:
            exact.close()
            self._say_precision(quick, f"at most {apart} {on}")
            return quick
        quick.close()
        limits = f"{MOST_LSB:g} LSB and {LEAST_PSNR:g} dB are the limits"
        self._say_precision(exact, f"{fast} is {apart} {on}; {limits}")
        return exact

    def _apart(self, exact: Backend, quick: Backend, first: Frame) -> tuple[Apart, str]:
        """The worst of a test picture and the first frame, and on which of them it was measured.

        What a first frame of one colour would not show the test picture does. One that the model
        makes NaN or infinity of in float32 says nothing.
        """
        apart = self._apart_on(exact, quick, first)
        try:
            other = self._apart_on(exact, quick, self._where(first, trial_picture(first)))
        except NonFiniteError:
            return apart, "on the first frame"
        return apart.worse(other), "on a test picture and the first frame"

    def _apart_on(self, exact: Backend, quick: Backend, frame: Frame) -> Apart:
        wanted = self._in_host(self._once(exact, frame))
        try:
            got = self._in_host(self._once(quick, frame))
        except NonFiniteError:
            return NOTHING_ALIKE
        return difference(wanted, got)

    def _where(self, first: Frame, made: Frame) -> Frame:
        """A host frame in the memory of the first frame."""
        return made

    def _in_host(self, frame: Frame) -> Frame:
        """A frame that _once made, in host memory."""
        return frame

    def _say_precision(self, backend: Backend, why: str) -> None:
        info = backend.info
        self._context.tell(
            f"{self._model.name}: {self._name} on {info.device} in {info.precision} ({why})"
        )

    def _fits(self, info: ModelInfo, first: Frame) -> None:
        """Refuse frames whose channels are not the model's."""
        spec = picture_input(info, self._model)
        wanted, got = spec.channels, self._form.channels
        if wanted not in (-1, got):
            way = f"put {fitting(wanted, self._form)} before the filter"
            raise FormatError(
                f"{self._model.name} takes {wanted} channel{'s' * (wanted != 1)} and "
                f"{first.format} frames have {got} for it: "
                f"{self._options.models or way}",
                wanted=fitting(wanted, self._form),
                got=first.format,
            )

    # ---- jobs ----------------------------------------------------------------------------------

    @property
    def batch(self) -> int:
        """Frames in one job."""
        return self._backend.info.max_batch or self._options.batch_size

    @property
    def in_flight(self) -> int:
        """Jobs that run at once."""
        return self._backend.info.max_in_flight if self._options.async_ else 1

    def output_size(self, frame: Frame) -> tuple[int, int]:
        """(height, width) that the model makes of a frame; may run the model once."""
        spec = picture_input(self._backend.info, self._model)
        shape = host.pack([frame], spec, self._order(spec)).shape
        full = (self.batch, *shape[1:])
        out = picture_output(self._backend.info, spec, self._model)
        with self._memory_told(frame):
            made = self._backend.output_shapes({spec.name: full})[out.name]
        return host.output_size(made, out)

    def start(self, frames: list[Frame]) -> Future[Arrays]:
        """Pack frames and start one inference."""
        with self._memory_told(frames[0]):
            with self._context.clock.measure("pack"):
                inputs = self._inputs(self._backend, frames)
            return self._backend.infer_async(inputs)

    def finish(self, frames: list[Frame], future: Future[Arrays]) -> Iterator[Frame]:
        """One output frame for each of `frames`; InferenceError names the frame's number."""
        try:
            with self._memory_told(frames[0]):
                with self._context.clock.measure("infer (waiting)"):
                    arrays = future.result()
                made = self._frames(self._backend, frames, arrays)
        except NonFiniteError as error:
            made = self._again(frames, error)
        except InferenceError as error:
            raise self._at(error) from error
        self.number += len(frames)
        yield from made

    def _again(self, frames: list[Frame], error: NonFiniteError) -> list[Frame]:
        if self._options.on_nan is not OnNan.RETRY:
            raise self._at(error, "; on_nan=retry runs such frames again in float32") from error
        if self._exact is None:
            self._exact = self._load(frames[0], Precision.FLOAT32)
        made = []
        for index, frame in enumerate(frames):
            try:
                made.append(self._once(self._exact, frame))
            except NonFiniteError as again:
                self.number += index
                raise self._at(again, ", in float32 too") from again
        self._context.say(f"frame {self.number}: {error}; done again in float32")
        return made

    def _at(self, error: InferenceError, more: str = "") -> InferenceError:
        last = self.number + self.batch - 1
        frames = f"frame {self.number}" if self.batch == 1 else f"frames {self.number} to {last}"
        return type(error)(f"{frames}: {error}{more}", backend=self._name)

    def _once(self, backend: Backend, frame: Frame) -> Frame:
        with self._memory_told(frame):
            arrays = backend.infer_async(self._inputs(backend, [frame])).result()
            return self._frames(backend, [frame], arrays)[0]

    def _inputs(self, backend: Backend, frames: list[Frame]) -> Arrays:
        spec = picture_input(backend.info, self._model)
        tensor = host.pack(frames, spec, self._order(spec))
        missing = (backend.info.max_batch or len(frames)) - len(frames)
        if missing > 0:
            tensor = np.concatenate([tensor, np.repeat(tensor[-1:], missing, axis=0)])
        return {spec.name: tensor}

    def _frames(self, backend: Backend, frames: list[Frame], arrays: Arrays) -> list[Frame]:
        given = picture_input(backend.info, self._model)
        spec = picture_output(backend.info, given, self._model)
        tensor = arrays[spec.name]
        with self._context.clock.measure("unpack"):
            return [
                host.unpack(
                    one(tensor, index, self._model),
                    spec,
                    frame,
                    self._scaler,
                    self._order(given),
                    self._form.peak,
                )
                for index, frame in enumerate(frames)
            ]

    def _order(self, spec: TensorSpec) -> str:
        """Contract section 4: NHWC keeps the frame's channel order, NCHW has the model's."""
        own = "rgb" if spec.layout is Layout.NCHW else ""
        return self._options.order or spec.order or own

    def close(self) -> None:
        """Wait for what runs and free the model."""
        self._backend.close()
        if self._exact is not None:
            self._exact.close()
