"""What backends that read a model's own tensors share: layout, names, the check of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import InferenceError, ModelError
from ..frame import Array, Arrays, Layout, Shape, Shapes, TensorSpec

T = TypeVar("T")

MAX_COLOURS = 3
"""A picture has at most this many channels."""


def guess_layout(shape: Shape) -> Layout | None:
    """The layout of a model's tensor: rank 4 with at most 3 channels in dims[1] is NCHW.

    Otherwise NHWC. Where dims[1] is free, dims[3] decides; where both are free, NCHW, and where
    only dims[1] is fixed, it is the channels. None for other ranks.
    """
    if len(shape) != 4:
        return None
    if shape[2:] == (-1, -1):
        return Layout.NCHW
    if shape[1] == -1:
        return Layout.NHWC if 1 <= shape[3] <= MAX_COLOURS else Layout.NCHW
    return Layout.NCHW if shape[1] <= MAX_COLOURS else Layout.NHWC


def is_picture(spec: TensorSpec) -> bool:
    """Whether a tensor can be a frame: rank 4, one or three channels, or a free number."""
    return spec.layout is not None and spec.channels in (-1, 1, MAX_COLOURS)


def resized(shape: Shape, layout: Layout, batch: int, size: tuple[int, int] | None) -> Shape:
    """`shape` with another batch and, if given, another (height, width)."""
    if layout is Layout.NCHW:
        return (batch, shape[1], *(size or shape[2:4]))
    return (batch, *(size or shape[1:3]), shape[3])


def select(
    wanted: Sequence[str],
    tensors: Sequence[T],
    names: Callable[[T], Sequence[str]],
    *,
    kind: str,
    model: Path,
    backend: str,
) -> list[T]:
    """The tensors called `wanted`, in that order; all if `wanted` is empty.

    A name fits with and without a port suffix (":0"). ModelError lists the valid names.
    """
    if not wanted:
        return list(tensors)
    by_name: dict[str, T] = {}
    for tensor in tensors:
        for name in names(tensor):
            by_name.setdefault(name, tensor)
            by_name.setdefault(name.removesuffix(":0"), tensor)
    found = []
    for name in wanted:
        tensor_or_none = by_name.get(name, by_name.get(name.removesuffix(":0")))
        if tensor_or_none is None:
            valid = ", ".join(names(tensor)[0] for tensor in tensors)
            message = f"{model}: no {kind} {name!r}; the model has: {valid}"
            raise ModelError(message, backend=backend)
        found.append(tensor_or_none)
    return found


def matched(inputs: Arrays, specs: Sequence[TensorSpec], backend: str) -> list[Array]:
    """The arrays of one job in the order of `specs`, each C-contiguous (copied if it was not).

    InferenceError says what differs from `specs`: names, rank, a dimension, the element type.
    """
    names = [spec.name for spec in specs]
    if sorted(inputs) != sorted(names):
        message = f"{backend}: the model takes {', '.join(names)}, not {', '.join(inputs)}"
        raise InferenceError(message, backend=backend)
    arrays: list[Any] = []
    for spec in specs:
        array = np.asarray(inputs[spec.name])
        if not fits(array.shape, spec.shape) or array.dtype != spec.dtype:
            raise InferenceError(
                f"{backend}: input {spec.name} takes {spec.dtype} {shown(spec.shape)}, "
                f"not {array.dtype} {shown(array.shape)}",
                backend=backend,
            )
        arrays.append(np.ascontiguousarray(array))
    return arrays


def check_shapes(inputs: Shapes, specs: Sequence[TensorSpec], backend: str) -> None:
    """ModelError unless `inputs` names every tensor of `specs` with a shape that fits it."""
    for spec in specs:
        shape = inputs.get(spec.name)
        if shape is None or not fits(shape, spec.shape):
            got = "nothing" if shape is None else shown(shape)
            raise ModelError(
                f"{backend}: input {spec.name} takes {shown(spec.shape)}, not {got}",
                backend=backend,
            )


def fits(shape: Shape, wanted: Shape) -> bool:
    """Whether `shape` is one of the shapes that `wanted` (-1 is free) allows."""
    return len(shape) == len(wanted) and all(
        want in (-1, got) for got, want in zip(shape, wanted, strict=True)
    )


def shown(shape: Shape) -> str:
    """`1x3x?x?` for people."""
    return "x".join("?" if dim == -1 else str(dim) for dim in shape) or "scalar"


def number(config: Mapping[str, str], key: str, given: float | None, backend: str) -> float | None:
    """The number that an option or the backend's own key of that name gives, if any."""
    text = config.get(key)
    if text is None:
        return given
    try:
        return float(text)
    except ValueError:
        message = f"{key}={text}: a number is wanted"
        raise ModelError(message, backend=backend) from None
