"""Text subtitles in the form that another container holds."""

from __future__ import annotations

from typing import Any

import av
import av.container
import av.error
from av.subtitles.codeccontext import SubtitleCodecContext

from .cut import MILLISECOND

TEXT_CODECS = {
    "matroska": "subrip",
    "mov": "mov_text",
    "mp4": "mov_text",
    "ipod": "mov_text",
    "webm": "webvtt",
}
"""The text subtitle codec of each container that has one."""


def is_text(stream: av.stream.Stream) -> bool:
    """Whether a stream holds subtitles as text, not as pictures."""
    context = stream.codec_context
    return isinstance(context, SubtitleCodecContext) and context.codec.text_sub


class TextSubtitles:
    """One stream of text subtitles, decoded and encoded packet by packet; styles go along as far
    as the target knows them."""

    def __init__(
        self, container: av.container.OutputContainer, source: av.stream.Stream, codec: str
    ) -> None:
        self.stream = container.add_stream(codec)
        decoder, encoder = source.codec_context, self.stream.codec_context
        assert isinstance(decoder, SubtitleCodecContext)
        assert isinstance(encoder, SubtitleCodecContext)
        decoder.open(strict=False)
        encoder.subtitle_header = decoder.subtitle_header
        encoder.time_base = MILLISECOND
        self._decoder, self._encoder = decoder, encoder

    def convert(self, packet: av.Packet[Any]) -> av.Packet[Any] | None:
        """The packet in the new codec, on the new stream; None if it shows nothing."""
        decoded = self._decoder.decode2(packet)
        if decoded is None or not len(decoded):
            return None
        made = self._encoder.encode_subtitle(decoded)
        made.pts = made.dts = packet.pts
        made.duration, made.time_base, made.stream = packet.duration, packet.time_base, self.stream
        return made
