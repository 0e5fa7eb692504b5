"""Streams that are copied as they are: audio, subtitles, attachments, cover art, data."""

from __future__ import annotations

import logging
from typing import Any

import av
import av.container
import av.error

from .errors import MediaError
from .job import OutputSpec
from .opening import is_cover

_log = logging.getLogger(__name__)

STALE_TAGS = frozenset(
    {
        "encoder", "major_brand", "minor_version", "compatible_brands", "vendor_id", "handler_name",
        "BPS", "DURATION", "NUMBER_OF_FRAMES", "NUMBER_OF_BYTES",
    }
)  # fmt: skip
"""Metadata that describes the old file rather than what is in it."""


def kept_tags(metadata: dict[str, str]) -> dict[str, str]:
    """Metadata without what is true of the old file only."""
    return {
        key: value
        for key, value in metadata.items()
        if key.split("-")[0] not in STALE_TAGS and not key.startswith("_STATISTICS")
    }


class Copies:
    """The output's side of the copied streams of one input."""

    def __init__(self, container: av.container.OutputContainer, spec: OutputSpec) -> None:
        self._container = container
        self._spec = spec
        self._streams: dict[int, av.stream.Stream] = {}
        self._sources: list[av.stream.Stream] = []
        self._last: dict[int, int] = {}
        self._pictures_only = container.default_audio_codec == "none"
        self.notes: list[str] = []

    @property
    def kept(self) -> list[av.stream.Stream]:
        """The input's streams that are copied."""
        return [stream for stream in self._sources if stream.index in self._streams]

    def add(self, stream: av.stream.Stream) -> None:
        """Make room for one stream; MediaError if the container cannot hold what is asked for."""
        switch = _SWITCHES.get(stream.type, "")
        wanted = {"audio": self._spec.audio, "subtitle": self._spec.subtitles}
        if not wanted.get(stream.type, True):
            return
        if self._pictures_only:
            self._leave_out(stream, "this format holds pictures only")
            return
        try:
            made = self._container.add_stream_from_template(stream, opaque=True)
        except (ValueError, av.error.FFmpegError) as error:
            form = self._container.format.name
            if switch:
                raise MediaError(
                    f"{self._spec.url}: {form} cannot hold {describe(stream)}; "
                    f"leave it out with {switch} or write another container, such as .mkv",
                    self._spec.url,
                ) from error
            self._leave_out(stream, f"{form} cannot hold it")
            return
        made.metadata.update(kept_tags(stream.metadata))
        made.disposition = stream.disposition
        self._streams[stream.index] = made
        self._sources.append(stream)

    def _leave_out(self, stream: av.stream.Stream, why: str) -> None:
        note = f"{describe(stream)} is left out: {why}"
        self.notes.append(note)
        _log.warning("%s: %s", self._spec.url, note)

    def route(self, packet: av.Packet[Any]) -> av.Packet[Any] | None:
        """The packet on its output stream, or None if its stream is not kept."""
        made = self._streams.get(packet.stream_index)
        if made is None:
            return None
        index = packet.stream_index
        packet.stream = made
        last = self._last.get(index)
        if packet.dts is not None:
            if last is not None and packet.dts < last:
                packet.dts = last
                packet.pts = last if packet.pts is None else max(packet.pts, last)
            self._last[index] = packet.dts
        return packet


_SWITCHES = {"audio": "-an", "subtitle": "-sn"}


def describe(stream: av.stream.Stream) -> str:
    """A stream in words: `subtitle stream 2 (subrip, eng)`."""
    kind = "cover art" if is_cover(stream) else stream.type
    name = getattr(stream, "name", None) or "unknown codec"
    language = f", {stream.language}" if stream.language else ""
    return f"{kind} stream {stream.index} ({name}{language})"
