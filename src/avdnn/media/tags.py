"""Sets what -metadata asks for on an output and its streams, and tells which tags were not kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import av
import av.container
import av.stream

from ..errors import UsageError
from ..job import Tag
from .mapping import meant

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

_OF_FILES = frozenset({"software", "encoder", "handler_name"})
_OF_TRACKS = frozenset({"creation_time", "alpha_mode", "timecode"})
"""Tags that others replace: the writing program's, the file's own, a track's."""


def apply(container: av.container.OutputContainer, tags: Iterable[Tag]) -> list[Tag]:
    """Set tags, or take them away where the value is empty, whatever the case of their keys.

    Returns those of the source that stay. UsageError where no stream is meant.
    """
    before = _present(container)
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
    after = _present(container)
    return [tag for tag in before if tag in after]


def _present(container: av.container.OutputContainer) -> list[Tag]:
    """All tags of an output that somebody might miss."""
    found = [Tag("", key, value) for key, value in container.metadata.items()]
    for stream in container.streams:
        where = f"s:{stream.index}"
        found += [Tag(where, *item) for item in stream.metadata.items()]
    return [tag for tag in found if not _idle(tag)]


def _idle(tag: Tag) -> bool:
    """Whether nobody would miss a tag, which speaks of the old file or says nothing."""
    key = tag.key.lower()
    return (
        key in _OF_FILES
        or bool(tag.where and key in _OF_TRACKS)
        or (key, tag.value) == ("language", "und")
    )


def lost(
    made: av.container.InputContainer, form: str, tags: Iterable[Tag], source: Iterable[Tag]
) -> Iterator[str]:
    """What a finished file does not have of the tags that were set, one line each, and of those
    of the source, in one line."""
    wanted = {(tag.where, tag.key.lower()): tag for tag in tags}
    for tag in wanted.values():
        if not _kept(made, form, tag):
            yield _told(form, tag)
    missing = [tag for tag in source if not _kept(made, form, tag)]
    if missing:
        yield _told_of_source(form, missing)


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


def _told_of_source(form: str, tags: Sequence[Tag]) -> str:
    names = [
        f"{tag.key.lower()} of stream {tag.where[2:]}" if tag.where else tag.key.lower()
        for tag in tags
    ]
    ours = form in _ANY_KEY and any(not tag.where for tag in tags)
    way = "; -movflags use_metadata_tags keeps those of the file" if ours else ""
    return f"tags of the source are lost: {form} does not keep {', '.join(names)}{way}"


def _meant(container: av.container.Container, where: str) -> list[av.stream.Stream]:
    """The streams of `s`, `s:2`, `s:v` or `s:a:1`."""
    return meant(container.streams, where.removeprefix("s").removeprefix(":"))
