"""Device frames for NVENC: FFmpeg's CUDA frames over surfaces of the encoder's own.

Each frame is copied once within the GPU, for three reasons. NVENC reads chroma right behind luma,
where the surfaces of a decoder do not have it. It registers every address that it sees, 64 of them
at most, and memory that is freed must not be among them. And a block of several frames goes back
to its pool without waiting for the encoder.
"""

from __future__ import annotations

from collections.abc import Callable

import av
from av.video.frame import CudaContext

from .. import cuda, host
from ..errors import DeviceError, FormatError
from ..frame import Frame
from ..pixfmt import PixelFormat, pixel_format
from ._device import Device
from .blocks import Block
from .choice import gpu_index
from .dlpack import LEGACY_STREAM, Exported
from .frames import WRAPPED, follow, frame_in, tagged
from .geometry import Geometry, geometry


class Surface:
    """Memory of one picture; it is free again when the last plane that holds this is dropped."""

    __slots__ = ("_free", "block")

    def __init__(self, block: Block, free: list[Block]) -> None:
        self.block = block
        self._free = free

    def __del__(self) -> None:
        self._free.append(self.block)


class Surfaces:
    """The surfaces of one encoder, for pictures of one layout: as many as it holds at a time."""

    def __init__(self, device: Device, size: int) -> None:
        self._device = device
        self._size = size
        self._free: list[Block] = []

    def take(self) -> Surface:
        """A surface for work in the device's `encode` stream.

        FFmpeg drops a frame when NVENC has read it, so that nothing has to be waited for.
        """
        if self._free:
            block = self._free.pop()
        else:
            block = self._device.pool.take(self._size, self._device.encode)
        return Surface(block, self._free)


class Feed:
    """Makes av frames for an encoder: of device frames CUDA frames, of host frames their own.

    Device frames are nv12, p010le or p016le of even size, all of one GPU. Used from one thread.
    """

    def __init__(self, device: Callable[[int], Device] | None = None) -> None:
        self._open = device or cuda.device
        self._device: Device | None = None
        self._context: CudaContext
        self._surfaces: dict[int, Surfaces] = {}

    def __call__(self, frame: Frame) -> av.VideoFrame:
        if frame.device == "cpu":
            return host.to_av(frame)
        if frame.format not in WRAPPED or frame.width % 2 or frame.height % 2:
            raise FormatError(
                f"NVENC takes {', '.join(sorted(WRAPPED))} of even size from GPU memory, this is "
                f"{frame.format} of {frame.width}x{frame.height}: put hwdownload before it",
                wanted="|".join(sorted(WRAPPED)),
                got=frame.format,
            )
        device = self._of(frame)
        form = pixel_format(frame.format)
        laid = geometry(form, frame.width, frame.height)
        if laid.size not in self._surfaces:
            self._surfaces[laid.size] = Surfaces(device, laid.size)
        surface = self._surfaces[laid.size].take()
        return self._picture(device, self._copied(device, frame, surface, form, laid), surface)

    def _of(self, frame: Frame) -> Device:
        if self._device is None:
            self._device = device = self._open(gpu_index(frame.device))
            stream = device.encode.ptr or None
            self._context = CudaContext(
                device.index, primary_ctx=False, current_ctx=True, cuda_stream=stream
            )
        if frame.device != self._device.label:
            raise DeviceError(
                f"the encoder has begun on {self._device.label} and this frame is on "
                f"{frame.device}: use one GPU",
                device=frame.device,
            )
        self._device.use()
        return self._device

    def _copied(
        self, device: Device, frame: Frame, surface: Surface, form: PixelFormat, laid: Geometry
    ) -> Frame:
        """The frame in a surface, in the `encode` stream."""
        made = frame_in(device, surface.block, form, frame.width, frame.height, laid, 0, frame.meta)
        follow(frame, device.encode)
        for source, target, width in zip(frame.planes, made.planes, laid.widths(), strict=True):
            device.copy(
                target.pointer,
                target.strides[0],
                source.pointer,
                source.strides[0],
                width,
                source.shape[0],
                device.encode,
            )
        return made

    def _picture(self, device: Device, frame: Frame, surface: Surface) -> av.VideoFrame:
        planes = [Exported(device, plane, surface, device.encode) for plane in frame.planes]
        made = av.VideoFrame.from_dlpack(
            planes,
            format=frame.format,
            stream=device.encode.ptr or LEGACY_STREAM,
            cuda_context=self._context,
        )
        return host.stamped(tagged(made, frame.meta.template), frame.meta)
