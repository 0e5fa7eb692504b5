"""Where the sound of an input ends: -shortest has to know it before the video gets there."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import av.error
import av.stream
from av.format import Flags

from ..errors import UsageError
from .opening import is_device, is_local, is_pattern, local_path, open_input
from .reader import Reader
from .seeking import declares
from .timestamps import Splices

_log = logging.getLogger(__name__)


def sound_end(
    source: Reader, copied: Iterable[av.stream.Stream], origin: Fraction
) -> Fraction | None:
    """When the first of the sounds among `copied` ends, in seconds from `origin`; None without.

    `origin` is in the time of the source's items. The packets of the whole file are read, so
    UsageError for what can be read only once.
    """
    spec = source.spec
    sounds = {stream.index for stream in copied if stream.type == "audio"}
    if not sounds:
        return None
    if is_device(spec.format) or not is_local(spec.url) or not _is_file(spec.url):
        raise UsageError(
            f"-shortest: {spec.url} is no file that can be read ahead to where its sound ends; "
            "give a length with -t"
        )
    ends: dict[int, Fraction] = {}
    container, _ = open_input(replace(spec, hwaccel=""), threaded=False)
    with container:
        splices = Splices(_log.debug) if declares(container.format, Flags.ts_discont) else None
        try:
            for packet in container.demux():
                if splices is not None:
                    splices.join(packet)
                time = packet.dts if packet.pts is None else packet.pts
                if time is None or packet.stream_index not in sounds or not packet.size:
                    continue
                end = (time + (packet.duration or 0)) * Fraction(packet.time_base)
                ends[packet.stream_index] = max(ends.get(packet.stream_index, end), end)
        except av.error.FFmpegError as error:
            _log.debug("%s: reading ahead stopped early: %s", spec.url, error)
    return min(ends.values()) - source.origin - origin if ends else None


def _is_file(url: str) -> bool:
    return is_pattern(url) or local_path(url).is_file()
