"""Model files from one format to another, each compared with what it was made from."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..backends import _formats
from ..errors import ModelError
from .comparison import compared
from .ways import WAYS, Form, Size, program_of

GRAPHS = (
    _formats.Kind.ONNX,
    _formats.Kind.GRAPH_DEF,
    _formats.Kind.SAVED_MODEL,
    _formats.Kind.TFLITE,
    _formats.Kind.PADDLE,
)


def convert(
    source: Path, target: Path, *, size: Size | None = None, overwrite: bool = False
) -> str:
    """Write `source` as the format that `target` is named for; the line that says what was done.

    Values stay float32. `size` (height, width) fixes the size of the pictures; without it, what
    the source leaves free stays free. ModelError names what can be converted where this cannot;
    BackendUnavailable the framework that it needs.
    """
    form = _form(source)
    way = WAYS.get(form, {}).get(target.suffix.lower())
    if way is None:
        raise ModelError(f"{source} cannot become {target.suffix or 'that'}: {_ways()}")
    if target.exists() and not overwrite:
        raise ModelError(f"{target}: exists already; -y overwrites it")
    if not target.parent.is_dir():
        raise ModelError(f"{target}: there is no folder {target.parent}")
    with tempfile.TemporaryDirectory(prefix=".avdnn-", dir=target.parent) as folder:
        made = Path(folder) / target.name
        way(source, made, size)
        told = compared(source, made, size)
        for part in sorted(Path(folder).iterdir(), key=lambda part: part == made):
            os.replace(part, target.parent / part.name)
    return f"{target} from {source}: {told}"


def _form(source: Path) -> Form:
    if not source.exists():
        raise ModelError(f"{source}: no such model file")
    kind, whole = _formats.identify(source)
    if kind is _formats.Kind.UNKNOWN or not whole:
        raise ModelError(f"{source}: not a model file, or a damaged one")
    if kind in GRAPHS:
        return Form.GRAPH
    if kind is _formats.Kind.SAFETENSORS:
        return Form.WEIGHTS
    if kind is _formats.Kind.TORCH:
        program = program_of(source)
        if program.kind == "weights":
            return Form.WEIGHTS
        return Form.SCRIPT if program.scripted else Form.EXPORTED
    raise ModelError(f"{source} is a {kind}, which is not converted: {_ways()}")


def _ways() -> str:
    told = [f"{form} to {', '.join(targets)}" for form, targets in WAYS.items()]
    return f"avdnn converts {'; '.join(told)}"
