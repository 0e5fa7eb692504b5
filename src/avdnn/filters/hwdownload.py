"""hwdownload: device frames to host memory, a few copies under way beside the device's work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from .. import cuda
from ..cuda import frames as cuda_frames
from ..cuda.choice import gpu_index
from ..cuda.frames import Download
from ..errors import DeviceError, FormatError
from ..frame import Frame
from ..graph import Call
from . import Context, Item

COPIES_AHEAD = 4
"""Blocks on their way while an earlier one is handed on."""


class Direct:
    """Which device frames go to the encoder as they are: the first if it may, and those like it.

    `why_host` says why the first may not: None if it may, "" if there is nothing to say. With
    `strict` what there is to say is an error.
    """

    def __init__(
        self,
        why_host: Callable[[Frame], str | None],
        say: Callable[[str], None],
        *,
        strict: bool = False,
    ) -> None:
        self._why_host = why_host
        self._say = say
        self._strict = strict
        self._kind: tuple[Any, ...] | None = None
        self._stays = False

    def __call__(self, frame: Frame) -> bool:
        tags = cuda_frames.colour_tags(frame.meta.template)
        kind = frame.format, frame.width, frame.height, frame.device, tags
        if self._kind is None:
            why = self._why_host(frame)
            self._kind, self._stays = kind, why is None
            if why and self._strict:
                raise DeviceError(f"{why}: strict=1 allows no download", device=frame.device)
            if why:
                self._say(f"{why}: the frames are downloaded for the encoder")
        return self._stays and kind == self._kind


class HwDownload:
    """Host frames for device frames, in order; other items keep their place.

    Frames that share a block come down in one copy. With `lenient` host frames pass. Device
    frames of which `stays` is true pass, too.
    """

    def __init__(
        self,
        context: Context,
        *,
        lenient: bool = False,
        stays: Callable[[Frame], bool] | None = None,
        device: Callable[[int], Any] | None = None,
    ) -> None:
        self._context = context
        self._lenient = lenient
        self._stays = stays
        self._device = device or cuda.device

    def __call__(self, items: Iterator[Item]) -> Iterator[Item]:
        waiting: deque[tuple[Item, Download | None]] = deque()
        last: Download | None = None
        copies = 0
        for item in items:
            if not isinstance(item, Frame):
                waiting.append((item, None))
            elif item.device == "cpu":
                if not self._lenient:
                    raise FormatError("hwdownload takes frames on a GPU; these are in host memory")
                waiting.append((item, None))
            elif self._stays is not None and self._stays(item):
                waiting.append((item, None))
            else:
                if last is None or last.source is not item.owner:
                    last = cuda_frames.download(self._of(item), item, whole=True)
                    copies += 1
                waiting.append((item, last))
            del item
            while waiting and (waiting[0][1] is None or copies > COPIES_AHEAD):
                copies -= self._is_last(waiting)
                yield self._landed(waiting)
        last = None
        while waiting:
            yield self._landed(waiting)

    def _of(self, frame: Frame) -> Any:
        return self._device(gpu_index(frame.device))

    def _is_last(self, waiting: deque[tuple[Item, Download | None]]) -> bool:
        """Whether the first item is the last one of its copy."""
        copy = waiting[0][1]
        return copy is not None and (len(waiting) == 1 or waiting[1][1] is not copy)

    def _landed(self, waiting: deque[tuple[Item, Download | None]]) -> Item:
        item, copy = waiting.popleft()
        if copy is None:
            return item
        if not copy.event.done:
            with self._context.clock.measure("download (waiting)"):
                copy.event.synchronize()
        return copy.result(item)


def make(call: Call, context: Context) -> HwDownload:
    """The filter; it has no options."""
    if call.args:
        raise call.error("hwdownload has no options")
    return HwDownload(context)
