"""What a finished file does not have of what was set on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import av
import av.error
from av.stream import Disposition

from ..job import Tag
from ..versions import AS_BYTES
from . import labels, tags


def lost(
    path: Path | None,
    form: str,
    wanted: Sequence[Tag],
    source: Sequence[Tag],
    disposed: Mapping[int, Disposition],
) -> list[str]:
    """One line for each tag and disposition that was asked for and is not in the file at `path`,
    and one for the tags of the source.

    Nothing where the file cannot be read back, as raw video, or where there is none (a pipe).
    """
    asked = [tag for tag in wanted if tag.value]
    if path is None or not (asked or source or disposed):
        return []
    try:
        with av.open(str(path), **AS_BYTES) as made:
            told = [*tags.lost(made, form, asked, source), *labels.lost(made, form, disposed)]
    except (av.error.FFmpegError, OSError):
        return []
    return told
