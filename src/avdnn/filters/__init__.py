"""Filter chains: each call becomes the module of its name, or a part of a libavfilter graph.

A module here offers `make(call, context) -> Filter`; its file name is the filter's name.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from .. import graph
from ..channel import close_items
from ..clock import Clock
from ..errors import GraphError, UsageError
from ..frame import Frame
from ..graph import Call

Item: TypeAlias = Frame | Any
"""A Frame, or an av.Packet of a copied stream, which every filter lets through."""


class Filter(Protocol):
    """A chain link: items in, items out, order kept; what comes after the loop is the flush."""

    def __call__(self, items: Iterator[Item]) -> Iterator[Item]:
        """Start filtering `items`."""


@dataclass(slots=True)
class Context:
    """What a job's filters share.

    `say` takes one-line warnings for the user, `note` lines that are merely good to know; without
    it they are said too. `cache` is the folder for compiled models, or None.
    `frame_rate` is the source's nominal rate as text, for libavfilter. `filter_device` is the
    device that hwupload uses. `dnn_options` hold for every dnn filter that does not set them.
    """

    say: Callable[[str], None]
    clock: Clock = field(default_factory=Clock)
    cache: Path | None = None
    frame_rate: str = ""
    filter_device: str = ""
    dnn_options: Mapping[str, str] = field(default_factory=dict)
    note: Callable[[str], None] | None = None

    def tell(self, text: str) -> None:
        """Note a line."""
        (self.note or self.say)(text)


MOVERS = ("hwupload", "hwdownload")
"""Those of ours that run no model."""


def ours() -> tuple[str, ...]:
    """Names of the filters that are avdnn's own."""
    names = (info.name for info in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in names if not name.startswith("_")))


def build(text: str, context: Context) -> list[Filter]:
    """The filters of a chain in FFmpeg's language; GraphError for what cannot be built."""
    from . import _libav

    mine = ours()
    chain: list[Filter] = []
    plain: list[Call] = []
    calls = graph.parse(text)
    if context.dnn_options and not any(
        call.name in mine and call.name not in MOVERS for call in calls
    ):
        given = ", ".join(context.dnn_options)
        raise UsageError(
            f"no dnn filter is there to take {given}: leave it out, or name one in -vf"
        )
    for call in calls:
        if call.name not in mine:
            _known_to_libavfilter(call, mine)
            plain.append(call)
            continue
        if plain:
            chain.append(_libav.LibavFilter(plain, context))
            plain = []
        module: Any = importlib.import_module(f".{call.name}", __name__)
        chain.append(module.make(call, context))
    if plain:
        chain.append(_libav.LibavFilter(plain, context))
    return chain


def _known_to_libavfilter(call: Call, mine: tuple[str, ...]) -> None:
    import av.filter

    names = av.filter.filters_available
    if call.name in names:
        return
    near = difflib.get_close_matches(call.name, [*mine, *names], n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise GraphError(f"no filter named {call.name!r}{hint}", call.graph, call.position)


def connect(chain: list[Filter], items: Iterator[Item]) -> Iterator[Item]:
    """Chain filters behind `items`; closing the result closes every link, the last one first."""
    for link in chain:
        items = _closing(link, items)
    return items


def _closing(link: Filter, items: Iterator[Item]) -> Iterator[Item]:
    try:
        yield from link(items)
    finally:
        close_items(items)
