"""Streams that are copied as they are: audio, subtitles, attachments, cover art, data."""

from __future__ import annotations

import io
import logging
from typing import Any

import av
import av.container
import av.error

from ..errors import MediaError
from ..job import OutputSpec
from ..notes import NOTE
from .mapping import is_cover
from .subtitles import TEXT_CODECS, TextSubtitles, is_text

_log = logging.getLogger(__name__)

STALE_TAGS = frozenset(
    {
        "encoder", "major_brand", "minor_version", "compatible_brands", "vendor_id",
        "BPS", "DURATION", "NUMBER_OF_FRAMES", "NUMBER_OF_BYTES",
    }
)  # fmt: skip
"""Metadata that describes the old file rather than what is in it."""

_USUAL = {"name": "title", "product": "album"}
"""Keys by which mp4 and AVI give back what they, as other containers, take by another."""

_DEFAULT_HANDLERS = frozenset({"VideoHandler", "SoundHandler", "SubtitleHandler"})


def kept_tags(metadata: dict[str, str]) -> dict[str, str]:
    """Metadata without what is true of the old file only, by the keys that containers share."""
    usual = {old: new for old, new in _USUAL.items() if new not in metadata}
    return {
        usual.get(key, key): value
        for key, value in metadata.items()
        if key.split("-")[0] not in STALE_TAGS
        and not key.startswith("_STATISTICS")
        and value not in _DEFAULT_HANDLERS
    }


class Copies:
    """The output's side of the copied streams of one input.

    `add` every stream before the header is written; give `early` every packet that comes before
    it, since Matroska keeps cover art in its header.
    """

    def __init__(self, container: av.container.OutputContainer, spec: OutputSpec) -> None:
        self._container = container
        self._spec = spec
        self._form = container.format
        self._streams: dict[int, av.stream.Stream] = {}
        self._texts: dict[int, TextSubtitles] = {}
        self._covers: dict[int, av.stream.Stream] = {}
        self._sources: list[av.stream.Stream] = []
        self._last: dict[int, int] = {}
        silent = container.default_audio_codec == "none"
        self._pictures_only = silent and container.default_video_codec != "none"
        self.notes: list[str] = []

    @property
    def kept(self) -> list[av.stream.Stream]:
        """The input's streams that are copied."""
        return self._sources

    def add(self, stream: av.stream.Stream) -> None:
        """Make room for one stream; MediaError if the container cannot hold what is asked for."""
        spec = self._spec
        wanted = {"audio": spec.audio, "subtitle": spec.subtitles, "data": spec.data}
        if not wanted.get(stream.type, True) or _is_remade(stream):
            return
        if self._pictures_only:
            self._leave_out(stream, "this format holds pictures only")
        elif is_cover(stream) and self._form.name == "matroska":
            self._covers[stream.index] = stream
        elif _fits(self._form, stream):
            self._keep(stream, self._container.add_stream_from_template(stream, opaque=True))
            if stream.type == "video" and not is_cover(stream):
                self._note(
                    f"{describe(stream)} is copied as it is; one video stream is processed", NOTE
                )
        elif is_text(stream) and self._form.name in TEXT_CODECS:
            codec = TEXT_CODECS[self._form.name]
            made = TextSubtitles(self._container, stream, codec)
            self._texts[stream.index] = made
            self._keep(stream, made.stream)
            self._note(
                f"{describe(stream)} is converted to {codec}: {self._form.name} needs it", NOTE
            )
        elif stream.type in _SWITCHES:
            raise MediaError(
                f"{self._spec.url}: {self._form.name} cannot hold {describe(stream)}; leave it out "
                f"with {_SWITCHES[stream.type]} or write another container, such as .mkv",
                self._spec.url,
            )
        else:
            self._leave_out(stream, f"{self._form.name} cannot hold it")

    def _keep(self, stream: av.stream.Stream, made: av.stream.Stream) -> None:
        made.metadata.update(kept_tags(stream.metadata))
        made.disposition = stream.disposition
        self._streams[stream.index] = made
        self._sources.append(stream)

    def _leave_out(self, stream: av.stream.Stream, why: str) -> None:
        self._note(f"{describe(stream)} is left out: {why}")

    def _note(self, note: str, level: int = logging.WARNING) -> None:
        self.notes.append(note)
        _log.log(level, "%s: %s", self._spec.url, note)

    def early(self, packet: av.Packet[Any]) -> bool:
        """Take what belongs into the header; True if the packet is used up."""
        cover = self._covers.pop(packet.stream_index, None)
        if cover is None:
            return False
        codec = str(getattr(cover, "name", "bin"))
        suffix, kind = ("jpg", "jpeg") if codec == "mjpeg" else (codec, codec)
        name = cover.metadata.get("filename", f"cover.{suffix}")
        self._container.add_attachment(name, f"image/{kind}", bytes(packet))
        return True

    def route(self, packet: av.Packet[Any]) -> av.Packet[Any] | None:
        """The packet on its output stream, or None if its stream is not kept."""
        index = packet.stream_index
        made = self._streams.get(index)
        if made is None:
            return None
        if index in self._texts:
            return self._texts[index].convert(packet)
        packet.stream = made
        last = self._last.get(index)
        if packet.dts is not None:
            if last is not None and packet.dts < last:
                packet.dts = last
                packet.pts = last if packet.pts is None else max(packet.pts, last)
            self._last[index] = packet.dts
        return packet


def _fits(form: av.ContainerFormat, stream: av.stream.Stream) -> bool:
    """Whether a container takes a stream: a header with it alone is written to memory.

    The sink is closed first, so that no trailer is written.
    """
    sink = io.BytesIO()
    trial = av.open(sink, "w", format=form.name)
    try:
        trial.add_stream_from_template(stream, opaque=True).disposition = stream.disposition
        if not form.no_file:
            trial.start_encoding()
    except (ValueError, av.error.FFmpegError) as error:
        _log.debug("%s does not take %s: %s", form.name, describe(stream), error)
        return False
    finally:
        sink.close()
        trial.close()
    return True


def _is_remade(stream: av.stream.Stream) -> bool:
    """Whether a data stream of a QuickTime file holds what muxers make anew from tags and
    chapters: the time code, or the chapters' titles."""
    container = stream.container
    if stream.type != "data" or not container.format.name.startswith("mov"):
        return False
    titles = getattr(stream, "name", None) == "bin_data" and bool(container.chapters())
    return titles or "timecode" in stream.metadata


_SWITCHES = {"audio": "-an", "subtitle": "-sn"}


def describe(stream: av.stream.Stream) -> str:
    """A stream in words: `subtitle stream 2 (subrip, eng)`."""
    kind = "cover art" if is_cover(stream) else stream.type
    name = getattr(stream, "name", None) or "unknown codec"
    language = f", {stream.language}" if stream.language else ""
    return f"{kind} stream {stream.index} ({name}{language})"
