"""What an image holds and does not hold, its size, and how it is set up."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from ..conftest import ROOT, require
from .conftest import Image, tool

pytestmark = pytest.mark.image

MEGABYTES = {"cpu": 1900, "openvino": 1100, "cuda": 6300, "tensorflow": 6900}
LEFT_OUT = "pip pip3 gcc cc g++ make git curl wget uv hatchling"
NEEDED = {"cuda": {"gcc", "cc"}}
"""Triton calls a C compiler when a kernel first runs."""


def test_size_is_within_its_budget(any_image: Image) -> None:
    assert any_image.facts["Size"] / 1e6 <= MEGABYTES[any_image.name]


def test_structure(any_image: Image) -> None:
    folder = ROOT / "tests" / "images" / "structure"
    done = subprocess.run(
        [
            tool("container-structure-test"),
            "test",
            f"--image={any_image.tag}",
            f"--config={folder / 'all.yaml'}",
            f"--config={folder / any_image.name}.yaml",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_requirements_of_all_packages_are_met(any_image: Image) -> None:
    found = importlib.util.find_spec("pip")
    require("pip", found is not None, "pip is not installed beside the tests")
    source = Path(str(found and found.origin)).parent
    done = subprocess.run(
        [
            "docker",
            "run",
            "--rm",
            f"--volume={source}:/opt/check/pip:ro",
            "--env=PYTHONPATH=/opt/check",
            "--entrypoint=python",
            any_image.tag,
            "-m",
            "pip",
            "check",
        ],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "No broken requirements found.\n"), done.stderr


def test_the_sbom_names_python_and_debian_packages(any_image: Image, tmp_path: Path) -> None:
    tool("debsbom")
    done = subprocess.run(
        [ROOT / "scripts" / "sbom", any_image.tag, tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

    def names(kind: str) -> set[str]:
        text = (tmp_path / f"avdnn-{any_image.name}-{kind}.cdx.json").read_text()
        return {part["name"].lower() for part in json.loads(text)["components"]}

    assert {"av", "numpy", "typer"} <= names("python")
    assert {"tini", "python3", "libc6"} <= names("debian")


def test_no_build_tool_is_left(any_image: Image) -> None:
    found = any_image.shell(f"for tool in {LEFT_OUT}; do command -v $tool; done; true").split()
    assert {Path(path).name for path in found} == NEEDED.get(any_image.name, set())


def test_no_package_list_log_or_secret_is_left(any_image: Image) -> None:
    found = any_image.shell(
        "find /var/lib/apt/lists /var/log /var/cache/apt /run/secrets /etc/pip.conf "
        "/etc/apt/apt.conf.d/99site /root/.cache /tmp -type f -size +0 2>/dev/null; true",
        "--user=0",
    )
    assert found == ""


def test_no_program_gives_its_caller_more_rights(any_image: Image) -> None:
    assert any_image.shell("find / -xdev -type f -perm /6000", "--user=0") == ""


def test_no_environment_variable_holds_a_site_setting(any_image: Image) -> None:
    names = [entry.split("=")[0] for entry in any_image.facts["Config"]["Env"]]
    assert [name for name in names if "PROXY" in name.upper() or name.startswith("PIP_")] == []


def test_labels_name_image_version_and_licence(any_image: Image) -> None:
    labels = any_image.facts["Config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == f"avdnn ({any_image.name})"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.version"]


def test_usage_statistics_cannot_be_sent(any_image: Image) -> None:
    text = "import importlib.util as u; print(u.find_spec('openvino_telemetry'))"
    assert any_image.shell(f'python -c "{text}"') == "None\n"
