"""What builds the images, read and checked without building."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ..conftest import ROOT
from .conftest import IMAGES, bake, tool

pytestmark = pytest.mark.image

DOCKERFILES = sorted(path.parent.name for path in (ROOT / "images").glob("*/Dockerfile"))
LOCKS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "images").glob("*/*.txt"))


@pytest.mark.parametrize("name", DOCKERFILES)
def test_hadolint_has_no_complaint(name: str) -> None:
    done = subprocess.run(
        [tool("hadolint"), f"images/{name}/Dockerfile"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_shellcheck_has_no_complaint() -> None:
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    shell = [path for path in scripts if path.read_text().startswith("#!/usr/bin/env bash")]
    command = [tool("shellcheck"), "--severity=warning", *shell, "images/base/install-wheels"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert len(shell) > 5
    assert done.returncode == 0, done.stdout


def test_the_default_group_is_every_image() -> None:
    plan = bake()
    assert set(IMAGES) <= set(plan["target"])
    assert plan["target"]["cuda"]["tags"] == ["avdnn:cuda"]


def test_the_check_group_starts_every_image() -> None:
    targets = set(bake("check")["target"])
    assert {f"{name}-check" for name in IMAGES} <= targets


def test_an_ordinary_build_mounts_no_secret() -> None:
    assert [name for name, target in bake("cpu")["target"].items() if target.get("secret")] == []


def test_site_settings_reach_every_target_as_secrets() -> None:
    plan = bake("cpu", SITE_CA="LICENSE", SITE_PIP_CONF="pyproject.toml")
    for name, target in plan["target"].items():
        assert target["secret"] == ["id=ca,src=LICENSE", "id=pip_conf,src=pyproject.toml"], name


def test_a_wheelhouse_replaces_the_empty_one() -> None:
    plan = bake("cpu", WHEELHOUSE="wheels")
    assert plan["target"]["cpu"]["contexts"]["wheelhouse"] == "wheels"
    assert plan["target"]["core"]["contexts"] == {"wheelhouse": "wheels"}


def test_a_release_adds_versioned_tags_to_a_named_registry() -> None:
    plan = bake(
        "cuda", IMAGE="registry.example/avdnn", RELEASE="0.1", SOURCE="example", ATTEST="on"
    )
    target = plan["target"]["cuda"]
    assert target["tags"] == ["registry.example/avdnn:cuda", "registry.example/avdnn:0.1-cuda"]
    assert target["labels"]["org.opencontainers.image.source"] == "example"
    assert len(target["attest"]) == 2


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pinned_wheel_has_a_hash_and_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text()
    if Path(lock).name == "trim.txt":
        return
    pinned = re.findall(r"^([\w.-]+)==", text, re.M)
    assert pinned
    assert len(
        re.findall(r"^[\w.-]+==\S+ .*\\\n    --hash=sha256:[0-9a-f]{64}", text, re.M)
    ) == len(pinned)
    assert "://" not in text


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_keeps_the_versions_of_the_core(name: str) -> None:
    def pins(path: str) -> dict[str, str]:
        return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / path).read_text(), re.M))

    core, own = pins("images/base/requirements.txt"), pins(f"images/{name}/requirements.txt")
    assert {wheel: own.get(wheel) for wheel in core} == core
