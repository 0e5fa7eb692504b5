"""Reads a video: decoded frames, and the packets of the streams that are copied, in file order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from fractions import Fraction
from types import TracebackType
from typing import Any, TypeAlias

import av
import av.container
import av.error
from av.format import Flags as FormatFlags

from .. import host
from ..errors import MediaError, UsageError
from ..frame import Frame
from ..job import InputSpec
from ..versions import fraction
from . import ending, hdr
from .cadence import frame_rate
from .cut import MICROSECOND, Cut, seconds
from .facts import learn
from .opening import is_device, is_local, open_input
from .seeking import declares, from_end, seek, tail
from .timestamps import FrameClock, Splices

_log = logging.getLogger(__name__)

Item: TypeAlias = "Frame | av.Packet[Any]"
"""A decoded frame, or a packet of a copied stream; times count from the same origin."""

_NAMED_PACKETS = 3
"""Damaged packets that are named one by one; more are counted."""


class Reader:
    """One input; iterate it once for its items, in order.

    Times: a file with an origin of its own keeps every timestamp; recordings of a running clock
    (MPEG-TS, Ogg, network streams) start at 0, and with -ss the wanted instant becomes 0.
    A frame without a timestamp gets its decoding time, else the end of the frame before; one
    that does not come after the frame before is put one tick behind it.
    Damage (undecodable packets, a file that ends early) does not stop the reading: all that
    decodes is delivered, each fact is logged as a warning and kept in `damage`.
    `wrap` makes a Frame of an av frame and its sample aspect ratio. The attributes of `Facts` are
    attributes of an open reader; `hdr` is the stream's HDR metadata once a frame has come,
    `matrix` its display matrix where the frames do not carry it, and `copied` every stream but
    the decoded one, in file order.
    """

    def __init__(
        self,
        spec: InputSpec,
        *,
        wrap: Callable[[av.VideoFrame, Fraction | None], Frame] = host.from_av,
    ) -> None:
        self.spec = spec
        self.damage: list[str] = []
        self._wrap = wrap
        self._container: av.container.InputContainer
        self._video: av.VideoStream

    def __enter__(self) -> Reader:
        self._container, self._video = open_input(self.spec)
        try:
            self.spec = from_end(self.spec, self._container)
            self._plan()
        except BaseException:
            self._container.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._container.close()

    # ---- facts -----------------------------------------------------------------------------

    @property
    def video(self) -> av.VideoStream:
        """The stream that is decoded."""
        return self._video

    @property
    def container(self) -> av.container.InputContainer:
        """The open file: metadata, chapters."""
        return self._container

    @property
    def width(self) -> int:
        return self._video.codec_context.width

    @property
    def height(self) -> int:
        return self._video.codec_context.height

    @property
    def pix_fmt(self) -> str:
        """FFmpeg's name of the decoder's format; "" if unknown before decoding."""
        return self._video.codec_context.pix_fmt or ""

    @property
    def origin(self) -> Fraction:
        """The instant of the file, in seconds, that items call 0."""
        return self._cut.origin - self._cut.delay

    # ---- reading ---------------------------------------------------------------------------

    def _plan(self) -> None:
        """Decide origin, cut and rate; seek."""
        self._forced_rate = self._rate_option()
        facts = learn(self._container, self._video, self.spec, self._forced_rate)
        self.time_base, self.sar = facts.time_base, facts.sar
        self.rate, self.nominal_rate = facts.rate, facts.nominal_rate
        self.duration, self.frames = facts.duration, facts.frames
        self.copied = tuple(s for s in self._container.streams if s.index != self._video.index)
        begin = self._begin()
        running = self._has(FormatFlags.ts_discont)
        addressed = not is_device(self.spec.format) and not is_local(self.spec.url)
        origin = begin if running or addressed else Fraction(0)
        start, end = seconds(self.spec.start), seconds(self.spec.duration)
        if end is not None and end <= 0:
            raise UsageError(f"-t {self.spec.duration:g} before -i: must be more than 0")
        if start:
            origin = begin + start
            seek(self._container, self._video, origin, begin)
        delay = seconds(self.spec.offset) or Fraction(0)
        self._cut = Cut(origin, trims=bool(start), end=end, delay=delay)
        pictures = self._container.format.name in ("image2", "jpeg_pipe")
        self._holds_jpegs = pictures and self._video.codec_context.name == "mjpeg"
        self.hdr: hdr.Hdr | None = None
        self.matrix: list[int] = []
        self._decoded_any = False
        self._clock = FrameClock(self._note)
        self._sent = self._decoded = self._count = self._bad_packets = 0
        self._flawed: list[Fraction] = []
        self._reached = Fraction(0)
        self._video_over = False

    def _begin(self) -> Fraction:
        return (self._container.start_time or 0) * MICROSECOND

    def _has(self, flag: Any) -> bool:
        """Whether the demuxer declares that trait."""
        return declares(self._container.format, flag)

    def _rate_option(self) -> Fraction | None:
        """-r before -i, where the demuxer does not take it as its own option."""
        if not self.spec.rate or self._container.format.name in ("image2", "rawvideo"):
            return None
        rate = frame_rate(self.spec.rate)
        if rate is None:
            raise UsageError(f"-r {self.spec.rate}: not a frame rate, such as 25 or 30000/1001")
        return rate

    def __iter__(self) -> Iterator[Item]:
        with closing(self._packets()) as packets:
            for packet in packets:
                if packet.stream.index == self._video.index:
                    yield from self._frames(self._decode(packet))
                elif packet.size and self._cut.place(packet):
                    yield packet
                if self._video_over and self._cut.is_over(self.copied, self._shown()):
                    break
        if self._swallowed():
            yield from self._frames(tail(self.spec, self._clock.last or 0))
        self._check_end()

    def _shown(self) -> Fraction:
        return self._reached - self._cut.origin

    def _packets(self) -> Generator[av.Packet[Any], None, None]:
        """Packets in file order; a read error ends them and is kept as damage."""
        streams = [self._video, *self.copied]
        splices = Splices(self._note) if self._has(FormatFlags.ts_discont) else None
        try:
            for packet in self._container.demux(streams):
                if splices is not None:
                    splices.join(packet)
                self._follow(packet)
                yield packet
        except av.error.FFmpegError as error:
            self._note(f"reading stopped early: {(error.strerror or str(error)).lower()}")
            flush: av.Packet[Any] = av.Packet()
            flush.stream = self._video
            yield flush

    def _follow(self, packet: av.Packet[Any]) -> None:
        """Remember how far the file has been read, in its own time."""
        time = packet.dts if packet.pts is None else packet.pts
        if time is None or not packet.size:
            return
        end = (time + (packet.duration or 0)) * Fraction(packet.time_base)
        self._reached = max(self._reached, end)

    def _decode(self, packet: av.Packet[Any]) -> list[av.VideoFrame]:
        if packet.size and not packet.is_discard:
            self._sent += 1
        if packet.is_corrupt or (self._holds_jpegs and ending.is_cut_jpeg(bytes(packet))):
            self._note_packet(packet, "is incomplete")
        try:
            decoded = self._video.decode(packet)
        except av.error.EOFError:
            return []
        except av.error.FFmpegError as error:
            self._note_packet(packet, f"cannot be decoded: {(error.strerror or '').lower()}")
            return []
        self._decoded += len(decoded)
        return decoded

    def _frames(self, decoded: list[av.VideoFrame]) -> Iterator[Frame]:
        while decoded:
            frame = decoded.pop(0)
            if not self._decoded_any:
                self._decoded_any = True
                self.hdr = hdr.read(frame, self._video.codec_context)
            if self._stamp(frame):
                self._count += 1
                if frame.is_corrupt:
                    self._flawed.append((frame.pts or 0) * self.time_base)
                yield self._wrap(frame, self.sar)
            del frame

    def _swallowed(self) -> bool:
        """Whether fewer frames came than packets went in, all of the file being read.

        Decoding on several threads loses what is behind an error while it is drained.
        """
        whole = not self._video_over and self._clock.last is not None
        file = is_local(self.spec.url) and not is_device(self.spec.format)
        return whole and file and not self.spec.hwaccel and self._decoded < self._sent

    # ---- time ------------------------------------------------------------------------------

    def _stamp(self, frame: av.VideoFrame) -> bool:
        """Give a decoded frame its time; False if it lies outside the cut."""
        unit = fraction(frame.time_base) or fraction(self._video.time_base) or MICROSECOND
        shown = self._cut.shift(self._clock.time(frame, unit, self.nominal_rate), unit)
        if self._cut.is_early(shown):
            return False
        if self._forced_rate:
            unit, shown, frame.duration = 1 / self._forced_rate, self._count, 1
        self._video_over = self._video_over or self._cut.is_enough(shown, unit)
        frame.pts, frame.time_base = self._cut.delayed(shown, unit), unit
        return not self._video_over

    # ---- damage ----------------------------------------------------------------------------

    def _note_packet(self, packet: av.Packet[Any], what: str) -> None:
        self._bad_packets += 1
        if self._bad_packets > _NAMED_PACKETS:
            return
        time = packet.dts if packet.pts is None else packet.pts
        where = "at the end" if time is None else f"at {float(time * packet.time_base):.3f} s"
        self._note(f"a video packet {where} {what}")

    def _note(self, what: str) -> None:
        """Keep and log a fact, the first of its kind only."""
        kind = what.split(" at ")[0]
        if kind != "a video packet" and any(said.startswith(kind) for said in self.damage):
            return
        self.damage.append(what)
        _log.warning("%s: %s", self.spec.url, what)

    def _check_end(self) -> None:
        """Raise if nothing came; note it if the file ends before its header says so."""
        begin = self._begin()
        if not self._count and self.spec.start:
            length = float(self._reached - begin)
            end = self.spec.start_from_end
            option = "" if end is None else f" (-sseof {end:g})"
            raise MediaError(
                f"{self.spec.url}: no frame at or after -ss {self.spec.start:g}{option}; "
                f"it is {length:.3f} s long",
                self.spec.url,
            )
        if not self._count:
            raise MediaError(f"{self.spec.url}: not a single frame could be decoded", self.spec.url)
        if self._bad_packets > _NAMED_PACKETS:
            self._note(f"{self._bad_packets} video packets are damaged in all")
        if self._flawed:
            self._note(
                f"{len(self._flawed)} of {self._count} frames are damaged, the first at "
                f"{float(self._flawed[0]):.3f} s"
            )
        if not self._video_over:
            lost = ending.missing(self._container, self._reached - begin)
            if lost:
                self._note(lost)
