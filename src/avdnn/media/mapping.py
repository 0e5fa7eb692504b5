"""Which streams of a file -map chooses, and which ones a stream specifier means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import av.stream

from ..errors import UsageError
from ..job import FILTERED, StreamMap

_KINDS = {"v": "video", "a": "audio", "s": "subtitle", "d": "data", "t": "attachment"}


def is_cover(stream: av.stream.Stream) -> bool:
    """Whether a stream is an attached picture."""
    return bool(stream.disposition & av.stream.Disposition.attached_pic)


def meant(streams: Iterable[av.stream.Stream], where: str) -> list[av.stream.Stream]:
    """The streams of a specifier: "" for all, `2`, `a` or `a:1`; V is video but cover art."""
    found = list(streams)
    kind, _, number = where.rpartition(":") if where[-1:].isdigit() else (where, "", "")
    if kind:
        found = [stream for stream in found if stream.type == _KINDS[kind.lower()]]
    if kind == "V":
        found = [stream for stream in found if not is_cover(stream)]
    return found[int(number) : int(number) + 1] if number else found


def chosen(
    streams: Iterable[av.stream.Stream], maps: Sequence[StreamMap], video: int | None = None
) -> list[av.stream.Stream]:
    """The streams that the maps choose, each once, in their order; all of them without a map.

    `video` is the index of the stream that is filtered, None while any may become it. UsageError
    for a map that matches nothing, though it has to, and for maps that leave `video` out.
    """
    streams = list(streams)
    if not maps:
        return streams
    found: dict[int, av.stream.Stream] = {}
    filtered = any(given.where == FILTERED for given in maps)
    for given in maps:
        named = _named(streams, given, video)
        if given.negative:
            for stream in named:
                if not filtered or stream.index != video:
                    found.pop(stream.index, None)
            continue
        if not named and not given.optional:
            raise UsageError(
                f"-map {given}: the input has no such stream; leave it out, or write {given}? to "
                "take one where there is one"
            )
        if filtered and given.where != FILTERED and video in {stream.index for stream in named}:
            raise UsageError(
                f"-map {given} adds the unfiltered video: leave it out, or name 0:a and 0:s"
            )
        found.update((stream.index, stream) for stream in named)
    if video is not None and video not in found:
        raise UsageError("-map leaves out the video: add -map 0:v")
    return list(found.values())


def _named(
    streams: Sequence[av.stream.Stream], given: StreamMap, video: int | None
) -> list[av.stream.Stream]:
    if given.where != FILTERED:
        return meant(streams, given.where)
    return meant(streams, "V") if video is None else meant(streams, str(video))
