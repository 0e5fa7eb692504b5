"""Sets what -metadata asks for on an output and its streams."""

from __future__ import annotations

from collections.abc import Iterable

import av.container
import av.stream

from ..errors import UsageError
from ..job import Tag

_KINDS = {"v": "video", "a": "audio", "s": "subtitle"}


def apply(container: av.container.OutputContainer, tags: Iterable[Tag]) -> None:
    """Set tags, or take them away where the value is empty, whatever the case of their keys.

    UsageError where no stream is meant.
    """
    for tag in tags:
        holders = [container.metadata]
        if tag.where:
            holders = [stream.metadata for stream in _meant(container, tag.where)]
        if not holders:
            raise UsageError(f"-metadata:{tag.where}: the output has no such stream")
        for metadata in holders:
            for key in [key for key in metadata if key.lower() == tag.key.lower()]:
                del metadata[key]
            if tag.value:
                metadata[tag.key] = tag.value


def _meant(container: av.container.OutputContainer, where: str) -> list[av.stream.Stream]:
    """The streams of `s`, `s:2`, `s:v` or `s:a:1`."""
    _, *rest = where.split(":")
    streams: list[av.stream.Stream] = list(container.streams)
    if rest and rest[0] in _KINDS:
        kind = _KINDS[rest.pop(0)]
        streams = [stream for stream in streams if stream.type == kind]
    return streams[int(rest[0]) : int(rest[0]) + 1] if rest else streams
