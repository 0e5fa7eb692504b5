"""hwupload: host frames to the GPU of -filter_hw_device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .. import cuda
from ..cuda import choice as cuda_choice
from ..cuda import frames as cuda_frames
from ..frame import Frame
from ..graph import Call
from . import Context, Item


class HwUpload:
    """Device frames for host frames, in order; frames on a device pass."""

    def __init__(self, index: int, device: Callable[[int], Any] | None = None) -> None:
        self._index = index
        self._device = device or cuda.device

    def __call__(self, items: Iterator[Item]) -> Iterator[Item]:
        device = None
        for item in items:
            if isinstance(item, Frame) and item.device == "cpu":
                device = device or self._device(self._index)
                item = cuda_frames.upload(device, item)
            yield item
            del item


def make(call: Call, context: Context) -> HwUpload:
    """The filter; `device` is the index, UUID or PCI address of a GPU."""
    name = call.args.removeprefix("device=")
    return HwUpload(cuda_choice.gpu_index(name or context.filter_device))
