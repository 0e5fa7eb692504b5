"""TensorFlow on a GPU: frames that stay there, behind what their stream holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends
from avdnn.backends import Backend, Options, _tensorflow_device
from avdnn.backends import tensorflow as module
from avdnn.cuda import frames as cuda_frames
from avdnn.frame import Precision

from ..conftest import require, require_module
from .device_frames import pictures, run

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SIZE = (48, 64)
CYCLES = 1_500_000_000
"""Of the GPU's clock: about a second, which no host call here takes."""


@pytest.fixture(scope="module")
def device(cuda_device: Any) -> Any:
    require_module("tensorflow")
    there = _tensorflow_device.devices(module.framework())
    require("tensorflow", "gpu:0" in there, "TensorFlow sees no GPU")
    cuda_device.use()
    return cuda_device


@contextmanager
def opened(device: Any, model: Path, **options: Any) -> Iterator[Backend]:
    told = Options(device=device.label, size=SIZE, stream=device.compute, **options)
    with closing(backends.load("tensorflow", model, told)) as loaded:
        yield loaded


def line(folder: Path, gain: float, channels: int = 1) -> Path:
    """The network y = gain * x, or y = x without arithmetic for a gain of 1."""
    tf = module.framework()
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, [None, None, None, channels], name="x")
        if gain == 1:
            tf.identity(x, name="y")
        else:
            tf.multiply(x, gain, name="y")
    path = folder / "net.pb"
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("name", "form"), [("espcn-x2", "nv12"), ("compact-x2", "rgb24")])
def test_frames_are_the_processors_and_stay_on_the_gpu(
    device: Any, name: str, form: str, batch: int
) -> None:
    text = f"dnn_processing=dnn_backend=tensorflow:model={name}:precision=float32"
    given = pictures(form, 7)
    expected = run(f"{text}:device=cpu", given)
    uploaded = [cuda_frames.upload(device, frame) for frame in given]
    before = device.traffic.up
    made = run(f"{text}:strict=1:batch_size={batch}", uploaded)
    assert device.traffic.up == before
    assert [frame.device for frame in made] == [device.label] * 7
    for one, other in zip(made, expected, strict=True):
        got = cuda_frames.to_host(device, one).planes[0].astype(int)
        # Float32 sums in another order may fall on the other side of a half.
        assert np.abs(got - other.planes[0]).max() <= 1


@pytest.mark.parametrize("form", ["nv12", "rgb24"])
def test_network_that_changes_nothing_gives_the_same_samples(
    device: Any, tmp_path: Path, form: str
) -> None:
    model = line(tmp_path, 1, 1 if form == "nv12" else 3)
    given = pictures(form, 5)
    uploaded = [cuda_frames.upload(device, frame) for frame in given]
    text = f"dnn_processing=dnn_backend=tensorflow:model={model}:precision=float32:strict=1"
    for one, other in zip(run(f"{text}:batch_size=2", uploaded), given, strict=True):
        for plane, wanted in zip(
            cuda_frames.to_host(device, one).planes, other.planes, strict=True
        ):
            assert np.array_equal(plane, wanted)


def test_jobs_come_behind_what_is_in_the_stream(device: Any, tmp_path: Path) -> None:
    """The input is filled behind a kernel that runs for about a second."""
    import cupy

    code = f"""extern "C" __global__ void idle() {{
        long long start = clock64();
        while (clock64() - start < {CYCLES}LL);
    }}"""
    idle = cupy.RawKernel(code, "idle")
    with opened(device, line(tmp_path, 3)) as loaded, device.compute.owner:
        given = cupy.zeros((1, *SIZE, 1), np.float32)
        loaded.infer_async({"x": given}).result()
        idle((1,), (1,), ())
        given.fill(7)
        made = device.adopt(loaded.infer_async({"x": given}).result()["y"])
        assert bool((made == 21).all())
        assert bool((given == 7).all())


@pytest.mark.parametrize("gain", [1, 3])
def test_outputs_outlive_later_jobs_and_the_model(device: Any, tmp_path: Path, gain: int) -> None:
    import cupy

    with opened(device, line(tmp_path, gain)) as loaded, device.compute.owner:
        given = [cupy.full((1, *SIZE, 1), n, np.float32) for n in range(20)]
        made = [device.adopt(loaded.infer_async({"x": array}).result()["y"]) for array in given]
        pointers = {array.data.ptr for array in (*made, *given)}
        assert len(pointers) == len(made) + len(given)
        for array in given:
            array.fill(-1)
    del loaded
    with device.compute.owner:
        for number, array in enumerate(made):
            assert bool((array == gain * number).all())


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.FLOAT16])
def test_precisions_run(device: Any, precision: Precision) -> None:
    text = "dnn_processing=dnn_backend=tensorflow:model=compact-x2:strict=1"
    uploaded = [cuda_frames.upload(device, frame) for frame in pictures("rgb24", 1)]
    exact, made = (
        run(f"{text}:precision={told}", uploaded)[0] for told in (Precision.FLOAT32, precision)
    )
    one, other = (
        cuda_frames.to_host(device, frame).planes[0].astype(int) for frame in (exact, made)
    )
    # Half floats have 11 bits; noise is the worst of pictures for a network of 12 layers.
    assert np.abs(one - other).max() <= (0 if precision is Precision.FLOAT32 else 8)


def test_memory_is_taken_as_it_is_needed(device: Any, tmp_path: Path) -> None:
    free, _ = device.memory()
    with opened(device, line(tmp_path, 3)) as loaded:
        loaded.infer_async({"x": np.zeros((1, *SIZE, 1), np.float32)}).result()
        # Libraries and kernels take some hundred MiB; TensorFlow's own way is nearly all there is.
        assert free - device.memory()[0] < 2 << 30
