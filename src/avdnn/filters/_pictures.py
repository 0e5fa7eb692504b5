"""The picture that goes into a model, and the one that comes out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..errors import ModelError
from ..frame import Array, ModelInfo, TensorSpec
from ..pixfmt import PixelFormat


def picture_input(info: ModelInfo, model: Path) -> TensorSpec:
    """The one input that takes the picture."""
    if len(info.inputs) != 1:
        names = ", ".join(spec.name for spec in info.inputs)
        raise ModelError(
            f"{model.name} has {len(info.inputs)} inputs ({names}); a frame fills one: name it "
            f"with input="
        )
    spec = info.inputs[0]
    if spec.layout is None:
        raise ModelError(
            f"{model.name}: input {spec.name} has shape {list(spec.shape)}; a picture needs "
            f"4 dimensions, NCHW or NHWC (see layout=)"
        )
    return spec


def picture_output(info: ModelInfo, given: TensorSpec, model: Path) -> TensorSpec:
    """The first output; where the backend knows no layout for it, the input's."""
    if not info.outputs:
        raise ModelError(f"{model.name} has no outputs")
    spec = info.outputs[0]
    return spec if spec.layout else replace(spec, layout=given.layout)


def one(tensor: Array, index: int, model: Path) -> Array:
    """Frame `index` of an output; a tensor without a batch axis is the only one."""
    if tensor.ndim == 3 and index == 0:
        return tensor
    if tensor.ndim != 4 or index >= tensor.shape[0]:
        raise ModelError(
            f"{model.name} gives a tensor of shape {list(tensor.shape)}; a picture has 4 dimensions"
        )
    return tensor[index]


def fitting(channels: int, form: PixelFormat) -> str:
    """The `format=` text of a close format with that many channels."""
    depths = (8, 10, 16) if form.alpha and channels == 1 else (8, 10, 12, 16)
    deep = next((bits for bits in depths if bits >= form.depth), 16)
    alpha, end = "a" * form.alpha, f"{deep}le" if deep > 8 else ""
    if channels == 1:
        return f"format=yuv{alpha}420p{end}"
    if channels == 3:
        return f"format=gbr{alpha}p{end}" if alpha or end else "format=rgb24"
    return "a filter that makes 1 or 3 channels"
