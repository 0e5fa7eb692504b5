"""What an output is made of: its filters, the streams that -map keeps, the tags of -metadata."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .. import graph
from ..errors import UsageError
from ..job import FILTERED, StreamFlags, StreamMap, Tag

_VIDEO = ("0", "0:v", "0:v:0", "0:V", "0:V:0")
_NO_VIDEO = ("a", "s", "d", "t")
_MAP = r"(?P<negative>-?)0(:(?P<where>[vVasdt](:\d+)?|\d+))?(?P<optional>\??)"


def filters(known: Mapping[str, str], maps: Sequence[str]) -> tuple[str | None, list[str]]:
    """The filter text of -vf or -filter_complex, and the maps without its output."""
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
    return text, others


def maps(texts: Sequence[str], *, filtered: bool) -> tuple[StreamMap, ...]:
    """What the words of -map mean; UsageError where they leave out the video.

    `filtered` says that the output of -filter_complex is mapped too.
    """
    first = (StreamMap(FILTERED),) if filtered else ()
    found = (*first, *map(_map, texts))
    if found and found[0].negative:
        raise UsageError(f"-map {found[0]} takes away from nothing: put it behind -map 0")
    if found and all(given.where[:1] in _NO_VIDEO for given in found if not given.negative):
        raise UsageError("-map leaves out the video: add -map 0:v")
    return found


def _map(text: str) -> StreamMap:
    match = re.fullmatch(_MAP, text, re.ASCII)
    if match is None:
        raise UsageError(
            f"-map {text} is not supported: use 0, 0:v, 0:a:1, 0:2, -0:s and the output of "
            "-filter_complex"
        )
    return StreamMap(match["where"] or "", bool(match["negative"]), bool(match["optional"]))


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
