"""Reads a video with NVDEC: device frames in order, from one or several decode sessions."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from typing import Any

import av
import av.error
from av.codec.hwaccel import HWAccel

from ..errors import DeviceError
from ..frame import Frame, Meta
from ..job import InputSpec
from ..media import hdr
from ..media.cut import MICROSECOND
from ..media.reader import Item, Reader
from ..pixfmt import pixel_format
from ..properties import display_matrix
from ..versions import fraction
from ._device import Device
from .frames import frame_in
from .geometry import geometry
from .restart import restarts
from .sessions import ITEMS_AHEAD, Damage, Sessions
from .slots import Slot, Slots

AUTO_DECODERS = 6
"""More sessions than this only contend for the interpreter, as measured."""

AHEAD_BYTES = 2 << 30
"""Device memory for frames that are decoded before their turn, all sessions together."""

SLOT_FRAMES = 8

EARLY_DAMAGE = 32
"""Packets that may be damaged before the first picture: more mean that the stream is refused."""

TOLD_PACKETS = 8
"""Packets of which one should decode by itself."""

_HOLDS_MATRIX = frozenset({"mov", "mp4", "matroska", "webm"})


class DeviceReader(Reader):
    """A Reader whose frames are on a GPU; packets of copied streams come a run at a time.

    `decoders` of the spec: 0 lets several sessions share a file, None is one.
    """

    def __init__(self, spec: InputSpec, device: Device, *, slot_frames: int = SLOT_FRAMES) -> None:
        # The file is opened for its packets; the decoders are our own.
        super().__init__(replace(spec, hwaccel="", hwaccel_output_format=""))
        self._device = device
        self._slot_frames = slot_frames
        self._ends: dict[int, tuple[int, Any]] = {}
        self._early: list[Damage] = []

    def __enter__(self) -> DeviceReader:
        super().__enter__()
        self._unit = fraction(self._video.time_base) or MICROSECOND
        return self

    @property
    def pix_fmt(self) -> str:
        """The sw_format that NVDEC gives for the stream."""
        return nvdec_format(super().pix_fmt)

    @property
    def decoders(self) -> int:
        """How many decode sessions there are."""
        told = self.spec.decoders
        return AUTO_DECODERS if told == 0 else told or 1

    def __iter__(self) -> Iterator[Item]:
        check_library()
        own = self._video.codec_context
        sessions: Sessions[Slot] = Sessions(
            self._watched(),
            self._video.index,
            count=self.decoders,
            open_decoder=self._open_decoder,
            collect=lambda: Slots(self._device, self._slot_frames),
            ahead=self._ahead(),
            restarts=restarts(own.codec.canonical_name, own.extradata),
        )
        with sessions, closing(iter(sessions)) as results:  # type: ignore[type-var]
            for item in self._told(results):
                if isinstance(item, Slot):
                    yield from self._timed(item)
                elif isinstance(item, Damage):
                    self._damaged(item)
                elif item.size and self._cut.place(item):
                    yield item
                if self._video_over and self._cut.is_over(self.copied, self._shown()):
                    break
        if self._early:
            self._refuse()
        self._settle()
        self._check_end()

    def _told(self, results: Iterator[Any]) -> Iterator[Any]:
        """The results; what ends a decoder is told in one line."""
        try:
            yield from results
        except av.error.FFmpegError as error:
            raise DeviceError(
                f"{self.spec.url}: NVDEC failed behind frame {self._count}: "
                f"{error.strerror or error}; decode with fewer -decoders ({self.decoders} run "
                f"now) or on the CPU (no -hwaccel)",
                device=self._device.label,
            ) from error

    def _watched(self) -> Iterator[av.Packet[Any]]:
        """The packets; a first one also goes through FFmpeg's own decoder, where the container
        may hold a display matrix: PyAV gives that to no other."""
        left = TOLD_PACKETS if _HOLDS_MATRIX & set(self._container.format.name.split(",")) else 0
        with closing(self._packets()) as packets:
            for packet in packets:
                if left and packet.size and packet.stream_index == self._video.index:
                    left = 0 if self._tells(packet) else left - 1
                yield packet

    def _tells(self, packet: av.Packet[Any]) -> bool:
        """Whether the packet gave a picture, whose display matrix is kept."""
        own = self._video.codec_context
        try:
            pictures = [*own.decode(packet), *own.decode(None)]
            own.flush_buffers()
        except av.error.FFmpegError:
            return False
        if pictures:
            self.matrix = display_matrix(pictures[0])
        return bool(pictures)

    def _timed(self, slot: Slot) -> Iterator[Frame]:
        if not self._decoded_any:
            self._decoded_any = True
            early, self._early = self._early, []
            for damage in early:
                self._damaged(damage)
            self.hdr = hdr.read(slot.template, self._video.codec_context)
        form, size = pixel_format(slot.form), slot.laid.size
        for number, stamp in enumerate(slot.stamps):
            if not self._stamp_copy(stamp):
                continue
            self._count += 1
            meta = Meta(
                stamp.pts,
                stamp.duration or 0,
                stamp.time_base,
                self.sar,
                template=slot.template,
                field_order=slot.field_order if stamp.interlaced else 0,
            )
            yield frame_in(
                self._device,
                slot.block,
                form,
                slot.width,
                slot.height,
                slot.laid,
                number * size,
                meta,
                slot.ready,
            )

    def _stamp_copy(self, stamp: Any) -> bool:
        """What _stamp does for a picture that is still there, with the stream's own unit."""
        unit = self._unit
        shown = self._cut.shift(self._clock.time(stamp, unit, self.nominal_rate), unit)
        if self._cut.is_early(shown):
            return False
        if self._forced_rate:
            unit, shown, stamp.duration = 1 / self._forced_rate, self._count, 1
        self._video_over = self._video_over or self._cut.is_enough(shown, unit)
        stamp.pts, stamp.time_base = self._cut.delayed(shown, unit), unit
        return not self._video_over

    def _follow(self, packet: av.Packet[Any]) -> None:
        """Remember how far each stream has been read, in its own unit: fractions cost time."""
        time = packet.dts if packet.pts is None else packet.pts
        if time is None or not packet.size:
            return
        index, end = packet.stream_index, time + (packet.duration or 0)
        known = self._ends.get(index)
        if known is None:
            self._ends[index] = end, packet.time_base
        elif end > known[0]:
            self._ends[index] = end, known[1]

    def _settle(self) -> None:
        """Say how far the file has been read, as the Reader keeps it."""
        ends = [end * Fraction(unit) for end, unit in list(self._ends.values())]
        self._reached = max([self._reached, *ends])

    def _shown(self) -> Fraction:
        self._settle()
        return super()._shown()

    def _damaged(self, damage: Damage) -> None:
        """Note it, or keep it until there is a picture: without one it is no single packet."""
        if self._decoded_any:
            self._note_packet(damage.packet, f"cannot be decoded: {damage.reason}")
            return
        self._early.append(damage)
        if len(self._early) > EARLY_DAMAGE:
            self._refuse()

    def _refuse(self) -> None:
        reason = self._early[0].reason
        raise DeviceError(refusal(self.spec, super().pix_fmt, reason), device="cuda")

    def _ahead(self) -> int:
        context = self._video.codec_context
        size = max(1, context.width), max(1, context.height)
        slot = geometry(pixel_format(self.pix_fmt), *size).size * self._slot_frames
        return max(2, min(ITEMS_AHEAD, AHEAD_BYTES // self.decoders // slot))

    def _open_decoder(self) -> av.VideoCodecContext:
        return open_decoder(self._device, self._video)


def open_decoder(device: Device, video: av.VideoStream) -> av.VideoCodecContext:
    """An NVDEC decoder for a stream, in the GPU's primary context, current on this thread."""
    device.use()
    accel = HWAccel(
        "cuda",
        device=str(device.index),
        is_hw_owned=True,
        allow_software_fallback=False,
        options={"primary_ctx": "0", "current_ctx": "1"},
    )
    own = video.codec_context
    # FFmpeg's own decoder of the format: a library's, such as libdav1d, knows no NVDEC.
    name = own.codec.canonical_name
    try:
        made: Any = av.CodecContext.create(name, "r", hwaccel=accel)
    except NotImplementedError as error:
        raise DeviceError(
            f"-hwaccel cuda: NVDEC does not decode {name}; decode on the CPU (no -hwaccel) or "
            f"take -hwaccel auto",
            device=device.label,
        ) from error
    except (av.error.FFmpegError, OSError) as error:
        raise DeviceError(
            f"-hwaccel cuda: FFmpeg cannot use {device.label}: {error}", device=device.label
        ) from error
    if name == "av1":
        # PyAV names the hardware's format beforehand, and where that is so FFmpeg's AV1 decoder
        # asks for no hardware; any format that it does not have makes it ask.
        made.pix_fmt = "pal8"
    made.extradata = own.extradata
    made.width, made.height = own.width, own.height
    made.thread_count = 1
    return made  # type: ignore[no-any-return]


def nvdec_format(decoded: str) -> str:
    """The sw_format of NVDEC's surfaces for a software decoder's pixel format."""
    name = decoded.replace("yuvj", "yuv")
    if name.startswith(("yuv420p10", "yuv420p12", "p010")):
        return "p010le" if "10" in name else "p016le"
    if name == "yuv444p":
        return "yuv444p"
    if name.startswith("yuv444p"):
        return "yuv444p16le"
    return "nv12"


def check_library() -> None:
    """DeviceError where the driver's decode library is missing."""
    try:
        ctypes.CDLL("libnvcuvid.so.1")
    except OSError as error:
        raise DeviceError(
            "-hwaccel cuda: libnvcuvid.so.1 is missing; in a container add the video capability: "
            "-e NVIDIA_DRIVER_CAPABILITIES=compute,video,utility",
            device="cuda",
        ) from error


def refusal(spec: InputSpec, form: str, reason: str) -> str:
    """One line for a stream that NVDEC knows by codec but cannot decode."""
    return (
        f"{spec.url}: NVDEC of this GPU cannot decode this stream ({form}): {reason}; decode on "
        f"the CPU (no -hwaccel) or take -hwaccel auto"
    )
