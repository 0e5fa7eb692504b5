"""TensorFlow on arrays of a GPU: functions and capsules are real, the GPU is host memory."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends, cuda
from avdnn.backends import Backend, Options, _tensorflow_cuda, _tensorflow_device
from avdnn.backends import tensorflow as module
from avdnn.backends._tensorflow_graph import Runnable
from avdnn.cuda import frames as cuda_frames
from avdnn.errors import DeviceError, HostMemoryOnly, InferenceError
from avdnn.frame import Precision

from ..conftest import require_module
from ..cuda.fake_gpu import FakeGpu
from .device_frames import pictures, run
from .on_host import Tensor, placed, read

Graph = Callable[..., Path]


class Stream:
    """Counts who waits for it; `late` is what it has yet to do."""

    def __init__(self) -> None:
        self.waits = 0
        self.late: Callable[[], None] = lambda: None

    def synchronize(self) -> None:
        self.waits += 1
        self.late()


@pytest.fixture(scope="module")
def tf() -> Any:
    require_module("tensorflow")
    return module.framework()


@pytest.fixture
def on_gpu(tf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow says that it has a GPU, and runs on the processor what is placed there."""
    there = {"cpu": "the processor", "gpu:0": "host memory"}
    monkeypatch.setattr(_tensorflow_device, "devices", lambda tf: there)


@pytest.fixture
def frozen(tf: Any, tmp_path: Path) -> Graph:
    """Writes a frozen graph: `make(x)` adds what follows the placeholder x."""

    def write(
        make: Callable[[Any], Any],
        shape: tuple[int | None, ...] = (None, None, None, 1),
        dtype: str = "float32",
    ) -> Path:
        graph = tf.Graph()
        with graph.as_default():
            make(tf.compat.v1.placeholder(dtype, shape, name="x"))
        path = tmp_path / "net.pb"
        path.write_bytes(graph.as_graph_def().SerializeToString())
        return path

    return write


@contextmanager
def opened(model: Path, **options: Any) -> Iterator[Backend]:
    told = {"device": "cuda:0", "stream": Stream()} | options
    with closing(backends.load("tensorflow", model, Options(**told))) as loaded:
        yield loaded


def numbers(first: int = 0) -> Any:
    return np.arange(first, first + 24, dtype=np.float32).reshape(1, 4, 6, 1)


def tripled(tf: Any, frozen: Graph) -> Path:
    return frozen(lambda x: tf.multiply(x, 3.0, name="y"))


# ---- jobs --------------------------------------------------------------------------------------


def test_job_waits_for_the_stream_alone_and_gives_what_is_computed(
    tf: Any, on_gpu: None, frozen: Graph
) -> None:
    stream, given = Stream(), placed(np.zeros((1, 4, 6, 1), np.float32))
    stream.late = lambda: given.__setitem__(slice(None), numbers())
    with opened(tripled(tf, frozen), stream=stream) as loaded:
        assert loaded.info.memory == {"host", "cuda"}
        assert (loaded.info.device, stream.waits) == ("gpu:0", 0)
        future = loaded.infer_async({"x": given})
        assert future.done()
        assert stream.waits == 1
        made = read(future.result()["y"])
        assert made.dtype == np.float32
        assert np.array_equal(made, numbers() * 3)


def test_outputs_outlive_the_next_jobs_and_the_model(tf: Any, on_gpu: None, frozen: Graph) -> None:
    with opened(tripled(tf, frozen)) as loaded:
        given = [placed(numbers(100 * n)) for n in range(6)]
        made = [loaded.infer_async({"x": array}).result()["y"] for array in given]
    del loaded
    gc.collect()
    for array, shown in zip(given, made, strict=True):
        assert np.array_equal(read(shown), np.asarray(array) * 3)
    assert len({shown.__cuda_array_interface__["data"][0] for shown in made}) == len(made)


@pytest.mark.parametrize("kind", ["identity", "slice"])
def test_output_is_no_view_of_the_input_which_stays_as_it_is(
    tf: Any, on_gpu: None, frozen: Graph, kind: str
) -> None:
    made_of = {"identity": tf.identity, "slice": lambda x, name: tf.identity(x[1:], name)}[kind]
    given = placed(np.concatenate([numbers(), numbers(50)] * 8))
    before = given.copy()
    with opened(frozen(lambda x: made_of(x, name="y"))) as loaded:
        made = read(loaded.infer_async({"x": given}).result()["y"])
        assert np.array_equal(made, before[1:] if kind == "slice" else before)
        assert not np.may_share_memory(made, given)
    assert np.array_equal(given, before)


def test_input_is_never_written_to(tf: Any, on_gpu: None, frozen: Graph) -> None:
    """TensorFlow computes in place where it holds the only reference to a tensor."""
    given = placed(-numbers())
    with opened(frozen(lambda x: tf.nn.relu(x, name="y"))) as loaded:
        assert not read(loaded.infer_async({"x": given}).result()["y"]).any()
    assert np.array_equal(given, -numbers())


def test_host_arrays_run_in_the_same_function(tf: Any, on_gpu: None, frozen: Graph) -> None:
    with opened(tripled(tf, frozen), size=(4, 6)) as loaded:
        made = loaded.infer_async({"x": numbers()}).result()["y"]
        assert np.array_equal(made, numbers() * 3)
        made[...] = 0
        assert loaded.output_shapes({"x": (2, 8, 9, 1)}) == {"y": (2, 8, 9, 1)}
        assert "at 6x4" in loaded.info.facts["warm-up"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_graph_of_short_floats_takes_float32(
    tf: Any, on_gpu: None, frozen: Graph, dtype: str
) -> None:
    model = frozen(lambda x: tf.add(x, tf.constant(1, dtype), name="y"), dtype=dtype)
    with opened(model) as loaded:
        assert loaded.info.inputs[0].dtype == "float32"
        made = read(loaded.infer_async({"x": placed(numbers())}).result()["y"])
        assert np.array_equal(made, numbers() + 1)


def test_precision_is_the_optimisers_and_the_functions_own(
    tf: Any, on_gpu: None, frozen: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    call = tf.raw_ops.StatefulPartitionedCall

    def noted(**given: Any) -> Any:
        config = tf.compat.v1.ConfigProto.FromString(given["config_proto"])
        told.append(config.graph_options.rewrite_options.auto_mixed_precision)
        assert not config.gpu_options.visible_device_list
        return call(**given)

    monkeypatch.setattr(tf.raw_ops, "StatefulPartitionedCall", noted)
    for precision in (Precision.FLOAT32, Precision.FLOAT16):
        with opened(tripled(tf, frozen), precision=precision) as loaded:
            loaded.infer_async({"x": placed(numbers())}).result()
    assert told == [0, _tensorflow_device.ON]


# ---- what stays in host memory -----------------------------------------------------------------


def test_graphs_that_are_no_functions_of_float32_stay_in_host_memory(
    tf: Any, on_gpu: None, frozen: Graph
) -> None:
    def counting(x: Any) -> None:
        tf.identity(x, name="y")
        tf.no_op(name="init")

    for make, dtype in ((lambda x: tf.identity(x, name="y"), "uint8"), (counting, "float32")):
        with opened(frozen(make, dtype=dtype)) as loaded:
            assert loaded.info.memory == {"host"}
    for options in (
        {"stream": None},
        {"stream": 0x5EED00},
        {"sample": "uint8"},
        {"config": {"sess_config": "0x10022805320e09e0e4"}},
    ):
        told = Options(**({"device": "cuda:0", "stream": Stream()} | options))
        checks = [("y", None)] if told.sample == "uint8" else []
        assert not _tensorflow_cuda.takes(runnable(checks), "gpu:0", told)
    assert not _tensorflow_cuda.takes(runnable(), "cpu", Options(stream=Stream()))
    assert _tensorflow_cuda.takes(runnable(), "gpu:0", Options(stream=Stream()))


def runnable(checks: Sequence[tuple[str, Any]] = ()) -> Runnable:
    return Runnable(None, (), (), checks, (), (), -1, False)


def test_memory_of_all_gpus_grows_unless_it_is_too_late() -> None:
    class Experimental:
        grown: list[str] = []  # noqa: RUF012

        @classmethod
        def set_memory_growth(cls, device: str, on: bool) -> None:
            assert on
            if device == "second":
                raise RuntimeError("Physical devices cannot be modified after being initialized")
            cls.grown.append(device)

    class Config:
        experimental = Experimental

        @staticmethod
        def list_physical_devices(kind: str) -> list[str]:
            assert kind == "GPU"
            return ["first", "second", "third"]

    _tensorflow_cuda.grow(type("Framework", (), {"config": Config}))
    assert Experimental.grown == ["first", "third"]


def test_tensorflow_without_a_gpu_leaves_frames_to_host_memory(tf: Any, frozen: Graph) -> None:
    if "gpu:0" in _tensorflow_device.devices(tf):
        pytest.skip("TensorFlow has a GPU")
    model = tripled(tf, frozen)
    with pytest.raises(HostMemoryOnly, match=r"no device cuda:0.*takes no frames on a GPU"):
        backends.load("tensorflow", model, Options(device="cuda:0", stream=Stream()))
    with pytest.raises(DeviceError) as error:
        backends.load("tensorflow", model, Options(device="cuda:0"))
    assert not isinstance(error.value, HostMemoryOnly)


# ---- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("z", placed(numbers()), "takes x, not z"),
        ("x", placed(numbers().astype("float16")), r"takes float32 \?x\?x\?x1, not float16"),
        ("x", placed(numbers()).swapaxes(1, 2), "has gaps or another order than C"),
        ("x", placed(numbers(), index=1), "the frame is on cuda:1, the model on cuda:0"),
        ("x", placed(numbers(), offset=4), "not at a multiple of 64 bytes: copy it first"),
    ],
)
def test_array_that_does_not_fit_is_named(
    tf: Any, on_gpu: None, frozen: Graph, name: str, array: Any, words: str
) -> None:
    stream = Stream()
    with opened(tripled(tf, frozen), stream=stream) as loaded:
        future = loaded.infer_async({name: array})
        with pytest.raises(InferenceError, match=words) as error:
            future.result()
        assert "\n" not in str(error.value)
        assert stream.waits == 0


def test_failure_of_the_run_is_in_the_future(tf: Any, on_gpu: None, frozen: Graph) -> None:
    with opened(frozen(lambda x: tf.reshape(x, [1, 7, 7, 1], name="y"))) as loaded:
        future = loaded.infer_async({"x": placed(numbers())})
        with pytest.raises(InferenceError, match=r"^tensorflow: the model failed: ") as error:
            future.result()
        assert "\n" not in str(error.value)


def test_exhausted_memory_is_told_as_such(
    tf: Any, on_gpu: None, frozen: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(**told: Any) -> Any:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    with opened(tripled(tf, frozen)) as loaded:
        monkeypatch.setattr(tf.raw_ops, "StatefulPartitionedCall", exhausted)
        with pytest.raises(InferenceError) as error:
            loaded.infer_async({"x": placed(numbers())}).result()
        assert "out of memory" in str(error.value.__cause__)


def test_closed_model_refuses_device_arrays(tf: Any, on_gpu: None, frozen: Graph) -> None:
    with opened(tripled(tf, frozen)) as loaded:
        pass
    with pytest.raises(InferenceError, match="closed"):
        loaded.infer_async({"x": placed(numbers())}).result()


# ---- frames ------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("model", "form"), [("espcn-x2", "nv12"), ("compact-x2", "rgb24")])
def test_frames_of_a_gpu_stay_there_and_are_those_of_the_processor(
    on_gpu: None,
    kernels: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    form: str,
    batch: int,
) -> None:
    gpu: Any = FakeGpu(kernels)
    monkeypatch.setattr(cuda, "device", lambda index: gpu)
    plain = gpu.array
    monkeypatch.setattr(gpu, "array", lambda *told: plain(*told).view(Tensor))
    monkeypatch.setattr(gpu, "adopt", read)
    gpu.compute.synchronize = lambda: gpu.mark(gpu.compute).synchronize()
    text = f"dnn_processing=dnn_backend=tensorflow:model={model}:precision=float32"
    given = pictures(form, 4, size=(36, 22))
    expected = run(f"{text}:device=cpu", given)
    uploaded = [cuda_frames.upload(gpu, frame) for frame in given]
    before = gpu.traffic.up
    made = run(f"{text}:strict=1:batch_size={batch}", uploaded)
    assert gpu.traffic.up == before
    for one, other in zip(made, expected, strict=True):
        assert one.device == gpu.label
        got = cuda_frames.to_host(gpu, one).planes[0].astype(int)
        # Another batch may sum in another order, and a sum fall on the other side of a half.
        assert np.abs(got - other.planes[0]).max() <= 1
