"""The bundled models: found by name, the same network in every form, small enough to ship."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from avdnn import backends, models
from avdnn.backends import NAMES, Options
from avdnn.errors import ModelError
from avdnn.frame import Layout

from .conftest import require, require_module

BUNDLED = ("compact-x2", "compact-x4", "deblock", "espcn-x2")
WHEEL_LIMIT = 15_000_000


def test_registry_lists_every_model_with_a_form_for_each_backend() -> None:
    assert tuple(models.registry()) == BUNDLED
    for name, model in models.registry().items():
        assert set(model.files) == set(NAMES), name
        assert model.title
        assert model.licence == "Apache-2.0"


def test_parameter_counts_are_those_of_the_weights() -> None:
    for name, model in models.registry().items():
        data = (model.path / f"{name}.safetensors").read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        tensors = [entry for key, entry in header.items() if key != "__metadata__"]
        assert sum(int(np.prod(entry["shape"])) for entry in tensors) == model.parameters
        assert model.parameters < 700_000


def test_bundled_name_becomes_the_form_of_the_backend() -> None:
    assert models.resolve("espcn-x2", "onnx").name == "espcn-x2.onnx"
    assert models.resolve("espcn-x2", "native").name == "espcn-x2.model"


def test_without_a_backend_the_first_installed_one_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models, "installed", lambda name: name in ("torch", "native"))
    assert models.resolve("deblock").suffix == ".pt"
    monkeypatch.setattr(models, "installed", lambda name: name == "native")
    assert models.resolve("deblock").suffix == ".model"


def test_path_stays_as_it_is(tmp_path: Path) -> None:
    assert models.resolve(str(tmp_path / "net.onnx"), "onnx") == tmp_path / "net.onnx"
    assert models.resolve("./espcn-x2") == Path("espcn-x2")


def test_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"no bundled model.*compact-x2.*espcn-x2"):
        models.resolve("espcn-x3")


def test_models_fit_the_wheel() -> None:
    """A wheel packs with deflate (harder than here); the code takes well under a megabyte."""
    files = [path for path in Path(models.__file__).parent.rglob("*") if path.is_file()]
    packed = sum(len(zlib.compress(path.read_bytes(), 1)) for path in files)
    assert packed < WHEEL_LIMIT - 600_000


def _run(name: str, backend: str, picture: np.ndarray) -> np.ndarray:
    """Output (H, W, C) of one bundled model for a picture (H, W, C)."""
    path = models.resolve(name, backend)
    loaded = backends.load(backend, path, Options(size=picture.shape[:2]))
    try:
        (spec,), (out,) = loaded.info.inputs, loaded.info.outputs
        assert spec.dtype == "float32"
        assert spec.channels == models.registry()[name].channels
        planar = spec.layout is Layout.NCHW
        tensor = (picture.transpose(2, 0, 1) if planar else picture)[None]
        result = loaded.infer_async({spec.name: tensor}).result()[out.name]
        result = np.array(np.asarray(result)[0])
        return result.transpose(1, 2, 0) if out.layout is Layout.NCHW else result
    finally:
        loaded.close()


def _picture(name: str, height: int, width: int) -> np.ndarray:
    """Smooth shapes with noise: what networks see, and all of the range."""
    rng = np.random.default_rng(3)
    y, x = np.arange(height)[:, None, None], np.arange(width)[:, None]
    wave = np.sin(x / 3 + np.arange(models.registry()[name].channels)) * np.cos(y / 4)
    return np.clip(0.5 + 0.45 * wave + rng.normal(0, 0.05, wave.shape), 0, 1).astype(np.float32)


@pytest.mark.parametrize("backend", [name for name in NAMES if name != "native"])
@pytest.mark.parametrize("name", BUNDLED)
def test_all_forms_give_the_same_output(name: str, backend: str) -> None:
    require_module(backends.FRAMEWORKS[backend])
    picture = _picture(name, 21, 34)
    scale = models.registry()[name].scale
    wanted = _run(name, "native", picture)
    got = _run(name, backend, picture)
    assert got.shape == (21 * scale, 34 * scale, picture.shape[2])
    # float32 sums of up to 576 products in another order: about 1e-6 a layer, 12 layers
    np.testing.assert_allclose(got, wanted, rtol=0, atol=5e-5)


@pytest.mark.parametrize("name", BUNDLED)
def test_output_resembles_the_input(name: str) -> None:
    """Channel order and sub-pixel order are right: shrunk again, the output is the input."""
    rng = np.random.default_rng(5)
    coarse = rng.random((4, 5, models.registry()[name].channels), np.float32)
    picture = np.repeat(np.repeat(coarse, 8, 0), 8, 1)
    out, scale = _run(name, "native", picture), models.registry()[name].scale
    height, width, channels = picture.shape
    small = out.reshape(height, scale, width, scale, channels).mean((1, 3))
    # deblock smooths such edges by a few codes; a wrong order is off by 0.3
    assert np.abs(small - picture).mean() < 0.05


@pytest.mark.parametrize("name", BUNDLED)
def test_ffmpeg_reads_the_native_form(name: str, tmp_path: Path) -> None:
    """FFmpeg 5 and 6 read .model files; their output is ours to a rounding step."""
    ffmpeg = shutil.which("ffmpeg")
    require("ffmpeg", ffmpeg is not None, "ffmpeg is not installed")
    model = models.registry()[name]
    codes = np.rint(_picture(name, 22, 34) * 255).astype(np.uint8)
    chroma = b"" if model.channels == 3 else bytes(2 * 11 * 17)
    (tmp_path / "in.raw").write_bytes(codes.tobytes() + chroma)
    (tmp_path / "net.model").write_bytes(models.resolve(name, "native").read_bytes())
    text = "dnn_processing=dnn_backend=native:model=net.model:input=x:output=y"
    done = subprocess.run(
        [
            *(str(ffmpeg), "-v", "error", "-f", "rawvideo", "-s", "34x22"),
            *("-pix_fmt", "rgb24" if model.channels == 3 else "yuv420p"),
            *("-i", "in.raw", "-vf", text, "-f", "rawvideo", "-"),
        ],
        cwd=tmp_path,
        capture_output=True,
    )
    require("ffmpeg", done.returncode == 0, "this ffmpeg has no native dnn backend")
    shape = (22 * model.scale, 34 * model.scale, model.channels)
    theirs = np.frombuffer(done.stdout, np.uint8, count=int(np.prod(shape))).reshape(shape)
    ours = _run(name, "native", codes.astype(np.float32) / 255)
    ours = np.clip(np.rint(ours * 255), 0, 255).astype(np.int16)
    assert np.abs(ours - theirs).max() <= 1
