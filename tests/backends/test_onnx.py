"""ONNX Runtime's particulars: types, layouts, batches, threads, execution providers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends
from avdnn.backends import Backend, Options, _onnx_device
from avdnn.errors import DeviceError, InferenceError, ModelError
from avdnn.frame import Layout, Precision

from ..conftest import require_module

Tensors = dict[str, tuple[str, list[Any]]]


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Writes a model: save(nodes, inputs, outputs), tensors as name -> (element type, shape)."""
    require_module("onnx")
    require_module("onnxruntime")
    import onnx
    from onnx import TensorProto, helper

    def write(nodes: list[tuple[Any, ...]], inputs: Tensors, outputs: Tensors) -> Path:
        def values(tensors: Tensors) -> list[Any]:
            return [
                helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)
                for name, (kind, shape) in tensors.items()
            ]

        made = [
            helper.make_node(kind, sources, targets, **attributes)
            for kind, sources, targets, attributes in nodes
        ]
        graph = helper.make_graph(made, "net", values(inputs), values(outputs))
        opset = [helper.make_opsetid("", 17)]
        path = tmp_path / "net.onnx"
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
        return path

    return write


@contextmanager
def opened(model: Path, **options: Any) -> Iterator[Backend]:
    with closing(backends.load("onnx", model, Options(**options))) as loaded:
        yield loaded


def relu(save: Callable[..., Path], kind: str, shape: list[Any]) -> Path:
    return save([("Relu", ["x"], ["y"], {})], {"x": (kind, shape)}, {"y": (kind, shape)})


# ---- tensors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ([1, 3, 8, 8], Layout.NCHW),
        ([1, 1, "h", "w"], Layout.NCHW),
        ([1, 8, 8, 3], Layout.NHWC),
        ([1, "h", "w", 1], Layout.NHWC),
        (["n", "c", "h", "w"], Layout.NCHW),
        (["n", 3], None),
    ],
)
def test_layout_is_guessed_from_the_channels(
    save: Callable[..., Path], shape: list[Any], layout: Layout | None
) -> None:
    model = relu(save, "FLOAT", shape)
    with opened(model) as loaded:
        assert loaded.info.inputs[0].layout is layout
        assert loaded.info.outputs[0].layout is layout
    if layout is not None:
        with opened(model, layout=Layout.NHWC) as loaded:
            assert loaded.info.inputs[0].layout is Layout.NHWC


def test_any_number_of_inputs_and_outputs(save: Callable[..., Path]) -> None:
    tensor = ("FLOAT", [1, 1, 2, 2])
    model = save(
        [("Add", ["a", "b"], ["sum"], {}), ("Sub", ["a", "b"], ["difference"], {})],
        {"a": tensor, "b": tensor},
        {"sum": tensor, "difference": tensor},
    )
    a, b = np.full((1, 1, 2, 2), 5, np.float32), np.full((1, 1, 2, 2), 3, np.float32)
    with opened(model) as loaded:
        made = loaded.infer_async({"b": b, "a": a}).result()
        assert {name: array.max() for name, array in made.items()} == {"sum": 8, "difference": 2}
    with opened(model, outputs=("difference",)) as loaded:
        assert list(loaded.infer_async({"a": a, "b": b}).result()) == ["difference"]
    with pytest.raises(ModelError, match="all its inputs are needed: a, b"):
        backends.load("onnx", model, Options(inputs=("a",)))


@pytest.mark.parametrize(("kind", "dtype"), [("FLOAT16", "float16"), ("FLOAT", "float32")])
def test_float_models_declare_their_type(save: Callable[..., Path], kind: str, dtype: str) -> None:
    with opened(relu(save, kind, [1, 1, 2, 2]), sample="uint8") as loaded:
        assert loaded.info.inputs[0].dtype == loaded.info.outputs[0].dtype == dtype
        x = np.array([-1, 0, 0.5, 2], dtype).reshape(1, 1, 2, 2)
        made = loaded.infer_async({"x": x}).result()["y"]
        assert made.dtype == dtype
        assert made.ravel().tolist() == [0, 0, 0.5, 2]


def test_byte_model_takes_bytes(save: Callable[..., Path]) -> None:
    model = save(
        [("Transpose", ["x"], ["y"], {"perm": [0, 3, 1, 2]})],
        {"x": ("UINT8", [1, "h", "w", 3])},
        {"y": ("UINT8", [1, 3, "h", "w"])},
    )
    with opened(model) as loaded:
        x = np.random.default_rng(0).integers(0, 256, (1, 4, 5, 3), np.uint8)
        assert loaded.info.inputs[0].is_integer
        assert (loaded.info.inputs[0].layout, loaded.info.outputs[0].layout) == ("nhwc", "nchw")
        made = loaded.infer_async({"x": x}).result()["y"]
        assert np.array_equal(made, x.transpose(0, 3, 1, 2))


def test_bfloat16_tensors_are_float32_outside(save: Callable[..., Path]) -> None:
    """ONNX Runtime's CPU kernels convert bfloat16 and compute in float32."""
    model = save(
        [
            ("Cast", ["x"], ["wide"], {"to": 1}),
            ("Neg", ["wide"], ["z"], {}),
            ("Cast", ["z"], ["y"], {"to": 16}),
        ],
        {"x": ("BFLOAT16", [1, 1, "h", "w"])},
        {"y": ("BFLOAT16", [1, 1, "h", "w"]), "z": ("FLOAT", [1, 1, "h", "w"])},
    )
    x = np.array([0.0, 1.0, 1 + 2**-8, 1 + 2**-8 + 2**-16, 3e38, 1 / 3], np.float32)
    rounded = [0.0, -1.0, -1.0, -1 - 2**-7, -float.fromhex("0x1.c4p127"), -0.333984375]
    with opened(model) as loaded:
        assert [spec.dtype for spec in loaded.info.outputs] == ["float32", "float32"]
        for _ in range(2):
            made = loaded.infer_async({"x": x.reshape(1, 1, 2, 3)}).result()
            assert made["y"].ravel().tolist() == rounded
            assert made["z"].ravel().tolist() == rounded
        nan = loaded.infer_async({"x": np.full((1, 1, 1, 1), np.nan, np.float32)}).result()
        assert np.isnan(nan["y"]).all()


def test_tensor_of_strings_is_refused(save: Callable[..., Path]) -> None:
    model = save([("Identity", ["x"], ["y"], {})], {"x": ("STRING", [1])}, {"y": ("STRING", [1])})
    with pytest.raises(ModelError, match=r"x is a tensor\(string\); tensors of numbers"):
        backends.load("onnx", model, Options())


def test_scale_and_mean_are_told_to_the_caller(save: Callable[..., Path]) -> None:
    with opened(relu(save, "FLOAT", [1, 1, 2, 2]), scale=1.0, mean=104.0) as loaded:
        assert (loaded.info.inputs[0].scale, loaded.info.inputs[0].mean) == (1.0, 104.0)
        assert (loaded.info.outputs[0].scale, loaded.info.outputs[0].mean) == (1.0, 104.0)


# ---- batches and shapes ------------------------------------------------------------------------


def test_batch_is_free_or_fixed_as_the_model_says(save: Callable[..., Path]) -> None:
    with opened(relu(save, "FLOAT", ["n", 1, 2, 2]), batch_size=4) as loaded:
        assert loaded.info.max_batch is None
        for count in (4, 3):
            x = np.ones((count, 1, 2, 2), np.float32)
            assert loaded.infer_async({"x": x}).result()["y"].shape == x.shape
    model = relu(save, "FLOAT", [2, 1, 2, 2])
    for batch in (1, 2):
        with opened(model, batch_size=batch) as loaded:
            assert loaded.info.max_batch == 2
    with pytest.raises(ModelError, match="fixed at 2; leave batch_size=3 out"):
        backends.load("onnx", model, Options(batch_size=3))


def test_fixed_size_is_kept_and_a_wrong_shape_is_named(save: Callable[..., Path]) -> None:
    with opened(relu(save, "FLOAT", [1, 1, 4, 4]), size=(2, 2)) as loaded:
        assert loaded.info.inputs[0].size == (4, 4)
        assert not loaded.info.reshapeable
        with pytest.raises(ModelError, match="x takes 1x1x4x4, not 1x1x2x2"):
            loaded.output_shapes({"x": (1, 1, 2, 2)})
        failed = loaded.infer_async({"x": np.zeros((1, 1, 2, 2), np.float32)})
        with pytest.raises(InferenceError, match="takes float32 1x1x4x4, not float32 1x1x2x2"):
            failed.result()


def test_failure_inside_the_network_is_one_line(save: Callable[..., Path]) -> None:
    """Two inputs whose shapes fit the model, but not each other."""
    free = ("FLOAT", [1, 1, "h", "w"])
    model = save(
        [("Add", ["a", "b"], ["y"], {})],
        {"a": free, "b": ("FLOAT", [1, 1, "k", "l"])},
        {"y": ("FLOAT", [1, 1, "m", "n"])},
    )
    with opened(model) as loaded:
        a, b = np.zeros((1, 1, 2, 2), np.float32), np.zeros((1, 1, 3, 3), np.float32)
        with pytest.raises(InferenceError, match="onnx: ") as error:
            loaded.infer_async({"a": a, "b": b}).result()
        assert "\n" not in str(error.value)


# ---- devices and threads -----------------------------------------------------------------------


def test_provider_that_the_build_lacks_names_the_package(save: Callable[..., Path]) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime is built with CUDA")
    for device in ("cuda", "cuda:1", "tensorrt"):
        with pytest.raises(DeviceError, match="needs pip install onnxruntime-gpu"):
            backends.load("onnx", relu(save, "FLOAT", [1, 1, 2, 2]), Options(device=device))


def test_device_index_must_be_one_number(save: Callable[..., Path]) -> None:
    model = relu(save, "FLOAT", [1, 1, 2, 2])
    with opened(model, device="cpu:0", config={"device_id": "0"}) as loaded:
        assert loaded.info.device == "cpu"
    for options in (
        {"device": "cpu:1"},
        {"config": {"device_id": "1"}},
        {"config": {"device_id": "first"}},
        {"device": "cpu:0", "config": {"device_id": "1"}},
    ):
        with pytest.raises(DeviceError):
            backends.load("onnx", model, Options(**options))


def test_provider_that_does_not_start_is_an_error_with_the_loaders_words(
    save: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ONNX Runtime takes the CPU instead, silently; here the build claims to have CUDA."""
    import onnxruntime

    model = relu(save, "FLOAT", [1, 1, 2, 2])
    (tmp_path / "capi").mkdir()
    (tmp_path / "capi" / "libonnxruntime_providers_cuda.so").write_bytes(b"no library")
    start = onnxruntime.InferenceSession
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: providers)
    monkeypatch.setattr(
        onnxruntime,
        "InferenceSession",
        lambda path, options, **_: start(path, options, providers=["CPUExecutionProvider"]),
    )
    monkeypatch.setattr(onnxruntime, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(DeviceError, match=r"cuda cannot be used: .*providers_cuda\.so"):
        backends.load("onnx", model, Options(device="cuda"))


def test_missing_provider_library_is_named(tmp_path: Path) -> None:
    told = _onnx_device.missing_library(tmp_path, "cuda")
    assert told.startswith("libonnxruntime_providers_cuda.so is missing")


def test_lower_precision_is_refused_where_the_model_decides(save: Callable[..., Path]) -> None:
    found = backends.module("onnx")
    assert found.precisions(Options()) == (Precision.FLOAT32,)
    assert found.precisions(Options(device="tensorrt"))[0] is Precision.FLOAT16
    options = Options(precision=Precision.FLOAT16)
    with pytest.raises(DeviceError, match="cpu is not told to compute in float16"):
        backends.load("onnx", relu(save, "FLOAT", [1, 1, 2, 2]), options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"threads": 2}, (3, 2, 1)),
        ({"threads": 1}, (2, 1, 1)),
        ({"threads": 16}, (5, 4, 13)),
        ({"threads": 16, "nireq": 2}, (2, 2, 15)),
        ({"threads": 2, "nireq": 8}, (8, 2, 1)),
        ({"threads": 4, "config": {"threads_per_operation": "4"}}, (2, 1, 4)),
        ({"threads": 4, "asynchronous": False, "nireq": 3}, (1, 1, 4)),
    ],
)
def test_cores_are_shared_between_callers(
    options: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    """Jobs in flight, threads that call the session, threads of one operation."""
    assert _onnx_device.split_cores("cpu", Options(**options)) == expected


def test_threads_per_operation_must_be_a_number(save: Callable[..., Path]) -> None:
    options = Options(config={"threads_per_operation": "many"})
    with pytest.raises(ModelError, match="threads_per_operation=many: a whole number"):
        backends.load("onnx", relu(save, "FLOAT", [1, 1, 2, 2]), options)


# ---- files -------------------------------------------------------------------------------------


def test_model_of_a_missing_operator_is_one_line(save: Callable[..., Path]) -> None:
    tensor = ("FLOAT", [1, 1, 2, 2])
    model = save([("Teleport", ["x"], ["y"], {})], {"x": tensor}, {"y": tensor})
    with pytest.raises(
        ModelError, match=r"net\.onnx: ONNX Runtime cannot load it: .*Teleport"
    ) as e:
        backends.load("onnx", model, Options())
    assert "\n" not in str(e.value)


def test_foreign_file_names_its_reader(tmp_path: Path) -> None:
    require_module("onnxruntime")
    model = tmp_path / "foreign.onnx"
    model.write_text('<?xml version="1.0"?>\n<net name="n" version="11"></net>')
    with pytest.raises(ModelError, match="an OpenVINO IR, which backend onnx does not read; openv"):
        backends.load("onnx", model, Options())
