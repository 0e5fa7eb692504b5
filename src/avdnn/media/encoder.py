"""The video stream of an output: converts, encodes, and opens the muxer with the first frame."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import av
import av.container
import av.error
from av.codec import Codec

from ..errors import MediaError, UsageError
from ..frame import Frame
from ..notes import NOTE
from ..properties import field_order
from ..versions import fraction
from . import hdr, nvenc, options, raw
from .conversion import Converter, samples, target_colours
from .copying import kept_tags
from .encoding import Choice, Like, choose_format, configure, depth_of, why_not_open
from .listening import listening
from .losses import has_alpha, palette_is_transparent
from .rotation import KEEPS_MATRIX, Turner, swaps_sides, turns

_NO_RATIO = frozenset({"matroska", "webm", "nut", "yuv4mpegpipe"})
"""Containers whose own aspect ratio PyAV cannot set."""

_DAY = 24 * 3600

_SILENT_ON_RATIO = frozenset({"av1", "vp8", "vp9", "rawvideo", "wrapped_avframe"})
"""Codecs whose streams hold no sample aspect ratio."""


class VideoEncoder:
    """One encoder and its stream. The first frame decides size, format and tags.

    `encoding` are the encoder's options and `muxing` the container's; `aspect` is the shown
    picture's ratio of width to height, None for that of the frames. `note` takes sentences for
    the user, and their level if it is not WARNING. Frames have to come in the order of their times.
    """

    def __init__(
        self,
        container: av.container.OutputContainer,
        codec: Codec,
        *,
        url: str,
        encoding: Mapping[str, str],
        muxing: Mapping[str, str],
        aspect: Fraction | None,
        note: Callable[..., None],
    ) -> None:
        self.frames = 0
        self._container = container
        self._codec = codec
        self._url = url
        self._encoding = dict(encoding)
        self._muxing = dict(muxing)
        self._aspect = aspect
        self._note = note
        self._converter: Converter
        self._like: Like
        self._last_pts: int | None = None
        self._turner: Turner | None = None
        self._last_dts: int | None = None
        self._durations: dict[int, int] = {}
        try:
            made = container.add_stream(codec.name)
        except ValueError as error:
            raise MediaError(
                f"{url}: {container.format.name} cannot hold {codec.name} video; "
                "choose another -c:v or container",
                url,
            ) from error
        assert isinstance(made, av.VideoStream)
        self._stream = made

    def describe(self, source: av.stream.Stream) -> None:
        """Take metadata and disposition of the stream that the frames come from."""
        self._stream.metadata.update(kept_tags(source.metadata))
        self._stream.disposition = source.disposition

    def start(
        self,
        frame: Frame,
        picture: av.VideoFrame,
        *,
        pix_fmt: str,
        unit: Fraction,
        rate: Fraction | None,
        source_matrix: int,
        source_hdr: hdr.Hdr | None,
        matrix: list[int],
    ) -> None:
        """Plan for frames like the first one; `picture` is it as an av frame, `matrix` its display
        matrix, empty without one."""
        turned = self._turns(matrix)
        if self._turner is not None:
            picture = self._turner.turn(picture)
        sar, self._own_format = frame.meta.sar, samples(picture)
        sar = 1 / sar if sar and turned else sar
        if self._aspect is not None:
            lying = bool(matrix) and self._turner is None and swaps_sides(turns(matrix) or [])
            shown = 1 / self._aspect if lying else self._aspect
            sar = shown * picture.height / picture.width
        choice = Choice(self._own_format)
        if picture.sw_format is None:
            choice = choose_format(self._codec, pix_fmt, self._own_format)
        if choice.note:
            self._note(choice.note, logging.WARNING if choice.loses else NOTE)
        holds = choice.pix_fmt == "pal8" or has_alpha(choice.pix_fmt)
        if not holds and palette_is_transparent(picture):
            self._note(f"the palette's transparency is lost: {choice.pix_fmt} has none")
        if self._lost_bits():
            self._note(self._lost_bits())
        if self._codec.name == "rawvideo" and "tag" not in self._encoding:
            raw.check(self._container.format.name, choice.pix_fmt)
        colours = target_colours(self._codec.name, choice.pix_fmt, picture, source_matrix)
        self._converter = Converter(picture.width, picture.height, choice.pix_fmt, colours)
        self._like = Like(
            time_base=unit,
            rate=rate,
            sar=sar,
            colours=colours,
            primaries=picture.color_primaries,
            transfer=picture.color_trc,
            field_order=frame.meta.field_order or field_order(picture),
        )
        self._stream.time_base = unit
        self._hdr = hdr.merged(hdr.read(frame.meta.template), picture.color_trc, source_hdr)

    def _lost_bits(self) -> str:
        own = self._own_format
        return nvenc.lost_bits(self._codec, own, depth_of(own))

    def why_host(self, frame: Frame, pix_fmt: str, matrix: list[int]) -> str | None:
        """Why a device frame has to come through host memory, as nvenc.why_host says."""
        why = nvenc.why_host(self._codec, frame, pix_fmt, self._encoding.get("gpu", ""))
        form = self._container.format.name
        if why is None and form not in KEEPS_MATRIX and matrix and turns(matrix):
            return f"the pictures are turned in host memory: {form} cannot store their rotation"
        return why

    def _turns(self, matrix: list[int]) -> bool:
        """Keep the display matrix, or turn the pictures; whether that swaps width and height."""
        form = self._container.format.name
        if not matrix:
            return False
        if form in KEEPS_MATRIX:
            self._stream.set_display_matrix(matrix)
            return False
        filters = turns(matrix)
        if filters is None:
            self._note(f"the rotation is lost: {form} cannot store it, and it is no quarter turn")
            return False
        if filters:
            self._turner = Turner(filters)
            self._note(f"the pictures are turned upright: {form} cannot store their rotation", NOTE)
        return swaps_sides(filters)

    @property
    def track(self) -> int:
        """The number of the video among the streams, attachments not counted."""
        before = [made for made in self._container.streams if made.index < self._stream.index]
        return sum(made.type != "attachment" for made in before)

    @property
    def missing_ratio(self) -> Fraction | None:
        """The aspect ratio that the container should have got and did not; None if all is well.

        Matroska has whole pixels only: a ratio that it would round stays in the codec's stream.
        """
        sar = self._like.sar
        if sar is None or sar == 1 or self._container.format.name not in _NO_RATIO:
            return None
        whole = (self._converter.size[0] * sar).denominator == 1
        return sar if whole or not self.holds_ratio else None

    @property
    def holds_ratio(self) -> bool:
        """Whether the codec's stream says the aspect ratio by itself."""
        return self._codec.canonical_name not in _SILENT_ON_RATIO

    def encode(self, picture: av.VideoFrame | None) -> list[av.Packet[Any]]:
        """Packets that are ready; None flushes."""
        if picture is not None:
            picture = self._prepared(picture)
        packets = self._stream.encode(picture) if self.frames else self._opened(picture)
        self.frames += picture is not None
        for packet in packets:
            known = self._durations.pop(packet.pts, 0) if packet.pts is not None else 0
            if not packet.duration:
                packet.duration = known
            self._mend_dts(packet)
        return packets

    def _mend_dts(self, packet: av.Packet[Any]) -> None:
        """Replace a decoding time that the encoder never set: libx265's, for one or two frames."""
        if packet.pts is None or packet.dts is None:
            return
        last = self._last_dts
        behind = (packet.pts - packet.dts) * self._like.time_base
        if not 0 <= behind < _DAY or (last is not None and packet.dts <= last):
            packet.dts = packet.pts if last is None else min(packet.pts, last + 1)
        self._last_dts = packet.dts

    def _prepared(self, picture: av.VideoFrame) -> av.VideoFrame:
        if self._turner is not None:
            picture = self._turner.turn(picture)
        width, height = self._converter.size
        if (picture.width, picture.height) != (width, height):
            self._note(
                f"the frames' size changes from {width}x{height} to "
                f"{picture.width}x{picture.height}; they are scaled to the first size"
            )
        if samples(picture) != self._own_format:
            self._note(
                f"the frames' format changes from {self._own_format} to {samples(picture)}; "
                f"they are converted to {self._converter.pix_fmt} like the first"
            )
        picture = self._converter.convert(picture)
        picture.pict_type = 0
        self._check_order(picture)
        if picture.pts is not None and picture.duration:
            self._durations[picture.pts] = picture.duration
        return picture

    def _check_order(self, picture: av.VideoFrame) -> None:
        unit = self._like.time_base
        pts = picture.pts or 0
        own = fraction(picture.time_base) or unit
        if own != unit:
            pts = round(pts * own / unit)
        if self._last_pts is not None and pts <= self._last_pts:
            raise MediaError(
                f"{self._url}: frame {self.frames} at {float(pts * unit):.3f} s does not come "
                f"after the one before, at {float(self._last_pts * unit):.3f} s"
            )
        self._last_pts = pts

    def _opened(self, picture: av.VideoFrame | None) -> list[av.Packet[Any]]:
        """Open the encoder with the first frame, and write the header."""
        if picture is None:
            return []
        mine: Mapping[str, str] = self._encoding
        if self._hdr is not None:
            hdr.stamp(self._stream, self._hdr)
            mine = hdr.encoder_settings(self._codec.name, self._hdr, mine)
        configure(self._stream.codec_context, picture, self._like, mine)
        try:
            packets = self._stream.encode(picture)
        except (av.error.FFmpegError, ValueError) as error:
            why = why_not_open(self._codec, picture, self._like, mine) or str(error)
            raise MediaError(
                f"encoder {self._codec.name} does not open: {why}", self._url
            ) from error
        self._write_header()
        return packets

    def _write_header(self) -> None:
        self._container.options.update(self._muxing)
        form = self._container.format.name
        said: list[str] = []
        try:
            with listening() as said, options.unread() as left:
                self._container.start_encoding()
        except (av.error.ArgumentError, av.error.InvalidDataError) as error:
            why = "; ".join(said) or error.strerror
            raise MediaError(f"{self._url}: {form} cannot hold this: {why}", self._url) from error
        for line in left:
            names = ", ".join(f"-{name}" for name in self._muxing if f"'{name}'" in line)
            raise UsageError(
                f"{names or line}: neither encoder {self._codec.name} nor container {form} has "
                "this option"
            )
