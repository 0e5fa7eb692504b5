"""The engine and the built images; what is missing skips, or fails where AVDNN_REQUIRE names it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ..conftest import ROOT, require
from ..test_access import open_folder

__all__ = ["open_folder"]

IMAGES = ("cpu", "openvino", "cuda", "tensorflow")
HARDENED = (
    "--read-only",
    "--network=none",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
)


@cache
def engine() -> str:
    """Why there is no engine, "" where one answers."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    asked = subprocess.run(["docker", "version"], capture_output=True, text=True)
    return "" if asked.returncode == 0 else "no container engine answers: scripts/ci-docker"


@cache
def described(name: str) -> dict[str, Any]:
    """What the engine knows of an image, {} where it is not built."""
    asked = subprocess.run(
        ["docker", "image", "inspect", f"avdnn:{name}"], capture_output=True, text=True
    )
    return json.loads(asked.stdout)[0] if asked.returncode == 0 else {}


@dataclass(frozen=True, slots=True)
class Image:
    """A built image, and how to run it."""

    name: str

    @property
    def tag(self) -> str:
        return f"avdnn:{self.name}"

    @property
    def facts(self) -> dict[str, Any]:
        return described(self.name)

    def run(
        self,
        *arguments: str,
        options: Sequence[str] = (),
        data: Path | None = None,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        """`docker run`, with `data` mounted where the image works."""
        mount = [f"--volume={data}:/data"] if data else []
        return subprocess.run(
            ["docker", "run", "--rm", *mount, *options, self.tag, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def shell(self, script: str, *options: str) -> str:
        """What a shell in the image prints."""
        done = subprocess.run(
            ["docker", "run", "--rm", "--entrypoint=sh", *options, self.tag, "-c", script],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def doctor(self, *options: str, data: Path | None = None) -> dict[str, dict[str, str]]:
        """The doctor's findings by name."""
        done = self.run("doctor", "--json", options=options, data=data)
        assert done.returncode in (0, 3), done.stderr
        return {found["name"]: found for found in json.loads(done.stdout)}


def image(name: str) -> Image:
    """The image of that name; skips where there is no engine or it is not built."""
    require("engine", not engine(), engine())
    require(f"image-{name}", bool(described(name)), f"avdnn:{name} is not built: make image-{name}")
    return Image(name)


@pytest.fixture(params=IMAGES)
def any_image(request: pytest.FixtureRequest) -> Image:
    return image(request.param)


@pytest.fixture
def cpu() -> Image:
    return image("cpu")


@pytest.fixture
def openvino() -> Image:
    return image("openvino")


@pytest.fixture
def shared(open_folder: Path) -> Path:
    """A folder to mount that every user may write to."""
    folder = open_folder / "data"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def tool(name: str) -> str:
    """The path of a program that a test runs."""
    found = shutil.which(name)
    require(name, found is not None, f"{name} is not installed: scripts/test-images brings it")
    return str(found)


def bake(*arguments: str, **variables: str) -> dict[str, Any]:
    """What `docker buildx bake --print` makes of docker-bake.hcl."""
    require("engine", not engine(), engine())
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SITE_")}
    done = subprocess.run(
        ["docker", "buildx", "bake", "--print", *arguments],
        cwd=ROOT,
        env=clean | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
