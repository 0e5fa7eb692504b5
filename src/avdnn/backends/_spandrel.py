"""Weights without a program (.pth, .safetensors): spandrel knows the network that they fit."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BackendUnavailable, ModelError
from ..frame import Precision, Shape


@dataclass(frozen=True, slots=True)
class Network:
    """A network with its weights; `call` pads to the sizes that it needs, and crops after."""

    call: Callable[[Any], Any]
    network: Any
    shape: Shape
    refuses: tuple[Precision, ...]
    facts: Mapping[str, str]


def needed(model: Path) -> None:
    """BackendUnavailable unless spandrel is installed."""
    if importlib.util.find_spec("spandrel") is None:
        raise BackendUnavailable(
            f"{model}: holds weights without a program, which need spandrel: "
            f"pip install 'avdnn[spandrel]'",
            backend="torch",
        )


def safetensors(model: Path) -> Any:
    """The tensors of a .safetensors file."""
    reader: Any = importlib.import_module("safetensors.torch")
    damaged: Any = importlib.import_module("safetensors").SafetensorError
    try:
        return reader.load_file(model)
    except damaged as error:
        message = f"{model}: the safetensors file is cut or damaged ({error})"
        raise ModelError(message, backend="torch") from error


def _sizes(rule: Any) -> str:
    """The sizes that a network works on; others are padded to one of them."""
    parts = [f"at least {rule.minimum}x{rule.minimum}"] if rule.minimum > 1 else []
    parts += [f"multiples of {rule.multiple_of}"] if rule.multiple_of > 1 else []
    parts += ["square"] if rule.square else []
    return ", ".join(parts) or "any"


def build(model: Path, weights: Any, device: str) -> Network:
    """The network that `weights` belong to, ready to run on `device`."""
    import spandrel

    if not isinstance(weights, Mapping):
        message = f"{model}: holds a {type(weights).__name__}, not weights by name"
        raise ModelError(message, backend="torch")
    try:
        found = spandrel.ModelLoader(device=device).load_from_state_dict(dict(weights))
    except spandrel.UnsupportedModelError as error:
        message = f"{model}: spandrel knows no network that its weights fit"
        raise ModelError(message, backend="torch") from error
    if not isinstance(found, spandrel.ImageModelDescriptor):
        message = f"{model}: {found.architecture.name} needs a mask beside the picture"
        raise ModelError(message, backend="torch")
    size = found.size_requirements
    facts = {
        "architecture": found.architecture.name,
        "purpose": str(found.purpose),
        "scale": str(found.scale),
        "size": _sizes(size),
        "float16": "yes" if found.supports_half else "no",
        "bfloat16": "yes" if found.supports_bfloat16 else "no",
        "tiling": str(getattr(found.tiling, "name", found.tiling)).lower(),
    }
    found.eval()
    unable = {Precision.FLOAT16: found.supports_half, Precision.BFLOAT16: found.supports_bfloat16}
    refuses = tuple(precision for precision, able in unable.items() if not able)
    return Network(found, found.model, (-1, found.input_channels, -1, -1), refuses, facts)
