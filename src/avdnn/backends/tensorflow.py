"""TensorFlow: frozen GraphDef files and SavedModel folders.

Codes are turned to values and back inside the graph, which runs in a session of its own.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BackendError, DeviceError, InferenceError, ModelError, NonFiniteError
from ..frame import Arrays, ModelInfo, Precision, Shape, Shapes
from . import Options, _tensorflow_cuda, _tensorflow_device
from ._cuda_arrays import on_device
from ._heap import keep_pages
from ._tensorflow_file import first_line, read
from ._tensorflow_graph import Runnable, build
from ._tensors import check_shapes, is_picture, matched
from ._workers import Workers

SUFFIXES: tuple[str, ...] = (".pb", "")

KEYS: Mapping[str, str] = {
    "sess_config": "0x...: a serialized ConfigProto, bytes forward or reversed; see "
    "`avdnn sess-config`",
}


def framework() -> Any:
    """The tensorflow package, imported without its notes about the machine."""
    if "tensorflow" not in sys.modules:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # Its own parts deprecate each other while they load.
            warnings.simplefilter("ignore")
            import tensorflow
    except (ImportError, OSError) as error:
        message = f"tensorflow is installed but does not load: {error}"
        raise BackendError(message, backend="tensorflow") from error
    return tensorflow


def describe() -> Mapping[str, Any]:
    """The installed version and the devices that TensorFlow sees."""
    return {"version": framework().__version__, "devices": _tensorflow_device.devices(framework())}


def precisions(options: Options) -> tuple[Precision, ...]:
    """What `options.device` computes in hardware, the fastest first."""
    return _tensorflow_device.precisions(_tensorflow_device.resolve(framework(), options))


def load(model: Path, options: Options) -> TensorFlow:
    """Read a graph, build the conversions around it, and run it once at the size to come."""
    tf = framework()
    device = _tensorflow_device.resolve(tf, options)
    allowed = _tensorflow_device.precisions(device)
    if options.precision not in allowed:
        raise DeviceError(
            f"tensorflow: {device} does not compute in {options.precision}; it does in "
            f"{', '.join(allowed)}",
            device=device,
        )
    if options.scale == 0:
        message = "scale=0: the model's tensors hold (x - mean) / scale, so it is not 0"
        raise ModelError(message, backend="tensorflow")
    if device == "cpu":
        keep_pages()
    if not options.config.get("sess_config"):
        _tensorflow_cuda.grow(tf)
    config = _tensorflow_device.session_config(tf, device, options)
    runnable = build(tf, read(tf, model), model, options)
    return TensorFlow(tf, runnable, config, device, model, options)


class TensorFlow:
    """A session, or a function for frames on a GPU, and the threads that run it.

    Device arrays run on the calling thread, which waits for `options.stream` and for the result.
    """

    info: ModelInfo

    def __init__(
        self,
        tf: Any,
        runnable: Runnable,
        config: Any,
        device: str,
        model: Path,
        options: Options,
    ) -> None:
        self._tf = tf
        self._runnable = runnable
        self._shapes: dict[tuple[Shape, ...], Shapes] = {}
        self._stream = options.stream
        self._function: _tensorflow_cuda.Function | None = None
        self._session: Any = None
        try:
            if _tensorflow_cuda.takes(runnable, device, options):
                self._function = _tensorflow_cuda.Function(tf, runnable, config, device)
                self._call: Any = self._function.on_host
            else:
                self._session = tf.compat.v1.Session(graph=runnable.graph, config=config)
                self._call = _callable(self._session, runnable)
        except (ValueError, RuntimeError, tf.errors.OpError) as error:
            message = f"{model}: TensorFlow cannot run it: {first_line(error)}"
            raise ModelError(message, backend="tensorflow") from error
        threads, slots = _tensorflow_device.threads(options)
        self._workers = Workers("tensorflow", slots, threads)
        facts = {**runnable.facts, "runtime": f"TensorFlow {tf.__version__}"}
        try:
            facts |= self._warm_up(options, model)
        except BaseException:
            self.close()
            raise
        self.info = ModelInfo(
            inputs=runnable.inputs,
            outputs=runnable.outputs,
            memory=frozenset({"host", "cuda"} if self._function else {"host"}),
            max_batch=None if runnable.batch == -1 else runnable.batch,
            max_in_flight=slots,
            device=device,
            precision=options.precision,
            reshapeable=runnable.reshapeable,
            facts=facts,
        )

    def output_shapes(self, inputs: Shapes) -> Shapes:
        """Shapes of all outputs, from one run on zeros."""
        specs = self._runnable.inputs
        check_shapes(inputs, specs, "tensorflow")
        key = tuple(tuple(inputs[spec.name]) for spec in specs)
        if key not in self._shapes:
            zeros = {spec.name: np.zeros(inputs[spec.name], spec.dtype) for spec in specs}
            made = self._workers.submit(partial(self._infer, zeros, check=False)).result()
            self._shapes[key] = {name: array.shape for name, array in made.items()}
        return self._shapes[key]

    def infer_async(self, inputs: Arrays) -> Future[Arrays]:
        """Start one inference; on device arrays it is done when this returns."""
        if any(on_device(array) for array in inputs.values()):
            return self._on_device(inputs)
        return self._workers.submit(partial(self._infer, inputs))

    def close(self) -> None:
        """Wait for running jobs and free the session."""
        self._workers.close()
        self._function = None
        if self._session is not None:
            self._session.close()

    def _warm_up(self, options: Options, model: Path) -> Mapping[str, str]:
        """One run at the size to come: the graph is optimised, and fails, here and not later."""
        specs = self._runnable.inputs
        if options.size is None or len(specs) != 1 or not is_picture(specs[0]):
            return {}
        spec, (rows, columns) = specs[0], options.size
        if any(own not in (-1, asked) for own, asked in zip(spec.size, options.size, strict=True)):
            return {}
        sides = {"n": options.batch_size, "c": 3, "h": rows, "w": columns}
        shape = tuple(
            sides[axis] if own == -1 else own
            for own, axis in zip(spec.shape, spec.layout or "", strict=True)
        )
        began = time.perf_counter()
        try:
            self.output_shapes({spec.name: shape})
        except InferenceError as error:
            raise ModelError(f"{model}: {error}", backend="tensorflow") from error
        spent = time.perf_counter() - began
        return {"warm-up": f"{spent:.2f} s at {columns}x{rows}"}

    def _on_device(self, inputs: Arrays) -> Future[Arrays]:
        future: Future[Arrays] = Future()
        try:
            if self._function is None:
                message = "tensorflow: the model is closed, or was not loaded for frames on a GPU"
                raise InferenceError(message, backend="tensorflow")
            future.set_result(self._function.on_device(inputs, self._stream))
        except InferenceError as error:
            future.set_exception(error)
        except (ValueError, RuntimeError, self._tf.errors.OpError) as error:
            failure = self._failed(error)
            failure.__cause__ = error
            if isinstance(error, self._tf.errors.ResourceExhaustedError):
                failure.__cause__ = MemoryError("out of memory")
                failure.__cause__.__cause__ = error
            future.set_exception(failure)
        return future

    def _failed(self, error: Exception) -> InferenceError:
        message = f"tensorflow: the model failed: {first_line(error)}"
        return InferenceError(message, backend="tensorflow")

    def _infer(self, inputs: Arrays, check: bool = True) -> Arrays:
        arrays = matched(inputs, self._runnable.inputs, "tensorflow")
        try:
            made = self._call(*arrays)
        except (ValueError, RuntimeError, self._tf.errors.OpError) as error:
            raise self._failed(error) from error
        count = len(self._runnable.fetches)
        for (name, _), finite in zip(self._runnable.checks, made[count:], strict=True):
            if check and not finite.all():
                raise NonFiniteError(
                    f"tensorflow: output {name} holds NaN or infinity "
                    f"(item {int(np.argmin(finite))} of the batch)",
                    backend="tensorflow",
                )
        return {
            spec.name: _own(array, arrays)
            for spec, array in zip(self._runnable.outputs, made[:count], strict=True)
        }


def _callable(session: Any, runnable: Runnable) -> Any:
    """Outputs and checks from inputs, after what the graph wants to be run first."""
    if runnable.start is not None:
        session.run(runnable.start)
    fetches = [*runnable.fetches, *(check for _, check in runnable.checks)]
    return session.make_callable(fetches, feed_list=list(runnable.feeds))


def _own(array: Any, inputs: list[Any]) -> Any:
    """An output that shares no memory with an input, and may be written to."""
    array = np.asarray(array)
    shared = any(np.may_share_memory(array, given) for given in inputs)
    return array.copy() if shared or not array.flags.writeable else array
