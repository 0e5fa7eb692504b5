"""Arrays in the memory of a CUDA GPU, whoever holds them: told apart, described, shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InferenceError
from ..frame import Arrays, Shape, TensorSpec
from ._tensors import fits, shown

_CUDA = 2
"""DLPack's number of CUDA memory."""


def on_device(array: Any) -> bool:
    """Whether an array's memory is a GPU's."""
    if hasattr(array, "__cuda_array_interface__"):
        return True
    told = getattr(array, "__dlpack_device__", None)
    return told is not None and int(told()[0]) == _CUDA


def handle(stream: Any) -> int | None:
    """The driver's handle of a stream: a pointer, CuPy's, torch's, or None."""
    pointer = getattr(stream, "ptr", getattr(stream, "cuda_stream", stream))
    return None if pointer is None else int(pointer)


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a tensor lies, in C order without gaps."""

    pointer: int
    shape: Shape
    dtype: str


class Shown:
    """Memory for whoever reads the CUDA array interface; keeps its owner alive."""

    def __init__(self, memory: Memory, owner: Any) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": memory.shape,
            "typestr": np.dtype(memory.dtype).str,
            "data": (memory.pointer, False),
            "strides": None,
            "version": 3,
        }


def located(inputs: Arrays, specs: Sequence[TensorSpec], backend: str, index: int) -> list[Memory]:
    """Where the tensors of one job lie, in the order of `specs`.

    InferenceError says what differs from `specs`, or that one is not whole on the GPU `index`.
    """
    names = [spec.name for spec in specs]
    if sorted(inputs) != sorted(names):
        message = f"{backend}: the model takes {', '.join(names)}, not {', '.join(inputs)}"
        raise InferenceError(message, backend=backend)
    return [_located(inputs[spec.name], spec, backend, index) for spec in specs]


def _located(array: Any, spec: TensorSpec, backend: str, index: int) -> Memory:
    told = getattr(array, "__cuda_array_interface__", None)
    if told is None:
        message = f"{backend}: input {spec.name} is not an array in the memory of cuda:{index}"
        raise InferenceError(message, backend=backend)
    kind, shape = np.dtype(told["typestr"]), tuple(told["shape"])
    if not fits(shape, spec.shape) or kind != spec.dtype:
        raise InferenceError(
            f"{backend}: input {spec.name} takes {spec.dtype} {shown(spec.shape)}, "
            f"not {kind} {shown(shape)}",
            backend=backend,
        )
    where = getattr(array, "__dlpack_device__", None)
    own = index if where is None else int(where()[1])
    if own != index:
        message = f"{backend}: the frame is on cuda:{own}, the model on cuda:{index}"
        raise InferenceError(message, backend=backend)
    if not _whole(shape, told.get("strides"), kind.itemsize):
        message = f"{backend}: input {spec.name} has gaps or another order than C: copy it first"
        raise InferenceError(message, backend=backend)
    return Memory(int(told["data"][0]), shape, kind.name)


def _whole(shape: Shape, strides: Sequence[int] | None, itemsize: int) -> bool:
    """Whether an array lies in C order without gaps; strides are bytes, None means that it does."""
    step = itemsize
    for count, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if count != 1 and stride != step:
            return False
        step *= count
    return True
