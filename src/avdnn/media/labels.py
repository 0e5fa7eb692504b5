"""What an output says of its streams beside their tags: dispositions, or nothing of the source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import av.container
from av.stream import Disposition

from ..errors import UsageError
from ..job import StreamFlags
from .mapping import meant

_NAMED = ("filename", "mimetype")
"""Tags without which an attachment cannot be written."""


def forget(container: av.container.OutputContainer) -> None:
    """Take away all tags that came from the source; attachments keep their names."""
    container.metadata.clear()
    for stream in container.streams:
        attached = stream.type == "attachment"
        kept = {key: value for key, value in stream.metadata.items() if key in _NAMED}
        stream.metadata.clear()
        stream.metadata.update(kept if attached else {})


def untitled(chapters: Iterable[Any]) -> list[Any]:
    """The chapters without their tags."""
    return [chapter | {"metadata": {}} for chapter in chapters]


def dispose(
    container: av.container.OutputContainer, given: Iterable[StreamFlags]
) -> dict[int, Disposition]:
    """Set the streams' dispositions and return them by the streams' indices.

    UsageError for an unknown one, or where no stream is meant.
    """
    made: dict[int, Disposition] = {}
    for where, flags in given:
        streams = meant(container.streams, where)
        if not streams:
            raise UsageError(f"-disposition:{where} {flags}: the output has no such stream")
        for stream in streams:
            made[stream.index] = stream.disposition = _changed(stream.disposition, flags)
    return made


def lost(
    made: av.container.InputContainer, form: str, wanted: Mapping[int, Disposition]
) -> Iterator[str]:
    """Where a finished file has other dispositions than were set, one line each."""
    found = {stream.index: stream.disposition for stream in made.streams}
    for index, flags in wanted.items():
        there = found.get(index, flags)
        if there != flags:
            yield (
                f"-disposition {_names(flags)} of stream {index} is lost: {form} makes it "
                f"{_names(there)}"
            )


def _names(flags: Disposition) -> str:
    return "+".join(flag.name or "" for flag in Disposition if flag & flags) or "0"


def _changed(flags: Disposition, text: str) -> Disposition:
    """The flags of `default+forced` or 0, or those of before with `+forced-default`."""
    if re.fullmatch(r"[+-]?\w+([+-]\w+)*", text, re.ASCII) is None:
        raise _unknown(text, text)
    for sign, name in re.findall(r"([+-]?)(\w+)", text, re.ASCII):
        flag = Disposition(0) if name == "0" else Disposition.__members__.get(name)
        if flag is None:
            raise _unknown(text, name)
        if sign == "-":
            flags &= ~flag
        else:
            flags = flags | flag if sign else flag
    return flags


def _unknown(text: str, name: str) -> UsageError:
    known = ", ".join(Disposition.__members__)
    return UsageError(f"-disposition {text}: {name} is none; there are 0, {known}")
