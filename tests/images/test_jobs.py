"""Jobs in containers: the same frames as outside, for any user, without network or rights."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import av
import numpy as np
import pytest

from ..clips import clip
from ..conftest import DATA, ROOT, require, require_module
from .conftest import HARDENED, Image, image

pytestmark = pytest.mark.image

GPU_ONLY = ("cuda", "tensorflow")
LOSSLESS = ("-c:v", "ffv1")


def frames(path: Path) -> np.ndarray:
    with av.open(str(path)) as media:
        return np.stack([frame.to_ndarray() for frame in media.decode(video=0)]).astype(int)


def outside(*arguments: str, folder: Path) -> None:
    """The same command without a container."""
    done = subprocess.run(
        [sys.executable, "-m", "avdnn", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "AVDNN_BACKEND": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def demo(target: str, *options: str) -> tuple[str, ...]:
    return ("run", "in.mkv", *LOSSLESS, *options, target)


@pytest.fixture
def source(shared: Path) -> Path:
    """A folder with a short clip in it."""
    clip(shared / "in.mkv", frames=5, size=(64, 48), codec="ffv1")
    return shared


def test_native_frames_are_those_of_the_same_job_outside(any_image: Image, source: Path) -> None:
    done = any_image.run(*demo("inside.mkv", "--backend", "native"), data=source)
    assert done.returncode == 0, done.stderr
    outside(*demo("outside.mkv", "--backend", "native"), folder=source)
    # NumPy may add up in another order from one version to the next: at most one code.
    assert abs(frames(source / "inside.mkv") - frames(source / "outside.mkv")).max() <= 1


def test_the_demo_job_equals_the_same_job_outside(any_image: Image, source: Path) -> None:
    backend = next(
        entry.split("=")[1]
        for entry in any_image.facts["Config"]["Env"]
        if entry.startswith("AVDNN_BACKEND=")
    )
    require_module(backend)
    options = ("--device", "cpu") if any_image.name in GPU_ONLY else ()
    done = any_image.run(*demo("inside.mkv", *options), data=source)
    assert done.returncode == 0, done.stderr
    outside(*demo("outside.mkv", "--backend", backend, *options), folder=source)
    inside = frames(source / "inside.mkv")
    assert inside.shape[0] == 5
    # Versions of the framework may differ: sums in another order move a value over an edge.
    assert abs(inside - frames(source / "outside.mkv")).max() <= 1


def test_a_hardened_container_runs_the_job_as_any_user(any_image: Image, source: Path) -> None:
    options = (*HARDENED, "--user=4242:4242")
    done = any_image.run(*demo("out.mkv", "--device", "cpu"), options=options, data=source)
    assert done.returncode == 0, done.stderr
    owner = (source / "out.mkv").stat()
    assert (owner.st_uid, owner.st_gid) == (4242, 4242)
    assert len(frames(source / "out.mkv")) == 5


def test_the_cache_is_optional(any_image: Image, source: Path, open_folder: Path) -> None:
    empty = open_folder / "empty"
    empty.mkdir()
    options = (*HARDENED, f"--volume={empty}:/cache:ro")
    done = any_image.run(*demo("out.mkv", "--device", "cpu"), options=options, data=source)
    assert done.returncode == 0, done.stderr
    assert len(frames(source / "out.mkv")) == 5


def test_the_caller_owns_what_is_written(cpu: Image, source: Path) -> None:
    require("root", os.geteuid() == 0, "only root gives a folder to somebody else")
    os.chown(source, 1234, 1234)
    source.chmod(0o755)
    done = cpu.run(*demo("out.mkv"), options=("--user=1234:1234",), data=source)
    assert done.returncode == 0, done.stderr
    assert (source / "out.mkv").stat().st_uid == 1234


def test_a_folder_of_another_user_names_the_user_option(cpu: Image, source: Path) -> None:
    source.chmod(0o755)
    done = cpu.run(*demo("out.mkv"), data=source)
    assert done.returncode == 1
    assert '--user "$(id -u):$(id -g)"' in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (source / "out.mkv").exists()


def test_sigterm_ends_the_job_with_143_and_no_file(cpu: Image, shared: Path) -> None:
    clip(shared / "in.mkv", frames=600, size=(640, 480))
    started = subprocess.run(
        ["docker", "run", "-d", f"--volume={shared}:/data", cpu.tag, *demo("out.mkv")],
        capture_output=True,
        text=True,
        check=True,
    )
    container = started.stdout.strip()
    try:
        deadline = time.monotonic() + 60
        while not list(shared.glob(".out.mkv.*")):
            assert time.monotonic() < deadline, "the job did not begin to write"
            time.sleep(0.1)
        subprocess.run(["docker", "kill", "--signal=TERM", container], check=True)
        waited = subprocess.run(
            ["docker", "wait", container], capture_output=True, text=True, timeout=60
        )
        logs = subprocess.run(["docker", "logs", container], capture_output=True, text=True)
    finally:
        subprocess.run(["docker", "rm", "-f", container], check=True, capture_output=True)
    assert waited.stdout.strip() == "143", logs.stderr
    assert sorted(path.name for path in shared.iterdir()) == ["in.mkv"]


@pytest.mark.timeout(1500)
def test_the_unit_tests_pass_inside_the_image() -> None:
    tests = image("cpu-test")
    mounts = [f"--volume={DATA}:/shared/data:ro"] if DATA.is_dir() else []
    done = subprocess.run(
        [
            "docker",
            "run",
            "--rm",
            "--network=none",
            "--env=AVDNN_DATA=/shared/data",
            *mounts,
            tests.tag,
        ],
        capture_output=True,
        text=True,
        timeout=1400,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert " passed" in done.stdout
