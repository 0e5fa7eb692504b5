"""ONNX Runtime in the order of a caller's CUDA stream: tensors stay in GPU memory, nothing waits.

A session gets the stream when it is opened; all that it starts, and all memory that it gives out
and takes back, is in that stream's order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import DeviceError
from ..frame import Arrays, TensorSpec
from ._cuda_arrays import Memory, Shown, handle, located
from ._tensors import is_picture

DTYPES = ("float32", "float16")
"""Element types that pictures on a GPU have."""

NO_WAIT = "disable_synchronize_execution_providers"


def settings(stream: Any) -> dict[str, str]:
    """Settings of the CUDA provider: exact float32, memory as it is needed, the caller's stream.

    DeviceError for the default stream, which ONNX Runtime takes for none.
    """
    told = {"use_tf32": "0", "arena_extend_strategy": "kSameAsRequested"}
    pointer = handle(stream)
    if pointer == 0:
        message = "onnx: jobs cannot be ordered on CUDA's default stream; give one of your own"
        raise DeviceError(message, device="cuda")
    return told if pointer is None else {**told, "user_compute_stream": str(pointer)}


def takes(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> bool:
    """Whether a model's pictures can stay on a GPU."""
    pictures = [*inputs, *(spec for spec in outputs if is_picture(spec))]
    return all(spec.dtype in DTYPES for spec in pictures)


class Bound:
    """Runs a session on arrays of the GPU `index`, which are read where they lie.

    Outputs are memory that the session gives to one job alone, and takes back when nobody holds
    its array any more. `kind` is ONNX Runtime's name of the memory.
    """

    def __init__(self, ort: Any, session: Any, index: int, kind: str = "cuda") -> None:
        self._session = session
        self._index = index
        self._kind = kind
        self._options = ort.RunOptions()
        self._options.log_severity_level = 4
        self._options.add_run_config_entry(NO_WAIT, "1")

    def run(
        self, inputs: Arrays, specs: Sequence[TensorSpec], names: Sequence[str]
    ) -> Mapping[str, Shown]:
        """Put one job into the stream; InferenceError if an input is not what `specs` say."""
        memories = located(inputs, specs, "onnx", self._index)
        # A binding that was used keeps its outputs, and the next run would write into them.
        binding = self._session.io_binding()
        for spec, memory in zip(specs, memories, strict=True):
            element = np.dtype(memory.dtype).type
            binding.bind_input(
                spec.name, self._kind, self._index, element, memory.shape, memory.pointer
            )
        for name in names:
            binding.bind_output(name, self._kind, self._index)
        self._session.run_with_iobinding(binding, self._options)
        made = binding.get_outputs()
        return {name: self._shown(value) for name, value in zip(names, made, strict=True)}

    def _shown(self, value: Any) -> Shown:
        dtype = _dtype(value.data_type())
        memory = Memory(int(value.data_ptr()), tuple(value.shape()), dtype)
        return Shown(memory, (value, self._session))


def _dtype(told: str) -> str:
    """`float32` for `tensor(float)`; bfloat16 is shown as its bits."""
    name = told.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64", "bfloat16": "uint16"}.get(name, name)


def exhausted(error: Exception) -> Exception:
    """The error, as a MemoryError that says how much was wanted where the GPU has no more."""
    found = re.search(r"Failed to allocate memory for requested buffer of size (\d+)", str(error))
    if found is None:
        return error
    wanted = int(found[1]) / (1 << 20)
    made = MemoryError(f"out of memory. Tried to allocate {wanted:,.1f} MiB. ")
    made.__cause__ = error
    return made
