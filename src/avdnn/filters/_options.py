"""The options that all dnn filters share, in FFmpeg's names, and what becomes of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, TypeVar

from .. import backends, graph
from ..backends import Options
from ..errors import BackendUnavailable, ModelError, UsageError
from ..fit import Fit
from ..frame import Layout, Precision
from ..graph import Call, Range
from ..pixfmt import PixelFormat

BACKEND_NUMBERS = {"0": "native", "1": "tensorflow", "2": "openvino", "4": "torch", "8": "onnx"}
LIFTED = ("nireq", "async", "device", "batch_size", "layout", "scale", "mean")
"""Options that were keys of backend_configs for years, and still may be."""


class OnNan(StrEnum):
    """What to do when a model's output holds NaN or infinity."""

    STOP = "stop"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class DnnOptions:
    """Options of dnn_processing; the other dnn filters add theirs.

    `precision`, `layout`, `order`, `scale`, `mean`, `fit`, `overlap`, `on_nan`, `threads` and
    `strict` are avdnn's own. `scale` and `mean`: tensor = (255 * v - mean) / scale for samples v
    in 0..1, and the inverse on the output. `models` are the only ones that a filter takes, for one
    that converts frames itself.
    """

    models: ClassVar[str] = ""

    dnn_backend: str = "auto"
    model: str = ""
    input: str = ""
    output: tuple[str, ...] = ()
    backend_configs: Mapping[str, str] = field(default_factory=dict)
    nireq: Annotated[int, Range(0)] = 0
    async_: bool = True
    device: str = ""
    batch_size: Annotated[int, Range(1)] = 1
    precision: Precision = field(default=Precision.AUTO, kw_only=True)
    layout: str = field(default="", kw_only=True)
    order: str = field(default="", kw_only=True)
    scale: float | None = field(default=None, kw_only=True)
    mean: float | None = field(default=None, kw_only=True)
    fit: Fit = field(default=Fit.AUTO, kw_only=True)
    overlap: Annotated[int, Range(-1)] = field(default=-1, kw_only=True)
    on_nan: OnNan = field(default=OnNan.STOP, kw_only=True)
    threads: int = field(default=0, kw_only=True)
    strict: bool = field(default=False, kw_only=True)


T = TypeVar("T", bound=DnnOptions)


def bind(call: Call, cls: type[T], defaults: Mapping[str, str], order: Sequence[str] = ()) -> T:
    """The options of a call; a backend's own key may stand among them, as in FFmpeg since 7.1."""
    keys = {key for name in backends.NAMES for key in backends.keys(name)}
    bound = graph.bind(
        call,
        cls,
        aliases={"options": "backend_configs"},
        defaults=defaults,
        order=order,
        collect=keys,
        lift=LIFTED,
        into="backend_configs",
    )
    return _checked(bound, call)


def _checked(options: T, call: Call) -> T:
    """Refuse what no backend could do, before any file opens."""
    if not options.model:
        raise call.error(f"{call.name} needs model=")
    backend = BACKEND_NUMBERS.get(options.dnn_backend, options.dnn_backend)
    if backend not in ("auto", *backends.NAMES):
        raise call.error(
            f"no backend {backend!r}; dnn_backend is auto, {', '.join(backends.NAMES)} "
            f"or FFmpeg's 0, 1, 2, 4, 8",
            option="dnn_backend",
        )
    if len(options.output) > 4:
        raise call.error("at most 4 outputs can be named", option="output")
    if options.overlap >= 0 and options.fit not in (Fit.AUTO, Fit.TILE):
        raise call.error(
            f"overlap={options.overlap} is for tiles, and fit={options.fit} makes none: leave it "
            "out, or take fit=tile",
            option="overlap",
        )
    for name, valid in (("layout", ("", "none", "nchw", "nhwc")), ("order", ("", "rgb", "bgr"))):
        value = getattr(options, name)
        if value not in valid:
            raise call.error(f"{name}={value} is none of {', '.join(valid[1:])}", option=name)
    return replace(options, dnn_backend=backend)


def default_device(backend: str) -> str:
    """What AVDNN_DEVICE names, for the backend that AVDNN_BACKEND names; else ""."""
    named = os.environ.get("AVDNN_BACKEND", "")
    return os.environ.get("AVDNN_DEVICE", "") if backend == named else ""


def locate(options: DnnOptions) -> tuple[str, Path]:
    """The backend and the model file: a bundled model's name is looked up, `auto` is chosen."""
    from .. import models

    name = options.dnn_backend
    if name == "auto":
        name = os.environ.get("AVDNN_BACKEND", "auto") or "auto"
        if name not in ("auto", *backends.NAMES):
            raise UsageError(f"AVDNN_BACKEND={name}: expected auto, {', '.join(backends.NAMES)}")
    wanted = None if name == "auto" else name
    path = models.resolve(options.model, wanted)
    if not path.exists():
        raise ModelError(
            f"{options.model}: no such model file; the bundled models are "
            f"{', '.join(models.registry())}"
        )
    wrong = backends.why_no_model(path)
    if wrong:
        raise ModelError(wrong, backend=wanted or "")
    if wanted is None:
        return backends.choose(path), path
    if options.dnn_backend == "auto" and not backends.reads(wanted, path):
        return backends.choose(path), path
    if not backends.reads(wanted, path):
        readers = [known for known in backends.NAMES if backends.reads(known, path)]
        raise ModelError(
            f"{path}: backend {wanted} does not read {path.suffix or 'such'} files; "
            f"{' or '.join(readers)} does",
            backend=wanted,
        )
    if not backends.installed(wanted):
        raise BackendUnavailable(
            f"backend {wanted} is not installed: pip install 'avdnn[{wanted}]'", backend=wanted
        )
    return wanted, path


def alternatives(options: DnnOptions, name: str, path: Path) -> list[str]:
    """Other installed backends that read the file, where the backend was not named."""
    if options.dnn_backend != "auto":
        return []
    readers = (other for other in backends.NAMES if backends.reads(other, path))
    return [other for other in readers if other != name and backends.installed(other)]


def backend_options(
    options: DnnOptions,
    form: PixelFormat,
    size: tuple[int, int] | None,
    precision: Precision,
    cache: Path | None,
) -> Options:
    """What the backend is told for frames of this format and size."""
    sample = form.dtype
    return Options(
        inputs=(options.input,) if options.input else (),
        outputs=options.output,
        device=options.device,
        precision=precision,
        batch_size=options.batch_size,
        nireq=options.nireq,
        asynchronous=options.async_,
        sample=sample,
        peak=form.peak,
        size=size,
        layout=Layout(options.layout) if options.layout in ("nchw", "nhwc") else None,
        order=options.order,
        scale=options.scale,
        mean=options.mean,
        threads=options.threads,
        cache=cache,
        config=options.backend_configs,
    )
