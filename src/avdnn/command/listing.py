"""What `avdnn backends` and `avdnn models` show."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import backends, models
from ..devices import Gpu, Machine, nvidia
from ..errors import BackendUnavailable


@dataclass(frozen=True, slots=True)
class BackendFacts:
    """One backend: `error` says why it does not work, `install` what to do about it."""

    name: str
    installed: bool
    version: str = ""
    devices: Mapping[str, str] = field(default_factory=dict)
    reads: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    install: str = ""


def backend_facts() -> list[BackendFacts]:
    """All backends, installed or not; imports the frameworks of those that are."""
    gpus = {gpu.index: gpu for gpu in nvidia(Machine()).gpus}
    return [_facts(name, gpus) for name in backends.NAMES]


def _facts(name: str, gpus: Mapping[int, Gpu]) -> BackendFacts:
    reads = backends.suffixes(name)
    keys = dict(backends.keys(name))
    try:
        about = backends.module(name).describe()
    except BackendUnavailable:
        install = f"pip install 'avdnn[{name}]'"
        return BackendFacts(name, False, reads=reads, options=keys, install=install)
    except Exception as error:  # a framework may fail to load in any way: that is the finding
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return BackendFacts(name, True, reads=reads, options=keys, error=reason)
    devices = {device: _told(device, what, gpus) for device, what in about["devices"].items()}
    return BackendFacts(name, True, str(about["version"]), devices, reads, keys)


def _told(device: str, what: str, gpus: Mapping[int, Gpu]) -> str:
    """What a device is; of an NVIDIA GPU also the names by which `-hwaccel_device` takes it."""
    found = re.fullmatch(r"(?:cuda|gpu):(\d+)", device)
    gpu = gpus.get(int(found[1])) if found else None
    if gpu is None:
        return what
    other = f", nvidia-smi {gpu.smi_index}" if gpu.smi_index >= 0 else ""
    return f"{what}, {gpu.uuid}, {gpu.pci}{other}"


def backends_text(facts: Sequence[BackendFacts]) -> str:
    """A block of lines for each backend."""
    lines = []
    for one in facts:
        reads = " ".join(suffix or "folders" for suffix in one.reads)
        if one.install:
            lines.append(f"{one.name:<11} not installed: {one.install}")
        elif one.error:
            lines.append(f"{one.name:<11} does not load: {one.error}")
        else:
            lines.append(f"{one.name:<11} {one.version}")
            lines += [f"{'':<11} {name}: {what}" for name, what in one.devices.items()]
        lines.append(f"{'':<11} reads {reads}")
    return "\n".join(lines)


def models_text() -> str:
    """A line for each bundled model."""
    rows = [
        (model.name, f"x{model.scale}", "RGB" if model.channels == 3 else "luma", model.title)
        for model in models.registry().values()
    ]
    wide = max((len(row[0]) for row in rows), default=0)
    return "\n".join(
        f"{name:<{wide}}  {scale:<3} {what:<5} {title}" for name, scale, what, title in rows
    )


def as_json(listed: Sequence[Any]) -> str:
    """Dataclasses as a list of JSON objects; paths become text."""
    return json.dumps([_plain(asdict(one)) for one in listed], indent=2)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return value
