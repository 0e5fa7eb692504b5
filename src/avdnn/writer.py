"""Encodes frames and muxes them with the copied streams; a file appears only when it is whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import TracebackType
from typing import Any

import av
import av.container
import av.error

from . import encoding, hdr, host, options
from .cadence import Cadence, frame_rate
from .conversion import Converter, target_colours
from .copying import Copies, kept_tags
from .cut import Cut, seconds
from .errors import AvdnnError, MediaError, UsageError
from .frame import Frame
from .job import OutputSpec
from .media import Item, Reader
from .properties import display_matrix, field_order
from .target import Target

_log = logging.getLogger(__name__)

_CONSTANT_RATE = frozenset(
    {"avi", "dv", "mpeg", "mxf", "svcd", "vcd", "dvd", "vob", "yuv4mpegpipe", "ivf"}
)
"""Containers that count frames instead of storing times."""

_COARSE_CLOCK = frozenset({"h261", "h263", "h263p", "mpeg1video", "mpeg2video", "mpeg4", "dvvideo"})
"""Encoders that cannot count in the fine time bases that containers use."""


class Writer:
    """One output. `write` takes items in order; leaving the block finishes it, or discards it if
    there was an error.

    What can be refused is refused on entering the block, before the first frame: names, formats,
    codecs, options, streams that the container cannot hold. The encoder opens at the first frame,
    whose size and format decide. Timestamps, durations and the time base are those of the frames,
    unless -r, the container or the encoder want a constant rate; then frames are repeated and
    dropped, and a note says how many.
    `unwrap` makes an av frame of a Frame. `notes` are sentences for the user, also logged.
    """

    def __init__(
        self,
        spec: OutputSpec,
        source: Reader,
        *,
        unwrap: Callable[[Frame], av.VideoFrame] = host.to_av,
    ) -> None:
        self.spec = spec
        self.source = source
        self.notes: list[str] = []
        self.frames = 0
        self._unwrap = unwrap
        self._waiting: list[av.Packet[Any]] = []
        self._durations: dict[int, int] = {}
        self._last_pts: int | None = None
        self._taken = 0
        self._video_over = False
        self._reached = Fraction(0)
        self._converter: Converter | None = None
        self._cadence: Cadence[av.VideoFrame] | None = None
        self._closed = False
        self._container: av.container.OutputContainer
        self._stream: av.VideoStream
        self._target: Target

    @property
    def full(self) -> bool:
        """Whether -t or -frames:v is satisfied, so that no more items are wanted."""
        return self._video_over and self._cut.is_over(self._copies.kept, self._reached)

    # ---- opening ---------------------------------------------------------------------------

    def __enter__(self) -> Writer:
        spec = self.spec
        form = self._format()
        start, end = seconds(spec.start), seconds(spec.duration)
        self._cut = Cut(start or Fraction(0), trims=bool(start), end=end)
        if spec.frames is not None and spec.frames < 1:
            raise UsageError(f"-frames:v {spec.frames}: must be 1 or more")
        if end is not None and end <= 0:
            raise UsageError(f"-t {spec.duration:g}: must be more than 0")
        self._target = Target(spec, form, self.source.spec)
        try:
            self._open(form)
        except BaseException:
            self._target.discard()
            raise
        return self

    def _format(self) -> str:
        name = self.spec.format
        try:
            if name:
                return av.ContainerFormat(name, "w").name
            with av.open(self.spec.url, "w") as guessed:
                return guessed.format.name
        except ValueError as error:
            wrong = f"{self.spec.url}: no container goes with this name; choose one with -f"
            raise UsageError(f"-f {name}: no such output format" if name else wrong) from error

    def _open(self, form: str) -> None:
        spec = self.spec
        self._container = av.open(self._target.name, "w", format=form)
        default = self._container.default_video_codec
        depth = encoding.depth_of(self.source.pix_fmt)
        self._codec = encoding.choose_encoder(spec, form, default, depth)
        self._options = encoding.encoder_options(spec.options)
        self._muxing = options.split(self._codec, form, self._options)
        self._one_picture = form == "image2" and not self._target.pictures
        if form == "image2":
            self._muxing.setdefault("atomic_writing" if self._target.pictures else "update", "1")
        self._rate = self._rate_option(form)
        self._copies = Copies(self._container, spec)
        for stream in self.source.container.streams:
            if stream.index == self.source.video.index:
                self._add_video(stream)
            else:
                self._copies.add(stream)
        self.notes += self._copies.notes
        self._container.metadata.update(kept_tags(self.source.container.metadata))

    def _rate_option(self, form: str) -> Fraction | None:
        """The constant rate to keep, or None for the frames' own times."""
        if self.spec.rate:
            rate = frame_rate(self.spec.rate)
            if rate is None:
                raise UsageError(f"-r {self.spec.rate}: not a frame rate, such as 25 or 30000/1001")
            return rate
        if form in _CONSTANT_RATE or self._codec.name in _COARSE_CLOCK:
            return self.source.nominal_rate or Fraction(25)
        return None

    def _add_video(self, stream: av.stream.Stream) -> None:
        try:
            made = self._container.add_stream(self._codec.name)
        except ValueError as error:
            raise MediaError(
                f"{self.spec.url}: {self._container.format.name} cannot hold {self._codec.name} "
                "video; choose another -c:v or container",
                self.spec.url,
            ) from error
        assert isinstance(made, av.VideoStream)
        self._stream = made
        self._stream.metadata.update(kept_tags(stream.metadata))
        self._stream.disposition = stream.disposition

    # ---- writing ---------------------------------------------------------------------------

    def write(self, item: Item) -> None:
        """Encode a frame, or mux a packet of a copied stream."""
        try:
            if isinstance(item, Frame):
                self._take(item)
            elif self.frames:
                self._mux_copy(item)
            elif not self._copies.early(item):
                self._waiting.append(item)
        except AvdnnError:
            raise
        except (av.error.FFmpegError, OSError) as error:
            raise self._error(error) from error

    def _take(self, frame: Frame) -> None:
        """Cut, put into the cadence, encode."""
        unit = frame.meta.time_base
        if frame.meta.pts is None:
            raise MediaError(f"{self.spec.url}: frame {self._taken} has no timestamp")
        pts = self._cut.shift(frame.meta.pts, unit)
        self._reached = pts * unit
        if self._video_over or self._cut.is_early(pts):
            return
        if self._cut.is_late(pts, unit):
            self._video_over = True
            return
        picture = self._unwrap(frame)
        picture.pts = pts
        if self._converter is None:
            self._start(frame, picture)
        self._taken += 1
        for ready in self._paced(picture, pts * unit, frame.meta.duration * unit):
            self._encode(ready)
        if self.spec.frames is not None and self.frames >= self.spec.frames:
            self._video_over = True
            over = (pts + frame.meta.duration) * unit
            self._cut.end = over if self._cut.end is None else min(over, self._cut.end)

    def _paced(
        self, picture: av.VideoFrame, time: Fraction, duration: Fraction
    ) -> Iterator[av.VideoFrame]:
        if self._cadence is None:
            yield picture
            return
        duration = duration or 1 / self._cadence.rate
        for held, slot in self._cadence.push(picture, time, duration):
            yield _at(held, slot, self._cadence.rate)

    def _start(self, frame: Frame, picture: av.VideoFrame) -> None:
        """Set up converter and encoder for frames like the first one."""
        own = picture.format.name
        choice = encoding.choose_format(self._codec, self.spec.pix_fmt, own)
        if choice.note:
            self._note(choice.note)
        source = self.source.video.codec_context
        colours = target_colours(self._codec.name, choice.pix_fmt, picture, source.colorspace)
        self._converter = Converter(picture.width, picture.height, choice.pix_fmt, colours)
        if self._rate:
            self._cadence = Cadence(self._rate)
        unit = 1 / self._rate if self._rate else frame.meta.time_base
        self._like = encoding.Like(
            time_base=unit,
            rate=self._rate or self._own_rate(frame),
            sar=frame.meta.sar,
            colours=colours,
            primaries=picture.color_primaries,
            transfer=picture.color_trc,
            field_order=field_order(picture),
        )
        self._stream.time_base = unit
        self._high_range = hdr.read(frame.meta.template)
        matrix = display_matrix(frame.meta.template)
        if matrix:
            self._stream.set_display_matrix(matrix)
        self._container.set_chapters(list(self._chapters()))

    def _own_rate(self, frame: Frame) -> Fraction | None:
        """The nominal rate of the frames, which a filter may have changed."""
        unit, duration = frame.meta.time_base, frame.meta.duration
        if unit == self.source.time_base or not duration:
            return self.source.nominal_rate
        return 1 / (duration * unit)

    def _chapters(self) -> Iterator[Any]:
        """The source's chapters on the output's time line."""
        origin = self.source.origin + self._cut.origin
        for chapter in self.source.container.chapters():
            unit = chapter["time_base"] or Fraction(1, 1000)
            shift = round(origin / unit)
            start, end = max(0, chapter["start"] - shift), chapter["end"] - shift
            if end > 0 and not self._cut.is_late(start, unit):
                yield chapter | {"start": start, "end": end}

    def _encode(self, picture: av.VideoFrame | None) -> None:
        if picture is not None:
            if self.spec.frames is not None and self.frames >= self.spec.frames:
                return
            if self._one_picture and self.frames and "update" not in self.spec.options:
                raise MediaError(
                    f"{self.spec.url}: holds one picture and more came; "
                    "name a pattern such as out%04d.png, or give -frames:v 1",
                    self.spec.url,
                )
            picture = self._prepared(picture)
        packets = self._opened(picture) if not self.frames else self._stream.encode(picture)
        for packet in packets:
            known = self._durations.pop(packet.pts, 0) if packet.pts is not None else 0
            if not packet.duration:
                packet.duration = known
            self._container.mux(packet)
        if picture is not None:
            self.frames += 1
            while self._waiting:
                self._mux_copy(self._waiting.pop(0))

    def _prepared(self, picture: av.VideoFrame) -> av.VideoFrame:
        assert self._converter is not None
        if (picture.width, picture.height) != self._converter.size:
            width, height = self._converter.size
            self._note(
                f"the frames' size changes from {width}x{height} to "
                f"{picture.width}x{picture.height}; they are scaled to the first size",
                once=True,
            )
        picture = self._converter.convert(picture)
        picture.pict_type = 0
        self._check_order(picture)
        if picture.pts is not None and picture.duration:
            self._durations[picture.pts] = picture.duration
        return picture

    def _opened(self, picture: av.VideoFrame | None) -> list[av.Packet[Any]]:
        """Open the encoder with the first frame, and the muxer."""
        if picture is None:
            return []
        context = self._stream.codec_context
        mine = {key: text for key, text in self._options.items() if key not in self._muxing}
        if self._high_range is not None:
            hdr.stamp(self._stream, self._high_range)
            mine = hdr.encoder_settings(self._codec.name, self._high_range, mine)
        encoding.configure(context, picture, self._like, mine)
        try:
            packets = self._stream.encode(picture)
        except (av.error.FFmpegError, ValueError) as error:
            why = encoding.why_not_open(self._codec, picture, self._like, mine) or str(error)
            raise MediaError(
                f"encoder {self._codec.name} does not open: {why}", self.spec.url
            ) from error
        self._container.options.update(self._muxing)
        with options.unread() as left:
            self._container.start_encoding()
        for said in left:
            raise UsageError(f"container {self._container.format.name}: {said}")
        return list(packets)

    def _check_order(self, picture: av.VideoFrame) -> None:
        unit = self._like.time_base
        pts = picture.pts or 0
        if picture.time_base and picture.time_base != unit:
            pts = round(pts * picture.time_base / unit)
        if self._last_pts is not None and pts <= self._last_pts:
            raise MediaError(
                f"{self.spec.url}: frame {self.frames} at {float(pts * unit):.3f} s does not come "
                f"after the one before, at {float(self._last_pts * unit):.3f} s"
            )
        self._last_pts = pts

    def _mux_copy(self, packet: av.Packet[Any]) -> None:
        if not self._cut.place(packet):
            return
        routed = self._copies.route(packet)
        if routed is not None:
            self._container.mux(routed)

    def _note(self, what: str, *, once: bool = False) -> None:
        if once and what in self.notes:
            return
        self.notes.append(what)
        _log.warning("%s: %s", self.spec.url, what)

    # ---- closing ---------------------------------------------------------------------------

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._discard()

    def close(self) -> None:
        """Flush the encoder, write the index, put the file under its name; once."""
        if self._closed:
            return
        try:
            self._finish()
        except AvdnnError:
            self._discard()
            raise
        except (av.error.FFmpegError, OSError) as error:
            self._discard()
            raise self._error(error) from error
        except BaseException:
            self._discard()
            raise
        self._closed = True
        self._target.commit()

    def _finish(self) -> None:
        if self._cadence is not None:
            for held, slot in self._cadence.flush():
                self._encode(_at(held, slot, self._cadence.rate))
            if self._cadence.repeated or self._cadence.dropped:
                self._note(
                    f"constant rate {self._cadence.rate}: {self._cadence.repeated} frames "
                    f"repeated, {self._cadence.dropped} dropped"
                )
        if not self.frames:
            raise MediaError(f"{self.spec.url}: no frame came; nothing is written")
        self._encode(None)
        self._container.close()

    def _discard(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._container.close()
        except (av.error.FFmpegError, OSError) as error:
            _log.debug("%s: closing a discarded output: %s", self.spec.url, error)
        self._target.discard()

    def _error(self, error: Exception) -> MediaError:
        reason = getattr(error, "strerror", None) or str(error)
        return MediaError(f"{self.spec.url}: {reason.lower()}", self.spec.url)


def _at(picture: av.VideoFrame, slot: int, rate: Fraction) -> av.VideoFrame:
    picture.pts, picture.time_base, picture.duration = slot, 1 / rate, 1
    return picture
