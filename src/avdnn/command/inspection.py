"""What a model wants and gives, and what a frame would go through: `avdnn inspect`."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import backends, fit
from ..backends import Backend, Options
from ..errors import UsageError
from ..filters._options import DnnOptions, locate
from ..frame import Layout, ModelInfo, Precision, TensorSpec
from ..pixfmt import FORMATS, Family

_FAMILIES = {-1: tuple(Family), 1: (Family.LUMA,), 3: (Family.PACKED, Family.PLANAR)}
_ROUTES = {
    -1: "as many channels go through the model as the format has: 1 for YUV and gray, 3 for RGB",
    1: "the Y samples go through the model; chroma is copied, or resampled to the new size",
    3: "all three colours go through the model",
}


@dataclass(frozen=True, slots=True)
class Inspection:
    """A model on a backend. Sizes are (width, height), None where not known.

    `plan` says how a model that is made for another size meets frames of `size`.
    """

    model: str
    backend: str
    version: str
    info: ModelInfo
    keys: tuple[str, ...]
    size: tuple[int, int] | None
    output_size: tuple[int, int] | None
    plan: str = ""

    @property
    def formats(self) -> tuple[str, ...]:
        """Pixel formats whose samples fit the model as they are."""
        families = _FAMILIES.get(self._picture.channels, ()) if self._picture else ()
        return tuple(name for name, form in FORMATS.items() if form.family in families)

    @property
    def _picture(self) -> TensorSpec | None:
        """The input that a frame fills."""
        return next((spec for spec in self.info.inputs if spec.layout), None)

    @property
    def route(self) -> str:
        """What becomes of a frame's samples."""
        if self._picture is None:
            return "no input takes a picture: 4 dimensions are needed (see layout=)"
        channels = self._picture.channels
        return _ROUTES.get(channels, f"no pixel format has the {channels} channels of the input")

    def as_dict(self) -> dict[str, Any]:
        """For programs; the names are stable."""
        info = self.info
        return {
            "model": self.model,
            "backend": self.backend,
            "version": self.version,
            "device": info.device,
            "precision": str(info.precision),
            "inputs": [_tensor(spec) for spec in info.inputs],
            "outputs": [_tensor(spec) for spec in info.outputs],
            "batch": info.max_batch,
            "in_flight": info.max_in_flight,
            "memory": sorted(info.memory),
            "reshapeable": info.reshapeable,
            "formats": list(self.formats),
            "size": self.size,
            "output_size": self.output_size,
            "fit": self.plan,
            "backend_configs": list(self.keys),
            "facts": dict(info.facts),
        }

    def as_json(self) -> str:
        """`as_dict` as JSON."""
        return json.dumps(self.as_dict(), indent=2)

    def as_text(self) -> str:
        """For people."""
        info = self.info
        batch = "any" if info.max_batch is None else str(info.max_batch)
        lines = [
            ("model", self.model),
            ("backend", f"{self.backend} {self.version}, {info.device}, {info.precision}"),
            *(("input", _line(spec)) for spec in info.inputs),
            *(("output", _line(spec)) for spec in info.outputs),
            ("batch", f"{batch}, {info.max_in_flight} in flight"),
            ("frames", self.route),
            *([("formats", " ".join(self.formats))] if self.formats else []),
        ]
        if self.size and self.output_size:
            lines.append(("size", f"{_by(self.size)} becomes {_by(self.output_size)}"))
        if self.plan:
            lines.append(("fit", self.plan))
        if self.keys:
            lines.append(("options", f"backend_configs may set {', '.join(self.keys)}"))
        lines += sorted(info.facts.items())
        wide = max(len(name) for name, _ in lines)
        blank = " " * (wide + 2)
        return "\n".join(
            textwrap.fill(value, 100, initial_indent=f"{name:<{wide}}  ", subsequent_indent=blank)
            for name, value in lines
        )


def inspect(
    model: str, *, backend: str = "auto", device: str = "", size: tuple[int, int] | None = None
) -> Inspection:
    """Load a model, bundled or a file; with (width, height) `size` also as for such frames."""
    if backend not in ("auto", *backends.NAMES):
        names = ", ".join(backends.NAMES)
        raise UsageError(f"no backend {backend!r}; there are auto, {names}")
    options = DnnOptions(dnn_backend=backend, model=model, device=device)
    name, path = locate(options)
    module = backends.module(name)
    wanted = Options(device=options.device, precision=Precision.FLOAT32)
    loaded = backends.load(name, path, wanted)
    info = loaded.info
    loaded.close()
    plan, made = _plan(name, path, replace(wanted, size=(size[1], size[0]))) if size else ("", None)
    version = str(module.describe()["version"])
    shown = model if str(path) == model else f"{model} ({path.name})"
    return Inspection(shown, name, version, info, tuple(module.KEYS), size, made, plan)


def _plan(name: str, path: Path, options: Options) -> tuple[str, tuple[int, int] | None]:
    """What happens to frames of `options.size`, and the (width, height) that they become."""

    def load(changed: Options) -> Backend:
        return backends.load(name, path, changed)

    fitted = fit.fitted(load, options, title=path.name)
    try:
        return str(fitted.plan), _output_size(fitted.backend, options.size or (0, 0))
    finally:
        fitted.backend.close()


def _output_size(loaded: Backend, frame: tuple[int, int]) -> tuple[int, int] | None:
    """(width, height) that a frame of (height, width) becomes."""
    info = loaded.info
    inputs = {spec.name: _shape(spec, frame) for spec in info.inputs}
    shapes = loaded.output_shapes(inputs)
    spec = info.outputs[0]
    shape = shapes[spec.name]
    layout = spec.layout or info.inputs[0].layout
    if len(shape) != 4 or layout is None:
        return None
    height, width = shape[2:4] if layout is Layout.NCHW else shape[1:3]
    return width, height


def _shape(spec: TensorSpec, frame: tuple[int, int]) -> tuple[int, ...]:
    """The input's shape with `frame` and 1 in its free dimensions."""
    if spec.layout is None or len(spec.shape) != 4:
        return tuple(max(side, 1) for side in spec.shape)
    at = 2 if spec.layout is Layout.NCHW else 1
    sides = list(spec.shape)
    for offset, side in enumerate(frame):
        if sides[at + offset] < 0:
            sides[at + offset] = side
    return tuple(max(side, 1) for side in sides)


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


def _range(spec: TensorSpec) -> str:
    if spec.is_integer:
        return "codes"
    low, high = ((code - spec.mean) / spec.scale for code in (0, 255))
    return f"{low:.4g}..{high:.4g}"


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "shape": list(spec.shape),
        "dtype": spec.dtype,
        "layout": str(spec.layout) if spec.layout else None,
        "order": spec.order,
        "range": _range(spec),
    }


def _line(spec: TensorSpec) -> str:
    shape = "x".join("?" if side < 0 else str(side) for side in spec.shape)
    layout = f"{spec.layout} {spec.order}".strip() if spec.layout else "not a picture"
    return f"{spec.name}  {shape or 'scalar'} {spec.dtype}, {layout}, values {_range(spec)}"
