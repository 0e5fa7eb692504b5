"""FFmpeg's filter text, read as FFmpeg reads it: text to calls, a call's options to a dataclass.

Escapes and quotes are undone once for the graph (where `,` `;` `[` `]` end a filter) and once
more for the options (where `:` ends an option). So a colon inside a value is `\\:` within quotes,
as in 'model=a\\:b.xml', and `\\\\:` without them. A list joined by `&` has a third level.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from math import isfinite
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import GraphError
from .escapes import Argument, Text, key_values, names, skip, split, token

__all__ = ["Argument", "Call", "Range", "arguments", "bind", "key_values", "names", "parse"]

T = TypeVar("T")

_ONE_CHAIN = (
    "one chain of filters with one input and one output is supported: "
    "no ';', and labels only at its very beginning and end"
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

    def error(self, message: str, position: int | None = None) -> GraphError:
        """An error whose caret stands under the name, or at `position` of the whole text."""
        return GraphError(message, self.graph, self.position if position is None else position)


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of a number, both allowed: `Annotated[int, Range(1, 64)]`."""

    low: float
    high: float = float("inf")

    def __str__(self) -> str:
        if isfinite(self.high):
            return f"from {self.low:g} to {self.high:g}"
        return f"of at least {self.low:g}"


def parse(text: str) -> list[Call]:
    """The filters of a chain, in order; GraphError for anything but one input and one output."""
    source = Text.whole(text)
    calls: list[Call] = []
    at = _after_label(source, skip(text, 0))
    while True:
        call, at = _call(source, at)
        calls.append(call)
        if text[at : at + 1] == "[":
            label, at = at, _after_label(source, at)
            if at < len(text):
                raise source.error(_ONE_CHAIN, label)
        if at == len(text):
            return calls
        if text[at] != ",":
            raise source.error("']' without '['" if text[at] == "]" else _ONE_CHAIN, at)
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


def _after_label(source: Text, at: int) -> int:
    """Where the text goes on after one `[label]`, if there is one."""
    if source.chars[at : at + 1] != "[":
        return at
    label, end = token(source, at + 1, "]")
    if end == len(source.chars):
        raise source.error("'[' without ']'", at)
    if not label.chars:
        raise source.error("expected a label between '[' and ']'", at)
    return skip(source.chars, end + 1)


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
    into: str = "",
) -> T:
    """An instance of dataclass `cls` from the options of a call; GraphError with a caret.

    Options without a name go to the fields in their order, keyword-only fields excepted, or to
    those that `order` names. Names in `collect` become keys of the Mapping field `into`. A name
    may be that of a field, without its trailing underscore, or one of `aliases` (old name to
    field). As in FFmpeg the last of several wins. `defaults` are values for fields that the text
    does not set. Fields may be str, int, float, bool, an Enum, `X | None`, tuple[str, ...] (joined
    by `&`), Mapping[str, str] (backend_configs), and Annotated[number, Range].
    """
    known: dict[str, Field[Any]] = {
        entry.name.rstrip("_"): entry
        for entry in fields(cls)  # type: ignore[arg-type]
        if entry.init
    }
    hints = get_type_hints(cls, include_extras=True)
    given: dict[str, tuple[Text, str]] = {}
    for key, text in defaults.items():
        given[_field_of(call, key, known, aliases, call.position).name] = Text.whole(text), key
    in_order = iter(order or [name for name, entry in known.items() if not entry.kw_only])
    collected: dict[str, str] = {}
    for argument in arguments(call):
        key = next(in_order, "") if argument.key is None else argument.key
        if argument.key is None and not key:
            raise call.error(f"{call.name} has no more options without a name", argument.position)
        if key in collect and key not in known:
            collected[key] = argument.value.chars
            continue
        entry = _field_of(call, key, known, aliases, argument.position)
        given[entry.name] = argument.value, key
    for name, entry in known.items():
        absent = entry.default is MISSING and entry.default_factory is MISSING
        if absent and entry.name not in given:
            raise call.error(f"{call.name} needs the option {name}=")
    values = {name: _convert(*value, hints[name]) for name, value in given.items()}
    if collected:
        values[into] = {**values.get(into, {}), **collected}
    return cls(**values)


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
    near = difflib.get_close_matches(key, [*known, *aliases], 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise call.error(
        f"{call.name} has no option {key!r}{hint} (it has: {', '.join(known)})", position
    )


def _convert(text: Text, key: str, kind: Any, bounds: Range | None = None) -> Any:
    """The value of option `key` as the type `kind`."""
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *extras = get_args(kind)
        return _convert(text, key, inner, next((e for e in extras if isinstance(e, Range)), None))
    if origin in (Union, types.UnionType):
        inner = next(member for member in get_args(kind) if member is not type(None))
        return _convert(text, key, inner, bounds)
    if origin is tuple:
        return names(text)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return key_values(text)
    try:
        value = _READERS.get(kind, kind)(text.chars)
    except ValueError as exc:
        raise text.error(f"{key}: expected {_wanted(kind, bounds)}, got {text.chars!r}") from exc
    if bounds is not None and not bounds.low <= value <= bounds.high:
        raise text.error(f"{key}: expected {_wanted(kind, bounds)}, got {text.chars!r}")
    return value


def _wanted(kind: Any, bounds: Range | None) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(str(member.value) for member in kind)
    name = {int: "an integer", float: "a number", bool: "1 or 0 (yes or no)"}[kind]
    return name if bounds is None else f"{name} {bounds}"


def _integer(text: str) -> int:
    digits = text.replace("_", "?")
    return int(digits, 16 if "x" in digits.lower() else 10)


def _number(text: str) -> float:
    value = float(text.replace("_", "?"))
    if not isfinite(value):
        raise ValueError(text)
    return value


_BOOLEANS = {
    **dict.fromkeys(("1", "true", "y", "yes", "enable", "enabled", "on"), True),
    **dict.fromkeys(("0", "false", "n", "no", "disable", "disabled", "off"), False),
}


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise ValueError(text)
    return value


_READERS: Mapping[Any, Any] = {int: _integer, float: _number, bool: _boolean}
