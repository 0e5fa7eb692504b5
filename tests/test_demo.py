"""The demo: its scene moves, its job runs through the command line, its picture shows a gain."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import av
import numpy as np
import pytest

from .conftest import ROOT


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))


@pytest.fixture
def demo(scripts: None) -> ModuleType:
    return importlib.import_module("demo")


@pytest.fixture
def scene(scripts: None) -> ModuleType:
    return importlib.import_module("demo_scene")


def test_every_panel_of_the_scene_moves_and_has_detail(scene: ModuleType) -> None:
    for name, panel in scene.PANELS.items():
        first, second = panel(0.1), panel(0.2)
        assert first.shape == (scene.HEIGHT, scene.WIDTH, 3)
        assert np.abs(first - second).mean() > 0.01, name
        assert np.abs(np.diff(first, axis=1)).mean() > 0.005, name


def test_demo_enlarges_its_clip_better_than_bicubic(
    demo: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    demo.main(["--out", str(tmp_path), "--frames", "2", "--backend", "native"])
    told = capfd.readouterr().out
    bicubic, output = map(float, re.findall(r"([\d.]+) dB", told))
    assert output > bicubic + 0.5
    with av.open(str(tmp_path / "espcn-x2.mkv")) as container:
        assert len(container.streams.audio) == 1
        frames = list(container.decode(video=0))
    assert [(frame.width, frame.height) for frame in frames] == [(960, 540)] * 2
    with av.open(str(tmp_path / "demo.png")) as container:
        (picture,) = container.decode(video=0)
    assert picture.width > 4 * 2 * demo.SHOWN[1]
