"""The library's own entry points, beside the command line."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import backends, filters, models
from .backends import Backend, Options
from .channel import close_items
from .filters import Context
from .frame import Frame
from .job import InputSpec, Job, OutputSpec
from .notes import NOTE, teller

if TYPE_CHECKING:
    import av

    from .pipeline import Report

_log = logging.getLogger(__name__)


def run(
    input: str | Path | InputSpec,
    output: str | Path | OutputSpec,
    vf: str | None = None,
    *,
    model: str = "",
    overwrite: bool = False,
) -> Report:
    """Do a whole job: read `input`, run the filter text `vf` (or a bundled model), write `output`.

    Paths stand for a spec with that url. The output is there only if this returns.
    """
    from . import pipeline

    source = input if isinstance(input, InputSpec) else InputSpec(url=str(input))
    target = (
        output
        if isinstance(output, OutputSpec)
        else OutputSpec(url=str(output), overwrite=overwrite)
    )
    return pipeline.run(Job(input=source, output=target, vf=vf, model=model))


def apply(frames: Iterable[av.VideoFrame], vf: str) -> Iterator[av.VideoFrame]:
    """Run filter text over av frames, in order; close the iterator to stop early.

    Every frame needs a time base. An input frame must not be changed afterwards.
    """
    from . import host

    context = Context(say=_log.warning, note=teller(_log, NOTE))
    chain = filters.build(vf, context)
    wrapped = (host.from_av(frame) for frame in frames)
    return _unwrapped(filters.connect(chain, wrapped))


def _unwrapped(items: Iterator[Any]) -> Iterator[av.VideoFrame]:
    from . import host

    try:
        for item in items:
            if isinstance(item, Frame):
                yield host.to_av(item)
    finally:
        close_items(items)


def load(name: str, model: str | Path, options: Options | None = None) -> Backend:
    """A model on backend `name` ("auto": by the file), for inference alone; close() it."""
    wanted = None if name == "auto" else name
    path = models.resolve(str(model), wanted)
    return backends.load(wanted or backends.choose(path), path, options or Options())


def available() -> dict[str, bool]:
    """Which backends are installed."""
    return {name: backends.installed(name) for name in backends.NAMES}
