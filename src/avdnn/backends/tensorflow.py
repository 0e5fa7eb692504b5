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

from .. import sess_config
from ..errors import BackendError, DeviceError, InferenceError, ModelError, NonFiniteError
from ..frame import Arrays, ModelInfo, Precision, Shape, Shapes
from . import Options, _cpu
from ._heap import keep_pages
from ._tensorflow_graph import Runnable, build, first_line, read
from ._tensors import check_shapes, is_picture, matched
from ._workers import Workers

SUFFIXES: tuple[str, ...] = (".pb", "")

KEYS: Mapping[str, str] = {
    "sess_config": "0x...: a serialized ConfigProto, bytes forward or reversed; see "
    "`avdnn sess-config`",
}

ON = 1
"""RewriterConfig.Toggle: an optimisation that runs."""


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
    return {"version": framework().__version__, "devices": _devices(framework())}


def precisions(options: Options) -> tuple[Precision, ...]:
    """What `options.device` computes in hardware, the fastest first."""
    tf = framework()
    return _precisions(_device(tf, options.device))


def load(model: Path, options: Options) -> TensorFlow:
    """Read a graph, build the conversions around it, and run it once at the size to come."""
    tf = framework()
    device = _device(tf, options.device)
    allowed = _precisions(device)
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
    config = _config(tf, device, options)
    runnable = build(tf, read(tf, model), model, options)
    return TensorFlow(tf, runnable, config, device, model, options)


class TensorFlow:
    """A session and the threads that run it."""

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
        try:
            self._session = tf.compat.v1.Session(graph=runnable.graph, config=config)
            if runnable.start is not None:
                self._session.run(runnable.start)
            fetches = [*runnable.fetches, *(check for _, check in runnable.checks)]
            self._call = self._session.make_callable(fetches, feed_list=list(runnable.feeds))
        except (ValueError, RuntimeError, tf.errors.OpError) as error:
            message = f"{model}: TensorFlow cannot run it: {first_line(error)}"
            raise ModelError(message, backend="tensorflow") from error
        threads, slots = _threads(options)
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
        """Start one inference."""
        return self._workers.submit(partial(self._infer, inputs))

    def close(self) -> None:
        """Wait for running jobs and free the session."""
        self._workers.close()
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

    def _infer(self, inputs: Arrays, check: bool = True) -> Arrays:
        arrays = matched(inputs, self._runnable.inputs, "tensorflow")
        try:
            made = self._call(*arrays)
        except (ValueError, RuntimeError, self._tf.errors.OpError) as error:
            message = f"tensorflow: the model failed: {first_line(error)}"
            raise InferenceError(message, backend="tensorflow") from error
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


def _own(array: Any, inputs: list[Any]) -> Any:
    """An output that shares no memory with an input, and may be written to."""
    array = np.asarray(array)
    shared = any(np.may_share_memory(array, given) for given in inputs)
    return array.copy() if shared or not array.flags.writeable else array


def _threads(options: Options) -> tuple[int, int]:
    """Runs at once and jobs in flight: all runs share the session's threads, four fill one run."""
    if not options.asynchronous:
        return 1, 1
    if options.nireq:
        return options.nireq, options.nireq
    threads = max(1, (options.threads or _cpu.cores()) // 4)
    return threads, threads + 1


# ---- devices and configuration -----------------------------------------------------------------


def _devices(tf: Any) -> dict[str, str]:
    found = {"cpu": "the processor"}
    for index, device in enumerate(tf.config.list_physical_devices("GPU")):
        details = tf.config.experimental.get_device_details(device)
        found[f"gpu:{index}"] = str(details.get("device_name", device.name))
    return found


def _device(tf: Any, name: str) -> str:
    """`cpu` or `gpu:N`, after checking that it exists; TensorFlow's own choice for ""."""
    there = _devices(tf)
    wanted = name.lower().replace("cuda", "gpu")
    if not wanted:
        return "gpu:0" if "gpu:0" in there else "cpu"
    device = "gpu:0" if wanted == "gpu" else wanted
    if device not in there:
        raise DeviceError(
            f"tensorflow has no device {name}; there are: {', '.join(there)}", device=name
        )
    return device


def _precisions(device: str) -> tuple[Precision, ...]:
    if device != "cpu":
        return (Precision.FLOAT16, Precision.FLOAT32)
    return tuple(found for found in _cpu.precisions() if found is not Precision.FLOAT16)


def _config(tf: Any, device: str, options: Options) -> Any:
    """The session's settings: `sess_config` first, then what it leaves open."""
    config = tf.compat.v1.ConfigProto()
    text = options.config.get("sess_config", "")
    data = sess_config.parse(text) if text else b""
    config.MergeFromString(data)
    told = dict(sess_config.fields(data))
    if "gpu_options.allow_growth" not in told:
        config.gpu_options.allow_growth = True
    if options.threads:
        config.intra_op_parallelism_threads = options.threads
    elif not config.intra_op_parallelism_threads:
        config.intra_op_parallelism_threads = _cpu.cores()
    if not config.inter_op_parallelism_threads:
        config.inter_op_parallelism_threads = 1
    if device == "cpu":
        config.device_count["GPU"] = 0
    elif options.device:
        index = device.partition(":")[2]
        listed = config.gpu_options.visible_device_list
        if listed not in ("", index):
            raise DeviceError(
                f"device={options.device} is not the device {listed} of sess_config={text}",
                device=options.device,
            )
        config.gpu_options.visible_device_list = index
    rewrite = config.graph_options.rewrite_options
    if options.precision is Precision.BFLOAT16:
        rewrite.auto_mixed_precision_onednn_bfloat16 = ON
    elif options.precision is Precision.FLOAT16:
        rewrite.auto_mixed_precision = ON
    elif device != "cpu":
        tf.config.experimental.enable_tensor_float_32_execution(False)
    return config
