"""What a dnn filter does around its model: precision, batches, order, errors, formats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends, host
from avdnn.errors import (
    FormatError,
    GraphError,
    InferenceError,
    ModelError,
    NonFiniteError,
    UsageError,
)
from avdnn.filters import Context, build, connect
from avdnn.filters._pictures import fitting
from avdnn.frame import Frame, Precision
from avdnn.pixfmt import FORMATS

from ..test_host import random_frame
from .fake import FakeModule, install

FAST = (Precision.BFLOAT16, Precision.FLOAT32)


def clip(count: int, form: str = "yuv420p", width: int = 21, height: int = 13) -> list[Frame]:
    return [random_frame(form, width, height, seed) for seed in range(count)]


class Run:
    """One run of a filter text over frames."""

    def __init__(self, text: str, frames: Any) -> None:
        self.notes: list[str] = []
        self.items = connect(build(text, Context(say=self.notes.append)), iter(frames))

    def all(self) -> list[Any]:
        return list(self.items)


def identity(x: Any, precision: Precision) -> Any:
    return np.array(x)


def off_by(lsb: float) -> Any:
    """A model whose fast precision is that many LSB wrong."""

    def function(x: Any, precision: Precision) -> Any:
        return x + np.float32(0 if precision is Precision.FLOAT32 else lsb / 255)

    return function


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    made: list[FakeModule] = []

    def make(function: Any = identity, **more: Any) -> tuple[FakeModule, str]:
        module = FakeModule(function, **more)
        made.append(module)
        return module, install(monkeypatch, tmp_path, module)

    yield make
    assert [module.open for module in made] == [0] * len(made), "a backend was left open"


@pytest.mark.parametrize("count", [0, 1, 2, 9])
@pytest.mark.parametrize("batch", [1, 4])
def test_one_frame_out_for_each_in_in_order(fake: Any, count: int, batch: int) -> None:
    _, text = fake()
    frames = clip(count)
    out = Run(f"{text}:batch_size={batch}", frames).all()
    assert len(out) == count
    for got, frame in zip(out, frames, strict=True):
        assert np.array_equal(got.planes[0], frame.planes[0])


def test_partial_batch_goes_short_where_the_batch_is_free(fake: Any) -> None:
    module, text = fake()
    Run(f"{text}:batch_size=4:precision=float32", clip(6)).all()
    assert module.batches == [4, 2]


def test_a_fixed_batch_is_filled_and_cut(fake: Any) -> None:
    module, text = fake(fixed_batch=4)
    frames = clip(6)
    out = Run(f"{text}:precision=float32", frames).all()
    assert module.batches == [4, 4]
    assert all(np.array_equal(a.planes[0], b.planes[0]) for a, b in zip(out, frames, strict=True))


def test_auto_takes_the_fast_precision_that_holds(fake: Any) -> None:
    module, text = fake(off_by(0.9), able=FAST)
    run = Run(text, clip(3))
    out = run.all()
    assert [options.precision for options in module.loaded] == ["float32", "bfloat16"]
    assert "in bfloat16 (at most 1 LSB and 48." in run.notes[0]
    assert len(out) == 3


@pytest.mark.parametrize("lsb", [1.6, 5.0, float("nan")])
def test_auto_falls_back_to_float32_and_says_why(fake: Any, lsb: float) -> None:
    _, text = fake(off_by(lsb), able=FAST)
    run = Run(text, clip(2))
    frames = run.all()
    assert "in float32" in run.notes[0]
    assert "bfloat16 is" in run.notes[0]
    assert np.array_equal(frames[1].planes[0], clip(2)[1].planes[0])


def test_black_first_frame_does_not_decide(fake: Any) -> None:
    def wrong_where_bright(x: Any, precision: Precision) -> Any:
        return np.array(x) if precision is Precision.FLOAT32 else x * np.float32(0.9)

    _, text = fake(wrong_where_bright, able=FAST)
    frames = clip(3)
    frames[0].planes[0][...] = 0
    run = Run(text, frames)
    made = run.all()
    assert "in float32 (bfloat16 is " in run.notes[0]
    assert "from float32 on a test picture and the first frame; 4 LSB" in run.notes[0]
    assert np.array_equal(made[2].planes[0], frames[2].planes[0])


def test_first_frame_decides_where_the_test_picture_does_not(fake: Any) -> None:
    def wrong_where_flat(x: Any, precision: Precision) -> Any:
        wrong = precision is not Precision.FLOAT32 and np.ptp(x) == 0
        return x + np.float32(0.1 if wrong else 0)

    _, text = fake(wrong_where_flat, able=FAST)
    frames = clip(2)
    frames[0].planes[0][...] = 0
    run = Run(text, frames)
    run.all()
    assert "in float32 (bfloat16 is 26 LSB" in run.notes[0]


def test_test_picture_that_float32_cannot_take_is_left_out(fake: Any) -> None:
    def only_flat(x: Any, precision: Precision) -> Any:
        return np.array(x) if np.ptp(x) == 0 else np.full_like(x, np.nan)

    _, text = fake(only_flat, able=FAST)
    frames = clip(2)
    for frame in frames:
        frame.planes[0][...] = 7
    run = Run(text, frames)
    assert len(run.all()) == 2
    assert "in bfloat16 (at most 0 LSB and inf dB from float32 on the first frame)" in run.notes[0]


def test_the_asked_precision_is_run_or_refused(fake: Any) -> None:
    module, text = fake(off_by(50), able=FAST)
    Run(f"{text}:precision=bfloat16", clip(1)).all()
    assert [options.precision for options in module.loaded] == ["bfloat16"]
    with pytest.raises(ModelError, match=r"does not run float16.*bfloat16, float32"):
        Run(f"{text}:precision=float16", clip(1)).all()


SAID = [
    ("native", "net.model: Unable to allocate 127. MiB for an array with shape (1, 4320, 7680, 1)"),
    ("openvino", "net.xml: openvino cannot compile it for CPU: std::bad_alloc"),
    (
        "openvino, bytes",
        "net.xml: openvino cannot compile it: Failed to allocate 99 bytes of memory",
    ),
    (
        "onnx",
        "onnx: Non-zero status code returned while running Conv node. Failed to allocate memory"
        " for requested buffer of size 2123366400",
    ),
    (
        "torch",
        "torch: the model failed: [enforce fail at alloc_cpu.cpp:127] err == 0. "
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 2123366400 bytes.",
    ),
    (
        "tensorflow",
        "net.pb: tensorflow: the model failed: OOM when allocating tensor with "
        "shape[1,2160,3840,64]",
    ),
]


@pytest.mark.parametrize("text", [text for _, text in SAID], ids=[name for name, _ in SAID])
@pytest.mark.parametrize("when", ["first", "later"])
@pytest.mark.parametrize("kind", [ModelError, InferenceError])
def test_exhausted_memory_is_told_alike(
    fake: Any, text: str, when: str, kind: type[Exception]
) -> None:
    calls = 0

    def hungry(x: Any, precision: Precision) -> Any:
        nonlocal calls
        calls += 1
        if calls > (0 if when == "first" else 3):
            raise kind(text)
        return np.array(x)

    _, call = fake(hungry, in_flight=1)
    with pytest.raises(InferenceError) as told:
        Run(call, clip(9)).all()
    line = str(told.value)
    way = "use fit=tile, or a smaller nireq= or batch_size="
    assert f"net.fake: memory is exhausted on frames of 21x13: {way} (" in line
    assert text in line
    assert line.startswith("frame ") or when == "first"
    calls = 0
    with pytest.raises(InferenceError, match=r"21x13: use a smaller nireq= or batch_size= \("):
        Run(f"{call}:fit=tile", clip(90)).all()


def test_memory_that_python_lacks_is_told(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, call = fake()

    def none_left(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(host, "pack", none_left)
    with pytest.raises(InferenceError, match=r"memory is exhausted.*batch_size=$"):
        Run(call, clip(2)).all()


def nan_on_dark(x: Any, precision: Precision) -> Any:
    """NaN in the fast precision, for frames that begin with a 0."""
    out = np.array(x)
    if precision is not Precision.FLOAT32 and x[0, 0, 0, 0] == 0:
        out[..., -1] = np.nan
    return out


def dark_third() -> list[Frame]:
    frames = clip(5)
    for frame in frames:
        frame.planes[0][0, 0] = 9
    frames[3].planes[0][0, 0] = 0
    return frames


def test_nan_stops_with_the_frames_number(fake: Any) -> None:
    _, text = fake(nan_on_dark, able=FAST)
    with pytest.raises(NonFiniteError, match=r"frame 3: .*on_nan=retry"):
        Run(f"{text}:precision=bfloat16", dark_third()).all()


@pytest.mark.parametrize("batch", [1, 2])
def test_nan_frames_are_retried_in_float32(fake: Any, batch: int) -> None:
    _, text = fake(nan_on_dark, able=FAST)
    text += f":precision=bfloat16:on_nan=retry:batch_size={batch}"
    frames = dark_third()
    frames[2].planes[0][0, 0] = 0  # first of its batch, where the fake looks
    run = Run(text, frames)
    out = run.all()
    assert all(np.array_equal(a.planes[0], b.planes[0]) for a, b in zip(out, frames, strict=True))
    assert any("again in float32" in note for note in run.notes)


def test_a_failing_model_names_the_frame(fake: Any) -> None:
    def fails(x: Any, precision: Precision) -> Any:
        if round(255 * float(x[0, 0, 0, 0])) == 200:
            raise InferenceError("out of order")
        return x

    _, text = fake(fails)
    frames = dark_third()
    frames[3].planes[0][0, 0] = 200
    with pytest.raises(InferenceError, match="frame 3: out of order"):
        Run(f"{text}:precision=float32", frames).all()


def test_a_model_of_fixed_size_is_made_to_fit(fake: Any) -> None:
    _, text = fake(size=(8, 8))
    run = Run(f"{text}:precision=float32", clip(2))
    out = run.all()
    assert all(np.array_equal(a.planes[0], b.planes[0]) for a, b in zip(out, clip(2), strict=True))
    assert any("tiles of 8x8" in note for note in run.notes)
    with pytest.raises(ModelError, match=r"takes pictures of 8x8.*fit="):
        Run(f"{text}:fit=error", clip(1)).all()


def test_size_changes_reload_and_keep_the_numbering(fake: Any) -> None:
    module, text = fake()
    frames = [*clip(3), *clip(2, width=40, height=30), *clip(1)]
    out = Run(f"{text}:precision=float32", frames).all()
    assert [(frame.width, frame.height) for frame in out] == [
        (frame.width, frame.height) for frame in frames
    ]
    assert [options.size for options in module.loaded] == [(13, 21), (30, 40), (13, 21)]


def test_the_next_reader_gets_a_turn_where_nobody_chose(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, text = fake()
    tried: list[str] = []

    def load(name: str, model: Path, options: Any) -> Any:
        tried.append(name)
        if name == "openvino":
            raise ModelError("net.fake: an operation is missing")
        return module.load(model, options)

    monkeypatch.setattr(backends, "load", load)
    monkeypatch.setattr(backends, "NAMES", ("openvino", "native"))
    monkeypatch.setattr(backends, "installed", lambda name: True)
    with pytest.raises(ModelError, match="an operation is missing"):
        Run(text.replace("=native", "=openvino"), clip(1)).all()
    run = Run(text.replace("=native", "=auto"), clip(2))
    assert len(run.all()) == 2
    assert list(dict.fromkeys(tried)) == ["openvino", "native"]
    assert any("missing; native runs it instead" in note for note in run.notes)


def test_packets_pass_in_place(fake: Any) -> None:
    _, text = fake()
    frames = clip(3)
    items = ["first", frames[0], "a", frames[1], frames[2], "last"]
    out = Run(f"{text}:batch_size=2", items).all()
    assert [item if isinstance(item, str) else "frame" for item in out] == [
        "first",
        "frame",
        "a",
        "frame",
        "frame",
        "last",
    ]


def test_channels_that_do_not_fit_name_the_format_that_does(fake: Any) -> None:
    _, text = fake(channels=3)
    with pytest.raises(FormatError, match=r"takes 3 channels.*yuv420p.*format=rgb24"):
        Run(text, clip(1)).all()
    with pytest.raises(FormatError, match=r"format=gbrp10le"):
        Run(text, clip(1, "yuv420p10le")).all()
    _, text = fake(channels=1)
    with pytest.raises(FormatError, match=r"takes 1 channel and rgb24.*format=yuv420p before"):
        Run(text, clip(1, "rgb24")).all()
    with pytest.raises(FormatError, match=r"takes 1 channel and rgb48le.*format=yuv420p16le"):
        Run(text, clip(1, "rgb48le")).all()


@pytest.mark.parametrize("name", FORMATS)
def test_the_format_that_fits_keeps_depth_and_transparency(name: str) -> None:
    form = FORMATS[name]
    for channels in (1, 3):
        taken = FORMATS[fitting(channels, form).removeprefix("format=")]
        assert taken.channels == channels
        assert taken.depth >= min(form.depth, 16)
        assert taken.alpha == form.alpha


def test_formats_that_no_model_takes_are_converted_and_said(fake: Any) -> None:
    _, text = fake(channels=3)
    run = Run(text, clip(2, "gbrp"))
    assert {frame.format for frame in run.all()} == {"gbrp"}
    rgb444 = [next(Run("format=rgb444le", clip(1, "rgb24")).items) for _ in range(2)]
    run = Run(text, rgb444)
    assert {frame.format for frame in run.all()} == {"rgb24"}
    assert sum("rgb444le frames become rgb24" in note for note in run.notes) == 1


def test_closing_early_closes_the_model_and_the_source(fake: Any) -> None:
    _, text = fake()
    closed: list[bool] = []

    def endless() -> Iterator[Frame]:
        try:
            while True:
                yield clip(1)[0]
        finally:
            closed.append(True)

    run = Run(text, endless())
    next(run.items)
    run.items.close()  # type: ignore[attr-defined]
    assert closed == [True]


def test_sr_enlarges_before_a_model_that_keeps_the_size(fake: Any) -> None:
    _, text = fake()
    run = Run(text.replace("dnn_processing", "sr") + ":scale_factor=3", clip(2))
    assert [(frame.width, frame.height) for frame in run.all()] == [(63, 39)] * 2
    assert len(run.notes) == len(set(run.notes))  # though the model was loaded for both sizes


def test_sr_leaves_an_enlarging_model_alone(fake: Any) -> None:
    def double(x: Any, precision: Precision) -> Any:
        return np.repeat(np.repeat(x, 2, axis=2), 2, axis=3)

    _, text = fake(double)
    out = Run(text.replace("dnn_processing", "sr"), clip(2)).all()
    assert [(frame.width, frame.height) for frame in out] == [(42, 26)] * 2


@pytest.mark.parametrize(("name", "channels", "taken"), [("derain", 1, "3 ch"), ("sr", 3, "1 ch")])
def test_a_filter_that_converts_says_which_models_it_takes(
    fake: Any, name: str, channels: int, taken: str
) -> None:
    _, text = fake(channels=channels)
    with pytest.raises(FormatError, match=f"takes {channels} .*: {name} takes models of {taken}"):
        Run(text.replace("dnn_processing", name), clip(1)).all()


def test_derain_takes_colour(fake: Any) -> None:
    _, text = fake(channels=3)
    run = Run(text.replace("dnn_processing", "derain"), clip(1))
    assert run.all()[0].format in ("rgb24", "gbrp")
    assert len(run.notes) == 2


@pytest.mark.parametrize("value", ["derain", "dehaze", "0", "1"])
def test_derain_takes_ffmpegs_filter_types(fake: Any, value: str) -> None:
    _, text = fake(channels=3)
    text = text.replace("dnn_processing", "derain") + f":filter_type={value}"
    assert len(Run(text, clip(1)).all()) == 1


def test_an_unknown_filter_type_is_an_error(fake: Any) -> None:
    _, text = fake(channels=3)
    with pytest.raises(GraphError, match="filter_type: expected derain or dehaze, got '2'"):
        Run(text.replace("dnn_processing", "derain") + ":filter_type=2", clip(1)).all()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (":batch_size=0", "batch_size"),
        (":precision=float8", "float32"),
        (":fit=sideways", "reshape"),
        (":overlap=8:fit=pad", "overlap=8 is for tiles, and fit=pad makes none"),
        (":overlap=-2", "overlap"),
        (":nonsense=1", "no option 'nonsense'"),
        (":order=grb", "order"),
    ],
)
def test_bad_options_are_refused_before_anything_opens(fake: Any, more: str, said: str) -> None:
    _, text = fake()
    with pytest.raises(GraphError, match=said):
        build(text + more, Context(say=print))


def test_an_overlap_without_tiles_is_said_to_change_nothing(fake: Any) -> None:
    _, text = fake()
    made = Run(f"{text}:overlap=8", clip(2))
    made.all()
    assert [line for line in made.notes if "overlap=8 changes nothing: there are no tiles" in line]
    made = Run(f"{text}:overlap=8:fit=tile", clip(2))
    made.all()
    assert not [line for line in made.notes if "overlap" in line and "nothing" in line]


def test_a_model_is_needed() -> None:
    with pytest.raises(GraphError, match="needs model="):
        build("dnn_processing=dnn_backend=native", Context(say=print))


def test_an_unknown_default_backend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVDNN_BACKEND", "opnvino")
    with pytest.raises(UsageError, match="AVDNN_BACKEND=opnvino: expected auto, openvino"):
        build("dnn_processing=model=espcn-x2", Context(say=print))


@pytest.mark.parametrize(
    ("backend", "text", "device"),
    [("native", "", "gpu"), ("torch", "", ""), ("native", ":device=cpu", "cpu")],
)
def test_the_default_device_belongs_to_the_default_backend(
    fake: Any, monkeypatch: pytest.MonkeyPatch, backend: str, text: str, device: str
) -> None:
    module, call = fake()
    monkeypatch.setenv("AVDNN_BACKEND", backend)
    monkeypatch.setenv("AVDNN_DEVICE", "gpu")
    Run(call + text, clip(1)).all()
    assert {options.device for options in module.loaded} == {device}
