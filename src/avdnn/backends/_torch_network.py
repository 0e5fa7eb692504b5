"""A torch program made ready to run: element type, memory layout, freezing, compiling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..frame import Layout, Precision, Shape
from ._torch_file import Program, deprecated_script, first_line
from ._torch_fused import Fused, check_course


class Network:
    """Runs a program on one tensor; what the program raises comes through.

    `dtype` is the element type that its input wants. Networks with convolutions run channels
    last, which is how the fastest convolutions of both CPU and GPU want their tensors.
    """

    def __init__(self, program: Program, layout: Layout, *, optimize: bool) -> None:
        import torch

        self.program = program
        self.layout = layout
        self.call = program.call
        self.dtype: Any = torch.float32
        self._channels_last = optimize and any(
            parameter.dim() == 4 and max(parameter.shape[2:]) > 1
            for parameter in program.network.parameters()
        )
        if self._channels_last:
            program.network.to(memory_format=torch.channels_last)

    def own_dtype(self) -> Any:
        """The element type of the program's weights; float32 where it has none."""
        import torch

        floats = [p.dtype for p in self.program.network.parameters() if p.is_floating_point()]
        return floats[0] if floats else torch.float32

    def use(self, dtype: Any) -> None:
        """Compute in an element type; integers leave the weights as they are."""
        self.dtype = dtype
        if dtype.is_floating_point:
            self.program.network.to(dtype)

    def storages(self) -> frozenset[int]:
        """Where the network's own tensors lie."""
        network = self.program.network
        held = [*network.parameters(), *network.buffers()]
        return frozenset(tensor.untyped_storage().data_ptr() for tensor in held)

    def freeze(self, model: Path) -> None:
        """Make weights constants of a TorchScript program, and fold what that allows."""
        import torch

        try:
            with deprecated_script():
                self.call = torch.jit.freeze(self.program.network)
        except RuntimeError as error:
            raise ModelError(
                f"{model}: cannot be frozen ({first_line(error)}); optimize=0 leaves it as it is",
                backend="torch",
            ) from error

    def fuse(self, *, compiled: bool, cache: Path | None) -> None:
        """Record the network for each shape, and compile it if asked.

        On a GPU recording also makes float32 exact: a traced convolution has the TF32 switch of
        the machine that traced it.
        """
        exact = self.program.scripted and self.dtype.itemsize == 4
        if compiled or exact:
            self.call = Fused(self.call, compiled=compiled, cache=cache)

    def check_course(self, shape: Shape, device: Any) -> None:
        """ModelError unless it does the same to all pictures of a batch of this shape.

        One picture is enough, where the network takes one.
        """
        import torch

        count = shape[0] if self.program.shape or self.is_fused else 1
        try:
            example = torch.rand((count, *shape[1:]), dtype=torch.float32, device=device)
            example = self._laid_out(example.to(self.dtype))
        except RuntimeError as error:
            message = f"there is no room to try it: {first_line(error)}"
            raise ModelError(message, backend="torch") from error
        check_course(self.call, example)

    @property
    def is_fused(self) -> bool:
        """Whether the network is recorded for each shape."""
        return isinstance(self.call, Fused)

    @property
    def fixed_shapes(self) -> bool:
        """Whether each new shape costs a compilation."""
        return isinstance(self.call, Fused) and self.call.is_made_ready

    def __call__(self, tensor: Any) -> Any:
        return self.call(self._laid_out(tensor))

    def _laid_out(self, tensor: Any) -> Any:
        """`tensor` channels last, where that is wanted."""
        import torch

        if not self._channels_last:
            return tensor.contiguous()
        if self.layout is Layout.NHWC:
            return tensor
        tensor = tensor.contiguous(memory_format=torch.channels_last)
        _, channels, rows, columns = tensor.shape
        if channels == 1:
            # One channel is laid out both ways at once; its strides tell torch which is meant.
            tensor = tensor.as_strided(tensor.shape, (rows * columns, 1, columns, 1))
        return tensor


def element_type(precision: Precision) -> Any:
    """torch's element type of a precision."""
    import torch

    return getattr(torch, precision.value)


def precision_of(dtype: Any, wanted: Precision) -> Precision:
    """The precision that an element type is; `wanted` for types that are none."""
    name = str(dtype).removeprefix("torch.")
    return next((precision for precision in Precision if precision.value == name), wanted)
