"""The TensorFlow backend: graphs, folders, sessions, and the conversions inside the graph."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends, sess_config
from avdnn.backends import Backend, Options, _cpu, _tensorflow_device
from avdnn.backends import tensorflow as module
from avdnn.errors import AvdnnError, DeviceError, InferenceError, ModelError, NonFiniteError
from avdnn.frame import Layout, Precision

from ..conftest import require_module

SIZE = (10, 14)

Graph = Callable[..., Path]


@pytest.fixture(scope="module")
def tf() -> Any:
    require_module("tensorflow")
    return module.framework()


@contextmanager
def opened(model: Path, **options: Any) -> Iterator[Backend]:
    with closing(backends.load("tensorflow", model, Options(**options))) as loaded:
        yield loaded


@pytest.fixture
def frozen(tf: Any, tmp_path: Path) -> Graph:
    """Writes a frozen graph: `make(x)` adds what follows the placeholder x."""

    def write(
        make: Callable[[Any], Any],
        shape: tuple[int | None, ...] = (1, None, None, 3),
        dtype: str = "float32",
        name: str = "x",
    ) -> Path:
        graph = tf.Graph()
        with graph.as_default():
            make(tf.compat.v1.placeholder(dtype, shape, name=name))
        path = tmp_path / "m.pb"
        path.write_bytes(graph.as_graph_def().SerializeToString())
        return path

    return write


def codes(channels: int = 3, count: int = 1, dtype: str = "uint8") -> np.ndarray:
    top = 256 if dtype == "uint8" else 1024
    made = np.random.default_rng(1).integers(0, top, (count, *SIZE, channels))
    return made.astype(dtype)


def run(loaded: Backend, array: np.ndarray, output: str = "y") -> np.ndarray:
    made = loaded.infer_async({loaded.info.inputs[0].name: array}).result()[output]
    assert isinstance(made, np.ndarray)
    return made


def scaled(array: np.ndarray, gain: float, peak: int = 255) -> np.ndarray:
    values = np.multiply(array, np.float32(1 / peak), dtype=np.float32) * np.float32(gain)
    return np.clip(np.rint(values * np.float32(peak)), 0, peak).astype(array.dtype)


def one_line(error: pytest.ExceptionInfo[AvdnnError], *words: str) -> None:
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 300
    for word in words:
        assert word in text


# ---- what a graph takes and gives --------------------------------------------------------------


def test_frozen_graph_says_what_it_takes(tf: Any, frozen: Graph) -> None:
    with opened(frozen(lambda x: tf.multiply(x, 0.5, name="y")), sample="uint8") as loaded:
        info = loaded.info
        assert info.inputs[0].shape == (1, -1, -1, 3)
        assert info.inputs[0].layout is Layout.NHWC
        assert info.inputs[0].dtype == info.outputs[0].dtype == "uint8"
        assert info.max_batch == 1
        assert info.facts["format"] == "TensorFlow GraphDef"
        assert np.array_equal(run(loaded, codes()), scaled(codes(), 0.5))


@pytest.mark.parametrize("port", ["", ":0"])
def test_names_go_with_and_without_port(tf: Any, frozen: Graph, port: str) -> None:
    model = frozen(lambda x: tf.multiply(x, 0.5, name="half"), name="picture")
    with opened(model, inputs=(f"picture{port}",), outputs=(f"half{port}",)) as loaded:
        assert loaded.info.inputs[0].name == "picture"
        assert loaded.info.outputs[0].name == "half"


def test_any_operation_can_be_an_output(tf: Any, frozen: Graph) -> None:
    model = frozen(lambda x: tf.multiply(tf.multiply(x, 0.5, name="inner"), 0.5, name="y"))
    with opened(model, sample="uint8", outputs=("inner",)) as loaded:
        assert np.array_equal(run(loaded, codes(), "inner"), scaled(codes(), 0.5))


def test_second_port_of_an_operation_can_be_an_output(tf: Any, frozen: Graph) -> None:
    model = frozen(lambda x: tf.split(tf.tile(x, [1, 1, 1, 2]), 2, axis=3, name="y"))
    with opened(model, sample="uint8", outputs=("y", "y:1")) as loaded:
        assert [spec.name for spec in loaded.info.outputs] == ["y", "y:1"]
        assert np.array_equal(run(loaded, codes(), "y:1"), codes())


def test_all_leaves_are_outputs_where_none_is_named(tf: Any, frozen: Graph) -> None:
    def make(x: Any) -> None:
        tf.multiply(x, 0.5, name="half")
        tf.reduce_mean(x, axis=[1, 2], name="mean")

    with opened(frozen(make), sample="uint8") as loaded:
        specs = {spec.name: spec for spec in loaded.info.outputs}
        assert set(specs) == {"half", "mean"}
        assert specs["mean"].dtype == "float32"
        assert specs["mean"].layout is None
        made = loaded.infer_async({"x": codes()}).result()
        assert made["mean"].shape == (1, 3)


@pytest.mark.parametrize(("side", "valid"), [("inputs", "picture"), ("outputs", "half")])
def test_wrong_name_lists_the_candidates(tf: Any, frozen: Graph, side: str, valid: str) -> None:
    model = frozen(lambda x: tf.multiply(x, 0.5, name="half"), name="picture")
    with pytest.raises(ModelError, match="nonesuch") as error:
        backends.load("tensorflow", model, Options(**{side: ("nonesuch:0",)}))
    one_line(error, "m.pb", valid)


def test_graph_without_placeholder_is_refused(tf: Any, tmp_path: Path) -> None:
    graph = tf.Graph()
    with graph.as_default():
        tf.identity(tf.constant(1.0), name="y")
    (tmp_path / "m.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with pytest.raises(ModelError, match="no placeholder") as error:
        backends.load("tensorflow", tmp_path / "m.pb", Options())
    one_line(error, "m.pb")


def test_codes_go_through_a_graph_of_codes(tf: Any, frozen: Graph) -> None:
    model = frozen(lambda x: tf.bitwise.invert(x, name="y"), dtype="uint8")
    with opened(model, sample="uint8") as loaded:
        assert loaded.info.inputs[0].dtype == "uint8"
        assert np.array_equal(run(loaded, codes()), 255 - codes())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_graph_of_short_floats_runs(tf: Any, frozen: Graph, dtype: str) -> None:
    model = frozen(lambda x: tf.multiply(x, tf.constant(0.5, dtype), name="y"), dtype=dtype)
    with opened(model, sample="uint8") as loaded:
        # bfloat16 has 8 bits of mantissa: half a code of 255.
        assert np.abs(run(loaded, codes()).astype(int) - scaled(codes(), 0.5)).max() <= 1


def test_nchw_graph_can_be_declared(tf: Any, frozen: Graph) -> None:
    model = frozen(lambda x: tf.multiply(x, 0.5, name="y"), shape=(1, 3, None, None))
    given = np.ascontiguousarray(codes().transpose(0, 3, 1, 2))
    with opened(model, sample="uint8", layout=Layout.NCHW, size=SIZE) as loaded:
        assert loaded.info.inputs[0].size == (-1, -1)
        assert np.array_equal(run(loaded, given), scaled(given, 0.5))


def test_graph_of_unknown_shape_runs(tf: Any, tmp_path: Path) -> None:
    graph = tf.Graph()
    with graph.as_default():
        tf.multiply(tf.compat.v1.placeholder(tf.float32, name="x"), 0.5, name="y")
    (tmp_path / "m.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with opened(tmp_path / "m.pb", sample="uint8") as loaded:
        assert loaded.info.inputs[0].shape == (-1, -1, -1, -1)
        assert loaded.info.max_batch is None
        assert np.array_equal(run(loaded, codes()), scaled(codes(), 0.5))


def test_operation_init_runs_first(tf: Any, tmp_path: Path) -> None:
    graph = tf.Graph()
    with graph.as_default():
        gain = tf.compat.v1.get_variable("gain", initializer=0.5, use_resource=True)
        x = tf.compat.v1.placeholder(tf.float32, (1, None, None, 1), name="x")
        tf.multiply(x, gain.read_value(), name="y")
        tf.group(gain.initializer, name="init")
    (tmp_path / "m.pb").write_bytes(graph.as_graph_def().SerializeToString())
    with opened(tmp_path / "m.pb", sample="uint8") as loaded:
        assert np.array_equal(run(loaded, codes(1)), scaled(codes(1), 0.5))


# ---- sizes and batches -------------------------------------------------------------------------


def test_fixed_size_is_changed_where_the_graph_allows_it(tf: Any, frozen: Graph) -> None:
    model = frozen(lambda x: tf.multiply(x, 0.5, name="y"), shape=(1, 4, 4, 3))
    with opened(model, sample="uint8", size=SIZE) as loaded:
        assert loaded.info.inputs[0].size == SIZE
        assert loaded.info.reshapeable
        assert loaded.info.facts["reshaped from"] == "4x4"
        assert np.array_equal(run(loaded, codes()), scaled(codes(), 0.5))


def test_fixed_size_stays_where_the_graph_has_it_inside(tf: Any, frozen: Graph) -> None:
    make = lambda x: tf.multiply(tf.reshape(x, (1, 4, 4, 3)), 0.5, name="y")  # noqa: E731
    with opened(frozen(make, shape=(1, 4, 4, 3)), sample="uint8", size=SIZE) as loaded:
        assert loaded.info.inputs[0].size == (4, 4)
        assert not loaded.info.reshapeable


def test_batch_is_changed_where_the_graph_allows_it(tf: Any, frozen: Graph) -> None:
    model = frozen(lambda x: tf.multiply(x, 0.5, name="y"))
    with opened(model, sample="uint8", batch_size=3) as loaded:
        assert loaded.info.max_batch == 3
        assert np.array_equal(run(loaded, codes(count=3)), scaled(codes(count=3), 0.5))


def test_batch_that_is_fixed_inside_is_an_error(tf: Any, frozen: Graph) -> None:
    make = lambda x: tf.multiply(x, tf.ones((1, 4, 4, 3))[:1], name="z")  # noqa: E731
    fixed = frozen(lambda x: tf.reshape(make(x), (1, 4, 4, 3), name="y"), shape=(1, 4, 4, 3))
    with pytest.raises(ModelError, match="batch_size=2") as error:
        backends.load("tensorflow", fixed, Options(batch_size=2))
    one_line(error, "m.pb")


def test_warm_up_runs_at_the_size_to_come_and_is_told(tf: Any, frozen: Graph) -> None:
    model = frozen(lambda x: tf.multiply(x, 0.5, name="y"))
    with opened(model, size=SIZE) as loaded:
        assert loaded.info.facts["warm-up"].endswith("s at 14x10")


def test_graph_that_cannot_run_at_the_size_to_come_fails_at_load(tf: Any, frozen: Graph) -> None:
    model = frozen(lambda x: tf.nn.depth_to_space(tf.nn.space_to_depth(x, 4), 4, name="y"))
    with pytest.raises(ModelError, match="divisible") as error:
        backends.load("tensorflow", model, Options(size=SIZE))
    one_line(error, "m.pb")


def test_run_that_fails_is_one_line(tf: Any, frozen: Graph) -> None:
    model = frozen(lambda x: tf.nn.depth_to_space(tf.nn.space_to_depth(x, 4), 4, name="y"))
    with opened(model) as loaded, pytest.raises(InferenceError, match="divisible") as error:
        run(loaded, codes().astype(np.float32))
    one_line(error)


# ---- conversions -------------------------------------------------------------------------------


def test_ten_bit_samples_are_converted_inside(tf: Any, frozen: Graph) -> None:
    given = codes(dtype="uint16")
    model = frozen(lambda x: tf.multiply(x, 2.0, name="y"))
    with opened(model, sample="uint16", peak=1023) as loaded:
        made = run(loaded, given)
    assert made.dtype == np.uint16
    assert np.array_equal(made, np.minimum(given.astype(int) * 2, 1023))


def test_ties_round_to_even(tf: Any, frozen: Graph) -> None:
    model = frozen(lambda x: tf.multiply(x, 0.5, name="y"), shape=(1, None, None, 1))
    given = np.arange(140, dtype=np.uint8).reshape(1, *SIZE, 1)
    with opened(model, sample="uint8") as loaded:
        assert np.array_equal(run(loaded, given), scaled(given, 0.5))


def test_scale_and_mean_go_in_and_come_back_out(tf: Any, frozen: Graph) -> None:
    model = frozen(lambda x: tf.identity(x, name="y"))
    with opened(model, sample="uint8", scale=58.0, mean=103.5) as loaded:
        assert np.array_equal(run(loaded, codes()), codes())


def test_output_that_is_the_input_is_copied(tf: Any, frozen: Graph) -> None:
    given = codes().astype(np.float32)
    with opened(frozen(lambda x: tf.identity(x, name="y"))) as loaded:
        made = run(loaded, given)
        assert not np.shares_memory(made, given)
        made[...] = 0
    assert given.any()


def test_value_that_is_no_number_names_the_item_of_the_batch(tf: Any, frozen: Graph) -> None:
    make = lambda x: tf.divide(1.0, 1.0 - x, name="y")  # noqa: E731
    model = frozen(make, shape=(None, None, None, 3))
    given = np.zeros((3, *SIZE, 3), np.uint8)
    given[1, 2, 3, 0] = 255
    with (
        opened(model, sample="uint8", outputs=("y",)) as loaded,
        pytest.raises(NonFiniteError, match="item 1 of the batch"),
    ):
        run(loaded, given)


# ---- SavedModel folders ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tf: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = gain * picture, gain a variable of 0.5."""

    class Half(tf.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.gain = tf.Variable(0.5)

        @tf.function(input_signature=[tf.TensorSpec((None, None, None, 3), name="picture")])  # type: ignore[untyped-decorator]
        def __call__(self, picture: Any) -> Any:
            return {"scaled": picture * self.gain}

    path = tmp_path_factory.mktemp("saved") / "half"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Half()
        tf.saved_model.save(made, str(path), signatures=made.__call__)
    return path


def test_saved_model_runs_by_its_signatures_names(folder: Path) -> None:
    with opened(folder, sample="uint8", size=SIZE) as loaded:
        assert loaded.info.inputs[0].name == "picture"
        assert loaded.info.outputs[0].name == "scaled"
        assert "serving_default" in loaded.info.facts["format"]
        assert loaded.info.max_batch is None
        assert np.array_equal(run(loaded, codes(), "scaled"), scaled(codes(), 0.5))


def test_file_inside_a_saved_model_names_its_folder(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"give its folder") as error:
        backends.load("tensorflow", folder / "saved_model.pb", Options())
    one_line(error, str(folder))


def test_folder_that_is_no_saved_model_is_refused(tf: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a model") as error:
        backends.load("tensorflow", tmp_path, Options())
    one_line(error, tmp_path.name)


def test_saved_model_without_its_variables_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes((folder / "saved_model.pb").read_bytes())
    with pytest.raises(ModelError, match="cannot read it") as error:
        backends.load("tensorflow", tmp_path, Options())
    one_line(error, tmp_path.name)


# ---- sessions and devices ----------------------------------------------------------------------


def config(tf: Any, **options: Any) -> Any:
    text = options.pop("sess_config", "")
    told = {"sess_config": text} if text else {}
    return _tensorflow_device.session_config(tf, "cpu", Options(config=told, **options))


def test_memory_grows_unless_the_configuration_says_otherwise(tf: Any) -> None:
    assert config(tf).gpu_options.allow_growth
    assert config(tf, sess_config="0x30012a0332").gpu_options.allow_growth
    fixed = sess_config.build(allow_growth=False, memory_fraction=0.25)
    made = config(tf, sess_config=fixed).gpu_options
    assert not made.allow_growth
    assert made.per_process_gpu_memory_fraction == 0.25


def test_configuration_is_honoured_in_both_directions(tf: Any) -> None:
    made = config(tf, sess_config="0x10022805320e09cdccccccccccec3f20012a01303801")
    assert made.intra_op_parallelism_threads == 2
    assert made.inter_op_parallelism_threads == 5
    assert made.gpu_options.per_process_gpu_memory_fraction == 0.9
    assert made.gpu_options.visible_device_list == "0"
    assert config(tf, sess_config="0x31012a0332").gpu_options.visible_device_list == "1"


def test_threads_are_those_that_are_asked_for(tf: Any) -> None:
    assert config(tf, threads=3).intra_op_parallelism_threads == 3
    assert config(tf).intra_op_parallelism_threads == _cpu.cores()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"threads": 2}, (1, 2)),
        ({"threads": 16}, (4, 5)),
        ({"nireq": 3}, (3, 3)),
        ({"asynchronous": False, "nireq": 3}, (1, 1)),
    ],
)
def test_runs_at_once_follow_the_cores_or_nireq(
    options: dict[str, Any], told: tuple[int, int]
) -> None:
    assert _tensorflow_device.threads(Options(**options)) == told


def test_built_configuration_is_what_tensorflow_writes(tf: Any) -> None:
    made = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=300)
    made.gpu_options.visible_device_list = "0,1"
    made.gpu_options.per_process_gpu_memory_fraction = 0.3
    text = sess_config.build(visible_devices="0,1", memory_fraction=0.3, intra_threads=300)
    assert text == f"0x{made.SerializeToString().hex()}"


@pytest.mark.parametrize("text", ["0xdeadbeef", "hello"])
def test_configuration_that_is_none_is_refused(tf: Any, frozen: Graph, text: str) -> None:
    model = frozen(lambda x: tf.identity(x, name="y"))
    with pytest.raises(ModelError, match=text) as error:
        backends.load("tensorflow", model, Options(config={"sess_config": text}))
    one_line(error, "sess_config")


@pytest.mark.parametrize("device", ["gpu:97", "abacus", "cuda:97"])
def test_device_that_is_not_there_lists_those_that_are(tf: Any, frozen: Graph, device: str) -> None:
    model = frozen(lambda x: tf.identity(x, name="y"))
    with pytest.raises(DeviceError, match="cpu") as error:
        backends.load("tensorflow", model, Options(device=device))
    one_line(error, device)


def test_bfloat16_is_for_processors_that_have_it(
    tf: Any, frozen: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = frozen(lambda x: tf.multiply(x, 0.5, name="y"))
    monkeypatch.setattr(_cpu, "precisions", lambda: (Precision.FLOAT32,))
    with pytest.raises(DeviceError, match="bfloat16"):
        backends.load("tensorflow", model, Options(precision=Precision.BFLOAT16))
    monkeypatch.setattr(_cpu, "precisions", lambda: (Precision.BFLOAT16, Precision.FLOAT32))
    with opened(model, sample="uint8", precision=Precision.BFLOAT16) as loaded:
        assert loaded.info.precision is Precision.BFLOAT16
        assert np.abs(run(loaded, codes()).astype(int) - scaled(codes(), 0.5)).max() <= 1


# ---- bad files ---------------------------------------------------------------------------------


def test_custom_operation_that_is_missing_is_named(tf: Any, frozen: Graph) -> None:
    model = frozen(lambda x: tf.identity(x, name="y"))
    definition = tf.compat.v1.GraphDef.FromString(model.read_bytes())
    next(node for node in definition.node if node.name == "y").op = "Frobnicate"
    model.write_bytes(definition.SerializeToString())
    with pytest.raises(ModelError, match="Frobnicate") as error:
        backends.load("tensorflow", model, Options())
    one_line(error, "m.pb", "custom operation")


def test_another_backends_file_names_the_backend(tf: Any, tmp_path: Path) -> None:
    (tmp_path / "m.pb").write_bytes(b"FFMPEGDNNNATIVE" + bytes(32))
    with pytest.raises(ModelError, match="native does") as error:
        backends.load("tensorflow", tmp_path / "m.pb", Options())
    one_line(error, "m.pb")


def test_loading_is_silent(tf: Any, frozen: Graph) -> None:
    model = frozen(lambda x: tf.multiply(x, 0.5, name="y"))
    code = (
        "import sys; from pathlib import Path; from avdnn import backends;"
        "backends.load('tensorflow', Path(sys.argv[1]), backends.Options(size=(8, 8))).close()"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    env.pop("TF_CPP_MIN_LOG_LEVEL", None)
    child = subprocess.run(
        [sys.executable, "-c", code, str(model)],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )
    assert (child.returncode, child.stdout, child.stderr) == (0, "", "")
