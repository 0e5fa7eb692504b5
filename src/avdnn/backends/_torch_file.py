"""What a torch file holds, told from its bytes: TorchScript, an exported program, weights."""

from __future__ import annotations

import json
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..frame import Precision, Shape
from . import _formats, _spandrel

SAFE_LOAD = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


@dataclass(frozen=True, slots=True)
class Program:
    """A model read from a file.

    `call` takes one tensor and runs `network`, a torch module that is often the same object.
    `shape` is what the file says about the tensor, NCHW, or None where it says nothing.
    `scripted` programs can be frozen, others compiled. `refuses` holds what the network is known
    not to compute in.
    """

    call: Callable[[Any], Any]
    network: Any
    kind: str
    input: str
    shape: Shape | None = None
    scripted: bool = False
    refuses: tuple[Precision, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def read(model: Path, device: str) -> Program:
    """The program in `model`, on `device`; no Python object of the file's own is ever built.

    TorchScript and exported programs are programs: they compute what their author wrote, and torch
    evaluates expressions while it reads an exported one. Weights are only data.
    """
    kind = _formats.check(model, "torch")
    if kind is _formats.Kind.SAFETENSORS:
        return _weights(model, device)
    with model.open("rb") as file:
        legacy = file.read(2) == b"\x80\x02"
    if legacy:
        return _weights(model, device)
    names = _entries(model)
    if any(name.endswith("/constants.pkl") for name in names):
        return _script(model, device)
    if any(re.search(r"archive_format$|serialized_exported_program\.json$", n) for n in names):
        return _exported(model, device)
    if any(name.endswith("data.pkl") for name in names):
        return _weights(model, device)
    raise ModelError(f"{model}: a zip file, but not one that torch writes", backend="torch")


def _entries(model: Path) -> list[str]:
    try:
        with zipfile.ZipFile(model) as archive:
            return archive.namelist()
    except zipfile.BadZipFile as error:
        message = f"{model}: the torch file is cut or damaged ({error})"
        raise ModelError(message, backend="torch") from error


# ---- TorchScript -------------------------------------------------------------------------------


def _script(model: Path, device: str) -> Program:
    import torch

    try:
        with deprecated_script():
            module = torch.jit.load(str(model), map_location=device).eval()
    except RuntimeError as error:
        raise ModelError(f"{model}: {_unreadable(error)}", backend="torch") from error
    if not hasattr(module, "forward"):
        raise ModelError(f"{model}: the TorchScript has no forward()", backend="torch")
    arguments = module.forward.schema.arguments[1:]
    if not arguments:
        raise ModelError(f"{model}: its forward() takes nothing", backend="torch")
    needed = [argument.name for argument in arguments if argument.default_value is None]
    if len(needed) > 1:
        raise ModelError(
            f"{model}: its forward() takes {len(needed)} tensors ({', '.join(needed)}); "
            f"one picture is all there is",
            backend="torch",
        )
    return Program(module, module, "TorchScript", arguments[0].name, scripted=True)


def _unreadable(error: RuntimeError) -> str:
    """Why TorchScript could not be loaded, in one line."""
    text = str(error)
    unknown = re.search(r"Unknown builtin op: ([\w:]+)", text)
    if unknown:
        return (
            f"needs the custom operator {unknown[1]}, which torch does not have; "
            f"export the model without it"
        )
    foreign = re.search(
        r"(?:Unknown type name|Could not find class|Tried to.*class) '?([\w.]+)", text
    )
    if foreign:
        return f"needs the custom class {foreign[1]}, which torch does not have"
    return f"torch cannot read it: {first_line(error)}"


# ---- torch.export ------------------------------------------------------------------------------


def _exported(model: Path, device: str) -> Program:
    import torch

    _refuse_objects(model)
    try:
        with _weights_only():
            program = torch.export.load(str(model))
    except Exception as error:
        # torch's reader has no error type of its own: it lets through what each part raises.
        raise ModelError(f"{model}: {_refused(error)}", backend="torch") from error
    names = list(program.graph_signature.user_inputs)
    if len(names) != 1 or not isinstance(names[0], str):
        raise ModelError(
            f"{model}: the program takes {len(names)} inputs; one picture is all there is",
            backend="torch",
        )
    if device != "cpu":
        program = torch.export.passes.move_to_device_pass(program, device)
    node = next(n for n in program.graph.nodes if n.op == "placeholder" and n.name == names[0])
    shape = tuple(dim if isinstance(dim, int) else -1 for dim in node.meta["val"].shape)
    module = program.module()
    return Program(module, module, "torch.export program", names[0], shape)


def _refuse_objects(model: Path) -> None:
    """ModelError if an exported program carries Python objects, which torch would unpickle."""
    with zipfile.ZipFile(model) as archive:
        for name in archive.namelist():
            if not name.endswith("constants_config.json"):
                continue
            held = json.loads(archive.read(name)).get("config", {}).values()
            if any(str(item.get("path_name", "")).startswith("opaque_obj") for item in held):
                message = f"{model}: holds Python objects, and loading them would run code; refused"
                raise ModelError(message, backend="torch")


@contextmanager
def deprecated_script() -> Iterator[None]:
    """Call TorchScript, which torch says is deprecated: its files are what there is.

    torch 2.13 says so to developers, 2.14 to users.
    """
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", r"`?torch\.jit", category)
        yield


@contextmanager
def _weights_only() -> Iterator[None]:
    """Make every torch.load within refuse to build objects, whatever its caller asks for."""
    before = os.environ.get(SAFE_LOAD)
    os.environ[SAFE_LOAD] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SAFE_LOAD]
        else:
            os.environ[SAFE_LOAD] = before


# ---- weights -----------------------------------------------------------------------------------


def _weights(model: Path, device: str) -> Program:
    _spandrel.needed(model)
    if model.suffix.lower() == ".safetensors" or _formats.identify(model)[0] is (
        _formats.Kind.SAFETENSORS
    ):
        weights = _spandrel.safetensors(model)
    else:
        weights = _pickled(model)
    found = _spandrel.build(model, weights, device)
    return Program(
        found.call,
        found.network,
        "weights",
        "x",
        found.shape,
        refuses=found.refuses,
        facts=found.facts,
    )


def _pickled(model: Path) -> Any:
    import torch

    try:
        return torch.load(model, map_location="cpu", weights_only=True)
    except Exception as error:
        # A damaged pickle may raise anything; nothing of it has run.
        raise ModelError(f"{model}: {_refused(error)}", backend="torch") from error


def _refused(error: Exception) -> str:
    """What an unpickling or reading error means, in one line."""
    text = str(error)
    wanted = re.search(r"(?:Unsupported global: GLOBAL|Trying to (?:load|call)\D*?) ([\w.]+)", text)
    if wanted or "weights_only" in text.lower() or "WeightsUnpickler" in text:
        what = f" ({wanted[1]})" if wanted else ""
        return (
            f"holds more than weights{what}, and loading it would run its code; refused: "
            f"save its state_dict instead, or .safetensors"
        )
    return f"torch cannot read it: {first_line(error)}"


def first_line(error: BaseException) -> str:
    """The line of an error's text that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception): \S", line)]
    if named:
        return named[-1].partition(": ")[2]
    return lines[0] if lines else type(error).__name__
