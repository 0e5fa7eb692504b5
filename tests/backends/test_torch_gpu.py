"""The torch backend on a GPU: host frames ferried over, device frames in the order of a stream."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends
from avdnn.backends import Options
from avdnn.backends._torch_network import Network
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


def test_first_job_finds_the_weights_converted(
    torch: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current stream has much to do when the weights are converted in it."""
    convert = Network.use

    def late(network: Network, dtype: Any) -> None:
        torch.cuda._sleep(1_000_000_000)
        convert(network, dtype)

    stream = torch.cuda.Stream()
    given = torch.rand(1, 3, *SIZE, device="cuda").half()
    torch.cuda.synchronize()
    monkeypatch.setattr(Network, "use", late)
    half = Precision.FLOAT16
    options = Options(device="cuda", precision=half, size=SIZE, stream=stream.cuda_stream)
    loaded = backends.load("torch", model, options)
    made = loaded.infer_async({"x": given}).result()["y"]
    stream.synchronize()
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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [3, 5])
@pytest.mark.parametrize(
    ("channels", "outputs"),
    [(64, 64), (64, 32), (64, 12), (32, 32), (32, 4), (16, 16), (16, 64), (3, 64), (24, 7)],
)
def test_own_convolution_is_torchs(
    torch: Any, channels: int, outputs: int, size: int, dtype: str
) -> None:
    """Weights, borders, tiles that stick out, batches, bias and slopes."""
    pytest.importorskip("cupy")
    from avdnn.backends import _torch_kernel as own

    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    weight = torch.randn(outputs, channels, size, size, device="cuda") / (channels * size**2) ** 0.5
    weight, bias = weight.to(kind), torch.randn(outputs, device="cuda").to(kind)
    slope = torch.rand(outputs, device="cuda").to(kind)
    layer = own.layer(weight)
    assert layer is not None
    if not own.runs_on(layer, weight.device):
        pytest.skip("the kernel is not for this GPU")
    own.operation()
    args = (own.packed_kernel(weight, layer), own.filled(bias, layer, 0.0))
    more = (own.filled(slope, layer, 1.0), size, outputs)
    for shape in ((2, 37, 61), (1, 1, 1), (3, 8, 32), (1, 130, 259)):
        source = torch.randn(shape[0], channels, *shape[1:], device="cuda").to(kind)
        source = source.contiguous(memory_format=torch.channels_last)
        with torch.backends.cudnn.flags(allow_tf32=False):
            wanted = torch.nn.functional.conv2d(
                source.double(), weight.double(), bias.double(), padding=size // 2
            )
        wanted = torch.nn.functional.prelu(wanted, slope.double())
        got = own.same_convolution(source, *args, *more)
        assert got.shape == wanted.shape
        # One rounding of the result to the type, beside sums in float32.
        step = 2e-3 if dtype == "float16" else 1.6e-2
        assert ((got.double() - wanted).abs() <= step * (wanted.abs() + 0.5)).all()


def test_own_convolution_can_be_captured_and_keeps_to_its_stream(torch: Any) -> None:
    pytest.importorskip("cupy")
    from avdnn.backends import _torch_kernel as own

    own.operation()
    weight = torch.randn(16, 16, 3, 3, device="cuda").half()
    layer = own.layer(weight)
    assert layer is not None
    if not own.runs_on(layer, weight.device):
        pytest.skip("the kernel is not for this GPU")
    none, ones = weight.new_zeros(16), weight.new_ones(16)
    args = (own.packed_kernel(weight, layer), own.filled(none, layer, 0.0))
    args += (own.filled(ones, layer, 1.0), 3, 16)
    source = torch.zeros(1, 16, 64, 64, device="cuda").half()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        own.same_convolution(source, *args)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            made = own.same_convolution(source, *args)
        torch.cuda._sleep(20_000_000)
        source.copy_(torch.ones_like(source))
        graph.replay()
    stream.synchronize()
    wanted = torch.nn.functional.conv2d(torch.ones_like(source), weight, padding=1)
    torch.testing.assert_close(made, wanted, atol=2e-2, rtol=2e-2)


def test_own_convolution_counts_beyond_31_bits_and_from_any_address(torch: Any) -> None:
    pytest.importorskip("cupy")
    from avdnn.backends import _torch_kernel as own

    own.operation()
    weight = torch.randn(8, 64, 3, 3, device="cuda").half() / 24
    layer = own.layer(weight)
    assert layer is not None
    if not own.runs_on(layer, weight.device):
        pytest.skip("the kernel is not for this GPU")
    none, ones = weight.new_zeros(8), weight.new_ones(8)
    args = (own.packed_kernel(weight, layer), own.filled(none, layer, 0.0))
    args += (own.filled(ones, layer, 1.0), 3, 8)
    count, rows, columns = 5, 2160, 3840
    size = count * rows * columns * 64 * 2
    if torch.cuda.mem_get_info()[0] < 2 * size:
        pytest.skip("too little memory")
    source = torch.empty(count, rows, columns, 64, device="cuda", dtype=torch.float16)
    source.zero_()
    source[-1, -20:].normal_()
    made = own.same_convolution(source.permute(0, 3, 1, 2), *args)
    part = source[-1:, -20:].permute(0, 3, 1, 2)
    wanted = torch.nn.functional.conv2d(part.float(), weight.float(), padding=1)
    torch.testing.assert_close(made[-1:, :, -19:].float(), wanted[:, :, 1:], atol=1e-2, rtol=1e-2)
    assert not made[:-1].any()
    room = torch.randn(1 + 8 * 32 * 64, device="cuda").half()
    odd = room[1:].view(1, 8, 32, 64).permute(0, 3, 1, 2)
    assert torch.equal(own.same_convolution(odd, *args), own.same_convolution(odd.clone(), *args))
