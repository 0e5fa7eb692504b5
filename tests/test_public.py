"""The public names, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys
import types

import avdnn
from avdnn import backends


def test_all_is_what_is_visible() -> None:
    visible = {
        name
        for name, value in vars(avdnn).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert visible == set(avdnn.__all__)


def test_importing_avdnn_imports_no_framework() -> None:
    frameworks = set(backends.FRAMEWORKS.values()) - {"numpy"}
    code = f"import sys, avdnn; print(sorted(set(sys.modules) & {frameworks!r}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_available_names_every_backend() -> None:
    assert set(avdnn.available()) == set(backends.NAMES)
    assert avdnn.available()["native"]
