"""FFmpeg's filter text, read as FFmpeg reads it: text to calls, a call's options to a dataclass.

Escapes and quotes are undone once for the graph (where `,` `;` `[` `]` end a filter) and once
more for the options (where `:` ends an option). So a colon inside a value is `\\:` within quotes,
as in 'model=a\\:b.xml', and `\\\\:` without them. A list joined by `&` has a third level.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, NamedTuple, TypeVar, get_type_hints

from .errors import GraphError
from .escapes import Argument, Text, key_values, names, pairs, skip, split, token
from .option_values import Range, convert

__all__ = [
    "Argument",
    "Call",
    "Ends",
    "Range",
    "arguments",
    "bind",
    "ends",
    "key_values",
    "names",
    "parse",
]

T = TypeVar("T")

_ONE_CHAIN = (
    "one chain of filters with one input and one output is supported: labels at its very "
    "beginning and end, and ';' only where one label joins two parts, as in a[x];[x]b"
)


@dataclass(frozen=True, slots=True)
class Call:
    """One filter of a chain.

    `args` is what libavfilter would hand to the filter: the graph's own escapes are undone, those
    of the options are not. `text` is the filter as it was written, to be joined with others by
    commas and given to libavfilter. `position` is the offset of the name in `graph`, the whole
    text; `offsets` are those of the characters of `args`, and of its end.
    """

    name: str
    instance: str
    args: str
    position: int
    text: str
    graph: str = field(default="", repr=False, compare=False)
    offsets: Sequence[int] = field(default=(), repr=False, compare=False)

    def error(self, message: str, position: int | None = None, *, option: str = "") -> GraphError:
        """An error whose caret stands under the filter, at `position`, or under an option."""
        if position is None:
            at = [found.position for found in arguments(self) if option and found.key == option]
            position = at[-1] if at else self.position
        return GraphError(message, self.graph, position)


class Ends(NamedTuple):
    """The labels at a chain's beginning and end, "" without one, and where its filters stop."""

    source: str
    target: str
    stop: int


def parse(text: str) -> list[Call]:
    """The filters of a chain, in order; GraphError for anything but one input and one output.

    Chains that labels join to one, as in `a[x];[x]b`, are one.
    """
    return _read(text)[0]


def ends(text: str) -> Ends:
    """The outer labels of a chain; GraphError as from `parse`."""
    return _read(text)[1]


def _read(text: str) -> tuple[list[Call], Ends]:
    source = Text.whole(text)
    calls: list[Call] = []
    first, at = _label(source, skip(text, 0))
    while True:
        call, stop = _call(source, at)
        calls.append(call)
        label, at = _label(source, stop)
        if at == len(text):
            return calls, Ends(first, label, stop)
        if label and text[at] == ";":
            joined, following = _label(source, skip(text, at + 1))
            if joined != label:
                raise source.error(_ONE_CHAIN, at)
            at = following
        elif label or text[at] != ",":
            raise source.error("']' without '['" if text[stop] == "]" else _ONE_CHAIN, stop)
        else:
            at = skip(text, at + 1)


def _call(source: Text, at: int) -> tuple[Call, int]:
    """The filter that begins at `at`, and where it ends."""
    chars = source.chars
    if chars[at : at + 1] == "[":
        raise source.error(_ONE_CHAIN, at)
    name, end = token(source, at, "=,;[")
    if not name.chars:
        raise source.error("expected the name of a filter", at)
    args = Text("", source.origin, range(end, end + 1))
    if chars[end : end + 1] == "=":
        args, end = token(source, end + 1, "[],;")
    kind, _, instance = name.chars.partition("@")
    call = Call(kind, instance, args.chars, at, chars[at:end], source.origin, args.offsets)
    return call, end


def _label(source: Text, at: int) -> tuple[str, int]:
    """The `[label]` that stands at `at`, "" where there is none, and where the text goes on."""
    if source.chars[at : at + 1] != "[":
        return "", at
    label, end = token(source, at + 1, "]")
    if end == len(source.chars):
        raise source.error("'[' without ']'", at)
    if not label.chars:
        raise source.error("expected a label between '[' and ']'", at)
    return label.chars, skip(source.chars, end + 1)


def arguments(call: Call) -> list[Argument]:
    """The options of a call, split at `:`, their own level of escapes and quotes undone."""
    offsets = call.offsets or range(len(call.args) + 1)
    return split(Text(call.args, call.graph or call.args, offsets), ":")


def bind(
    call: Call,
    cls: type[T],
    *,
    aliases: Mapping[str, str] = types.MappingProxyType({}),
    defaults: Mapping[str, str] = types.MappingProxyType({}),
    order: Sequence[str] = (),
    collect: Collection[str] = (),
    lift: Collection[str] = (),
    into: str = "",
) -> T:
    """An instance of dataclass `cls` from the options of a call; GraphError with a caret.

    Options without a name go to the fields in their order, keyword-only fields excepted, or to
    those that `order` names. A name may be that of a field, without its trailing underscore, or
    one of `aliases` (old name to field). As in FFmpeg the last of several wins. `defaults` are
    values for fields that the text does not set.
    `into` is a Mapping field: options named in `collect` become keys of it, and its keys that
    `lift` names become options where the text does not set those.
    Fields may be str, int, float, bool, an Enum, `X | None`, tuple[str, ...] (joined by `&`),
    Mapping[str, str] (`key=value` joined by `&`), and Annotated[number, Range].
    """
    known: dict[str, Field[Any]] = {
        entry.name.rstrip("_"): entry
        for entry in fields(cls)  # type: ignore[arg-type]
        if entry.init
    }
    given: dict[str, tuple[Text, str]] = {}
    configs: dict[str, Text] = {}
    collected: dict[str, Text] = {}
    positional = order or [name for name, entry in known.items() if not entry.kw_only]
    for key, value, position in _named(call, positional):
        if key in collect and key not in known:
            collected[key] = value
        elif (entry := _field_of(call, key, known, aliases, position)).name == into:
            configs = pairs(value)
        else:
            given[entry.name] = value, key
    configs |= collected
    for key in configs.keys() & set(lift):
        given.setdefault(known[key].name, (configs.pop(key), key))
    for key, default in defaults.items():
        entry = _field_of(call, key, known, aliases, call.position)
        given.setdefault(entry.name, (Text.whole(default), key))
    hints = get_type_hints(cls, include_extras=True)
    values = {name: convert(*value, hints[name]) for name, value in given.items()}
    if configs:
        values[into] = {key: value.chars for key, value in configs.items()}
    for name, entry in known.items():
        absent = entry.default is MISSING and entry.default_factory is MISSING
        if absent and entry.name not in values:
            raise call.error(f"{call.name} needs the option {name}=")
    return cls(**values)


def _named(call: Call, positional: Sequence[str]) -> Iterator[tuple[str, Text, int]]:
    """(name, value, position) of each option; those without a name get the next of `positional`."""
    rest = iter(positional)
    for key, value, position in arguments(call):
        name = next(rest, None) if key is None else key
        if name is None:
            raise call.error(f"{call.name} has no more options without a name", position)
        yield name, value, position


def _field_of(
    call: Call,
    key: str,
    known: Mapping[str, Field[Any]],
    aliases: Mapping[str, str],
    position: int,
) -> Field[Any]:
    """The field that option `key` sets."""
    found = known.get(aliases[key].rstrip("_") if key in aliases else key)
    if found is not None:
        return found
    if key == "enable":
        raise call.error(
            f"{call.name} does not support timeline editing (the option enable), as in FFmpeg: "
            "choose the part with -ss and -t",
            position,
        )
    near = difflib.get_close_matches(key, [*known, *aliases], 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise call.error(
        f"{call.name} has no option {key!r}{hint} (it has: {', '.join(known)})", position
    )
