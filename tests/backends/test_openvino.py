"""OpenVINO's particulars: names, shapes, conversions inside the graph, devices, cache."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends
from avdnn.backends import Backend, Options
from avdnn.errors import DeviceError, InferenceError, ModelError, NonFiniteError
from avdnn.frame import Layout, Precision

from ..conftest import require_module


@pytest.fixture(scope="module")
def ov() -> Any:
    require_module("openvino")
    from avdnn.backends.openvino import runtime

    return runtime()


@pytest.fixture
def save(ov: Any, tmp_path: Path) -> Callable[..., Path]:
    """Writes IR: save(shape, body) with body(x, ops) the output node or a list of them."""

    def write(shape: list[int], body: Callable[[Any, Any], Any], dtype: Any = np.float32) -> Path:
        ops = ov.opset8
        x = ops.parameter(shape, dtype, name="x")
        made = body(x, ops)
        nodes = made if isinstance(made, list) else [made]
        for index, node in enumerate(nodes):
            node.output(0).tensor.set_names({f"t{index}"})
        path = tmp_path / "net.xml"
        ov.save_model(ov.Model([ops.result(node) for node in nodes], [x], "net"), path, False)
        return path

    return write


@contextmanager
def opened(model: Path, **options: Any) -> Iterator[Backend]:
    with closing(backends.load("openvino", model, Options(**options))) as loaded:
        yield loaded


def run(loaded: Backend, array: np.ndarray) -> np.ndarray:
    (source,) = loaded.info.inputs
    made = loaded.infer_async({source.name: array}).result()
    result: np.ndarray = made[loaded.info.outputs[0].name]
    return result


def doubled(x: Any, ops: Any) -> Any:
    """Every sample four times: twice the height and width."""
    wide = ops.concat([x, x, x, x], 1)
    return ops.depth_to_space(wide, "blocks_first", 2)


# ---- names -------------------------------------------------------------------------------------


def test_node_and_tensor_names_fit_with_and_without_port(save: Callable[..., Path]) -> None:
    def body(x: Any, ops: Any) -> Any:
        return ops.relu(x, name="net/last")

    model = save([1, 1, 4, 4], body)
    for output in ("net/last", "net/last:0", "t0", "t0:0"):
        with opened(model, inputs=("x:0",), outputs=(output,)) as loaded:
            assert loaded.info.outputs[0].name == "t0"


def test_outputs_come_in_the_order_asked_for(save: Callable[..., Path]) -> None:
    def body(x: Any, ops: Any) -> Any:
        return [ops.relu(x), ops.negative(x), ops.concat([x, x], 3)]

    model = save([1, 1, 2, 2], body)
    x = np.ones((1, 1, 2, 2), np.float32)
    with opened(model) as loaded:
        assert [spec.name for spec in loaded.info.outputs] == ["t0", "t1", "t2"]
    with opened(model, outputs=("t2", "t1")) as loaded:
        made = loaded.infer_async({"x": x}).result()
        assert list(made) == ["t2", "t1"]
        assert made["t2"].shape == (1, 1, 2, 4)
        assert (made["t1"] == -1).all()


def test_every_input_is_needed(ov: Any, tmp_path: Path) -> None:
    ops = ov.opset8
    a, b = (ops.parameter([1, 1, 2, 2], np.float32, name=name) for name in "ab")
    path = tmp_path / "two.xml"
    ov.save_model(ov.Model([ops.result(ops.add(a, b))], [a, b], "two"), path, False)
    with pytest.raises(ModelError, match="all its inputs are needed: a, b"):
        backends.load("openvino", path, Options(inputs=("a",)))
    one = np.ones((1, 1, 2, 2), np.float32)
    with opened(path, inputs=("b", "a")) as loaded:
        assert [spec.name for spec in loaded.info.inputs] == ["b", "a"]
        made = loaded.infer_async({"a": one, "b": 2 * one}).result()
        assert all((array == 3).all() for array in made.values())
        with pytest.raises(InferenceError, match="takes b, a, not a"):
            loaded.infer_async({"a": one}).result()


def test_failure_inside_the_network_is_one_line(ov: Any, tmp_path: Path) -> None:
    """Two inputs whose shapes fit the model, but not each other; the next job runs."""
    ops = ov.opset8
    a, b = (ops.parameter([1, 1, -1, -1], np.float32, name=name) for name in "ab")
    path = tmp_path / "two.xml"
    ov.save_model(ov.Model([ops.result(ops.add(a, b))], [a, b], "two"), path, False)
    small, large = (np.zeros((1, 1, side, side), np.float32) for side in (2, 3))
    with opened(path, nireq=1) as loaded:
        failed = loaded.infer_async({"a": small, "b": large})
        with pytest.raises(InferenceError, match="openvino: ") as error:
            failed.result()
        assert "\n" not in str(error.value)
        assert ".cpp" not in str(error.value)
        assert loaded.infer_async({"a": large, "b": large}).exception() is None


# ---- shapes ------------------------------------------------------------------------------------


def test_fixed_size_is_reshaped_to_the_frames(save: Callable[..., Path]) -> None:
    model = save([1, 1, 8, 8], doubled)
    with opened(model, size=(5, 7)) as loaded:
        assert loaded.info.inputs[0].size == (5, 7)
        assert loaded.info.reshapeable
        assert loaded.output_shapes({"x": (1, 1, 5, 7)}) == {"t0": (1, 1, 10, 14)}
        with pytest.raises(ModelError, match="takes 1x1x5x7, not 1x1x8x8"):
            loaded.output_shapes({"x": (1, 1, 8, 8)})


def test_input_resizable_zero_keeps_the_size(save: Callable[..., Path]) -> None:
    model = save([1, 1, 8, 8], doubled)
    with opened(model, size=(5, 7), config={"input_resizable": "0"}) as loaded:
        assert loaded.info.inputs[0].size == (8, 8)
        assert not loaded.info.reshapeable


def test_fixed_size_without_frames_says_whether_it_can_change(save: Callable[..., Path]) -> None:
    with opened(save([1, 1, 8, 8], doubled)) as loaded:
        assert loaded.info.inputs[0].size == (8, 8)
        assert loaded.info.reshapeable


@pytest.mark.parametrize("baked", ["shape", "output"])
def test_graph_with_a_baked_in_size_keeps_it(save: Callable[..., Path], baked: str) -> None:
    def shape(x: Any, ops: Any) -> Any:
        return ops.reshape(x, np.array([1, 1, 64, 1]), False)

    def output(x: Any, ops: Any) -> Any:
        mean = ops.reduce_mean(x, np.array([2, 3]), True)
        return ops.broadcast(mean, np.array([1, 1, 8, 8]))

    model = save([1, 1, 8, 8], shape if baked == "shape" else output)
    with opened(model, size=(5, 7)) as loaded:
        assert loaded.info.inputs[0].size == (8, 8)
        assert not loaded.info.reshapeable
        assert run(loaded, np.zeros((1, 1, 8, 8), np.float32)).size == 64
    with opened(model) as loaded:
        assert not loaded.info.reshapeable


def test_graph_that_takes_only_multiples_keeps_its_size_and_says_that_it_can_change(
    save: Callable[..., Path],
) -> None:
    """Two paths that meet again, as in a U-Net: odd sizes do not fit."""

    def body(x: Any, ops: Any) -> Any:
        halves = ops.space_to_depth(x, "blocks_first", 2)
        return ops.add(x, ops.depth_to_space(halves, "blocks_first", 2))

    model = save([1, 1, 8, 8], body)
    with opened(model, size=(5, 7)) as loaded:
        assert loaded.info.inputs[0].size == (8, 8)
        assert loaded.info.reshapeable
    with opened(model, size=(6, 10)) as loaded:
        assert loaded.info.inputs[0].size == (6, 10)


def test_free_size_takes_any_frame(save: Callable[..., Path]) -> None:
    with opened(save([-1, 1, -1, -1], doubled), sample="uint8") as loaded:
        assert loaded.info.inputs[0].shape == (1, 1, -1, -1)
        for rows, columns in ((3, 4), (6, 5)):
            x = np.full((1, 1, rows, columns), 9, np.uint8)
            assert loaded.output_shapes({"x": x.shape})["t0"] == (1, 1, 2 * rows, 2 * columns)
            made = run(loaded, x)
            assert made.shape == (1, 1, 2 * rows, 2 * columns)
            assert (made == 9).all()


@pytest.mark.parametrize("own", [-1, 1, 4])
def test_batch_is_set(save: Callable[..., Path], own: int) -> None:
    model = save([own, 1, 4, 4], doubled)
    with opened(model, batch_size=3) as loaded:
        assert loaded.info.max_batch == 3
        x = np.random.default_rng(0).random((3, 1, 4, 4), np.float32)
        assert np.array_equal(run(loaded, x)[:, :, ::2, ::2], x)
    with opened(model) as loaded:
        assert loaded.info.max_batch == 1


def test_baked_in_batch_is_kept_and_told(save: Callable[..., Path]) -> None:
    def body(x: Any, ops: Any) -> Any:
        return ops.reshape(x, np.array([2, 1, 4, 4]), False)

    model = save([2, 1, 4, 4], body)
    with opened(model) as loaded:
        assert loaded.info.max_batch == 2
    with pytest.raises(ModelError, match="fixed at 2; leave batch_size=3 out"):
        backends.load("openvino", model, Options(batch_size=3))


# ---- layouts and types -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ([1, 3, 8, 8], Layout.NCHW),
        ([1, 8, 8, 3], Layout.NHWC),
        ([1, -1, -1, 1], Layout.NHWC),
        ([1, 1, 8, 3], Layout.NCHW),
    ],
)
def test_layout_is_guessed_from_the_channels(
    save: Callable[..., Path], shape: list[int], layout: Layout
) -> None:
    with opened(save(shape, lambda x, ops: ops.relu(x))) as loaded:
        assert loaded.info.inputs[0].layout is layout
        assert loaded.info.outputs[0].layout is layout


def test_layout_option_wins_over_the_guess(save: Callable[..., Path]) -> None:
    model = save([1, 1, 8, 3], lambda x, ops: ops.relu(x))
    for options in ({"layout": Layout.NHWC}, {"config": {"layout": "nhwc"}}):
        with opened(model, size=(1, 9), **options) as loaded:
            assert loaded.info.inputs[0].shape == (1, 1, 9, 3)
    with pytest.raises(ModelError, match="none, nchw or nhwc"):
        backends.load("openvino", model, Options(config={"layout": "chwn"}))


def test_ten_bit_codes_are_rounded_half_to_even(save: Callable[..., Path]) -> None:
    model = save([1, 1, 1, 1024], lambda x, ops: ops.multiply(x, ops.constant(np.float32(0.5))))
    codes = np.arange(1024, dtype=np.uint16).reshape(1, 1, 1, 1024)
    with opened(model, sample="uint16", peak=1023) as loaded:
        assert loaded.info.inputs[0].dtype == loaded.info.outputs[0].dtype == "uint16"
        values = codes * np.float32(1 / 1023) * np.float32(0.5) * np.float32(1023)
        assert np.array_equal(run(loaded, codes), np.rint(values).astype(np.uint16))


def test_codes_are_clipped_to_the_peak(save: Callable[..., Path]) -> None:
    def body(x: Any, ops: Any) -> Any:
        return ops.subtract(ops.multiply(x, np.float32(4)), np.float32(1))

    with opened(save([1, 1, 1, 3], body), sample="uint16", peak=1023) as loaded:
        made = run(loaded, np.array([0, 512, 1023], np.uint16).reshape(1, 1, 1, 3))
        assert made.ravel().tolist() == [0, 1023, 1023]


@pytest.mark.parametrize("as_config", [True, False])
def test_scale_and_mean_are_what_the_model_sees(save: Callable[..., Path], as_config: bool) -> None:
    """A model that returns its input shows (x - mean) / scale; the codes come back as they were."""
    model = save([1, 1, 1, 256], lambda x, ops: [ops.relu(x), ops.squeeze(x, np.array([0, 1]))])
    numbers: dict[str, Any] = {"scale": 2.0, "mean": 5.0}
    options = {"config": {key: str(n) for key, n in numbers.items()}} if as_config else numbers
    codes = np.arange(256, dtype=np.uint8).reshape(1, 1, 1, 256)
    with opened(model, sample="uint8", **options) as loaded:
        made = loaded.infer_async({"x": codes}).result()
        assert np.array_equal(made["t0"].ravel()[5:], np.arange(5, 256))
        # one float32 rounding in each of the two steps
        assert np.allclose(made["t1"].ravel(), (np.arange(256) - 5) / 2, atol=1e-5)
    with opened(model, **options) as loaded:
        assert (loaded.info.inputs[0].scale, loaded.info.inputs[0].mean) == (2.0, 5.0)


def test_unusable_numbers_are_refused(save: Callable[..., Path]) -> None:
    model = save([1, 1, 2, 2], lambda x, ops: ops.relu(x))
    for config in ({"scale": "big"}, {"scale": "0"}, {"input_resizable": "maybe"}):
        with pytest.raises(ModelError, match=next(iter(config))):
            backends.load("openvino", model, Options(config=config))


def test_byte_model_takes_bytes_whatever_the_sample(save: Callable[..., Path]) -> None:
    model = save([1, 1, 2, 2], lambda x, ops: ops.add(x, np.uint8(1)), np.uint8)
    for sample in ("uint8", "float32"):
        with opened(model, sample=sample) as loaded:
            assert loaded.info.inputs[0].dtype == loaded.info.outputs[0].dtype == "uint8"
            assert run(loaded, np.full((1, 1, 2, 2), 7, np.uint8)).ravel().tolist() == [8] * 4


def test_half_precision_model_is_float32_outside(save: Callable[..., Path]) -> None:
    model = save([1, 1, 2, 2], lambda x, ops: ops.multiply(x, np.float16(0.5)), np.float16)
    with opened(model) as loaded:
        assert loaded.info.inputs[0].dtype == loaded.info.outputs[0].dtype == "float32"
        assert (run(loaded, np.ones((1, 1, 2, 2), np.float32)) == 0.5).all()


def test_outputs_that_are_no_pictures_stay_float(save: Callable[..., Path]) -> None:
    def body(x: Any, ops: Any) -> Any:
        return [ops.relu(x), ops.reduce_mean(x, np.array([2, 3]), False)]

    with opened(save([1, 3, 2, 2], body), sample="uint8") as loaded:
        made = loaded.infer_async({"x": np.full((1, 3, 2, 2), 255, np.uint8)}).result()
        assert made["t0"].dtype == np.uint8
        assert made["t1"].dtype == np.float32
        assert made["t1"].tolist() == [[1.0, 1.0, 1.0]]


def test_not_finite_names_the_output_and_the_item(save: Callable[..., Path]) -> None:
    def body(x: Any, ops: Any) -> Any:
        return ops.log(ops.subtract(x, np.float32(0.5)))

    x = np.full((3, 1, 2, 2), 255, np.uint8)
    with opened(save([3, 1, 2, 2], body), sample="uint8", batch_size=3) as loaded:
        loaded.infer_async({"x": x}).result()
        x[1, 0, 1, 1] = 3
        with pytest.raises(NonFiniteError, match=r"output t0 .*item 1 of the batch"):
            loaded.infer_async({"x": x}).result()


# ---- devices -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "device", ["", "cpu", "CPU", "AUTO", "AUTO:CPU", "MULTI:CPU", "HETERO:CPU"]
)
def test_device_that_runs_is_told(save: Callable[..., Path], device: str) -> None:
    model = save([1, 1, 2, 2], lambda x, ops: ops.relu(x))
    with opened(model, device=device) as loaded:
        assert loaded.info.device == "CPU"
        assert (run(loaded, np.ones((1, 1, 2, 2), np.float32)) == 1).all()


@pytest.mark.parametrize("device", ["GPU.7", "MULTI:CPU,GPU.7", "HETERO:GPU.7,CPU", "AUTO:GPU.7"])
def test_missing_device_lists_those_that_there_are(save: Callable[..., Path], device: str) -> None:
    model = save([1, 1, 2, 2], lambda x, ops: ops.relu(x))
    with pytest.raises(DeviceError, match=r"no device GPU.7; there are: .*CPU"):
        backends.load("openvino", model, Options(device=device))
    with pytest.raises(DeviceError, match=r"GPU.7"):
        backends.module("openvino").precisions(Options(device=device))


def test_precision_that_the_device_lacks_is_refused(save: Callable[..., Path]) -> None:
    model = save([1, 1, 2, 2], lambda x, ops: ops.relu(x))
    able = backends.module("openvino").precisions(Options())
    assert able[-1] is Precision.FLOAT32
    for precision in (Precision.BFLOAT16, Precision.FLOAT16):
        if precision in able:
            with opened(model, precision=precision) as loaded:
                assert loaded.info.precision is precision
        else:
            with pytest.raises(DeviceError, match=f"does not compute in {precision}"):
                backends.load("openvino", model, Options(precision=precision))


def test_requests_in_flight_follow_nireq(save: Callable[..., Path]) -> None:
    model = save([1, 1, 2, 2], lambda x, ops: ops.relu(x))
    with opened(model, nireq=5) as loaded:
        assert loaded.info.max_in_flight == 5
    with opened(model, nireq=5, asynchronous=False) as loaded:
        assert loaded.info.max_in_flight == 1
    with opened(model) as loaded:
        assert loaded.info.max_in_flight >= 2


def test_compiled_model_is_kept_in_the_cache_folder(
    save: Callable[..., Path], tmp_path: Path
) -> None:
    model = save([1, 1, 2, 2], doubled)
    cache = tmp_path / "cache"
    for _ in range(2):
        with opened(model, cache=cache, sample="uint8") as loaded:
            assert (run(loaded, np.full((1, 1, 2, 2), 3, np.uint8)) == 3).all()
        assert len(list(cache.glob("*.blob"))) == 1


def test_telemetry_is_not_imported(ov: Any) -> None:
    assert sys.modules["openvino_telemetry"] is None


# ---- files -------------------------------------------------------------------------------------


def test_missing_weights_are_named(save: Callable[..., Path]) -> None:
    model = save([1, 1, 2, 2], lambda x, ops: ops.multiply(x, np.float32(2)))
    model.with_suffix(".bin").unlink()
    with pytest.raises(ModelError, match=r"net\.xml: openvino cannot read it: .*bin"):
        backends.load("openvino", model, Options())


def test_foreign_file_names_its_reader(tmp_path: Path) -> None:
    require_module("openvino")
    model = tmp_path / "foreign.xml"
    model.write_bytes(b"FFMPEGDNNNATIVE" + bytes(40))
    with pytest.raises(ModelError, match=r"an FFmpeg native model, .* native does"):
        backends.load("openvino", model, Options())


def test_xml_that_is_no_network_is_refused(tmp_path: Path) -> None:
    require_module("openvino")
    model = tmp_path / "page.xml"
    model.write_text("<?xml version='1.0'?><page/>")
    with pytest.raises(ModelError, match="not a model file"):
        backends.load("openvino", model, Options())


def test_seed_ir_of_2020_is_read_and_reshaped(seed: Path) -> None:
    require_module("openvino")
    with opened(seed / "espcn1080p.xml", outputs=("espcn/prediction",), size=(20, 30)) as loaded:
        assert loaded.info.outputs[0].shape == (1, 1, 40, 60)
        assert loaded.info.facts["format"] == "OpenVINO IR"


def test_signals_are_survived_after_models_were_closed_in_any_order(
    save: Callable[..., Path],
) -> None:
    """OpenVINO's cores leave a dangling signal stack when they do not go in reverse order."""
    model = save([1, 1, 4, 4], lambda x, ops: ops.relu(x))
    code = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from avdnn.backends import Options, openvino\n"
        f"model = Path({str(model)!r})\n"
        "first, second = (openvino.load(model, Options()) for _ in range(2))\n"
        "first.close()\n"
        "del first\n"
        "second.close()\n"
        "del second\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('survived', flush=True))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "survived\n", done.stderr
