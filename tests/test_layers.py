"""Who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "avdnn"

ALLOWED = {
    "errors": set(),
    "frame": set(),
    "pixfmt": {"errors"},
    "graph": {"errors", "escapes", "option_values"},
    "window": set(),
    "channel": set(),
    "stage": {"channel"},
    "planes": {"frame", "pixfmt"},
    "chroma": {"errors", "frame", "pixfmt", "planes"},
    "host": {"chroma", "errors", "frame", "pixfmt", "planes", "properties", "versions"},
    "backends": {"errors", "frame", "backends", "sess_config"},
    "fit": {"errors", "frame", "backends", "fit"},
}
"""What each of these may import of avdnn, by top-level module or package."""

CUPY = ("_torch_kernel.py",)
"""Modules outside cuda/ that import cupy, when a GPU is used."""


def imported(path: Path) -> set[str]:
    """Top-level modules of avdnn that a file imports at its start or anywhere in it."""
    package = path.relative_to(SOURCE).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = [*package[: len(package) - node.level + 1]]
        full = base + (node.module.split(".") if node.module else [])
        found |= {full[0]} if full else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("name", ALLOWED)
def test_lower_layers_know_nothing_of_upper_ones(name: str) -> None:
    folder = SOURCE / name
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [SOURCE / f"{name}.py"]
    assert files
    for path in files:
        assert imported(path) <= ALLOWED[name], path.name


def test_cupy_is_imported_by_the_device_modules_only() -> None:
    for path in SOURCE.rglob("*.py"):
        names = {
            alias.name.partition(".")[0]
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        assert "cupy" not in names or path.parent.name == "cuda" or path.name in CUPY, path.name


def test_threads_are_started_in_few_places() -> None:
    found = {path.name for path in SOURCE.rglob("*.py") if "threading.Thread(" in path.read_text()}
    assert found <= {"stage.py", "sessions.py"}
