"""TensorFlow on arrays in GPU memory: the graph as a function, its tensors by DLPack.

TensorFlow computes in a stream of its own that it names to nobody. So the host waits, for two
streams and never for the device: for the caller's before a job, and for TensorFlow's after it,
which is what its `to_dlpack` does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..errors import InferenceError
from ..frame import Arrays
from . import Options
from ._cuda_arrays import Memory, Shown, located
from ._tensorflow_graph import Runnable

ALIGNMENT = 64
"""TensorFlow ends the process over a tensor that begins elsewhere."""


def grow(tf: Any) -> None:
    """Let TensorFlow take GPU memory as it needs it; too late where it runs already."""
    for device in tf.config.list_physical_devices("GPU"):
        with suppress(RuntimeError):
            tf.config.experimental.set_memory_growth(device, True)


def takes(runnable: Runnable, device: str, options: Options) -> bool:
    """Whether a graph can run as a function on the caller's arrays.

    Not with variables to initialize, tensors other than float32, a session's own configuration
    or a stream that cannot be waited for.
    """
    return (
        device.startswith("gpu")
        and hasattr(options.stream, "synchronize")
        and not options.config.get("sess_config")
        and runnable.start is None
        and not runnable.checks
        and all(spec.dtype == "float32" for spec in (*runnable.inputs, *runnable.outputs))
    )


class Function:
    """A graph on one device; `config` is the session's, of which the optimiser's part is used."""

    def __init__(self, tf: Any, runnable: Runnable, config: Any, device: str) -> None:
        self._tf = tf
        self._device = device
        self._index = int(device.partition(":")[2] or 0)
        self._specs = (runnable.inputs, runnable.outputs)
        told = tf.compat.v1.ConfigProto(graph_options=config.graph_options)
        self._config = told.SerializeToString()
        definition = runnable.graph.as_graph_def()
        whole = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(definition, name=""), [])
        feeds, fetches = (
            [whole.graph.get_tensor_by_name(tensor.name) for tensor in tensors]
            for tensors in (runnable.feeds, runnable.fetches)
        )
        self._function = whole.prune(feeds, fetches)
        self._function.add_to_graph()
        self._types = [tensor.dtype for tensor in fetches]

    def on_host(self, *arrays: Any) -> list[Any]:
        """Host arrays from host arrays, in the order of the graph's inputs and outputs."""
        with self._tf.device(self._device):
            given = [self._tf.constant(array) for array in arrays]
        return [tensor.numpy() for tensor in self._run(given)]

    def on_device(self, inputs: Arrays, stream: Any) -> Mapping[str, Shown]:
        """One job on arrays of the GPU; its outputs are whole when this returns.

        InferenceError if an input is not what the graph takes.
        """
        sources, targets = self._specs
        memories = located(inputs, sources, "tensorflow", self._index)
        for spec, memory in zip(sources, memories, strict=True):
            if memory.pointer % ALIGNMENT:
                raise InferenceError(
                    f"tensorflow: input {spec.name} begins at {memory.pointer:#x}, not at a "
                    f"multiple of {ALIGNMENT} bytes: copy it first",
                    backend="tensorflow",
                )
        stream.synchronize()
        given = [_entered(self._tf, inputs[spec.name]) for spec in sources]
        made = self._run(given)
        return {
            spec.name: self._left(tensor, memories)
            for spec, tensor in zip(targets, made, strict=True)
        }

    def _run(self, tensors: Sequence[Any]) -> Any:
        with self._tf.device(self._device):
            return self._tf.raw_ops.StatefulPartitionedCall(
                args=list(tensors),
                Tout=self._types,
                f=self._function,
                config="",
                config_proto=self._config,
                executor_type="",
            )

    def _left(self, tensor: Any, inputs: Sequence[Memory]) -> Shown:
        """An output, computed, in memory that is not an input's."""
        pointer = self._computed(tensor)
        if any(_holds(memory, pointer) for memory in inputs):
            with self._tf.device(self._device):
                tensor = self._tf.raw_ops.Snapshot(input=tensor)
            pointer = self._computed(tensor)
        return Shown(Memory(pointer, tuple(tensor.shape), tensor.dtype.name), tensor)

    def _computed(self, tensor: Any) -> int:
        """Where a tensor lies, after waiting for it."""
        return address(self._tf.experimental.dlpack.to_dlpack(tensor))


def _entered(tf: Any, array: Any) -> Any:
    # -1: no stream is to wait, since what the array holds is there.
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__(stream=-1))


def _holds(memory: Memory, pointer: int) -> bool:
    size = int(np.prod(memory.shape)) * np.dtype(memory.dtype).itemsize
    return memory.pointer <= pointer < memory.pointer + size


def address(capsule: Any) -> int:
    """The first field of a capsule's DLManagedTensor: where the data lies."""
    opened = ctypes.pythonapi.PyCapsule_GetPointer
    opened.restype, opened.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_void_p.from_address(opened(capsule, b"dltensor")).value or 0
