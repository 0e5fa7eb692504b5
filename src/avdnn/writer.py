"""Encodes frames and muxes them with the copied streams; a file appears only when it is whole."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any

import av
import av.container
import av.error

from . import encoding, host
from .copying import Copies, kept_tags
from .errors import MediaError, UsageError
from .frame import Frame
from .job import OutputSpec
from .media import Item, Reader
from .target import Target

_log = logging.getLogger(__name__)


class Writer:
    """One output. `write` takes items in order; leaving the block finishes or, on an error,
    discards it.

    Everything that can be refused is refused on entering the block, before the first frame.
    `unwrap` makes an av frame of a Frame. `notes` are sentences for the user; `done` says that
    the output wants no more items.
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
        self.done = False
        self._unwrap = unwrap
        self._waiting: list[av.Packet[Any]] = []
        self._durations: dict[int, int] = {}
        self._last_pts: int | None = None
        self._container: av.container.OutputContainer
        self._stream: av.VideoStream
        self._target: Target

    # ---- opening ---------------------------------------------------------------------------

    def __enter__(self) -> Writer:
        form = self._format()
        self._target = Target(self.spec, form, self.source.spec)
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
            asked = (
                f"-f {name}: no such output format"
                if name
                else (f"{self.spec.url}: no container goes with this name; choose one with -f")
            )
            raise UsageError(asked) from error

    def _open(self, form: str) -> None:
        spec = self.spec
        self._container = av.open(self._target.name, "w", format=form)
        self._codec = encoding.choose_encoder(spec, form, self._container.default_video_codec)
        self._options = encoding.encoder_options(spec.options)
        self._copies = Copies(self._container, spec)
        for stream in self.source.container.streams:
            if stream.index == self.source.video.index:
                self._add_video(stream)
            else:
                self._copies.add(stream)
        self.notes += self._copies.notes
        self._container.metadata.update(kept_tags(self.source.container.metadata))
        self._container.set_chapters(self.source.container.chapters())

    def _add_video(self, stream: av.stream.Stream) -> None:
        try:
            made = self._container.add_stream(self._codec.name)
        except ValueError as error:
            raise MediaError(
                f"{self.spec.url}: {self._container.format.name} cannot hold {self._codec.name} "
                "video; choose another -c:v or container",
                self.spec.url,
            ) from error
        if not isinstance(made, av.VideoStream):
            raise UsageError(f"-c:v {self._codec.name}: does not encode video")
        self._stream = made
        self._stream.metadata.update(kept_tags(stream.metadata))
        self._stream.disposition = stream.disposition

    # ---- writing ---------------------------------------------------------------------------

    def write(self, item: Item) -> None:
        """Encode a frame, or mux a packet of a copied stream."""
        try:
            if isinstance(item, Frame):
                self._write_frame(item)
            elif self.frames:
                self._mux_copy(item)
            else:
                self._waiting.append(item)
        except (av.error.FFmpegError, OSError) as error:
            raise self._error(error) from error

    def _write_frame(self, frame: Frame) -> None:
        picture = self._unwrap(frame)
        if not self.frames:
            self._start(frame, picture)
        self._encode(picture)
        self.frames += 1
        if self.frames == 1:
            waiting, self._waiting = self._waiting, []
            for packet in waiting:
                self._mux_copy(packet)

    def _start(self, frame: Frame, picture: av.VideoFrame) -> None:
        choice = encoding.choose_format(self._codec, self.spec.pix_fmt, picture.format.name)
        if choice.note:
            self._note(choice.note)
        like = encoding.Like(
            time_base=frame.meta.time_base,
            rate=self.source.nominal_rate,
            sar=frame.meta.sar,
            color_range=picture.color_range,
            colorspace=picture.colorspace,
            color_primaries=picture.color_primaries,
            color_trc=picture.color_trc,
        )
        context = self._stream.codec_context
        encoding.configure(context, picture, choice, self._options, like)
        self._stream.time_base = like.time_base
        matrix = _display_matrix(frame)
        if matrix:
            self._stream.set_display_matrix(matrix)

    def _encode(self, picture: av.VideoFrame | None) -> None:
        if picture is not None:
            picture.pict_type = 0
            self._check_order(picture)
            if picture.pts is not None and picture.duration:
                self._durations[picture.pts] = picture.duration
        for packet in self._stream.encode(picture):
            known = self._durations.pop(packet.pts, 0) if packet.pts is not None else 0
            if not packet.duration:
                packet.duration = known
            self._container.mux(packet)

    def _check_order(self, picture: av.VideoFrame) -> None:
        unit = self._stream.codec_context.time_base
        pts = picture.pts
        if pts is None:
            raise MediaError(f"{self.spec.url}: frame {self.frames} has no timestamp")
        if picture.time_base and picture.time_base != unit:
            pts = round(pts * picture.time_base / unit)
        if self._last_pts is not None and pts <= self._last_pts:
            raise MediaError(
                f"{self.spec.url}: frame {self.frames} at {float(pts * unit):.3f} s does not come "
                f"after the one before, at {float(self._last_pts * unit):.3f} s"
            )
        self._last_pts = pts

    def _mux_copy(self, packet: av.Packet[Any]) -> None:
        routed = self._copies.route(packet)
        if routed is not None:
            self._container.mux(routed)

    def _note(self, what: str) -> None:
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
        """Flush the encoder, write the index, put the file under its name."""
        try:
            if not self.frames:
                raise MediaError(f"{self.spec.url}: no frame came; nothing is written")
            self._encode(None)
            self._container.close()
        except (av.error.FFmpegError, OSError) as error:
            self._discard()
            raise self._error(error) from error
        except BaseException:
            self._discard()
            raise
        self._target.commit()

    def _discard(self) -> None:
        self._target.discard()
        try:
            self._container.close()
        except (av.error.FFmpegError, OSError) as error:
            _log.debug("%s: closing a discarded output: %s", self.spec.url, error)
        self._target.discard()

    def _error(self, error: Exception) -> MediaError:
        if isinstance(error, MediaError):
            return error
        reason = getattr(error, "strerror", None) or str(error)
        return MediaError(f"{self.spec.url}: {reason.lower()}", self.spec.url)


def _display_matrix(frame: Frame) -> list[int]:
    """The nine integers of the frame's display matrix, or none."""
    source = frame.meta.template
    for data in source.side_data if source is not None else ():
        if data.type.name == "DISPLAYMATRIX":
            return list(memoryview(bytes(data)).cast("i"))
    return []
