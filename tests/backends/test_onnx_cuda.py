"""ONNX Runtime on a caller's stream: what is bound and asked, on a CUDA provider that is the CPU.

The sessions are real and run on the processor; memory that is said to be a GPU's is the host's.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends, cuda
from avdnn.backends import Backend, Options, _onnx_cuda
from avdnn.backends import onnx as module
from avdnn.cuda import frames as cuda_frames
from avdnn.errors import DeviceError, HostMemoryOnly, InferenceError

from ..conftest import require_module
from ..cuda.fake_gpu import FakeGpu
from .device_frames import pictures, run
from .on_host import Tensor, read, said
from .onnx_file import Node, write

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
STREAM = 0x5EED00


class Runtime:
    """onnxruntime with a CUDA provider whose memory is the host's; records what it is told."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.settings: dict[str, str] = {}
        self.inputs: list[tuple[Any, ...]] = []
        self.outputs: list[tuple[Any, ...]] = []
        self.unsynchronized: list[str] = []
        self.bindings: list[Any] = []
        self.failure: Exception | None = None
        self.before_run: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_available_providers(self) -> list[str]:
        return [CUDA, CPU]

    def preload_dlls(self) -> None:
        pass

    def InferenceSession(self, path: str, options: Any, **told: Any) -> Any:
        ((provider, settings),) = told["providers"]
        if provider == CPU:
            return self._real.InferenceSession(path, options, **told)
        assert provider == CUDA
        self.settings = settings
        return Session(self, self._real.InferenceSession(path, options, providers=[CPU]))


class Session:
    """Runs at once what a stream would run later: `runtime.before_run` lets that catch up."""

    def __init__(self, runtime: Runtime, real: Any) -> None:
        self._runtime, self._real = runtime, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_providers(self) -> list[str]:
        return [CUDA, CPU]

    def io_binding(self) -> Binding:
        self._runtime.bindings.append(Binding(self._runtime, self._real.io_binding()))
        return self._runtime.bindings[-1]

    def run_with_iobinding(self, binding: Binding, options: Any) -> None:
        if self._runtime.failure is not None:
            raise self._runtime.failure
        self._runtime.before_run()
        told = options.get_run_config_entry("disable_synchronize_execution_providers")
        self._runtime.unsynchronized.append(told)
        self._real.run_with_iobinding(binding.real, options)


class Binding:
    def __init__(self, runtime: Runtime, real: Any) -> None:
        self._runtime, self.real = runtime, real

    def bind_input(
        self, name: str, kind: str, index: int, element: Any, shape: Any, pointer: int
    ) -> None:
        told = name, kind, index, np.dtype(element).name, tuple(shape), pointer
        self._runtime.inputs.append(told)
        self.real.bind_input(name, "cpu", 0, element, shape, pointer)

    def bind_output(self, name: str, kind: str, index: int) -> None:
        self._runtime.outputs.append((name, kind, index))
        self.real.bind_output(name, "cpu", 0)

    def get_outputs(self) -> Any:
        return self.real.get_outputs()


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    require_module("onnxruntime")
    made = Runtime(module.runtime())
    monkeypatch.setattr(module, "runtime", lambda: made)
    return made


@contextmanager
def opened(model: Path, **options: Any) -> Iterator[Backend]:
    told = {"device": "cuda:0", "stream": STREAM} | options
    with closing(backends.load("onnx", model, Options(**told))) as loaded:
        yield loaded


def tripled(folder: Path, dtype: str = "float32", layout: tuple[int | str, ...] = ()) -> Path:
    shape = layout or ("n", 1, "h", "w")
    return write(
        folder / "net.onnx",
        [Node("Mul", ["x", "three"], ["y"])],
        {"x": (dtype, shape)},
        {"y": (dtype, shape)},
        {"three": np.array(3, dtype)},
    )


def numbers(first: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.arange(first, first + 24, dtype=dtype).reshape(1, 1, 4, 6)


# ---- what the runtime is told ------------------------------------------------------------------


class WithPointer:
    ptr = STREAM


@pytest.mark.parametrize("stream", [STREAM, WithPointer()])
def test_session_is_opened_on_the_callers_stream(
    runtime: Runtime, tmp_path: Path, stream: Any
) -> None:
    with opened(tripled(tmp_path), device="cuda:1", stream=stream) as loaded:
        assert runtime.settings == {
            "device_id": "1",
            "use_tf32": "0",
            "arena_extend_strategy": "kSameAsRequested",
            "user_compute_stream": str(STREAM),
        }
        assert loaded.info.memory == {"host", "cuda"}


def test_without_a_stream_frames_stay_in_host_memory(runtime: Runtime, tmp_path: Path) -> None:
    with opened(tripled(tmp_path), stream=None) as loaded:
        assert "user_compute_stream" not in runtime.settings
        assert runtime.settings["arena_extend_strategy"] == "kSameAsRequested"
        assert loaded.info.memory == {"host"}
        with pytest.raises(InferenceError, match="was not loaded for frames on a GPU"):
            loaded.infer_async({"x": said(numbers())}).result()


def test_default_stream_is_refused(runtime: Runtime, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="default stream"):
        backends.load("onnx", tripled(tmp_path), Options(device="cuda", stream=0))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_input_is_bound_where_it_lies_and_nothing_is_waited_for(
    runtime: Runtime, tmp_path: Path, dtype: str
) -> None:
    given = numbers(dtype=dtype)
    with opened(tripled(tmp_path, dtype), device="cuda:1") as loaded:
        assert loaded.info.inputs[0].dtype == loaded.info.outputs[0].dtype == dtype
        future = loaded.infer_async({"x": said(given, 1)})
        assert future.done()
        made = future.result()["y"]
    assert runtime.inputs == [("x", "cuda", 1, dtype, (1, 1, 4, 6), given.ctypes.data)]
    assert runtime.outputs == [("y", "cuda", 1)]
    assert runtime.unsynchronized == ["1"]
    assert read(made).dtype == dtype
    assert np.array_equal(read(made), given * 3)


def test_outputs_outlive_the_next_jobs_and_the_model(runtime: Runtime, tmp_path: Path) -> None:
    with opened(tripled(tmp_path)) as loaded:
        given = [numbers(100 * n) for n in range(6)]
        made = [loaded.infer_async({"x": said(array)}).result()["y"] for array in given]
    assert len(set(map(id, runtime.bindings))) == len(given)
    runtime.bindings.clear()
    del loaded
    gc.collect()
    for array, shown in zip(given, made, strict=True):
        assert np.array_equal(read(shown), array * 3)
    assert len({shown.__cuda_array_interface__["data"][0] for shown in made}) == len(made)


def test_output_is_no_view_of_the_input(runtime: Runtime, tmp_path: Path) -> None:
    tensor = ("float32", (1, 1, 4, 6))
    model = write(
        tmp_path / "net.onnx", [Node("Identity", ["x"], ["y"])], {"x": tensor}, {"y": tensor}
    )
    given = numbers()
    with opened(model) as loaded:
        made = read(loaded.infer_async({"x": said(given)}).result()["y"])
        assert np.array_equal(made, given)
        assert not np.may_share_memory(made, given)


def test_several_inputs_and_outputs_keep_their_names(runtime: Runtime, tmp_path: Path) -> None:
    tensor = ("float32", (1, 1, 4, 6))
    model = write(
        tmp_path / "net.onnx",
        [Node("Sub", ["a", "b"], ["difference"]), Node("Shape", ["a"], ["size"])],
        {"a": tensor, "b": tensor},
        {"difference": tensor, "size": ("int64", (4,))},
    )
    with opened(model) as loaded:
        made = loaded.infer_async({"b": said(numbers(7)), "a": said(numbers(9))}).result()
        assert (read(made["difference"]) == 2).all()
        assert read(made["size"]).tolist() == [1, 1, 4, 6]


def test_host_arrays_still_go_through_the_session(runtime: Runtime, tmp_path: Path) -> None:
    with opened(tripled(tmp_path)) as loaded:
        assert np.array_equal(loaded.infer_async({"x": numbers()}).result()["y"], numbers() * 3)
        assert loaded.output_shapes({"x": (2, 1, 8, 9)}) == {"y": (2, 1, 8, 9)}
        assert runtime.inputs == []


@pytest.mark.parametrize("dtype", ["uint8", "float64", "bfloat16"])
def test_pictures_of_other_types_stay_in_host_memory(
    runtime: Runtime, tmp_path: Path, dtype: str
) -> None:
    tensor = (dtype, ("n", 1, "h", "w"))
    model = write(
        tmp_path / "net.onnx",
        [Node("Transpose", ["x"], ["y"], {"perm": [0, 1, 3, 2]})],
        {"x": tensor},
        {"y": tensor},
    )
    with opened(model) as loaded:
        assert loaded.info.memory == {"host"}


# ---- frames -------------------------------------------------------------------------------------


@pytest.fixture
def gpu(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    made = FakeGpu(kernels)
    monkeypatch.setattr(cuda, "device", lambda index: made)
    plain = made.array
    monkeypatch.setattr(made, "array", lambda *told: plain(*told).view(Tensor))
    monkeypatch.setattr(made, "adopt", read)
    return made


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("model", "form"), [("espcn-x2", "nv12"), ("compact-x2", "rgb24")])
def test_frames_of_a_gpu_stay_there_and_are_those_of_the_processor(
    runtime: Runtime, gpu: FakeGpu, model: str, form: str, batch: int
) -> None:
    runtime.before_run = gpu.settle
    text = f"dnn_processing=dnn_backend=onnx:model={model}:precision=float32"
    given = pictures(form, 4, size=(36, 22))
    expected = run(f"{text}:device=cpu", given)
    uploaded = [cuda_frames.upload(gpu, frame) for frame in given]
    before = gpu.traffic.up
    made = run(f"{text}:strict=1:batch_size={batch}", uploaded)
    assert gpu.traffic.up == before
    assert runtime.settings["user_compute_stream"] == str(gpu.compute.ptr)
    assert len(runtime.unsynchronized) == -(-len(given) // batch)
    for one, other in zip(made, expected, strict=True):
        assert one.device == gpu.label
        got = cuda_frames.to_host(gpu, one).planes[0].astype(int)
        # Another batch may sum in another order, and a sum fall on the other side of a half.
        assert np.abs(got - other.planes[0]).max() <= 1


# ---- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("z", said(numbers()), "takes x, not z"),
        ("x", said(numbers(dtype="float16")), "takes float32 .*not float16 1x1x4x6"),
        ("x", said(numbers().repeat(2, 1)), "takes float32 .x1x.x., not float32 1x2x4x6"),
        ("x", said(numbers()[..., ::2]), "has gaps or another order than C"),
        ("x", said(numbers().swapaxes(2, 3)), "has gaps or another order than C"),
        ("x", said(numbers(), 1), "the frame is on cuda:1, the model on cuda:0"),
    ],
)
def test_array_that_does_not_fit_is_named(
    runtime: Runtime, tmp_path: Path, name: str, array: Any, words: str
) -> None:
    with opened(tripled(tmp_path)) as loaded:
        future = loaded.infer_async({name: array})
        with pytest.raises(InferenceError, match=words) as error:
            future.result()
        assert "\n" not in str(error.value)
        assert runtime.inputs == []


def test_order_of_dimensions_of_one_is_no_gap(runtime: Runtime, tmp_path: Path) -> None:
    given = np.broadcast_to(numbers()[0], (1, 1, 4, 6))
    assert given.strides[0] == 0
    with opened(tripled(tmp_path)) as loaded:
        made = loaded.infer_async({"x": said(given)}).result()["y"]
        assert np.array_equal(read(made), given * 3)


def test_host_and_device_arrays_do_not_mix(runtime: Runtime, tmp_path: Path) -> None:
    tensor = ("float32", (1, 1, 4, 6))
    model = write(
        tmp_path / "net.onnx",
        [Node("Sub", ["a", "b"], ["y"])],
        {"a": tensor, "b": tensor},
        {"y": tensor},
    )
    with opened(model) as loaded:
        future = loaded.infer_async({"a": said(numbers()), "b": numbers()})
        with pytest.raises(InferenceError, match="input b is not an array in the memory of cuda:0"):
            future.result()


def test_failure_of_the_run_is_in_the_future(runtime: Runtime, tmp_path: Path) -> None:
    with opened(tripled(tmp_path)) as loaded:
        runtime.failure = RuntimeError("[ONNXRuntimeError] : 1 : FAIL : CUDA failure 700:\nbad")
        future = loaded.infer_async({"x": said(numbers())})
        with pytest.raises(InferenceError, match=r"^onnx: CUDA failure 700: bad"):
            future.result()


def test_exhausted_memory_says_how_much_was_wanted() -> None:
    error = RuntimeError("Failed to allocate memory for requested buffer of size 3145728")
    told = _onnx_cuda.exhausted(error)
    assert isinstance(told, MemoryError)
    assert "out of memory. Tried to allocate 3.0 MiB. " in str(told)
    assert told.__cause__ is error
    other = RuntimeError("Non-zero status code")
    assert _onnx_cuda.exhausted(other) is other


def test_closed_model_refuses_device_arrays(runtime: Runtime, tmp_path: Path) -> None:
    with opened(tripled(tmp_path)) as loaded:
        pass
    with pytest.raises(InferenceError, match="closed"):
        loaded.infer_async({"x": said(numbers())}).result()


@pytest.fixture
def without_cuda() -> None:
    require_module("onnxruntime")
    if CUDA in module.runtime().get_available_providers():
        pytest.skip("this ONNX Runtime is built with CUDA")


def test_build_without_cuda_leaves_frames_to_host_memory(
    without_cuda: None, tmp_path: Path
) -> None:
    model = tripled(tmp_path)
    with pytest.raises(HostMemoryOnly, match="needs pip install onnxruntime-gpu, and so do frames"):
        backends.load("onnx", model, Options(device="cuda:0", stream=STREAM))
    with pytest.raises(DeviceError) as error:
        backends.load("onnx", model, Options(device="cuda:0"))
    assert not isinstance(error.value, HostMemoryOnly)


def test_frames_on_a_gpu_are_downloaded_for_a_build_without_cuda(
    without_cuda: None, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tripled(tmp_path)
    monkeypatch.chdir(tmp_path)
    (frame,) = pictures("nv12", 1, size=(36, 22))
    frame.planes[0][...] = 20
    text = "dnn_processing=dnn_backend=onnx:model=net.onnx"
    notes: list[str] = []
    (made,) = run(text, [cuda_frames.upload(gpu, frame)], notes)
    assert (made.planes[0] == 60).all()
    assert "has no CUDAExecutionProvider" in notes[0]
    assert "downloaded" in notes[0]
    with pytest.raises(DeviceError, match=r"onnxruntime-gpu.*put hwdownload before"):
        run(f"{text}:strict=1", [cuda_frames.upload(gpu, frame)])
