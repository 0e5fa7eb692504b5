"""What an output is made of: its filters, the streams that -map keeps, the tags of -metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .. import graph
from ..errors import UsageError
from ..job import StreamFlags, Tag

_VIDEO = ("0", "0:v", "0:v:0", "0:V", "0:V:0")


def filters(known: Mapping[str, str], maps: Sequence[str]) -> tuple[str | None, list[str]]:
    """The filter text of -vf or -filter_complex, and the maps with its output as video."""
    text = known.get("filter_complex")
    if text is None:
        return known.get("vf"), list(maps)
    if "vf" in known:
        raise UsageError("-filter_complex and -vf exclude each other: write one chain of filters")
    ends = graph.ends(text)
    if ends.source and ends.source not in _VIDEO:
        raise UsageError(
            f"-filter_complex: [{ends.source}] is not supported: one chain from [0:v] to one "
            "output is"
        )
    made, others = f"[{ends.target}]", [given for given in maps if not given.startswith("[")]
    wrong = [given for given in maps if given.startswith("[") and given != made]
    if wrong:
        raise UsageError(f"-map {wrong[0]}: -filter_complex makes no output of this name")
    if ends.target and made not in maps:
        raise UsageError(f"-filter_complex: its output is left out: add -map '{made}'")
    if maps.count(made) > 1:
        raise UsageError(f"-map {made} is given twice: the output of a filter can be mapped once")
    for given in others:
        if given.rstrip("?") in _VIDEO:
            raise UsageError(
                f"-map {given} adds the unfiltered video: leave it out, or name 0:a and 0:s"
            )
    return text, ["0:v", *others] if maps else []


def kept(maps: Sequence[str]) -> tuple[bool, bool]:
    """Whether audio and subtitles are wanted; -map names kinds of streams of the one input."""
    kinds = set()
    for given in maps:
        match = re.fullmatch(r"0(?:(:[as])|:[vV](?::0)?)?\??", given)
        if match is None:
            raise UsageError(
                f"-map {given} is not supported: use 0, 0:v, 0:a, 0:s and the output of "
                "-filter_complex"
            )
        kinds.add(match[1] or given[1:2] or "all")
    if not kinds or kinds & {"all", "?"}:
        return True, True
    if ":" not in kinds:
        raise UsageError("-map leaves out the video: add -map 0:v")
    return ":a" in kinds, ":s" in kinds


def required(maps: Sequence[str]) -> tuple[str, ...]:
    """The maps that must match a stream, since they have no `?`; the video always does."""
    return tuple(dict.fromkeys(given for given in maps if given in ("0:a", "0:s")))


def disposition(name: str, flags: str) -> StreamFlags:
    """What `-disposition[:WHERE] FLAGS` sets; `name` is the option's."""
    where = name.partition(":")[2]
    if re.fullmatch(r"([vVasdt](:\d+)?|\d+)?", where) is None:
        raise UsageError(
            f"-{name} is not supported: use -disposition, -disposition:v, :a or :s, with the "
            "stream's number behind it or without"
        )
    return StreamFlags(where, flags)


def is_taken(known: Mapping[str, str], option: str) -> bool:
    """Whether -map_metadata or -map_chapters, if given, takes from the input: 0, rather than -1."""
    text = known.get(option, "0")
    if text not in ("0", "-1"):
        raise UsageError(
            f"-{option} {text} is not supported: 0 takes from the input, -1 from nowhere"
        )
    return text == "0"


def tag(name: str, text: str) -> Tag:
    """What `-metadata[:WHERE] KEY=VALUE` sets; `name` is the option's."""
    where = name.partition(":")[2]
    if re.fullmatch(r"|g|s|s:\d+|s:[vVas](:\d+)?", where) is None:
        raise UsageError(
            f"-{name} is not supported: use -metadata, -metadata:s:v, -metadata:s:a or "
            "-metadata:s:s, with the stream's number behind it or without"
        )
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"-{name} {text}: expected key=value")
    return Tag("" if where == "g" else where.lower(), key, value)
