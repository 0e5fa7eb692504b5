"""Sets what -metadata asks for on an output and its streams, and tells what was not kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import av
import av.container
import av.stream

from ..errors import UsageError
from ..job import Tag
from ..versions import AS_BYTES

_MOBILE = frozenset(
    {"title", "artist", "author", "genre", "comment", "album", "copyright", "date", "location"}
)
_UNSEEN = {
    "mpegts": frozenset({"service_name", "service_provider"}),
    "3gp": _MOBILE,
    "3g2": _MOBILE,
}
"""Tags that libavformat writes into a format and does not read back, or not as the file's."""

_RENAMED = {"author": "artist", "album": "product", "description": "comment", "title": "name"}
"""Keys that some formats give back under another name."""

_ANY_KEY = {"mp4", "mov", "ipod"}
"""Formats that hold keys of their own only, unless they are told otherwise."""

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


def lost(path: Path | None, form: str, tags: Sequence[Tag]) -> Iterator[str]:
    """What the finished file at `path` does not have of the tags that were set, one line each.

    Nothing where the file cannot be read back, as raw video, or where there is none (a pipe).
    """
    if path is None or not tags:
        return
    wanted = {(tag.where, tag.key.lower()): tag for tag in tags}
    try:
        with av.open(str(path), **AS_BYTES) as container:
            for tag in wanted.values():
                if tag.value and not _kept(container, form, tag):
                    yield _told(form, tag)
    except (av.error.FFmpegError, OSError):
        return


def _kept(container: av.container.InputContainer, form: str, tag: Tag) -> bool:
    """Whether the tag is there; those of the file may have come to its streams, as in Ogg."""
    streams = _meant(container, tag.where) if tag.where else container.streams
    holders = [stream.metadata for stream in streams]
    if not tag.where:
        holders.append(container.metadata)
    found = {(key.lower(), value) for metadata in holders for key, value in metadata.items()}
    key = tag.key.lower()
    return (
        any(key == name for name, _ in found)
        or (_RENAMED.get(key), tag.value) in found
        or key in _UNSEEN.get(form, ())
    )


def _told(form: str, tag: Tag) -> str:
    where = f"-metadata:{tag.where}" if tag.where else "-metadata"
    way = "; -movflags use_metadata_tags keeps it" if form in _ANY_KEY and not tag.where else ""
    return f"{where} {tag.key}={tag.value} is lost: {form} does not keep this tag{way}"


def _meant(container: av.container.Container, where: str) -> list[av.stream.Stream]:
    """The streams of `s`, `s:2`, `s:v` or `s:a:1`."""
    _, *rest = where.split(":")
    streams: list[av.stream.Stream] = list(container.streams)
    if rest and rest[0] in _KINDS:
        kind = _KINDS[rest.pop(0)]
        streams = [stream for stream in streams if stream.type == kind]
    return streams[int(rest[0]) : int(rest[0]) + 1] if rest else streams
