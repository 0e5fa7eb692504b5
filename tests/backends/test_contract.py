"""The seam's rules, on every backend: the same network in each format gives the same arrays."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends
from avdnn.backends import Backend, Options
from avdnn.errors import AvdnnError, InferenceError, ModelError, NonFiniteError
from avdnn.frame import Layout, Precision, TensorSpec

from ..conftest import require, require_module
from . import affine

ROWS, COLUMNS = 15, 19

MATHS = {
    "half": (0.5, 0.0),
    "affine": (2.0, -0.5),
    "frac": (1.0, 0.3 / 255),
    "frac7": (1.0, 0.7 / 255),
}


@pytest.fixture(params=backends.NAMES)
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend whose module and framework are here."""
    name: str = request.param
    there = importlib.util.find_spec(f"avdnn.backends.{name}") is not None
    require(name, there, f"there is no backend {name} yet")
    require_module(backends.FRAMEWORKS[name])
    return name


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes y = gain * x + offset for a backend, each network once."""
    made: dict[tuple[object, ...], Path] = {}

    def write(name: str, channels: int = 1, gain: float = 0.5, offset: float = 0.0) -> Path:
        key = (name, channels, gain, offset)
        if key not in made:
            folder = tmp_path_factory.mktemp(name)
            made[key] = affine.write(name, folder, channels=channels, gain=gain, offset=offset)
        return made[key]

    return write


@contextmanager
def opened(name: str, model: Path, **options: Any) -> Iterator[Backend]:
    with closing(backends.load(name, model, Options(**options))) as loaded:
        yield loaded


def codes(channels: int = 1, count: int = 1, seed: int = 0) -> np.ndarray:
    """Sample codes, shape (N, H, W, C), all 256 of them among the first."""
    made = np.random.default_rng(seed).integers(0, 256, (count, ROWS, COLUMNS, channels), np.uint8)
    made.ravel()[:256] = np.random.default_rng(seed).permutation(256)
    return made


def tensor(picture: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Codes (N, H, W, C) as the backend wants them."""
    if spec.layout is Layout.NCHW:
        picture = np.ascontiguousarray(picture.transpose(0, 3, 1, 2))
    if spec.is_integer:
        return picture.astype(spec.dtype)
    return np.multiply(picture, np.float32(1 / 255), dtype=np.float32).astype(spec.dtype)


def picture(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Codes (N, H, W, C) from what the backend gave."""
    if spec.layout is Layout.NCHW:
        array = array.transpose(0, 2, 3, 1)
    if spec.is_integer:
        return array
    return np.clip(np.rint(np.float32(255) * array), 0, 255).astype(np.uint8)


def expected(picture: np.ndarray, gain: float, offset: float) -> np.ndarray:
    """What the contract's arithmetic makes of codes."""
    values = np.multiply(picture, np.float32(1 / 255), dtype=np.float32)
    values = values * np.float32(gain) + np.float32(offset)
    return np.clip(np.rint(np.float32(255) * values), 0, 255).astype(np.uint8)


def run(loaded: Backend, given: np.ndarray) -> np.ndarray:
    """Codes through the model's one input and one output."""
    (source,), (target,) = loaded.info.inputs, loaded.info.outputs
    made = loaded.infer_async({source.name: tensor(given, source)}).result()
    return picture(made[target.name], target)


# ---- the same arithmetic everywhere ------------------------------------------------------------


@pytest.mark.parametrize("sample", ["uint8", "float32"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("maths", MATHS)
def test_same_network_gives_the_same_codes_on_every_backend(
    backend: str, written: Callable[..., Path], maths: str, channels: int, sample: str
) -> None:
    gain, offset = MATHS[maths]
    given = codes(channels)
    model = written(backend, channels, gain, offset)
    with opened(backend, model, sample=sample, size=(ROWS, COLUMNS)) as loaded:
        assert np.array_equal(run(loaded, given), expected(given, gain, offset))


def test_reference_models_give_the_same_codes(backend: str, reference: Path) -> None:
    files = [
        (path, channels, numbers)
        for maths, numbers in MATHS.items()
        for channels in (1, 3)
        for path in (reference / "models").glob(f"{maths}_{channels}.*")
        if backends.reads(backend, path)
    ]
    if not files:
        pytest.skip(f"none is in a format that {backend} reads")
    for path, channels, (gain, offset) in files:
        given = codes(channels)
        with opened(backend, path, sample="uint8", size=(ROWS, COLUMNS)) as loaded:
            assert np.array_equal(run(loaded, given), expected(given, gain, offset)), path.name


def test_byte_models_take_and_give_codes(backend: str, seed: Path) -> None:
    files = {seed / "handle_gray_uint8.pb": (1, 2), seed / "handle_rgb_uint8.pb": (3, 10)}
    if not all(backends.reads(backend, path) for path in files):
        pytest.skip(f"{backend} does not read them")
    for path, (channels, added) in files.items():
        # Runtimes differ in what 255 + 2 is in a byte: some saturate.
        given = np.minimum(codes(channels), 255 - added)
        with opened(backend, path, sample="uint8", size=(ROWS, COLUMNS)) as loaded:
            assert np.array_equal(run(loaded, given), given + np.uint8(added)), path.name


def test_odd_reference_models_return_their_input(backend: str, reference: Path) -> None:
    """Another memory format, float16, no batch axis, one channel of three."""
    names = ("ident", "nonc", "fp16out", "rank3", "out1ch")
    files = [reference / "models" / f"{name}.pt" for name in names]
    if not backends.reads(backend, files[0]):
        pytest.skip(f"{backend} does not read them")
    given = codes(3)
    for path in files:
        channels = 1 if path.stem == "out1ch" else 3
        with opened(backend, path, sample="uint8", size=(ROWS, COLUMNS)) as loaded:
            assert np.array_equal(run(loaded, given), given[..., :channels]), path.name


ESPCN = {
    "any size": {
        "native": "seed/espcn.model",
        "openvino": "seed/espcn.xml",
        "tensorflow": "seed/espcn.pb",
    },
    "fixed size": {
        "onnx": "reference/models/espcn.onnx",
        "openvino": "seed/espcn1080p.xml",
        "tensorflow": "seed/espcn.sr1080p.pb",
    },
}
"""Two trainings of one network, each in the formats that it exists in."""


@pytest.mark.parametrize("size", [(48, 64), (47, 63)])
@pytest.mark.parametrize("training", ESPCN)
def test_espcn_is_within_one_code_in_every_format(
    data: Path, training: str, size: tuple[int, int]
) -> None:
    rows, columns = size
    given = np.add.outer(np.arange(rows) * 3, np.arange(columns) * 2).astype(np.uint8)
    made = {}
    for name, file in ESPCN[training].items():
        there = importlib.util.find_spec(f"avdnn.backends.{name}") is not None
        if there and backends.installed(name):
            with opened(name, data / file, sample="uint8", size=size) as loaded:
                made[name] = run(loaded, given[None, :, :, None]).astype(np.int16)
    require("openvino", len(made) > 1, "fewer than two backends are installed")
    first = made.pop(next(iter(made)))
    assert first.shape == (1, 2 * rows, 2 * columns, 1)
    for name, other in made.items():
        difference = np.abs(first - other)
        # float32 sums in another order: a value next to a rounding border may fall either way
        assert difference.max() <= 1, name
        assert (difference > 0).mean() < 0.001, name


# ---- rule 1: what arrays may look like ---------------------------------------------------------


def test_input_may_have_any_strides(backend: str, written: Callable[..., Path]) -> None:
    given = codes(3)
    with opened(backend, written(backend, 3), sample="uint8", size=(ROWS, COLUMNS)) as loaded:
        (source,), (target,) = loaded.info.inputs, loaded.info.outputs
        whole = tensor(given, source)
        pitched = np.zeros((*whole.shape[:3], whole.shape[3] + 5), whole.dtype)[..., :-5]
        pitched[...] = whole
        reversed_twice = np.ascontiguousarray(whole[:, ::-1, :, ::-1])[:, ::-1, :, ::-1]
        read_only = whole.copy()
        read_only.flags.writeable = False
        for view in (pitched, reversed_twice, read_only):
            made = loaded.infer_async({source.name: view}).result()[target.name]
            assert np.array_equal(picture(made, target), expected(given, 0.5, 0.0))


def test_batch_gives_what_single_frames_give(backend: str, written: Callable[..., Path]) -> None:
    given = codes(1, count=3)
    options = {"sample": "uint8", "size": (ROWS, COLUMNS)}
    with opened(backend, written(backend), batch_size=3, **options) as loaded:
        assert loaded.info.max_batch in (None, 3)
        assert np.array_equal(run(loaded, given), expected(given, 0.5, 0.0))


def test_info_tells_what_runs(backend: str, written: Callable[..., Path]) -> None:
    with opened(backend, written(backend, 3)) as loaded:
        info = loaded.info
        assert info.inputs[0].channels == 3
        assert info.inputs[0].dtype == "float32"
        assert info.precision is Precision.FLOAT32
        assert "host" in info.memory
        assert info.max_in_flight >= 1
        assert info.device.lower().startswith("cpu")
    assert Precision.FLOAT32 in backends.module(backend).precisions(Options())


def test_describe_names_a_version_and_the_cpu(backend: str) -> None:
    told = backends.module(backend).describe()
    assert told["version"][0].isdecimal()
    assert "cpu" in [name.lower() for name in told["devices"]]


# ---- rule 2: who owns what ---------------------------------------------------------------------


def test_outputs_belong_to_the_caller(backend: str, written: Callable[..., Path]) -> None:
    first, second = codes(1, seed=1), codes(1, seed=2)
    options = {"sample": "uint8", "size": (ROWS, COLUMNS)}
    with opened(backend, written(backend), nireq=1, **options) as loaded:
        (source,), (target,) = loaded.info.inputs, loaded.info.outputs
        given = tensor(first, source)
        kept = loaded.infer_async({source.name: given}).result()[target.name]
        assert not np.shares_memory(kept, given)
        for _ in range(3):
            run(loaded, second)
        assert np.array_equal(picture(kept, target), expected(first, 0.5, 0.0))
        kept[...] = 0
        assert np.array_equal(run(loaded, first), expected(first, 0.5, 0.0))
    assert not kept.any()


# ---- rules 3 and 5: futures --------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [True, False])
def test_each_future_holds_its_own_result(
    backend: str, written: Callable[..., Path], asynchronous: bool
) -> None:
    options = {"sample": "uint8", "size": (ROWS, COLUMNS), "asynchronous": asynchronous}
    with opened(backend, written(backend), nireq=3, **options) as loaded:
        (source,), (target,) = loaded.info.inputs, loaded.info.outputs
        jobs = [codes(1, seed=seed) for seed in range(12)]
        arrays = [tensor(job, source) for job in jobs]
        futures = [loaded.infer_async({source.name: array}) for array in arrays]
        for job, future in reversed(list(zip(jobs, futures, strict=True))):
            made = picture(future.result()[target.name], target)
            assert np.array_equal(made, expected(job, 0.5, 0.0))


def test_failure_is_put_into_the_future(backend: str, written: Callable[..., Path]) -> None:
    with opened(backend, written(backend, 3), size=(ROWS, COLUMNS)) as loaded:
        (source,) = loaded.info.inputs
        wrong_channels = np.zeros((1, 2, 2, 2), source.dtype)
        failed = loaded.infer_async({source.name: wrong_channels})
        with pytest.raises(InferenceError) as error:
            failed.result()
        assert "\n" not in str(error.value)
        assert np.array_equal(run(loaded, codes(3)), expected(codes(3), 0.5, 0.0))


def test_more_failures_than_slots_do_not_block(backend: str, written: Callable[..., Path]) -> None:
    with opened(backend, written(backend), nireq=1, size=(ROWS, COLUMNS)) as loaded:
        (source,) = loaded.info.inputs
        for _ in range(4):
            failed = loaded.infer_async({source.name: np.zeros((1, 2), source.dtype)})
            assert isinstance(failed.exception(), InferenceError)


# ---- rule 6: the end ---------------------------------------------------------------------------


def test_close_waits_and_may_be_called_twice(backend: str, written: Callable[..., Path]) -> None:
    loaded = backends.load(backend, written(backend), Options(size=(ROWS, COLUMNS), nireq=4))
    (source,) = loaded.info.inputs
    given = tensor(codes(), source)
    futures = [loaded.infer_async({source.name: given}) for _ in range(4)]
    loaded.close()
    loaded.close()
    assert all(future.done() and future.exception() is None for future in futures)


# ---- rule 7: values that are no numbers --------------------------------------------------------


@pytest.mark.parametrize("gain", [float("inf"), float("nan")])
def test_not_finite_output_is_an_error_or_given_as_it_is(
    backend: str, written: Callable[..., Path], gain: float
) -> None:
    model = written(backend, 1, gain, 0.0)
    with opened(backend, model, sample="uint8", size=(ROWS, COLUMNS)) as loaded:
        (source,), (target,) = loaded.info.inputs, loaded.info.outputs
        future = loaded.infer_async({source.name: tensor(codes(), source)})
        if target.is_integer:
            with pytest.raises(NonFiniteError):
                future.result()
        else:
            assert not np.isfinite(future.result()[target.name]).all()


# ---- shapes and bad input ----------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, (ROWS, COLUMNS)])
def test_output_shapes_are_those_of_a_run(
    backend: str, written: Callable[..., Path], size: tuple[int, int] | None
) -> None:
    with opened(backend, written(backend, 3), size=size) as loaded:
        (source,), (target,) = loaded.info.inputs, loaded.info.outputs
        given = tensor(codes(3), source)
        told = loaded.output_shapes({source.name: given.shape})
        made = loaded.infer_async({source.name: given}).result()
        assert {name: tuple(shape) for name, shape in told.items()} == {target.name: given.shape}
        assert made[target.name].shape == given.shape
        assert loaded.output_shapes({source.name: given.shape}) == told


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_wrong_tensor_name_lists_the_valid_ones(
    backend: str, written: Callable[..., Path], side: str
) -> None:
    with opened(backend, written(backend)) as loaded:
        valid = [spec.name for spec in getattr(loaded.info, side)]
    with pytest.raises(ModelError, match="nonesuch") as error:
        backends.load(backend, written(backend), Options(**{side: ("nonesuch",)}))
    assert "\n" not in str(error.value)
    assert all(name in str(error.value) for name in valid)


def test_right_tensor_names_are_taken(backend: str, written: Callable[..., Path]) -> None:
    with opened(backend, written(backend)) as loaded:
        inputs = tuple(spec.name for spec in loaded.info.inputs)
        outputs = tuple(spec.name for spec in loaded.info.outputs)
    with opened(backend, written(backend), inputs=inputs, outputs=outputs) as loaded:
        assert np.array_equal(run(loaded, codes()), expected(codes(), 0.5, 0.0))


def test_device_that_does_not_exist_is_named(backend: str, written: Callable[..., Path]) -> None:
    with pytest.raises(AvdnnError, match=r"(?i)abacus") as error:
        backends.load(backend, written(backend), Options(device="abacus"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("damage", ["empty", "text", "cut"])
def test_damaged_file_is_one_line_that_names_it(
    backend: str, written: Callable[..., Path], damage: str, tmp_path: Path
) -> None:
    whole = written(backend, 3)
    bad = tmp_path / f"bad{whole.suffix}"
    data = whole.read_bytes()
    bad.write_bytes({"empty": b"", "text": b"not a model", "cut": data[: len(data) // 2]}[damage])
    with pytest.raises(ModelError, match="bad") as error:
        backends.load(backend, bad, Options())
    assert "\n" not in str(error.value)


def test_broken_reference_file_is_one_line_that_names_it(backend: str, reference: Path) -> None:
    for path in (reference / "models").glob("broken.*"):
        if backends.reads(backend, path):
            with pytest.raises(ModelError, match=path.name) as error:
                backends.load(backend, path, Options())
            assert "\n" not in str(error.value)
