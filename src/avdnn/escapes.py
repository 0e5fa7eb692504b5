"""Pieces of filter text: quotes and backslashes undone, and every character's origin kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from .errors import GraphError

_SPACE = " \n\t\r"
_KEY = re.compile(r"[ \n\t\r]*([\w./-]*)[ \n\t\r]*=", re.ASCII)


class Text(NamedTuple):
    """Text that remembers where in `origin` each of its characters, and its end, stood."""

    chars: str
    origin: str
    offsets: Sequence[int]

    @classmethod
    def whole(cls, text: str) -> Text:
        """All of `text`, as its own origin."""
        return cls(text, text, range(len(text) + 1))

    def error(self, message: str, at: int = 0) -> GraphError:
        """An error whose caret stands under character `at`."""
        return GraphError(message, self.origin, self.offsets[at])


class Argument(NamedTuple):
    """One option, at `position` of the origin; `key` is None where only a value stands."""

    key: str | None
    value: Text
    position: int


def skip(chars: str, at: int) -> int:
    """The first offset from `at` on that is not white space."""
    while at < len(chars) and chars[at] in _SPACE:
        at += 1
    return at


def token(source: Text, at: int, stop: str) -> tuple[Text, int]:
    """The text from `at` to a bare character of `stop`, without escapes, quotes and outer space.

    Also returns where it ended. White space that was quoted or escaped is kept. Unlike FFmpeg, a
    quote that is never closed is an error.
    """
    chars = source.chars
    at = skip(chars, at)
    kept: list[int] = []
    fixed = 0
    while at < len(chars) and chars[at] not in stop:
        if chars[at] == "\\" and at + 1 < len(chars):
            kept.append(at + 1)
            at += 2
            fixed = len(kept)
        elif chars[at] == "'":
            close = chars.find("'", at + 1)
            if close < 0:
                raise source.error("this quote is never closed (a plain one is written \\')", at)
            kept.extend(range(at + 1, close))
            at = close + 1
            fixed = len(kept)
        else:
            kept.append(at)
            at += 1
    while len(kept) > fixed and chars[kept[-1]] in _SPACE:
        kept.pop()
    offsets = [source.offsets[index] for index in [*kept, at]]
    return Text("".join(chars[index] for index in kept), source.origin, offsets), at


def split(source: Text, separator: str) -> list[Argument]:
    """`key=value` pairs and bare values; once a key was named, all that follow must be pairs."""
    found: list[Argument] = []
    at = 0
    named = False
    while at < len(source.chars):
        start = skip(source.chars, at)
        match = _KEY.match(source.chars, at)
        if match:
            named = True
        elif named:
            raise source.error(
                "expected name=value, as for the option before it (a "
                f"{separator!r} within a value is written '\\{separator}', with the quotes)",
                start,
            )
        value, end = token(source, match.end() if match else at, separator)
        found.append(Argument(match[1] if match else None, value, source.offsets[start]))
        at = end + 1
    return found


def pairs(source: Text) -> dict[str, Text]:
    """The values of `key=value&key=value` by their keys."""
    found: dict[str, Text] = {}
    for key, value, position in split(source, "&"):
        if key is None:
            message = f"expected key=value pairs joined by '&', found {value.chars!r}"
            raise GraphError(message, source.origin, position)
        found[key] = value
    return found


def key_values(text: str | Text) -> dict[str, str]:
    """The pairs of `key=value&key=value`, the text of backend_configs."""
    source = Text.whole(text) if isinstance(text, str) else text
    return {key: value.chars for key, value in pairs(source).items()}


def names(text: str | Text) -> tuple[str, ...]:
    """The members of a list joined by `&`."""
    source = Text.whole(text) if isinstance(text, str) else text
    found: list[str] = []
    at = 0
    while at < len(source.chars):
        name, end = token(source, at, "&")
        found.append(name.chars)
        at = end + 1
    return tuple(found)
