"""The value of a filter's option as the type of the field that it sets."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import Annotated, Any, Union, get_args, get_origin

from .escapes import Text, key_values, names


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of a number, both allowed: `Annotated[int, Range(1, 64)]`."""

    low: float
    high: float = float("inf")

    def __str__(self) -> str:
        if isfinite(self.high):
            return f"from {self.low:g} to {self.high:g}"
        return f"of at least {self.low:g}"


def convert(text: Text, key: str, kind: Any, bounds: Range | None = None) -> Any:
    """The value of option `key` as the type `kind`."""
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *extras = get_args(kind)
        return convert(text, key, inner, next((e for e in extras if isinstance(e, Range)), None))
    if origin in (Union, types.UnionType):
        inner = next(member for member in get_args(kind) if member is not type(None))
        return convert(text, key, inner, bounds)
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
