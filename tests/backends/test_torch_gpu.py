"""The torch backend on a GPU: host frames ferried over, device frames in the order of a stream."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends
from avdnn.backends import Options
from avdnn.errors import InferenceError
from avdnn.frame import Precision

from ..conftest import require, require_module
from . import affine

pytestmark = pytest.mark.gpu

SIZE = (48, 64)


@pytest.fixture(scope="module")
def torch() -> Any:
    require_module("torch")
    import torch

    require("cuda", torch.cuda.is_available(), "torch sees no GPU")
    return torch


@pytest.fixture
def model(torch: Any, tmp_path: Path) -> Path:
    return affine.write("torch", tmp_path, channels=3, gain=0.5, offset=0.0)


def halved(array: np.ndarray) -> np.ndarray:
    values = np.multiply(array, np.float32(1 / 255), dtype=np.float32) * np.float32(0.5)
    return np.clip(np.rint(values * np.float32(255)), 0, 255).astype(np.uint8)


def test_host_frames_are_ferried_over_and_back(torch: Any, model: Path) -> None:
    options = Options(device="cuda", sample="uint8", size=SIZE)
    loaded = backends.load("torch", model, options)
    assert loaded.info.device == "cuda:0"
    assert loaded.info.memory == {"host", "cuda"}
    jobs = [
        np.random.default_rng(seed).integers(0, 256, (1, 3, *SIZE)).astype(np.uint8)
        for seed in range(12)
    ]
    futures = [loaded.infer_async({"x": job}) for job in jobs]
    for job, future in zip(jobs, futures, strict=True):
        assert np.array_equal(future.result()["y"], halved(job))
    loaded.close()


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.FLOAT16])
def test_device_frames_run_on_the_callers_stream(
    torch: Any, model: Path, precision: Precision
) -> None:
    stream = torch.cuda.Stream()
    options = Options(device="cuda", precision=precision, size=SIZE, stream=stream.cuda_stream)
    loaded = backends.load("torch", model, options)
    (source,), (target,) = loaded.info.inputs, loaded.info.outputs
    assert source.dtype == target.dtype == precision.value
    with torch.cuda.stream(stream):
        given = torch.rand(1, 3, *SIZE, device="cuda").to(getattr(torch, precision.value))
    future = loaded.infer_async({"x": given})
    assert future.done()
    made = future.result()["y"]
    stream.synchronize()
    assert made.is_cuda
    # Half of a float is exact in both types.
    assert torch.equal(made, given / 2)
    loaded.close()


def test_float32_is_exact_on_a_gpu_too(torch: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 64, 5, padding=2), torch.nn.Tanh(), torch.nn.Conv2d(64, 1, 3, padding=1)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(net.eval(), torch.zeros(1, 1, *SIZE)).save(str(tmp_path / "m.pt"))
    given = np.random.default_rng(0).random((1, 1, *SIZE)).astype(np.float32)
    made = {}
    for device in ("cpu", "cuda"):
        loaded = backends.load("torch", tmp_path / "m.pt", Options(device=device, size=SIZE))
        name = loaded.info.inputs[0].name
        made[device] = loaded.infer_async({name: given}).result()["y"]
        loaded.close()
    # Float32 sums in another order; TF32 would be 1e-3 apart.
    assert np.abs(made["cpu"] - made["cuda"]).max() < 2e-5


def test_host_memory_and_wrong_shapes_are_told_apart(torch: Any, model: Path) -> None:
    loaded = backends.load("torch", model, Options(device="cuda", size=SIZE))
    wrong = loaded.infer_async({"x": torch.zeros(1, 2, *SIZE, device="cuda")})
    with pytest.raises(InferenceError, match="takes float32"):
        wrong.result()
    loaded.close()
