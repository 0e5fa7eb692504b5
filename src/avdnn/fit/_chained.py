"""Backends that do something before and after another backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np

from ..backends import Backend
from ..errors import InferenceError
from ..frame import Array, Arrays, Shape, Shapes, TensorSpec
from ._pictures import Area, axis, picture_outputs, region, resized
from ._triangle import resample


def chain(future: Future[Arrays], then: Callable[[Arrays], Arrays]) -> Future[Arrays]:
    """A future of `then` of the other's result; errors go on as they are."""
    chained: Future[Arrays] = Future()
    chained.set_running_or_notify_cancel()

    def finish(done: Future[Arrays]) -> None:
        error = done.exception()
        if error is not None:
            chained.set_exception(error)
            return
        try:
            chained.set_result(then(done.result()))
        except Exception as failure:  # whatever it is: the caller waits for this future
            chained.set_exception(InferenceError(f"fitting the model's result: {failure}"))

    future.add_done_callback(finish)
    return chained


class Chained:
    """What both kinds share: `before` makes the model's picture, `after` the frame's from it."""

    def __init__(
        self, inner: Backend, given: TensorSpec, frame: Area, made: Mapping[str, Area]
    ) -> None:
        self._inner = inner
        self._given = given
        self._made = dict(made)
        self._specs = {spec.name: spec for spec in picture_outputs(inner, given)}
        self.info = replace(
            inner.info,
            inputs=(resized(given, frame),),
            outputs=tuple(resized(spec, made[name]) for name, spec in self._specs.items()),
            memory=frozenset({"host"}),
        )

    def before(self, array: Array) -> Array:
        raise NotImplementedError

    def after(self, array: Array, spec: TensorSpec) -> Array:
        raise NotImplementedError

    def output_shapes(self, inputs: Shapes) -> Shapes:
        """The frame's shapes; the model may run once for its channels."""
        given = inputs[self._given.name]
        inside = self._inner.output_shapes({self._given.name: self.inside(given)})
        return {
            name: resized(self._with(spec, inside[name]), self._made[name]).shape
            for name, spec in self._specs.items()
        }

    def _with(self, spec: TensorSpec, shape: Shape) -> TensorSpec:
        return replace(spec, shape=shape)

    def inside(self, shape: Shape) -> Shape:
        """The shape that the model gets for one of frames."""
        raise NotImplementedError

    def infer_async(self, inputs: Arrays) -> Future[Arrays]:
        """Start one inference of the model inside."""
        fed: dict[str, Any] = {self._given.name: self.before(np.asarray(inputs[self._given.name]))}

        def after(made: Arrays) -> Arrays:
            fed.clear()  # which lived until here: the model's runtime may have read it till now
            return {name: self.after(made[name], spec) for name, spec in self._specs.items()}

        return chain(self._inner.infer_async(fed), after)

    def close(self) -> None:
        """Close the model inside."""
        self._inner.close()


class Padded(Chained):
    """Frames go on to the right and below as their edge does; the result is cropped back."""

    def __init__(
        self,
        inner: Backend,
        given: TensorSpec,
        frame: Area,
        padded: Area,
        made: Mapping[str, Area],
    ) -> None:
        super().__init__(inner, given, frame, made)
        self._padded = padded

    def inside(self, shape: Shape) -> Shape:
        return resized(self._with(self._given, shape), self._padded).shape

    def before(self, array: Array) -> Array:
        return region(array, axis(self._given), 0, 0, self._padded)

    def after(self, array: Array, spec: TensorSpec) -> Array:
        return region(array, axis(spec), 0, 0, self._made[spec.name])


class Scaled(Chained):
    """Frames are resampled to the model's size, and its results from it."""

    def __init__(
        self,
        inner: Backend,
        given: TensorSpec,
        frame: Area,
        model: Area,
        made: Mapping[str, Area],
    ) -> None:
        super().__init__(inner, given, frame, made)
        self._model = model

    def inside(self, shape: Shape) -> Shape:
        return resized(self._with(self._given, shape), self._model).shape

    def before(self, array: Array) -> Array:
        return resample(array, axis(self._given), self._model)

    def after(self, array: Array, spec: TensorSpec) -> Array:
        return resample(array, axis(spec), self._made[spec.name])
