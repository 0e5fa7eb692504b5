"""Writes frames and copied packets to one output; a file appears only when it is whole."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from fractions import Fraction
from types import TracebackType

import av
import av.container
import av.error
from av.format import Flags as FormatFlags

from .. import host
from ..errors import AvdnnError, MediaError
from ..frame import Frame
from ..job import OutputSpec
from ..notes import NOTE
from ..properties import display_matrix
from ..versions import AS_BYTES
from . import anamorphic, containers, encoding, labels, nvenc, options, tags
from .copying import Copies, kept_tags
from .cut import output_cut
from .encoder import VideoEncoder
from .held import Held
from .mapping import chosen
from .pacing import Pace, choose_pace, constant_rate
from .readback import lost
from .reader import Item, Reader
from .seeking import declares
from .shortest import sound_end
from .target import Target, output_format

_log = logging.getLogger(__name__)


class Writer:
    """One output. `write` takes items in order; leaving the block finishes it, or discards it if
    there was an error.

    What can be refused is refused on entering the block, before the first frame: names, formats,
    codecs, options, streams that the container cannot hold. The encoder opens at the first frame,
    whose size and format decide. Timestamps, durations and the time base are those of the frames,
    unless -r, the container or the encoder want a constant rate; then frames are repeated and
    dropped, and a note says how many.
    `unwrap` makes an av frame of a Frame, in GPU memory where `why_host` allows it. `notes` are
    sentences for the user, also logged.
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
        self._unwrap = unwrap
        self._taken = 0
        self._reached = self._over = Fraction(0)
        self._video_over = False
        self._pace: Pace | None = None
        self._closed = False
        self._container: av.container.OutputContainer
        self._encoder: VideoEncoder
        self._target: Target

    @property
    def frames(self) -> int:
        """Frames encoded so far."""
        return self._encoder.frames

    @property
    def full(self) -> bool:
        """Whether -t or -frames:v is satisfied, so that no more items are wanted."""
        if self._closed:
            return self._video_over
        return self._video_over and self._cut.is_over(self._copies.kept, self._reached)

    # ---- opening ---------------------------------------------------------------------------

    def __enter__(self) -> Writer:
        form = output_format(self.spec)
        video = self.source.video.index
        self._chosen = chosen(self.source.container.streams, self.spec.maps, video)
        self._cut = output_cut(self.spec)
        self._target = Target(self.spec, form, self.source.spec)
        try:
            self._open(form)
        except BaseException:
            self._target.discard()
            raise
        return self

    def _open(self, form: str) -> None:
        spec = self.spec
        self._container = av.open(self._target.name, "w", format=form, **AS_BYTES)
        default = self._container.default_video_codec
        depth = encoding.depth_of(self.source.pix_fmt)
        codec = encoding.choose_encoder(spec, form, default, depth)
        self._rate = constant_rate(spec, form, codec.name, self.source.nominal_rate)
        given = encoding.encoder_options(spec.options)
        muxing = options.split(codec, form, given)
        mine = {key: value for key, value in given.items() if key not in muxing}
        nvenc.check(codec, mine)
        self._one_picture = containers.settle(form, self._target, muxing)
        self._copies = Copies(self._container, spec)
        self._held = Held(self._cut, self._copies)
        for stream in self._chosen:
            if stream.index == self.source.video.index:
                self._encoder = VideoEncoder(
                    self._container,
                    codec,
                    url=spec.url,
                    encoding=mine,
                    muxing=muxing,
                    aspect=spec.aspect,
                    note=self._note,
                )
                self._encoder.describe(stream)
            else:
                self._copies.add(stream)
        self.notes += self._copies.notes
        if spec.shortest:
            self._cut.limit(sound_end(self.source, self._copies.kept, self._cut.origin))
        self._container.metadata.update(kept_tags(self.source.container.metadata))
        if not spec.source_tags:
            labels.forget(self._container)
        self._disposed = labels.dispose(self._container, spec.dispositions)
        self._source_tags = tags.apply(self._container, spec.tags)

    # ---- writing ---------------------------------------------------------------------------

    def why_host(self, frame: Frame) -> str | None:
        """Why a device frame has to be downloaded before `write`: None if it goes to the encoder
        as it is, "" if there is nothing to say. May be asked from another thread."""
        return self._encoder.why_host(frame, self.spec.pix_fmt, self._matrix(frame))

    def _matrix(self, frame: Frame) -> list[int]:
        """The frame's display matrix, or what its file says of all frames."""
        return display_matrix(frame.meta.template) or self.source.matrix

    def write(self, item: Item) -> None:
        """Encode a frame, or mux a packet of a copied stream."""
        try:
            if isinstance(item, Frame):
                self._take(item)
            elif self.frames or not self._copies.early(item):
                self._held.add(item)
            self._release()
        except AvdnnError:
            raise
        except (av.error.FFmpegError, OSError) as error:
            raise self._error(error) from error

    def _take(self, frame: Frame) -> None:
        """Cut, pace, encode."""
        unit, duration = frame.meta.time_base, frame.meta.duration
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
        if self._pace is None:
            self._pace = self._start(frame, picture)
        self._taken += 1
        self._over = (pts + duration) * unit
        self._encode(self._pace.push(picture, pts * unit, duration * unit))
        if self.spec.frames is not None and self.frames >= self.spec.frames:
            self._video_over = True
            self._cut.limit(self._over)

    def _start(self, frame: Frame, picture: av.VideoFrame) -> Pace:
        rate = self._rate or self._own_rate(frame)
        timed = not declares(self._container.format, FormatFlags.no_timestamps)
        pace = choose_pace(self._rate, rate, frame.meta.time_base, timed=timed)
        self._encoder.start(
            frame,
            picture,
            pix_fmt=self.spec.pix_fmt,
            unit=pace.unit,
            rate=rate,
            source_matrix=self.source.video.codec_context.colorspace,
            source_hdr=self.source.hdr,
            matrix=self._matrix(frame),
        )
        if self.spec.chapters:
            chapters, origin = self.source.container.chapters(), self.source.origin
            moved = list(self._cut.chapters(chapters, origin))
            self._container.set_chapters(moved if self.spec.source_tags else labels.untitled(moved))
        return pace

    def _own_rate(self, frame: Frame) -> Fraction | None:
        """The nominal rate of the frames, which a filter may have changed."""
        unit, duration = frame.meta.time_base, frame.meta.duration
        if unit == self.source.time_base or not duration:
            return self.source.nominal_rate
        return 1 / (duration * unit)

    def _encode(self, pictures: Iterator[av.VideoFrame]) -> None:
        for picture in pictures:
            if self.spec.frames is not None and self.frames >= self.spec.frames:
                return
            if self._one_picture and self.frames:
                raise MediaError(
                    f"{self.spec.url}: holds one picture and more came; "
                    "name a pattern such as out%04d.png, or give -frames:v 1",
                    self.spec.url,
                )
            self._container.mux(self._encoder.encode(picture))

    def _release(self, *, all_of_it: bool = False) -> None:
        """Mux the copied packets whose turn it is: after the header is written, and where the
        video decides the end (-frames:v, -shortest), not before it has come that far."""
        if not self.frames:
            return
        limited = self.spec.frames is not None or self.spec.shortest
        waiting = limited and not self._video_over and not all_of_it
        for packet in self._held.release(self._reached if waiting else None):
            self._container.mux(packet)

    def _note(self, what: str, level: int = logging.WARNING) -> None:
        if what not in self.notes:
            self.notes.append(what)
            _log.log(level, "%s: %s", self.spec.url, what)

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
        if self._pace is not None:
            self._encode(self._pace.flush())
            if self._pace.note:
                self._note(self._pace.note, NOTE if self.spec.rate else logging.WARNING)
        if not self.frames:
            raise MediaError(f"{self.spec.url}: no frame came; nothing is written", self.spec.url)
        if self.spec.shortest:
            self._cut.limit(self._over)
        self._release(all_of_it=True)
        self._container.mux(self._encoder.encode(None))
        track, ratio = self._encoder.track, self._encoder.missing_ratio
        form = self._container.format.name
        self._container.close()
        part = self._target.part
        if ratio is not None:
            done = anamorphic.kept(part, form, track, ratio)
            if not done and not self._encoder.holds_ratio:
                self._note(anamorphic.lost(ratio, form))
        for line in lost(part, form, self.spec.tags, self._source_tags, self._disposed):
            self._note(line)

    def _discard(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._container.close()
        except (av.error.FFmpegError, OSError, AssertionError, ValueError) as error:
            _log.debug("%s: closing a discarded output: %s", self.spec.url, error)
        self._target.discard()

    def _error(self, error: Exception) -> MediaError:
        reason = getattr(error, "strerror", None) or str(error)
        return MediaError(f"{self.spec.url}: {reason.lower()}", self.spec.url)
