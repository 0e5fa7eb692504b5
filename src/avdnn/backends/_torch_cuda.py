"""The way between other holders of GPU memory and torch, in the order of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import InferenceError
from ._cuda_arrays import handle


def as_tensor(array: Any, device: Any) -> Any:
    """A tensor over the memory of a torch, CuPy or DLPack array, without waiting for a stream.

    InferenceError if it lies on another device.
    """
    import torch

    if isinstance(array, torch.Tensor):
        made = array
    elif hasattr(array, "__cuda_array_interface__"):
        made = torch.as_tensor(array, device=f"cuda:{int(array.__dlpack_device__()[1])}")
    else:
        # PyAV's planes refuse a stream, so none is named: the order is the caller's events'.
        made = torch.from_dlpack(array.__dlpack__())
    if made.device != device:
        message = f"torch: the frame is on {made.device}, the model on {device}"
        raise InferenceError(message, backend="torch")
    return made


@contextmanager
def ordered_on(stream: Any, device: Any) -> Iterator[None]:
    """Put what torch starts within onto a CUDA stream: a pointer, CuPy's, torch's, or None.

    None means torch's current stream. Blocks that torch frees are used again in the order of
    this stream, so results are safe to drop once all that reads them is on it too.
    """
    import torch

    pointer = handle(stream)
    with torch.cuda.device(device):
        if pointer is None:
            yield
            return
        external = torch.cuda.ExternalStream(pointer, device=device)
        with torch.cuda.stream(external):
            yield


class Ferry:
    """Host tensors to a device and back through pinned memory, on a stream of its own thread."""

    def __init__(self, device: Any) -> None:
        import torch

        self._device = device
        self._side = getattr(torch, device.type)
        self._stream = self._side.Stream(device)

    @contextmanager
    def aboard(self) -> Iterator[None]:
        """Put what starts within on this ferry's stream, and wait for it at the end."""
        with self._side.stream(self._stream):
            yield
            self._stream.synchronize()

    def over(self, tensor: Any) -> Any:
        """A copy of a host tensor on the device."""
        import torch

        pinned = torch.empty_like(tensor, pin_memory=True)
        pinned.copy_(tensor)
        return pinned.to(self._device, non_blocking=True)

    def back(self, tensor: Any) -> Any:
        """A copy in pinned host memory, whole once the stream is; the caller's own."""
        import torch

        pinned = torch.empty_like(tensor, device="cpu", pin_memory=True)
        pinned.copy_(tensor, non_blocking=True)
        return pinned
