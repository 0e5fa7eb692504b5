"""The torch backend: what programs take, what files may do, and the arithmetic around them."""

from __future__ import annotations

import importlib.util
import io
import pickle
import sys
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends
from avdnn.backends import Backend, Options, _cpu, _torch_fused
from avdnn.errors import (
    AvdnnError,
    BackendUnavailable,
    DeviceError,
    InferenceError,
    ModelError,
    NonFiniteError,
)
from avdnn.frame import Layout, Precision

torch: Any = pytest.importorskip("torch")

SIZE = (48, 64)


@contextmanager
def opened(model: Path, **options: Any) -> Iterator[Backend]:
    with closing(backends.load("torch", model, Options(**options))) as loaded:
        yield loaded


def fresh_module() -> Any:
    """A module of a class of its own: TorchScript compiles each class once."""
    return type("Fresh", (torch.nn.Module,), {})()


def script(path: Path, source: str, *, weights: Any = None) -> Path:
    """A TorchScript file whose forward(self, x) has this body; `weights` is its parameter w."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = fresh_module()
        if weights is not None:
            module.register_parameter("w", torch.nn.Parameter(weights))
        scripted = torch.jit.script(module)
        scripted.define(f"def forward(self, x):\n    {source}\n")
        scripted.save(str(path))
    return path


def traced(path: Path, module: Any, channels: int, dtype: Any = None) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = torch.zeros(1, channels, 16, 16, dtype=dtype or torch.float32)
        torch.jit.trace(module.eval(), example).save(str(path))
    return path


def codes(channels: int = 3, size: tuple[int, int] = SIZE, dtype: str = "uint8") -> np.ndarray:
    rows, columns = size
    top = 256 if dtype == "uint8" else 1024
    made = np.random.default_rng(1).integers(0, top, (1, channels, rows, columns))
    return made.astype(dtype)


def run(loaded: Backend, array: np.ndarray, output: str = "y") -> np.ndarray:
    made = loaded.infer_async({loaded.info.inputs[0].name: array}).result()[output]
    assert isinstance(made, np.ndarray)
    return made


def scaled(array: np.ndarray, gain: float) -> np.ndarray:
    values = np.multiply(array, np.float32(1 / 255), dtype=np.float32) * np.float32(gain)
    return np.clip(np.rint(values * np.float32(255)), 0, 255).astype(np.uint8)


def one_line(error: pytest.ExceptionInfo[AvdnnError], *words: str) -> None:
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 300
    for word in words:
        assert word in text


# ---- what a program takes and gives ------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_are_found_by_trial(tmp_path: Path, channels: int) -> None:
    model = traced(tmp_path / "m.pt", torch.nn.Conv2d(channels, channels, 3, padding=1), channels)
    with opened(model, sample="uint8", size=SIZE) as loaded:
        info = loaded.info
        assert info.inputs[0].shape == (-1, channels, -1, -1)
        assert info.outputs[0].shape == (-1, channels, -1, -1)
        assert info.inputs[0].layout is Layout.NCHW
        assert info.max_batch is None


def test_program_that_keeps_any_number_of_channels_takes_any(tmp_path: Path) -> None:
    with opened(script(tmp_path / "m.pt", "return x * 0.5")) as loaded:
        assert loaded.info.inputs[0].shape == (-1, -1, -1, -1)


def test_program_that_makes_three_channels_of_one_is_not_taken_for_a_gray_one(
    tmp_path: Path,
) -> None:
    model = script(tmp_path / "m.pt", "return x * self.w", weights=torch.ones(1, 3, 1, 1))
    with opened(model) as loaded:
        assert loaded.info.inputs[0].channels == 3


def test_batch_is_fixed_where_the_program_gives_one_frame(tmp_path: Path) -> None:
    model = script(tmp_path / "m.pt", "return x[0]")
    with opened(model, sample="uint8") as loaded:
        assert loaded.info.max_batch == 1
        assert loaded.info.outputs[0].shape == (1, -1, -1, -1)
        made = run(loaded, codes())
        assert np.array_equal(made, codes())
    with pytest.raises(ModelError, match="batch_size=4") as error:
        backends.load("torch", model, Options(batch_size=4))
    one_line(error, "m.pt")


def test_arguments_with_defaults_are_left_alone(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(fresh_module())
        scripted.define("def forward(self, image, gain: float = 0.5):\n    return image * gain\n")
        scripted.save(str(tmp_path / "m.pt"))
    with opened(tmp_path / "m.pt", sample="uint8", inputs=("image",)) as loaded:
        assert np.array_equal(run(loaded, codes()), scaled(codes(), 0.5))


@pytest.mark.parametrize(
    ("source", "scale"),
    [
        ("return x * 0.5", "1"),
        ("return torch.pixel_shuffle(x.repeat(1, 4, 1, 1), 2)", "2"),
        ("return x[:, :, ::2, ::2]", "0.5"),
        ("return x[:, :, ::2]", None),
        ("return x.mean(dim=[2, 3])", None),
    ],
)
def test_scale_is_found(tmp_path: Path, source: str, scale: str | None) -> None:
    with opened(script(tmp_path / "m.pt", source)) as loaded:
        assert loaded.info.facts.get("scale") == scale


def test_old_default_names_are_taken(tmp_path: Path) -> None:
    model = script(tmp_path / "m.pt", "return x * 0.5")
    with opened(model, inputs=("x",), outputs=("y",)) as loaded:
        assert [spec.name for spec in loaded.info.outputs] == ["y"]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("return x * 0.5, x * 0.25", ("y", "y1")),
        ("return {'half': x * 0.5, 'quarter': x * 0.25}", ("half", "quarter")),
        ("return [x * 0.5, x * 0.25]", ("y", "y1")),
    ],
)
def test_several_outputs_have_names(tmp_path: Path, source: str, names: tuple[str, str]) -> None:
    model = script(tmp_path / "m.pt", source)
    given = codes()
    with opened(model, sample="uint8") as loaded:
        assert tuple(spec.name for spec in loaded.info.outputs) == names
        assert np.array_equal(run(loaded, given, names[0]), scaled(given, 0.5))
        assert np.array_equal(run(loaded, given, names[1]), scaled(given, 0.25))
    with opened(model, sample="uint8", outputs=(names[1],)) as loaded:
        assert [spec.name for spec in loaded.info.outputs] == [names[1]]
        assert np.array_equal(run(loaded, given, names[1]), scaled(given, 0.25))


def test_outputs_that_are_no_pictures_are_given_as_they_are(tmp_path: Path) -> None:
    source = "return x * 0.5, x.mean(dim=[2, 3]), torch.argmax(x, 1)"
    with opened(script(tmp_path / "m.pt", source), sample="uint8") as loaded:
        specs = loaded.info.outputs
        assert [spec.dtype for spec in specs] == ["uint8", "float32", "int64"]
        assert [spec.layout for spec in specs][:2] == [Layout.NCHW, None]
        made = loaded.infer_async({"x": codes()}).result()
        assert made["y1"].shape == (1, 3)
        assert made["y1"].dtype == np.float32


def test_program_that_gives_no_tensor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a tensor") as error:
        backends.load("torch", script(tmp_path / "m.pt", "return 3.0"), Options())
    one_line(error, "m.pt")


def test_program_without_weights_runs(tmp_path: Path) -> None:
    with opened(script(tmp_path / "m.pt", "return x * 0.5"), sample="uint8") as loaded:
        assert np.array_equal(run(loaded, codes()), scaled(codes(), 0.5))


def test_program_of_another_kind_of_input_says_why(tmp_path: Path) -> None:
    module = torch.nn.Conv2d(5, 5, 3)
    with pytest.raises(ModelError, match="3 or 1 channels") as error:
        backends.load("torch", traced(tmp_path / "m.pt", module, 5), Options())
    one_line(error, "m.pt", "expected input")


def test_program_of_codes_gets_codes(tmp_path: Path) -> None:
    source = "return torch.bitwise_xor(x, 255)"
    with opened(script(tmp_path / "m.pt", source), sample="uint8") as loaded:
        assert loaded.info.inputs[0].dtype == "uint8"
        assert np.array_equal(run(loaded, codes()), 255 - codes())


def test_baked_in_size_is_declared_and_another_is_an_error(tmp_path: Path) -> None:
    model = script(tmp_path / "m.pt", "return x.reshape(1, 3, 48, 64) * 0.5")
    with opened(model, sample="uint8", size=SIZE) as loaded:
        assert loaded.info.inputs[0].shape == (1, 3, 48, 64)
        assert np.array_equal(run(loaded, codes()), scaled(codes(), 0.5))
        failed = loaded.infer_async({"x": codes(size=(50, 64))})
        with pytest.raises(InferenceError, match="1x3x48x64") as error:
            failed.result()
        one_line(error)


def test_size_that_fails_later_names_one_that_works(tmp_path: Path) -> None:
    source = "assert x.size(2) % 8 == 0, 'rows: multiple of 8'\n    return x * 0.5"
    with opened(script(tmp_path / "m.pt", source), sample="uint8") as loaded:
        run(loaded, codes())
        with pytest.raises(InferenceError, match="multiple of 8") as error:
            run(loaded, codes(size=(50, 64)))
        one_line(error, "1x3x48x64")


def test_memory_that_is_exhausted_is_not_blamed_on_the_size(tmp_path: Path) -> None:
    source = (
        "if x.size(2) > 48:\n        x = x + torch.empty([1125899906842624])[0]\n    return x * 0.5"
    )
    with opened(script(tmp_path / "m.pt", source), sample="uint8") as loaded:
        run(loaded, codes())
        with pytest.raises(InferenceError, match="memory") as error:
            run(loaded, codes(size=(50, 64)))
        one_line(error, "torch: the model failed")
        assert "other sizes" not in str(error.value)


def test_nhwc_program_is_fed_as_it_wants(tmp_path: Path) -> None:
    model = script(tmp_path / "m.pt", "return x * self.w", weights=torch.tensor([0.5, 0.25, 0.0]))
    given = np.ascontiguousarray(codes().transpose(0, 2, 3, 1))
    with opened(model, sample="uint8", layout=Layout.NHWC) as loaded:
        assert loaded.info.inputs[0].shape == (-1, -1, -1, 3)
        made = run(loaded, given)
    assert np.array_equal(made[..., 0], scaled(given[..., 0], 0.5))
    assert not made[..., 2].any()


# ---- element types and memory layouts ----------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_weights_of_other_types_run_in_float32(tmp_path: Path, dtype: str) -> None:
    weights = torch.full((1, 3, 1, 1), 0.5, dtype=getattr(torch, dtype))
    model = script(tmp_path / "m.pt", "return x * self.w", weights=weights)
    with opened(model, sample="uint8") as loaded:
        assert loaded.info.precision is Precision.FLOAT32
        assert np.array_equal(run(loaded, codes()), scaled(codes(), 0.5))


def test_program_with_its_type_written_in_runs_in_that_type(tmp_path: Path) -> None:
    source = "return torch.matmul(x, torch.eye(64, dtype=torch.float16)) * self.w"
    weights = torch.full((1, 3, 1, 1), 0.5, dtype=torch.float16)
    model = script(tmp_path / "m.pt", source, weights=weights)
    with opened(model, sample="uint8", size=SIZE) as loaded:
        assert loaded.info.precision is Precision.FLOAT16
        # Half the codes at 11 bits of mantissa: a tie may round the other way.
        assert np.abs(run(loaded, codes()).astype(int) - scaled(codes(), 0.5)).max() <= 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_outputs_of_other_types_become_the_right_codes(tmp_path: Path, dtype: str) -> None:
    model = script(tmp_path / "m.pt", f"return (x * 0 + 0.5).to(torch.{dtype})")
    with opened(model, sample="uint8") as loaded:
        assert (run(loaded, codes()) == 128).all()
    with opened(model) as loaded:
        made = run(loaded, codes().astype(np.float32))
        assert made.dtype == np.float32
        assert (made == 0.5).all()


def test_channels_last_output_is_read_right(tmp_path: Path) -> None:
    source = "return (x * 0.5).contiguous(memory_format=torch.channels_last)"
    with opened(script(tmp_path / "m.pt", source), sample="uint8") as loaded:
        assert np.array_equal(run(loaded, codes()), scaled(codes(), 0.5))


@pytest.mark.parametrize("source", ["return x", "return x[:, :1].expand(-1, 3, -1, -1)"])
def test_outputs_that_alias_the_input_are_copied(tmp_path: Path, source: str) -> None:
    given = codes().astype(np.float32)
    before = given.copy()
    with opened(script(tmp_path / "m.pt", source)) as loaded:
        made = run(loaded, given)
        assert not np.shares_memory(made, given)
        made[...] = 0
    assert np.array_equal(given, before)


def test_output_that_is_a_weight_is_copied(tmp_path: Path) -> None:
    weights = torch.full((1, 3, 48, 64), 0.5)
    model = script(tmp_path / "m.pt", "return self.w", weights=weights)
    with opened(model, size=SIZE, config={"optimize": "0"}) as loaded:
        given = codes().astype(np.float32)
        run(loaded, given)[...] = 0
        assert (run(loaded, given) == 0.5).all()


@pytest.mark.parametrize("optimize", ["0", "1"])
def test_convolutions_give_what_torch_gives(tmp_path: Path, optimize: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5, padding=2),
        torch.nn.BatchNorm2d(8),
        torch.nn.Tanh(),
        torch.nn.Conv2d(8, 4, 3, padding=1),
        torch.nn.PixelShuffle(2),
    )
    model = traced(tmp_path / "m.pt", net, 1)
    given = codes(1).astype(np.float32) / 255
    with opened(model, config={"optimize": optimize}) as loaded:
        made = run(loaded, given)
    with torch.no_grad():
        wanted = net.eval()(torch.from_numpy(given)).numpy()
    # Float32 sums in another order.
    assert np.abs(made - wanted).max() < 1e-5


def test_ten_bit_samples_are_converted_inside(tmp_path: Path) -> None:
    model = script(tmp_path / "m.pt", "return x * 2.0")
    given = codes(dtype="uint16")
    with opened(model, sample="uint16", peak=1023) as loaded:
        assert loaded.info.inputs[0].dtype == loaded.info.outputs[0].dtype == "uint16"
        made = run(loaded, given)
    assert made.dtype == np.uint16
    assert np.array_equal(made, np.minimum(given.astype(int) * 2, 1023))


def test_scale_and_mean_go_in_and_come_back_out(tmp_path: Path) -> None:
    given = codes()
    model = script(tmp_path / "m.pt", "return x")
    with opened(model, sample="uint8", scale=58.0, mean=103.5) as loaded:
        assert np.array_equal(run(loaded, given), given)
    ten = script(tmp_path / "ten.pt", "return x + 10.0")
    with opened(ten, sample="uint8", scale=1.0, mean=0.0) as loaded:
        assert np.array_equal(run(loaded, given), np.minimum(given.astype(int) + 10, 255))


@pytest.mark.parametrize("bad", ["nan", "inf"])
def test_value_that_is_no_number_names_the_item_of_the_batch(tmp_path: Path, bad: str) -> None:
    source = f"return torch.where(x > 0.99, torch.full_like(x, float('{bad}')), x)"
    given = np.zeros((3, 3, 8, 8), np.uint8)
    given[1, 2, 3, 4] = 255
    with (
        opened(script(tmp_path / "m.pt", source), sample="uint8", batch_size=3) as loaded,
        pytest.raises(NonFiniteError, match="item 1 of the batch"),
    ):
        run(loaded, given)


def test_sum_that_overflows_is_no_error(tmp_path: Path) -> None:
    model = script(tmp_path / "m.pt", "return x * 1e36")
    with opened(model, sample="uint8") as loaded:
        assert run(loaded, np.full((1, 3, 8, 8), 255, np.uint8)).min() == 255


# ---- exported programs -------------------------------------------------------------------------


def exported(path: Path, *, free: bool) -> Path:
    class Half(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 3, 1, groups=3, bias=False)
            torch.nn.init.constant_(self.conv.weight, 0.5)

        def forward(self, picture: Any) -> Any:
            return self.conv(picture)

    sides = {2: torch.export.Dim("h", min=2), 3: torch.export.Dim("w", min=2)} if free else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(
            Half().eval(), (torch.zeros(1, 3, *SIZE),), dynamic_shapes=(sides,)
        )
        torch.export.save(program, path)
    return path


@pytest.mark.parametrize("free", [True, False])
def test_exported_program_says_what_it_takes(tmp_path: Path, free: bool) -> None:
    model = exported(tmp_path / "m.pt2", free=free)
    with opened(model, sample="uint8") as loaded:
        (spec,) = loaded.info.inputs
        assert spec.name == "picture"
        assert spec.shape == ((1, 3, -1, -1) if free else (1, 3, 48, 64))
        assert loaded.info.facts["format"] == "torch.export program"
        assert np.array_equal(run(loaded, codes()), scaled(codes(), 0.5))


def test_exported_program_with_objects_in_it_is_refused(tmp_path: Path) -> None:
    model = exported(tmp_path / "m.pt2", free=False)
    bad = rewritten(model, "constants_config.json", lambda _: OPAQUE)
    with pytest.raises(ModelError, match="would run code") as error:
        backends.load("torch", bad, Options())
    one_line(error, "bad.pt2")


OPAQUE = b'{"config": {"c": {"path_name": "opaque_obj_0", "is_param": false, "use_pickle": true}}}'


def test_exported_program_with_pickled_code_does_not_run_it(tmp_path: Path) -> None:
    model = exported(tmp_path / "m.pt2", free=False)
    mark = tmp_path / "ran"
    bad = rewritten(model, "sample_inputs/model.pt", lambda _: evil(mark))
    with pytest.raises(ModelError, match="refused") as error:
        backends.load("torch", bad, Options())
    one_line(error, "bad.pt2")
    assert not mark.exists()


# ---- what files may do -------------------------------------------------------------------------


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.mark,))


def evil(mark: Path) -> bytes:
    made = io.BytesIO()
    torch.save({"weight": Evil(mark)}, made)
    return made.getvalue()


def rewritten(model: Path, ending: str, change: Callable[[bytes], bytes]) -> Path:
    """A copy of a zip file, called bad, with the entries of that ending changed."""
    bad = model.with_name(f"bad{model.suffix}")
    with zipfile.ZipFile(model) as source, zipfile.ZipFile(bad, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            target.writestr(name, change(data) if name.endswith(ending) else data)
    return bad


@pytest.fixture
def fake_spandrel(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module that knows one architecture: weights called `gain`."""

    class UnsupportedModelError(Exception):
        pass

    class ImageModelDescriptor:
        purpose, scale, input_channels, tiling = "SR", 2, 1, types.SimpleNamespace(name="SUPPORTED")
        supports_half, supports_bfloat16 = False, True
        architecture = types.SimpleNamespace(name="Nearest")
        size_requirements = types.SimpleNamespace(minimum=8, multiple_of=4, square=False)

        def __init__(self, gain: Any) -> None:
            self.model = torch.nn.Module()
            self.model.register_buffer("gain", gain)

        def eval(self) -> None:
            self.model.eval()

        def __call__(self, picture: Any) -> Any:
            return torch.nn.functional.interpolate(picture * self.model.gain, scale_factor=2.0)

    class ModelLoader:
        def __init__(self, device: str) -> None:
            self.device = device

        def load_from_state_dict(self, weights: dict[str, Any]) -> Any:
            if "mask" in weights:
                return types.SimpleNamespace(architecture=types.SimpleNamespace(name="LaMa"))
            if "gain" not in weights:
                raise UnsupportedModelError
            return ImageModelDescriptor(weights["gain"])

    fake: Any = types.ModuleType("spandrel")
    fake.__spec__ = types.SimpleNamespace()
    fake.UnsupportedModelError = UnsupportedModelError
    fake.ImageModelDescriptor = ImageModelDescriptor
    fake.ModelLoader = ModelLoader
    monkeypatch.setitem(sys.modules, "spandrel", fake)
    return fake  # type: ignore[no-any-return]


def checkpoint(path: Path, weights: dict[str, Any], *, legacy: bool = False) -> Path:
    torch.save(weights, path, _use_new_zipfile_serialization=not legacy)
    return path


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", ["m.pth", "m.ckpt", "m.pt"])
@pytest.mark.usefixtures("fake_spandrel")
def test_weights_run_through_spandrel(tmp_path: Path, name: str, legacy: bool) -> None:
    model = checkpoint(tmp_path / name, {"gain": torch.tensor(0.5)}, legacy=legacy)
    given = codes(1)
    with opened(model, sample="uint8") as loaded:
        info = loaded.info
        assert info.inputs[0].shape == (-1, 1, -1, -1)
        assert info.facts["scale"] == "2"
        assert info.facts["size"] == "at least 8x8, multiples of 4"
        assert info.facts["architecture"] == "Nearest"
        made = run(loaded, given)
    assert np.array_equal(made, scaled(given, 0.5).repeat(2, 2).repeat(2, 3))


@pytest.mark.usefixtures("fake_spandrel")
def test_network_that_cannot_do_a_precision_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cpu, "precisions", lambda: (Precision.FLOAT16, Precision.FLOAT32))
    model = checkpoint(tmp_path / "m.pth", {"gain": torch.tensor(0.5)})
    with pytest.raises(ModelError, match="Nearest does not compute in float16") as error:
        backends.load("torch", model, Options(precision=Precision.FLOAT16))
    one_line(error, "m.pth")


@pytest.mark.parametrize(
    ("weights", "why"),
    [({"other": 1}, "no network"), ({"mask": 1}, "needs a mask"), ([1, 2], "not weights by name")],
)
@pytest.mark.usefixtures("fake_spandrel")
def test_weights_of_no_network_are_one_line(tmp_path: Path, weights: Any, why: str) -> None:
    with pytest.raises(ModelError, match=why) as error:
        backends.load("torch", checkpoint(tmp_path / "m.pth", weights), Options())
    one_line(error, "m.pth")


def test_weights_without_spandrel_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec("torch")
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "spandrel" else found
    )
    model = checkpoint(tmp_path / "m.pth", {"gain": torch.tensor(0.5)})
    with pytest.raises(BackendUnavailable, match=r"pip install 'avdnn\[spandrel\]'"):
        backends.load("torch", model, Options())


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.usefixtures("fake_spandrel")
def test_checkpoint_that_would_run_code_is_refused(tmp_path: Path, legacy: bool) -> None:
    mark = tmp_path / "ran"
    model = checkpoint(tmp_path / "m.pth", {"gain": Evil(mark)}, legacy=legacy)
    with pytest.raises(ModelError, match="refused") as error:
        backends.load("torch", model, Options())
    one_line(error, "m.pth", "would run its code")
    assert not mark.exists()


@pytest.mark.usefixtures("fake_spandrel")
def test_bare_pickle_is_refused(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    model = tmp_path / "m.pth"
    model.write_bytes(pickle.dumps(Evil(mark), protocol=2))
    with pytest.raises(ModelError) as error:
        backends.load("torch", model, Options())
    one_line(error, "m.pth")
    assert not mark.exists()


# ---- bad files, options and frames -------------------------------------------------------------


def test_custom_operator_that_is_missing_is_named(tmp_path: Path) -> None:
    model = script(tmp_path / "m.pt", "return torch.neg(x)")
    bad = rewritten(model, ".py", lambda text: text.replace(b"torch.neg(", b"ops.nonesuch.frob("))
    with pytest.raises(ModelError, match="nonesuch") as error:
        backends.load("torch", bad, Options())
    one_line(error, "bad.pt", "custom operator")


def test_zip_of_something_else_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ModelError, match="not one that torch writes") as error:
        backends.load("torch", tmp_path / "m.pt", Options())
    one_line(error, "m.pt")


def test_another_backends_file_names_the_backend(tmp_path: Path) -> None:
    (tmp_path / "m.pt").write_bytes(b"FFMPEGDNNNATIVE" + bytes(32))
    with pytest.raises(ModelError, match="native does") as error:
        backends.load("torch", tmp_path / "m.pt", Options())
    one_line(error, "m.pt")


def test_exception_in_forward_is_one_line(tmp_path: Path) -> None:
    source = "if x.size(2) == 48:\n        raise ValueError('not today')\n    return x"
    with opened(script(tmp_path / "m.pt", source), sample="uint8") as loaded:
        with pytest.raises(InferenceError, match="not today") as error:
            run(loaded, codes())
        one_line(error, "torch")
        assert run(loaded, codes(size=(40, 40))).shape == (1, 3, 40, 40)


@pytest.mark.parametrize("device", ["cuda:97", "gpu", "xpu:97", "abacus"])
def test_device_that_is_not_there_lists_those_that_are(tmp_path: Path, device: str) -> None:
    with pytest.raises(DeviceError, match="cpu") as error:
        backends.load("torch", script(tmp_path / "m.pt", "return x"), Options(device=device))
    one_line(error, device)


def test_precision_that_the_processor_lacks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cpu, "precisions", lambda: (Precision.FLOAT32,))
    model = script(tmp_path / "m.pt", "return x")
    with pytest.raises(DeviceError, match="bfloat16") as error:
        backends.load("torch", model, Options(precision=Precision.BFLOAT16))
    one_line(error, "float32")


def test_bfloat16_runs_where_the_processor_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cpu, "precisions", lambda: (Precision.BFLOAT16, Precision.FLOAT32))
    net = torch.nn.Conv2d(3, 3, 1, groups=3, bias=False)
    torch.nn.init.constant_(net.weight, 0.5)
    model = traced(tmp_path / "m.pt", net, 3)
    with opened(model, sample="uint8", precision=Precision.BFLOAT16) as loaded:
        assert loaded.info.precision is Precision.BFLOAT16
        # 8 bits of mantissa: half a code of 255.
        assert np.abs(run(loaded, codes()).astype(int) - scaled(codes(), 0.5)).max() <= 1


@pytest.mark.parametrize("key", ["optimize", "compile", "capture"])
def test_flag_that_is_no_flag_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(ModelError, match=f"{key}=perhaps") as error:
        backends.load(
            "torch", script(tmp_path / "m.pt", "return x"), Options(config={key: "perhaps"})
        )
    one_line(error, "0 or 1")


def test_flags_of_the_processor_tell_its_precisions(tmp_path: Path) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("model name\t: x\nflags\t\t: fpu sse avx512_bf16 amx_fp16\n")
    assert _cpu.precisions(told) == (Precision.BFLOAT16, Precision.FLOAT16, Precision.FLOAT32)
    told.write_text("Features\t: fp asimd bf16\n")
    assert _cpu.precisions(told) == (Precision.BFLOAT16, Precision.FLOAT32)
    told.write_text("flags\t\t: fpu sse avx2 avx512f\n")
    assert _cpu.precisions(told) == (Precision.FLOAT32,)
    assert _cpu.precisions(tmp_path / "nonesuch") == (Precision.FLOAT32,)


# ---- compiling ---------------------------------------------------------------------------------


def test_compiling_without_a_compiler_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fused(*_: Any) -> Any:
        raise ModelError("torch.compile failed: No working C++ compiler found in [None, 'g++']")

    monkeypatch.setattr(_torch_fused, "fused", fused)
    model = script(tmp_path / "m.pt", "return x * 0.5")
    with pytest.raises(ModelError, match=r"needs a C\+\+ compiler") as error:
        backends.load("torch", model, Options(config={"compile": "1"}))
    one_line(error, "m.pt")


def test_compiled_network_is_made_at_load_for_the_size_and_batch_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = []

    def fused(module: Any, example: Any) -> Any:
        shapes.append(tuple(example.shape))
        return module

    monkeypatch.setattr(_torch_fused, "fused", fused)
    model = script(tmp_path / "m.pt", "return x * self.w", weights=torch.full((3, 1, 1), 0.5))
    config = {"compile": "1"}
    with opened(model, sample="uint8", size=SIZE, batch_size=2, config=config) as loaded:
        assert shapes == [(2, 3, *SIZE)]
        assert loaded.info.max_batch == 2
        given = np.concatenate([codes(), codes()])
        assert np.array_equal(run(loaded, given), scaled(given, 0.5))
    assert len(shapes) == 1


def test_capture_is_for_frames_on_a_gpu(tmp_path: Path) -> None:
    model = script(tmp_path / "m.pt", "return x")
    with pytest.raises(ModelError, match="capture=1") as error:
        backends.load("torch", model, Options(config={"capture": "1"}))
    one_line(error, "hwupload")
