"""Frames that are smaller than what a model mirrors at its borders, on every backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends
from avdnn.backends import Options
from avdnn.errors import InferenceError, ModelError
from avdnn.fit import Fit, Fitted, fitted
from avdnn.frame import Layout

from ..conftest import require_module
from . import mirrored
from .networks import double, loader

SIZES = [(1, 1), (2, 2), (3, 3), (1, 40), (40, 2), (5, 3)]


@pytest.fixture(params=backends.NAMES)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    require_module(backends.FRAMEWORKS[name])
    return name


def fit_to(backend: str, path: Path, size: tuple[int, int], fit: Fit = Fit.AUTO) -> Fitted:
    options = Options(size=size)
    return fitted(
        lambda given: backends.load(backend, path, given),
        options,
        fit=fit,
        channels=1,
        title="net",
    )


def run(made: Fitted, picture: Any) -> Any:
    spec = made.backend.info.inputs[0]
    axes = (0, 1) if spec.layout is Layout.NCHW else (0, 3)
    try:
        tensor = np.expand_dims(picture, axes)
        return np.squeeze(made.backend.infer_async({"x": tensor}).result(60)["y"], axes)
    finally:
        made.backend.close()


def test_small_frames_are_padded_alike_by_all_backends(backend: str, tmp_path: Path) -> None:
    path = mirrored.write(backend, tmp_path)
    for rows, columns in SIZES:
        picture = np.random.default_rng(1).random((rows, columns), np.float32)
        made = fit_to(backend, path, (rows, columns))
        height, width = max(rows, 4), max(columns, 4)
        assert str(made.plan) == (
            f"frames of {columns}x{rows} are padded to {width}x{height} and cropped back "
            f"(the model fails on smaller ones)"
        )
        padded = np.pad(picture, ((0, height - rows), (0, width - columns)), mode="edge")
        wanted = mirrored.expected(padded)[:rows, :columns]
        # sums of 49 floats of about 1 in another order
        np.testing.assert_allclose(run(made, picture), wanted, atol=1e-6)


def test_frames_that_are_large_enough_are_left_alone(backend: str, tmp_path: Path) -> None:
    path = mirrored.write(backend, tmp_path)
    picture = np.random.default_rng(1).random((4, 5), np.float32)
    made = fit_to(backend, path, (4, 5))
    assert made.plan.how is None
    np.testing.assert_allclose(run(made, picture), mirrored.expected(picture), atol=1e-6)


def test_small_frames_without_padding_are_one_error(backend: str, tmp_path: Path) -> None:
    path = mirrored.write(backend, tmp_path)
    for fit in (Fit.RESHAPE, Fit.SCALE, Fit.ERROR):
        with pytest.raises(ModelError) as error:
            fit_to(backend, path, (2, 3), fit)
        assert str(error.value) == (
            "net does not take frames as small as 3x2: fit=auto and fit=pad pad them"
        )


def test_small_frame_is_one_tile(backend: str, tmp_path: Path) -> None:
    made = fit_to(backend, mirrored.write(backend, tmp_path), (2, 3), Fit.TILE)
    assert made.plan.tiles == (1, 1)
    picture = np.random.default_rng(1).random((2, 3), np.float32)
    padded = np.pad(picture, ((0, 30), (0, 29)), mode="edge")
    wanted = mirrored.expected(padded)[:2, :3]
    np.testing.assert_allclose(run(made, picture), wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["native", "onnx", "openvino", "tensorflow"])
def test_small_frames_of_a_model_of_fixed_size(name: str, tmp_path: Path) -> None:
    require_module(backends.FRAMEWORKS[name])
    path = mirrored.write(name, tmp_path, (16, 24))
    picture = np.random.default_rng(1).random((2, 3), np.float32)
    made = fit_to(name, path, (2, 3))
    assert made.plan.how is Fit.PAD
    assert str(made.plan.model) == "24x16"
    padded = np.pad(picture, ((0, 14), (0, 21)), mode="edge")
    wanted = mirrored.expected(padded)[:2, :3]
    np.testing.assert_allclose(run(made, picture), wanted, atol=1e-6)


def test_small_frame_is_padded_to_a_multiple_that_works() -> None:
    def network(image: Any) -> dict[str, Any]:
        if image.shape[0] % 8 or image.shape[1] % 8 or min(image.shape[:2]) < 20:
            raise InferenceError("too small")
        return {"y": double(image)}

    load = loader(network)
    made = fitted(load, Options(size=(5, 30)))
    assert str(made.plan.model) == "32x24"
    made.backend.close()


def test_model_without_any_size_says_why() -> None:
    def network(image: Any) -> dict[str, Any]:
        if image.any() or image.shape[:2] != (64, 64):
            raise InferenceError("always")
        return {"y": image}

    for fit in (Fit.AUTO, Fit.PAD, Fit.ERROR):
        with pytest.raises((ModelError, InferenceError), match="always"):
            fitted(loader(network), Options(size=(3, 3)), fit=fit)
