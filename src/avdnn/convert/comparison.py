"""A new model beside the one that it was made from."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from .. import backends
from ..backends import Options
from ..errors import InferenceError, ModelError
from ..frame import Layout
from .ways import PROBE, Size

MOST_APART = 0.002
"""Half a code of 255: more, and it is another network."""


def compared(source: Path, target: Path, size: Size | None) -> str:
    """How far the new model's first output is from the old one's on one picture."""
    readers = [name for name in backends.NAMES if backends.reads(name, source)]
    own = [name for name in readers if name != "openvino" or len(readers) == 1]
    installed = [name for name in own if backends.installed(name)]
    new = backends.choose(target)
    if not installed or not backends.installed(new):
        return f"not compared, since {' or '.join(own)} is not installed"
    try:
        before = _output(installed[0], source, size)
        after = _output(new, target, size)
    except InferenceError as error:
        raise ModelError(f"{source}: the comparison failed: {error}") from error
    if before.shape != after.shape:
        raise ModelError(
            f"{source}: the new model gives {list(after.shape)}, the old one {list(before.shape)}"
        )
    most = float(np.abs(before - after).max(initial=0))
    if not most <= MOST_APART * max(1.0, float(np.abs(before).max(initial=0))):
        raise ModelError(f"{source}: the new model is {most:.1g} from the old one on one picture")
    rows, columns = size or PROBE
    return f"at most {most:.1g} apart on a picture of {columns}x{rows}"


def _output(name: str, model: Path, size: Size | None) -> np.ndarray[Any, Any]:
    """What a model makes of the same random picture, channels first."""
    with closing(backends.load(name, model, Options(size=size))) as loaded:
        spec = loaded.info.inputs[0]
        channels = spec.channels if spec.channels > 0 else 3
        sides = [
            want if side == -1 else side
            for side, want in zip(spec.size, size or PROBE, strict=True)
        ]
        picture = np.random.default_rng(0).random((max(spec.shape[0], 1), channels, *sides))
        if spec.layout is not Layout.NCHW:
            picture = picture.transpose(0, 2, 3, 1)
        given = {spec.name: np.ascontiguousarray(picture.astype(spec.dtype))}
        made = loaded.infer_async(given).result()
        first = loaded.info.outputs[0]
        array = np.asarray(made[first.name], np.float32)
    return array if first.layout is not Layout.NHWC else array.transpose(0, 3, 1, 2)
