"""Sample codes to a program's values and back, inside torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InferenceError, NonFiniteError
from ..frame import Array, TensorSpec
from ._tensors import fits, shown


@dataclass(frozen=True, slots=True)
class Codes:
    """How codes (0..peak, of type `sample`) and the program's tensors (of type `dtype`) belong.

    A program's tensor holds (255 * v - mean) / scale for values v = code / peak; a `sample` of a
    float type means that the caller has such tensors, and wants its results in that type.
    """

    sample: str
    peak: int
    scale: float
    mean: float
    dtype: Any

    @property
    def is_float(self) -> bool:
        return "float" in self.sample

    @property
    def _floats(self) -> bool:
        """Whether the caller has the program's own tensors."""
        return "float" in self.sample

    def enter(self, tensor: Any) -> Any:
        """The program's input from codes or floats; the argument is left as it is."""
        import torch

        if self.is_float or not self.dtype.is_floating_point:
            return tensor.to(self.dtype)
        values = tensor.to(torch.float32)
        values.mul_(float(np.float32(1 / self.peak * (255 / self.scale))))
        if self.mean:
            values.sub_(float(np.float32(self.mean / self.scale)))
        return values.to(self.dtype)

    def leave(self, tensor: Any, name: str) -> Any:
        """clip(round_half_even(peak * v)), or floats where the caller has floats.

        NonFiniteError if a value to round is NaN or infinite.
        """
        import torch

        if self.is_float:
            return tensor.to(getattr(torch, self.sample))
        values = tensor.to(torch.float32) * float(np.float32(self.peak * (self.scale / 255)))
        if self.mean:
            values.add_(float(np.float32(self.peak * (self.mean / 255))))
        # A sum is not finite if any of it is not; the other way round it may have overflowed.
        if not torch.isfinite(values.sum()):
            finite = torch.isfinite(values).flatten(1).all(1)
            if not finite.all():
                item = int(torch.nonzero(~finite)[0])
                raise NonFiniteError(
                    f"torch: output {name} holds NaN or infinity (item {item} of the batch)",
                    backend="torch",
                )
        return values.round_().clamp_(0, self.peak).to(getattr(torch, self.sample))


class _Memory:
    """An array's memory as NumPy's protocol tells it, said to be writable.

    torch warns of arrays that are not. Nothing here writes to its input.
    """

    def __init__(self, array: Array) -> None:
        self.__array_interface__ = {
            **array.__array_interface__,
            "data": (array.__array_interface__["data"][0], False),
        }
        self.owner = array


def as_tensor(array: Array) -> Any:
    """A host array as a tensor over the same memory; copied where a stride runs backwards."""
    import torch

    made = np.asarray(array)
    if any(stride < 0 or stride % made.itemsize for stride in made.strides):
        made = np.ascontiguousarray(made)
    if not made.flags.writeable:
        made = np.asarray(_Memory(made))
    return torch.from_numpy(made)


def check(names: Sequence[str], shape: Sequence[int], dtype: str, spec: TensorSpec) -> None:
    """InferenceError unless the one input of a job is what `spec` says."""
    if list(names) != [spec.name]:
        message = f"torch: the model takes {spec.name}, not {', '.join(names) or 'nothing'}"
        raise InferenceError(message, backend="torch")
    if not fits(tuple(shape), spec.shape) or dtype != spec.dtype:
        raise InferenceError(
            f"torch: input {spec.name} takes {spec.dtype} {shown(spec.shape)}, "
            f"not {dtype} {shown(tuple(shape))}",
            backend="torch",
        )
