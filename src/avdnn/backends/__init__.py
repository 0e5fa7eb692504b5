"""The seam: what a backend is, and how one is found.

A backend is a module of this package: its name is the file's name, the value of `dnn_backend`
and the pip extra. It imports its framework inside `load`, never at import.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

from ..errors import BackendError, BackendUnavailable, ModelError
from ..frame import Arrays, Layout, ModelInfo, Precision, Shapes
from . import _formats

NAMES = ("openvino", "tensorflow", "onnx", "torch", "native")
"""All backends, the preferred one first where several read a file."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a model is to be loaded; what a backend cannot honour it refuses with ModelError.

    inputs, outputs   tensor names; () means all that the model has
    device            the backend's own device name; "" means its default
    precision         float32, bfloat16 or float16, never auto
    batch_size        frames in one inference
    nireq             requests in flight; 0 means the backend's choice
    sample, peak      element type of the samples that the caller has ("uint8", "uint16" or
                      "float32") and the code that stands for 1.0: a backend that converts in
                      its own graph declares that type in `info` and takes the codes as they are
    size              (height, width) of the frames to come, where known
    layout, order, scale, mean   override what the model says; see TensorSpec for their meaning
    threads           CPU threads for one runtime; 0 means the backend's choice
    cache             folder for compiled models, or None
    config            the backend's own keys (backend_configs), checked against KEYS
    stream            device: the stream that jobs are ordered on
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    device: str = ""
    precision: Precision = Precision.FLOAT32
    batch_size: int = 1
    nireq: int = 0
    asynchronous: bool = True
    sample: str = "float32"
    peak: int = 255
    size: tuple[int, int] | None = None
    layout: Layout | None = None
    order: str = ""
    scale: float | None = None
    mean: float | None = None
    threads: int = 0
    cache: Path | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    stream: Any = None


class Backend(Protocol):
    """A loaded model.

    1. Arrays match `info` and live in one of `info.memory`; host arrays may have any strides.
    2. The caller keeps inputs alive and unchanged until the future is done (device: until the
       job's event). Outputs belong to the caller: never a view that the runtime will reuse.
    3. Futures may finish in any order. Failures are put into the future as InferenceError, never
       logged and lost.
    4. Host: done means that the values are there. CUDA: done means ordered on `options.stream`;
       the host must not read without the event.
    5. One thread calls infer_async. If all slots are busy it waits.
    6. close() waits for what runs, is idempotent, and frees everything.
    7. An output that the model gives as float and the backend turns into codes itself is
       clip(round_half_even(peak * v), 0, peak), and a NaN or infinity in it is a NonFiniteError
       in the future. Float outputs are given as they are: the caller checks them.
    """

    info: ModelInfo

    def output_shapes(self, inputs: Shapes) -> Shapes:
        """Shapes of all outputs for these input shapes; may run the model once; cached."""

    def infer_async(self, inputs: Arrays) -> Future[Arrays]:
        """Start one inference."""

    def close(self) -> None:
        """Wait for running jobs and free everything."""


class BackendModule(Protocol):
    """What every module of this package offers.

    SUFFIXES  file name endings that the backend reads, "" for a folder
    KEYS      its own backend_configs keys, each with one line of help
    """

    SUFFIXES: tuple[str, ...]
    KEYS: Mapping[str, str]

    def load(self, model: Path, options: Options) -> Backend:
        """Load a model; ModelError names the file and the wanted and found tensors."""

    def precisions(self, options: Options) -> tuple[Precision, ...]:
        """What the hardware of `options.device` runs, the fastest first; float32 is always in."""

    def describe(self) -> Mapping[str, Any]:
        """`version` (str) and `devices` (name -> description) of the installed framework."""


FRAMEWORKS = {
    "openvino": "openvino",
    "tensorflow": "tensorflow",
    "onnx": "onnxruntime",
    "torch": "torch",
    "native": "numpy",
}


def installed(name: str) -> bool:
    """Whether the framework of backend `name` is there, without importing it."""
    found = importlib.util.find_spec(FRAMEWORKS[name])
    return found is not None and found.origin is not None  # no origin: a folder of that name


def module(name: str) -> BackendModule:
    """The module of backend `name`; BackendUnavailable if its framework is not installed."""
    if name not in NAMES:
        raise BackendError(f"no backend {name!r}; there are {', '.join(NAMES)}", backend=name)
    if not installed(name):
        raise BackendUnavailable(
            f"backend {name} is not installed: pip install 'avdnn[{name}]'", backend=name
        )
    found: Any = importlib.import_module(f".{name}", __name__)
    return _checked(found)


def _checked(found: ModuleType) -> BackendModule:
    for attribute in ("SUFFIXES", "KEYS", "load", "precisions", "describe"):
        if not hasattr(found, attribute):
            raise BackendError(f"{found.__name__} has no {attribute}", backend=found.__name__)
    return cast(BackendModule, found)


def reads(name: str, model: Path) -> bool:
    """Whether backend `name` reads files that are named like `model`."""
    suffix = "" if model.is_dir() else model.suffix.lower()
    return suffix in suffixes(name)


def suffixes(name: str) -> tuple[str, ...]:
    """Endings of the files that the backend reads, "" for a folder; imports no framework."""
    found: Any = importlib.import_module(f".{name}", __name__)
    result: tuple[str, ...] = found.SUFFIXES
    return result


def keys(name: str) -> Mapping[str, str]:
    """The backend's own backend_configs keys, each with a line of help; imports no framework."""
    found: Any = importlib.import_module(f".{name}", __name__)
    result: Mapping[str, str] = found.KEYS
    return result


def choose(model: Path) -> str:
    """The best installed backend for a model file, by its name's ending.

    Raises ModelError if no backend reads such files, BackendUnavailable if none of those is
    installed.
    """
    wrong = why_no_model(model)
    if wrong:
        raise ModelError(wrong)
    readers = [name for name in NAMES if reads(name, model)]
    for name in readers:
        if installed(name):
            return name
    raise BackendUnavailable(
        f"{model}: read by {' and '.join(readers)}, not installed: "
        f"pip install 'avdnn[{readers[0]}]'",
        backend=readers[0],
    )


def why_no_model(model: Path) -> str:
    """Why no backend can read a file: its name's ending, or without one its bytes; else ""."""
    endings = sorted({suffix for name in NAMES for suffix in suffixes(name)} - {""})
    if any(reads(name, model) for name in NAMES) and not _is_foreign(model):
        return ""
    return (
        f"{model}: no model file by its ending; models end in {', '.join(endings)}, or are "
        "TensorFlow's SavedModel folders"
    )


def _is_foreign(model: Path) -> bool:
    """Whether a file without an ending holds no model; one that cannot be opened may."""
    if model.suffix or not model.is_file():
        return False
    try:
        return _formats.identify(model)[0] is _formats.Kind.UNKNOWN
    except OSError:
        return False


def load(name: str, model: Path, options: Options) -> Backend:
    """Load `model` on backend `name`, after checking the file and the backend's own keys."""
    found = module(name)
    if not model.exists():
        raise ModelError(f"{model}: no such model file", backend=name)
    unknown = [key for key in options.config if key not in found.KEYS]
    if unknown:
        raise ModelError(
            f"backend {name} has no option {unknown[0]!r}; it has: "
            f"{', '.join(sorted(found.KEYS)) or 'none'}",
            backend=name,
        )
    return found.load(model, options)
