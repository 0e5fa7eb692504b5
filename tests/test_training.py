"""The scripts that make the bundled models: weights, exporters, training pairs."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from avdnn import models
from avdnn.compare.quality import psnr

from .conftest import ROOT, require_module


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


def training(name: str) -> ModuleType:
    return importlib.import_module(f"training.{name}")


def test_weights_survive_a_file(tmp_path: Path) -> None:
    weights = training("weights")
    rng = np.random.default_rng(0)
    tensors = {"a": rng.random((2, 3, 5)).astype(np.float16), "b": np.ones(1, np.float32)}
    weights.write(tmp_path / "w.safetensors", tensors, {"seed": "1"})
    read, metadata = weights.read(tmp_path / "w.safetensors")
    assert metadata == {"seed": "1"}
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(read[name], tensor.astype(np.float32))


def test_shortened_weights_are_the_nearest_with_fewer_bits() -> None:
    values = np.random.default_rng(1).normal(0, 0.1, 2000).astype(np.float32)
    short = training("weights").shorten(values, bits=8)
    assert not (short.view(np.uint16) & 3).any()
    # half a step of 8 bits, and half a step of float16's own rounding before it
    size = np.maximum(np.abs(values), 2.0**-14)  # below it float16 has fewer bits itself
    step = 2.0 ** (np.floor(np.log2(size)) - 8)
    assert (np.abs(short - values) <= step * 0.5 * 1.26).all()


@pytest.mark.parametrize("name", models.registry())
def test_committed_form_is_what_the_exporter_writes(name: str, tmp_path: Path) -> None:
    networks, forms, weights = (training(part) for part in ("networks", "forms", "weights"))
    network, model = networks.NETWORKS[name], models.registry()[name]
    tensors, _ = weights.read(model.path / f"{name}.safetensors")
    layers = [
        (tensors[f"conv{i}.weight"], tensors[f"conv{i}.bias"]) for i in range(len(network.layers))
    ]
    forms.write_native(network, layers, tmp_path / "net.model")
    assert (tmp_path / "net.model").read_bytes() == model.files["native"].read_bytes()
    assert network.parameters == model.parameters


def test_no_picture_is_both_trained_on_and_held_out() -> None:
    sources = training("sources")
    train, held = sources.split()
    families = [
        {sources.title(path).partition("-")[0] for _, path in group} for group in (train, held)
    ]
    assert not families[0] & families[1]
    assert len(held) >= (len(train) + len(held)) / 5


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """Random gray shapes: no shifted copy of it fits, and 4:2:0 costs nothing."""
    require_module("PIL")
    from PIL import Image

    rng = np.random.default_rng(2)
    coarse = rng.integers(0, 256, (24, 32), np.uint8)
    path = tmp_path / "photo.png"
    Image.fromarray(coarse).resize((512, 384), Image.Resampling.BICUBIC).convert("RGB").save(path)
    return path


@pytest.mark.parametrize("scale", [1, 2])
def test_degraded_patches_lie_over_their_originals(photo: Path, scale: int) -> None:
    require_module("torch")
    import torch

    pairs, learn = training("pairs"), training("learn")
    pool = pairs.build([photo], pairs.Recipe(scale, clips=2, crf=(20, 24)), seed=1, workers=1)
    assert set(pool.samples[:, 5]) == {0, 1}
    for clean in (1, 0):
        plan = learn.Plan("", patch=32, batch=16, rate=0, clean=clean, jpeg=0)
        patches = learn.Patches(pool, plan, torch.device("cpu"), seed=3)
        low, high = (side.numpy() for side in patches.batch())
        assert high.shape == (16, 3, 32 * scale, 32 * scale)
        small = high.reshape(16, 3, 32, scale, 32, scale).mean((3, 5))
        fit = [float(np.abs(low - np.roll(small, dx, 3)).mean()) for dx in (-1, 0, 1)]
        assert fit[1] < 0.5 * min(fit[0], fit[2])


def test_jpeg_on_tensors_is_close_to_libjpeg(photo: Path) -> None:
    require_module("torch")
    import torch
    from PIL import Image

    image = Image.open(photo)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=40, subsampling="4:2:0")
    theirs = np.asarray(Image.open(buffer))
    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float()
    ours = training("jpeg").compressed(tensor, torch.tensor([40.0]))[0].permute(1, 2, 0).numpy()
    flat = [plane.reshape(len(plane), -1) for plane in (ours, theirs, np.asarray(image))]
    # what differs is the rounding of coefficients that lie between two steps
    assert psnr(flat[0], flat[1], 255) > psnr(flat[1], flat[2], 255) + 6
