"""Shared fixtures: the reference data, and skips that AVDNN_REQUIRE turns to failures."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A job in the background ignores Ctrl-C, and so would all that the tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("AVDNN_DATA", ROOT.parent / "shared" / "data"))


def require(what: str, there: bool, reason: str) -> None:
    """Skip unless `there`; fail instead where AVDNN_REQUIRE names `what`."""
    if there:
        return
    if what in os.environ.get("AVDNN_REQUIRE", "").split(","):
        pytest.fail(f"AVDNN_REQUIRE={what}: {reason}", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def require_module(name: str) -> None:
    """Skip where a framework is not installed."""
    require(name, importlib.util.find_spec(name) is not None, f"{name} is not installed")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real models, clips and reference frames."""
    require("data", DATA.is_dir(), f"reference data not found at {DATA} (set AVDNN_DATA)")
    return DATA


@pytest.fixture(scope="session")
def seed(data: Path) -> Path:
    return data / "seed"


@pytest.fixture(scope="session")
def reference(data: Path) -> Path:
    return data / "reference"


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for kernels.cu built by the C++ compiler."""
    require("g++", shutil.which("g++") is not None, "no C++ compiler to run kernels.cu on the host")
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="session")
def cuda_device() -> Any:
    """The first GPU."""
    from avdnn import cuda
    from avdnn.errors import AvdnnError

    try:
        return cuda.device(0)
    except AvdnnError as error:
        require("cuda", False, str(error))
