"""Finds output options that nobody would read: the encoder's and the muxer's own lists decide."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches

import av
import av.container
import av.error
from av.codec import Codec

from ..errors import UsageError
from .encoding import option_names

_MUXER_LOG = logging.getLogger("av.container.output")


def split(codec: Codec, form: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options that are not the encoder's, for the muxer; UsageError if it lacks one too."""
    known = option_names(codec)
    rest = {key: value for key, value in options.items() if key not in known}
    if not rest:
        return {}
    for name in rest if _has_dry_run(form) else ():
        if not _muxer_knows(form, codec, name, rest[name]):
            near = get_close_matches(name, known, 1, 0.75)
            hint = f"; did you mean -{near[0]}?" if near else ""
            raise UsageError(
                f"-{name}: neither encoder {codec.name} nor container {form} has this option{hint}"
            )
    return rest


def _has_dry_run(form: str) -> bool:
    """Whether a header can be written to memory without making files."""
    return form in ("image2", "null") or not av.ContainerFormat(form, "w").no_file


def _muxer_knows(form: str, codec: Codec, name: str, value: str) -> bool:
    """Write a header to memory and see whether the option is left over.

    A header that fails for another reason leaves the verdict to the real one. The sink is closed
    first, so that no trailer is written.
    """
    sink = io.BytesIO()
    trial = av.open(sink, "w", format=form, options={name: value})
    try:
        trial.add_mux_stream(codec.canonical_name, width=64, height=64)
        with unread() as left:
            trial.start_encoding()
    except (av.error.FFmpegError, ValueError):
        return True
    finally:
        sink.close()
        trial.close()
    return not left


@contextmanager
def unread() -> Iterator[list[str]]:
    """Collects what PyAV says of options that a muxer did not read, while the block runs."""
    said: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    collector = Collector(logging.WARNING)
    propagate = _MUXER_LOG.propagate
    _MUXER_LOG.addHandler(collector)
    _MUXER_LOG.propagate = False
    try:
        yield said
    finally:
        _MUXER_LOG.removeHandler(collector)
        _MUXER_LOG.propagate = propagate
