"""ONNX Runtime on a GPU: frames that stay there, in the order of their stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends, cuda
from avdnn.backends import Backend, Options
from avdnn.backends import onnx as module
from avdnn.cuda import frames as cuda_frames
from avdnn.errors import InferenceError

from ..conftest import require, require_module
from .device_frames import pictures, run
from .onnx_file import Node, write

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SIZE = (48, 64)
CYCLES = 1_500_000_000
"""Of the GPU's clock: about a second, which no host call here takes."""


@pytest.fixture(scope="module")
def device(cuda_device: Any) -> Any:
    require_module("onnxruntime")
    there = module.runtime().get_available_providers()
    require(
        "onnxruntime", "CUDAExecutionProvider" in there, f"ONNX Runtime has {', '.join(there)} only"
    )
    cuda_device.use()
    return cuda_device


@contextmanager
def opened(device: Any, model: Path, **options: Any) -> Iterator[Backend]:
    told = Options(device=device.label, size=SIZE, stream=device.compute, **options)
    with closing(backends.load("onnx", model, told)) as loaded:
        yield loaded


def line(folder: Path, gain: float, channels: int = 1, dtype: str = "float32") -> Path:
    """The network y = gain * x."""
    tensor = (dtype, ("n", channels, "h", "w"))
    return write(
        folder / "net.onnx",
        [Node("Mul", ["x", "gain"], ["y"])],
        {"x": tensor},
        {"y": tensor},
        {"gain": np.array(gain, dtype)},
    )


# ---- frames --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("name", "form"), [("espcn-x2", "nv12"), ("compact-x2", "rgb24")])
def test_frames_are_the_processors_and_stay_on_the_gpu(
    device: Any, name: str, form: str, batch: int
) -> None:
    text = f"dnn_processing=dnn_backend=onnx:model={name}:precision=float32"
    given = pictures(form, 7)
    expected = run(f"{text}:device=cpu", given)
    uploaded = [cuda_frames.upload(device, frame) for frame in given]
    before = device.traffic.up
    made = run(f"{text}:strict=1:batch_size={batch}", uploaded)
    assert device.traffic.up == before
    assert [frame.device for frame in made] == [device.label] * 7
    assert [frame.meta.pts for frame in made] == list(range(7))
    for one, other in zip(made, expected, strict=True):
        got = cuda_frames.to_host(device, one).planes[0].astype(int)
        assert got.shape == other.planes[0].shape
        # Float32 sums in another order may fall on the other side of a half.
        assert np.abs(got - other.planes[0]).max() <= 1


@pytest.mark.parametrize("form", ["nv12", "rgb24"])
def test_network_that_changes_nothing_gives_the_same_samples(
    device: Any, tmp_path: Path, form: str
) -> None:
    model = line(tmp_path, 1, 1 if form == "nv12" else 3)
    given = pictures(form, 5)
    uploaded = [cuda_frames.upload(device, frame) for frame in given]
    made = run(f"dnn_processing=dnn_backend=onnx:model={model}:strict=1:batch_size=2", uploaded)
    for one, other in zip(made, given, strict=True):
        for plane, wanted in zip(
            cuda_frames.to_host(device, one).planes, other.planes, strict=True
        ):
            assert np.array_equal(plane, wanted)


# ---- jobs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_jobs_keep_the_models_type(device: Any, tmp_path: Path, dtype: str) -> None:
    import cupy

    with opened(device, line(tmp_path, 0.5, dtype=dtype)) as loaded:
        assert loaded.info.memory == {"host", "cuda"}
        assert loaded.info.inputs[0].dtype == loaded.info.outputs[0].dtype == dtype
        with device.compute.owner:
            given = cupy.random.random((2, 1, *SIZE), dtype=np.float32).astype(dtype)
            future = loaded.infer_async({"x": given})
            assert future.done()
            made = device.adopt(future.result()["y"])
            # Half of a float is exact in both types.
            assert made.dtype == dtype
            assert bool((made == given / 2).all())


def test_outputs_outlive_later_jobs_and_the_model(device: Any, tmp_path: Path) -> None:
    import cupy

    with opened(device, line(tmp_path, 3)) as loaded, device.compute.owner:
        given = [cupy.full((1, 1, *SIZE), n, np.float32) for n in range(20)]
        made = [device.adopt(loaded.infer_async({"x": array}).result()["y"]) for array in given]
        assert len({array.data.ptr for array in made}) == len(made)
    del loaded
    with device.compute.owner:
        for number, array in enumerate(made):
            assert bool((array == 3 * number).all())


def test_jobs_are_in_the_order_of_the_stream_and_nothing_waits(device: Any, tmp_path: Path) -> None:
    """The input is filled behind a kernel that runs for about a second."""
    import cupy

    code = f"""extern "C" __global__ void idle() {{
        long long start = clock64();
        while (clock64() - start < {CYCLES}LL);
    }}"""
    idle = cupy.RawKernel(code, "idle")
    with opened(device, line(tmp_path, 3)) as loaded, device.compute.owner:
        given = cupy.zeros((1, 1, *SIZE), np.float32)
        before = cupy.empty_like(given)
        loaded.infer_async({"x": given}).result()
        tripled = cupy.ElementwiseKernel("float32 x", "float32 y", "y = 3 * x", "tripled")
        tripled(given, before)
        device.mark(device.compute).synchronize()
        idle((1,), (1,), ())
        given.fill(7)
        made = device.adopt(loaded.infer_async({"x": given}).result()["y"])
        tripled(made, before)
        event = device.mark(device.compute)
        assert not event.done
        event.synchronize()
        assert bool((before == 63).all())


def test_two_models_share_the_gpu(device: Any, tmp_path: Path) -> None:
    """A session takes the memory that its jobs need, not a share of the GPU."""
    import cupy

    shape = (1, 1, 2048, 2048)
    free, _ = device.memory()
    with opened(device, line(tmp_path, 3)) as one, opened(device, line(tmp_path, 2)) as other:
        with device.compute.owner:
            given = cupy.ones(shape, np.float32)
            for _ in range(4):
                made = [
                    device.adopt(net.infer_async({"x": given}).result()["y"])
                    for net in (one, other)
                ]
            assert [float(array.max()) for array in made] == [3, 2]
        # Two outputs of 16 MiB each alive at a time; libraries and kernels take some hundred MiB.
        assert free - device.memory()[0] < 1 << 30


def test_host_arrays_go_over_and_back(device: Any, tmp_path: Path) -> None:
    given = np.random.default_rng(0).random((1, 1, *SIZE), np.float32)
    with opened(device, line(tmp_path, 0.5)) as loaded:
        assert np.array_equal(loaded.infer_async({"x": given}).result()["y"], given / 2)


def test_wrong_shapes_and_failures_are_in_the_future(device: Any, tmp_path: Path) -> None:
    import cupy

    model = write(
        tmp_path / "net.onnx",
        [Node("Reshape", ["x", "shape"], ["y"])],
        {"x": ("float32", (1, 1, "h", "w"))},
        {"y": ("float32", (1, 1, 7, 7))},
        {"shape": np.array([1, 1, 7, 7])},
    )
    with opened(device, model) as loaded:
        fits = cupy.zeros((1, 1, 7, 7), np.float32)
        assert device.adopt(loaded.infer_async({"x": fits}).result()["y"]).shape == (1, 1, 7, 7)
        for words, shape in (("takes float32", (1, 2, 7, 7)), ("^onnx: ", (1, 1, *SIZE))):
            with pytest.raises(InferenceError, match=words):
                loaded.infer_async({"x": cupy.zeros(shape, np.float32)}).result()


def test_default_device_is_the_one_of_the_frames(device: Any, tmp_path: Path) -> None:
    assert cuda.device(0) is device
    uploaded = [cuda_frames.upload(device, frame) for frame in pictures("nv12", 2)]
    line(tmp_path, 1)
    (made, _) = run(f"dnn_processing=model={tmp_path}/net.onnx:strict=1", uploaded)
    assert made.device == device.label
