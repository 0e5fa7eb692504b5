"""The native backend against loops over pixels, against FFmpeg 5.1, and on broken files."""

from __future__ import annotations

import shutil
import subprocess
import threading
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn.backends import Options, load, native
from avdnn.backends import _native_blas as blas
from avdnn.backends import _native_model as nm
from avdnn.backends import _native_run as run
from avdnn.backends._native_file import write
from avdnn.errors import DeviceError, InferenceError, ModelError
from avdnn.frame import Layout, Precision

from ..conftest import require
from . import native_loops as loops

FREE = (1, -1, -1, 1)
# float32 sums of a few hundred products against float64: a few units in the seventh digit.
CLOSE: Mapping[str, float] = {"rtol": 2e-5, "atol": 2e-6}


def weights(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / 3


def picture(height: int, width: int, channels: int = 1, seed: int = 1) -> Any:
    return np.random.default_rng(seed).random((height, width, channels), np.float32)


def conv(source: str, target: str, inputs: int, outputs: int, size: int = 3, **rest: Any) -> Any:
    bias = rest.pop("bias", weights(outputs, seed=2))
    return nm.Conv2d(source, target, weights(outputs, size, size, inputs), bias, **rest)


def pad(*pairs: tuple[int, int], mode: nm.PadMode = nm.PadMode.REFLECT) -> nm.MirrorPad:
    return nm.MirrorPad("x", "y", mode, ((0, 0), *pairs, *[(0, 0)] * (3 - len(pairs))))


SAVE = Callable[[Sequence[nm.Layer], int], Path]


@pytest.fixture
def save(tmp_path: Path) -> SAVE:
    def saved(layers: Sequence[nm.Layer], channels: int = 1) -> Path:
        path = tmp_path / "net.model"
        write(path, nm.model(layers, {"x": (1, -1, -1, channels)}))
        return path

    return saved


def infer(path: Path, x: Any, **options: Any) -> Any:
    backend = load("native", path, Options(**options))
    name = backend.info.outputs[0].name
    try:
        return backend.infer_async({"x": x[None]}).result(60)[name][0]
    finally:
        backend.close()


PADDINGS = list(nm.Padding)
ACTIVATIONS = list(nm.Activation)
DOMAINS = {
    nm.UnaryOp.TAN: (2.0, -1.0),
    nm.UnaryOp.ASIN: (1.8, -0.9),
    nm.UnaryOp.ACOS: (1.8, -0.9),
    nm.UnaryOp.ATANH: (1.8, -0.9),
    nm.UnaryOp.ACOSH: (3.0, 1.1),
}
LAYERS: dict[str, tuple[Sequence[nm.Layer], int]] = {
    **{
        f"conv {padding.name} {size}x{size} dilation {dilation}": (
            [conv("x", "y", 2, 3, size, padding=padding, dilation=dilation)],
            2,
        )
        for padding in PADDINGS
        for size, dilation in ((1, 1), (2, 1), (3, 1), (3, 2), (4, 1), (5, 1))
    },
    **{
        f"scatter {padding.name} {size}x{size} dilation {dilation}": (
            [conv("x", "y", 7, 2, size, padding=padding, dilation=dilation)],
            7,
        )
        for padding in PADDINGS
        for size, dilation in ((2, 1), (3, 1), (3, 3), (4, 2), (5, 1))
    },
    **{f"conv {kind.name}": ([conv("x", "y", 1, 2, activation=kind)], 1) for kind in ACTIVATIONS},
    **{
        f"scatter {kind.name}": ([conv("x", "y", 4, 1, activation=kind)], 4) for kind in ACTIVATIONS
    },
    "conv without bias": ([conv("x", "y", 2, 3, bias=None)], 2),
    **{
        f"dense {kind.name}": (
            [nm.Dense("x", "y", weights(3, 2), weights(3, seed=2), kind)],
            2,
        )
        for kind in ACTIVATIONS
    },
    "depth to space": ([nm.DepthToSpace("x", "y", 2)], 8),
    "depth to space 3": ([nm.DepthToSpace("x", "y", 3)], 9),
    "pad reflect": ([pad((2, 3), (1, 4))], 2),
    "pad symmetric": ([pad((2, 5), (3, 0), mode=nm.PadMode.SYMMETRIC)], 2),
    "pad channels": ([pad((0, 0), (0, 0), (1, 2))], 3),
    "pad zeros": ([pad((2, 1), (0, 3), mode=nm.PadMode.CONSTANT)], 2),
    "maximum": ([nm.Maximum("x", "y", 0.5)], 2),
    **{
        f"pool {padding.name} {size} stride {stride}": (
            [nm.AvgPool("x", "y", size, stride, padding)],
            2,
        )
        for padding in (nm.Padding.VALID, nm.Padding.SAME)
        for size, stride in ((1, 1), (2, 2), (3, 1), (3, 2), (2, 3), (5, 4))
    },
    **{
        f"{op.name} number left": ([nm.MathBinary(7.5, "x", "y", op)], 1)
        for op in nm.BinaryOp
        if op is not nm.BinaryOp.FLOORMOD
    },
    **{
        f"{op.name} number right": ([nm.MathBinary("x", 0.3, "y", op)], 1)
        for op in nm.BinaryOp
        if op is not nm.BinaryOp.FLOORMOD
    },
    "FLOORMOD": (
        [
            nm.MathBinary("x", 40.0, "scaled", nm.BinaryOp.MUL),
            nm.MathBinary("scaled", 17.0, "signed", nm.BinaryOp.SUB),
            nm.MathBinary("signed", 5.5, "y", nm.BinaryOp.FLOORMOD),
        ],
        1,
    ),
    "operands": (
        [
            conv("x", "a", 1, 1, 5),
            nm.MathBinary("x", "a", "b", nm.BinaryOp.SUB),
            nm.MathBinary("b", "a", "y", nm.BinaryOp.MUL),
        ],
        1,
    ),
    **{
        f"unary {op.name}": (
            [
                nm.MathBinary("x", factor, "s", nm.BinaryOp.MUL),
                nm.MathBinary("s", offset, "t", nm.BinaryOp.ADD),
                nm.MathUnary("t", "y", op),
            ],
            1,
        )
        for op, factor, offset in (
            (op, *DOMAINS.get(op, (6.0, -3.0)))  # the picture's 0..1 to where op is defined
            for op in nm.UnaryOp
        )
    },
}


@pytest.mark.parametrize("name", LAYERS)
def test_layer_equals_loops(name: str, save: SAVE, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PIXELS", 24)  # two rows at a time: borders between blocks
    layers, channels = LAYERS[name]
    x = picture(13, 12, channels)
    wanted = loops.run(nm.model(layers, {"x": (1, -1, -1, channels)}), x)["y"]
    found = infer(save(layers, channels), x, config={"conv2d_threads": "1"})
    np.testing.assert_allclose(found, wanted, **CLOSE)
    bands = infer(save(layers, channels), x, config={"conv2d_threads": "3"})
    np.testing.assert_allclose(bands, found, rtol=1e-5, atol=1e-6)  # other shapes of products


def gray(name: str) -> Sequence[nm.Layer]:
    """A network of LAYERS with one channel in and one out, which FFmpeg can run on grayf32."""
    layers, channels = LAYERS[name]
    size = loops.run(nm.model(layers, {"x": (1, -1, -1, channels)}), picture(9, 9, channels))
    outputs = size["y"].shape[2]
    first = conv("x", "in", 1, channels, 1)
    last = nm.Dense("out", "y", weights(1, outputs, seed=4))
    renamed = {"x": "in", "y": "out"}
    return [first, *[_rename(layer, renamed) for layer in layers], last]


def _rename(layer: nm.Layer, names: Mapping[str, str]) -> nm.Layer:
    def new(side: Any) -> Any:
        return names.get(side, side)

    if isinstance(layer, nm.MathBinary):
        return replace(
            layer, left=new(layer.left), right=new(layer.right), target=new(layer.target)
        )
    return replace(layer, source=new(layer.source), target=new(layer.target))


# FFmpeg pads with whatever lies in memory; it has no value for "pad zeros" to compare.
ORACLE = [name for name in LAYERS if name != "pad zeros" and "ACOSH" not in name]


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[Path, Any]]:
    """For each network of ORACLE its file, and what FFmpeg's own native backend makes of it.

    One run of ffmpeg for all of them: starting it takes longer than the networks do.
    """
    tool = shutil.which("ffmpeg") or "false"
    about = [tool, "-hide_banner", "-h", "filter=dnn_processing"]
    text = subprocess.run(about, capture_output=True, text=True, check=False).stdout
    require("ffmpeg", "native backend" in text, "no ffmpeg with the native DNN backend")
    folder = tmp_path_factory.mktemp("oracle")
    raw = ["-f", "rawvideo", "-pix_fmt", "grayf32le"]
    command = [tool, "-v", "error", *raw, "-s", f"{X.shape[1]}x{X.shape[0]}", "-i", "-"]
    for number, name in enumerate(ORACLE):
        write(folder / f"{number}.model", nm.model(gray(name), {"x": FREE}))
        vf = f"dnn_processing=dnn_backend=native:model={number}.model:input=x:output=y"
        command += ["-vf", vf, *raw, f"{number}.raw"]
    done = subprocess.run(
        command, input=X.tobytes(), capture_output=True, check=False, cwd=folder, timeout=100
    )
    assert done.returncode == 0, done.stderr.decode()
    return {
        name: (folder / f"{number}.model", np.fromfile(folder / f"{number}.raw", np.float32))
        for number, name in enumerate(ORACLE)
    }


X = picture(21, 18)


@pytest.mark.parametrize("name", ORACLE)
def test_layer_equals_ffmpeg(name: str, oracle: Mapping[str, tuple[Path, Any]]) -> None:
    path, wanted = oracle[name]
    np.testing.assert_allclose(infer(path, X).ravel(), wanted, **CLOSE)


SMALL = [
    nm.MirrorPad("x", "p", nm.PadMode.REFLECT, ((0, 0), (2, 2), (2, 2), (0, 0))),
    conv("p", "a", 1, 8, 5, padding=nm.Padding.VALID, activation=nm.Activation.TANH),
    conv("a", "b", 8, 4, activation=nm.Activation.SIGMOID),
    nm.DepthToSpace("b", "y", 2),
]


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (16, 16), (47, 63), (70, 5), (5, 700)])
def test_every_size_runs(shape: tuple[int, int], save: SAVE) -> None:
    layers = [conv("x", "a", 1, 8, 5), conv("a", "b", 8, 4), nm.DepthToSpace("b", "y", 2)]
    found = infer(save(layers, 1), picture(*shape), config={"conv2d_threads": "4"})
    assert found.shape == (2 * shape[0], 2 * shape[1], 1)
    wanted = loops.run(nm.model(layers, {"x": FREE}), picture(*shape))["y"]
    np.testing.assert_allclose(found, wanted, **CLOSE)


def test_shapes_are_known_without_a_run(save: SAVE) -> None:
    backend = load("native", save(SMALL, 1), Options())
    assert dict(backend.output_shapes({"x": (2, 30, 40, 1)})) == {"y": (2, 60, 80, 1)}
    backend.close()


def test_size_in_the_file_becomes_the_wanted_size(tmp_path: Path) -> None:
    path = tmp_path / "fixed.model"
    write(path, nm.model(SMALL, {"x": (1, 16, 24, 1)}))
    fixed = load("native", path, Options())
    assert fixed.info.inputs[0].shape == (-1, 16, 24, 1)
    assert fixed.info.outputs[0].shape == (-1, 32, 48, 1)
    assert fixed.info.reshapeable
    fixed.close()
    other = load("native", path, Options(size=(20, 30)))
    assert other.info.outputs[0].shape == (-1, 40, 60, 1)
    other.close()


def test_batch_equals_single_pictures(save: SAVE) -> None:
    backend = load("native", save(SMALL, 1), Options())
    frames = np.stack([picture(20, 30, seed=seed) for seed in range(3)])
    together = backend.infer_async({"x": frames}).result()["y"]
    for index in range(3):
        alone = backend.infer_async({"x": frames[index : index + 1]}).result()["y"]
        np.testing.assert_array_equal(together[index], alone[0])
    backend.close()


def test_inputs_may_have_any_strides(save: SAVE) -> None:
    backend = load("native", save(SMALL, 1), Options())
    x = picture(40, 60)[None]
    strided = np.repeat(x, 2, 2)[:, ::-1, ::2]
    expected = backend.infer_async({"x": np.ascontiguousarray(strided)}).result()["y"]
    np.testing.assert_array_equal(backend.infer_async({"x": strided}).result()["y"], expected)
    backend.close()


def test_inner_operands_can_be_outputs(save: SAVE) -> None:
    x = picture(12, 10)
    backend = load("native", save(SMALL, 1), Options(outputs=("y", "a")))
    assert [spec.name for spec in backend.info.outputs] == ["y", "a"]
    assert [spec.channels for spec in backend.info.outputs] == [1, 8]
    found = backend.infer_async({"x": x[None]}).result()
    wanted = loops.run(nm.model(SMALL, {"x": FREE}), x)
    for name in ("y", "a"):
        np.testing.assert_allclose(found[name][0], wanted[name], **CLOSE)
    backend.close()


def test_wrong_names_list_the_right_ones(save: SAVE) -> None:
    path = save(SMALL, 1)
    with pytest.raises(ModelError, match=r"no input 'z'; there is 'x'"):
        load("native", path, Options(inputs=("z",)))
    with pytest.raises(ModelError, match=r"no output 'z'; there is 'y'"):
        load("native", path, Options(outputs=("z",)))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"precision": Precision.FLOAT16}, "has float32 only"),
        ({"layout": Layout.NCHW}, "native models are nhwc"),
        ({"config": {"conv2d_threads": "many"}}, "a number is wanted"),
        ({"config": {"threads_of_conv": "2"}}, "conv2d_threads"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(
    options: dict[str, Any], reason: str, save: SAVE
) -> None:
    with pytest.raises(ModelError, match=reason):
        load("native", save(SMALL, 1), Options(**options))


def test_another_device_is_not_available(save: SAVE) -> None:
    with pytest.raises(DeviceError, match="no device cuda; there are: cpu"):
        load("native", save(SMALL, 1), Options(device="cuda"))


def test_a_picture_that_is_too_small_is_an_inference_error(save: SAVE) -> None:
    backend = load(
        "native", save([conv("x", "y", 1, 1, 5, padding=nm.Padding.VALID)], 1), Options()
    )
    with pytest.raises(InferenceError, match="too small for a 5x5"):
        backend.infer_async({"x": picture(3, 9)[None]}).result()
    with pytest.raises(ModelError, match="too small for a 5x5"):
        backend.output_shapes({"x": (1, 3, 9, 1)})
    backend.close()


@pytest.mark.parametrize(
    "inputs",
    [
        {"x": picture(8, 8, 3)[None]},
        {"x": picture(8, 8)},
        {"x": picture(8, 8)[None].astype(np.float64)},
        {"z": picture(8, 8)[None]},
        {},
    ],
)
def test_wrong_arrays_fail_in_the_future(inputs: dict[str, Any], save: SAVE) -> None:
    backend = load("native", save(SMALL, 1), Options())
    future = backend.infer_async(inputs)
    with pytest.raises(InferenceError, match=r"wanted|not float32"):
        future.result()
    backend.close()


def test_many_jobs_in_flight_give_their_own_results(save: SAVE) -> None:
    backend = load("native", save(SMALL, 1), Options(nireq=3))
    assert backend.info.max_in_flight == 3
    frames = [picture(30, 40, seed=seed)[None] for seed in range(8)]
    futures = [backend.infer_async({"x": frame}) for frame in frames]
    for frame, future in zip(frames, futures, strict=True):
        alone = backend.infer_async({"x": frame}).result()["y"]
        np.testing.assert_array_equal(future.result()["y"], alone)
    backend.close()
    backend.close()


def test_closing_waits_for_running_jobs_and_ends_threads(save: SAVE) -> None:
    before = threading.active_count()
    backend = load("native", save(SMALL, 1), Options())
    future = backend.infer_async({"x": picture(200, 300)[None]})
    backend.close()
    assert future.done()
    assert threading.active_count() == before


def test_synchronous_means_one_in_flight(save: SAVE) -> None:
    backend = load("native", save(SMALL, 1), Options(asynchronous=False, nireq=4))
    assert backend.info.max_in_flight == 1
    backend.close()


def test_blas_has_its_threads_back_after_a_frame(save: SAVE) -> None:
    threads = blas.threads()
    if threads is None:
        pytest.skip("NumPy has another BLAS than OpenBLAS")
    before = threads.read()
    with blas.one_thread():
        assert threads.read() == 1
        infer(save(SMALL, 1), picture(16, 16))
        assert threads.read() == 1
    assert threads.read() == before


def test_memory_does_not_grow_with_height(save: SAVE) -> None:
    path = save([conv("x", "a", 1, 64, 3), conv("a", "y", 64, 1, 3)], 1)

    def peak(height: int) -> int:
        x = picture(height, 64)
        tracemalloc.start()
        infer(path, x, config={"conv2d_threads": "1"})
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(400)
    assert peak(4000) - peak(2000) < 2 * 4 * 64 * 2000  # the result itself, not 64 channels


def test_options_reach_the_tensors(save: SAVE) -> None:
    backend = load("native", save(SMALL, 1), Options(scale=1.0, mean=16.0, order="bgr"))
    for spec in (*backend.info.inputs, *backend.info.outputs):
        assert (spec.scale, spec.mean, spec.order) == (1.0, 16.0, "bgr")
    backend.close()


def test_description_names_numpy_and_the_cpu() -> None:
    assert native.describe()["version"] == np.__version__
    assert list(native.describe()["devices"]) == ["cpu"]
    assert native.precisions(Options()) == (Precision.FLOAT32,)
