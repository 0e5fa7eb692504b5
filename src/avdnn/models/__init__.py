"""The bundled models: a folder each, found by name; `model.toml` says what a model is."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ..backends import NAMES, installed
from ..errors import BackendUnavailable, ModelError

_SUFFIXES = {
    "openvino": ".xml",
    "tensorflow": ".pb",
    "onnx": ".onnx",
    "torch": ".pt",
    "native": ".model",
}


@dataclass(frozen=True, slots=True)
class BundledModel:
    """One bundled model.

    `files` has the exported form for each backend; `channels` is 1 for luma, 3 for RGB; `scale`
    is output size over input size; `card` is the README with training, figures and pictures.
    """

    name: str
    title: str
    path: Path
    files: Mapping[str, Path]
    channels: int
    scale: int
    parameters: int
    licence: str

    @property
    def card(self) -> Path:
        return self.path / "README.md"


def _read(folder: Path) -> BundledModel:
    table = tomllib.loads((folder / "model.toml").read_text(encoding="utf-8"))
    paths = {backend: folder / f"{folder.name}{suffix}" for backend, suffix in _SUFFIXES.items()}
    return BundledModel(
        name=folder.name,
        title=table["title"],
        path=folder,
        files={backend: path for backend, path in paths.items() if path.is_file()},
        channels=table["channels"],
        scale=table["scale"],
        parameters=table["parameters"],
        licence=table["licence"],
    )


@functools.cache
def registry() -> Mapping[str, BundledModel]:
    """All bundled models by name."""
    folder = Path(__file__).parent
    found = sorted(path.parent for path in folder.glob("*/model.toml"))
    return MappingProxyType({path.name: _read(path) for path in found})


def resolve(model: str, backend: str | None = None) -> Path:
    """The file to load for `model`: a path stays as it is, a bundled name becomes its form.

    A bundled name wins over a file of that name in the current folder, which `./name` reaches.
    Without a backend the first installed one is served, in the order of `backends.NAMES`.
    """
    bundled = registry().get(model)
    if bundled is None:
        if Path(model).name == model and not Path(model).suffix and not Path(model).exists():
            raise ModelError(
                f"{model}: no such file and no bundled model; there are {', '.join(registry())}"
            )
        return Path(model)
    if backend is None:
        backend = next((name for name in NAMES if name in bundled.files and installed(name)), None)
        if backend is None:
            raise BackendUnavailable(
                f"{model}: needs one of {', '.join(bundled.files)}, none is installed: "
                f"pip install 'avdnn[openvino]'"
            )
    if backend not in bundled.files:
        raise ModelError(
            f"{model}: has no form for backend {backend}; it has {', '.join(bundled.files)}",
            backend=backend,
        )
    return bundled.files[backend]
