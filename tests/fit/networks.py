"""Small networks for tests of fitting: functions of one picture behind the backend's protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np

from avdnn.backends import Options
from avdnn.errors import InferenceError
from avdnn.frame import Layout, ModelInfo, TensorSpec

Function = Callable[[Any], Mapping[str, Any]]
"""(height, width, channels) in float64 to the outputs."""


def blur(picture: Any, radius: int) -> Any:
    """The mean of a square, zeros outside the picture: a convolution."""
    padded = np.pad(picture, ((radius, radius), (radius, radius), (0, 0)))
    size = 2 * radius + 1
    rows = sum(padded[k : k + picture.shape[0]] for k in range(size))
    return sum(rows[:, k : k + picture.shape[1]] for k in range(size)) / size**2


def double(picture: Any) -> Any:
    return picture.repeat(2, 0).repeat(2, 1)


def upscaler(picture: Any) -> dict[str, Any]:
    """Doubles, and sees 3 pixels far."""
    made = double(np.tanh(3 * blur(picture, 2)))
    return {"y": blur(made, 2) * 0.5 + made * 0.5}


def halves(picture: Any) -> Any:
    """Means of 2x2 pixels; an odd last row or column is lost."""
    rows, columns = picture.shape[0] // 2 * 2, picture.shape[1] // 2 * 2
    even = picture[:rows, :columns]
    return (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]) / 4


def pyramid(levels: int, *, strict: bool) -> Function:
    """Goes down and up again; a strict one fails where the sizes do not match on the way."""

    def function(picture: Any) -> dict[str, Any]:
        sizes, small = [], picture
        for _ in range(levels):
            sizes.append(small)
            small = halves(small)
        for wide in reversed(sizes):
            small = double(small)
            if strict:
                if small.shape != wide.shape:
                    raise InferenceError(f"cannot add {small.shape} and {wide.shape}")
                small = (small + wide) / 2
        return {"y": small}

    return function


class Fake:
    """A backend that applies a function; sizes of -1 are free."""

    def __init__(
        self,
        function: Function,
        size: tuple[int, int] = (-1, -1),
        *,
        channels: int = 3,
        layout: Layout = Layout.NCHW,
        dtype: str = "float32",
        batch: int = -1,
        in_flight: int = 2,
        reshapeable: bool = False,
    ) -> None:
        self.function = function
        self.dtype = dtype
        self.calls: list[tuple[int, ...]] = []
        self.tried: list[tuple[int, ...]] = []
        self.closed = 0
        self.layout = layout
        spec = self._spec("x", batch, size, channels)
        free = [
            self._spec(name, batch, (-1, -1), channels)
            for name in function(np.zeros((64, 64, max(channels, 1))))
        ]
        self.info = ModelInfo(
            inputs=(spec,),
            outputs=tuple(free),
            max_batch=None if batch < 0 else batch,
            max_in_flight=in_flight,
            reshapeable=reshapeable,
        )

    def _spec(self, name: str, batch: int, size: tuple[int, int], channels: int) -> TensorSpec:
        nchw = self.layout is Layout.NCHW
        shape = (batch, channels, *size) if nchw else (batch, *size, channels)
        return TensorSpec(name, shape, self.dtype, self.layout)

    def output_shapes(self, inputs: Any) -> Any:
        self.tried.append(tuple(inputs["x"]))
        made = self._run(np.zeros(inputs["x"], self.dtype))
        return {name: array.shape for name, array in made.items()}

    def _run(self, array: Any) -> dict[str, Any]:
        for want, got in zip(self.info.inputs[0].shape, array.shape, strict=True):
            if want not in (-1, got):
                raise InferenceError(f"x takes {self.info.inputs[0].shape}, not {array.shape}")
        assert array.dtype == self.dtype
        made: dict[str, list[Any]] = {}
        for each in array:
            picture = each.transpose(1, 2, 0) if self.layout is Layout.NCHW else each
            whole = self.dtype == "uint8"
            for name, out in self.function(picture / 255 if whole else picture).items():
                out = np.clip(np.rint(255 * out), 0, 255) if whole else out
                out = out.transpose(2, 0, 1) if self.layout is Layout.NCHW else out
                made.setdefault(name, []).append(out.astype(self.dtype))
        return {name: np.stack(outs) for name, outs in made.items()}

    def infer_async(self, inputs: Any) -> Future[Any]:
        self.calls.append(inputs["x"].shape)
        future: Future[Any] = Future()
        try:
            future.set_result(self._run(inputs["x"]))
        except InferenceError as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        self.closed += 1


def loader(function: Function, size: tuple[int, int] = (-1, -1), **rest: Any) -> Any:
    """A `load` that keeps what it made in `.made`."""
    made: list[Fake] = []

    def load(options: Options) -> Fake:
        made.append(Fake(function, size, **rest))
        return made[-1]

    load.made = made  # type: ignore[attr-defined]
    return load


def reshaping(function: Function, **rest: Any) -> Any:
    """A `load` for a runtime that compiles for the size it is told."""

    def load(options: Options) -> Fake:
        assert options.size is not None
        fake = Fake(function, options.size, reshapeable=True, **rest)
        try:
            fake.output_shapes({"x": (1, *fake.info.inputs[0].shape[1:])})
        except InferenceError:
            return Fake(function, **rest)
        return fake

    return load
