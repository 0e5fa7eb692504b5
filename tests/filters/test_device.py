"""dnn filters on device frames: a device made of host memory, a network made of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from avdnn import backends, cuda, filters, host
from avdnn.backends import Options
from avdnn.cuda import frames as cuda_frames
from avdnn.errors import DeviceError, FormatError, InferenceError, ModelError, NonFiniteError
from avdnn.filters import Context
from avdnn.frame import Arrays, Frame, Layout, Meta, ModelInfo, Precision, Shapes, TensorSpec
from avdnn.pixfmt import pixel_format

from ..cuda.fake_gpu import FakeGpu

Network = Callable[[Any], Any]


class FakeBackend:
    """Runs `network` in the stream, as a framework would put kernels there."""

    def __init__(
        self,
        gpu: FakeGpu,
        network: Network,
        channels: int,
        options: Options,
        size: tuple[int, int] = (-1, -1),
    ) -> None:
        self._gpu = gpu
        self._network = network
        self.options = options
        self.batches: list[int] = []
        self.closed = False
        self.captures = False
        self.shapes: list[tuple[int, ...]] = []
        shape = (-1, channels, *size)
        # The C++ compiler has no half: a fast precision is float32 here as well.
        self.info = ModelInfo(
            (TensorSpec("x", shape, layout=Layout.NCHW),),
            (TensorSpec("y", (-1, channels, -1, -1), layout=Layout.NCHW),),
            memory=frozenset({"host", "cuda"}),
            device=options.device,
            precision=options.precision,
        )

    def output_shapes(self, inputs: Shapes) -> Shapes:
        return {"y": self._network(np.zeros(inputs["x"], np.float32)).shape}

    def infer_async(self, inputs: Arrays) -> Future[Arrays]:
        given = inputs["x"]
        future: Future[Arrays] = Future()
        wanted = self.info.inputs[0].shape
        if any(own not in (-1, got) for own, got in zip(wanted, given.shape, strict=True)):
            future.set_exception(InferenceError(f"x takes {wanted}, not {given.shape}"))
            return future
        if not self._gpu.holds(given):
            future.set_result({"y": np.asarray(self._network(given), np.float32)})
            return future
        self.batches.append(given.shape[0])
        self.shapes.append(given.shape)
        made = np.empty(self._network(np.zeros(given.shape, np.float32)).shape, np.float32)

        def work() -> None:
            made[...] = self._network(given)

        self.options.stream.put(work)
        future.set_result({"y": made})
        return future

    def capture(self, work: Callable[[], object]) -> Any:
        stream = self.options.stream
        with self._gpu.turn:
            before, stream.work = stream.work, type(stream.work)()
            try:
                work()
            finally:
                recorded, stream.work = list(stream.work), before

        class Graph:
            @staticmethod
            def replay() -> None:
                for piece in recorded:
                    stream.put(piece)

        return Graph

    def close(self) -> None:
        self.closed = True


class Setup:
    """A GPU, a network, and what was loaded and said."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        self.network: Network = lambda x: x
        self.fast: Network | None = None
        self.channels = 1
        self.size = (-1, -1)
        self.fixed_batch: int | None = None
        self.captures = False
        self.memory = frozenset({"host", "cuda"})
        self.loaded: list[FakeBackend] = []
        self.said: list[str] = []

    def load(self, name: str, model: Path, options: Options) -> FakeBackend:
        fast = self.fast if options.precision is not Precision.FLOAT32 else None
        made = FakeBackend(self.gpu, fast or self.network, self.channels, options, self.size)
        made.captures = self.captures
        made.info = replace(made.info, max_batch=self.fixed_batch, memory=self.memory)
        self.loaded.append(made)
        return made

    def run(self, text: str, items: list[Any]) -> list[Any]:
        chain = filters.build(text, Context(say=self.said.append))
        return list(filters.connect(chain, (item for item in items)))


@pytest.fixture
def setup(kernels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Setup:
    made = Setup(FakeGpu(kernels, 5))
    monkeypatch.setattr(cuda, "device", lambda index: made.gpu)
    monkeypatch.setattr(backends, "load", made.load)
    monkeypatch.setattr(backends, "installed", lambda name: True)

    class Module:
        SUFFIXES = (".pt",)

        @staticmethod
        def precisions(options: Options) -> tuple[Precision, ...]:
            return (Precision.FLOAT16, Precision.FLOAT32)

    monkeypatch.setattr(backends, "module", lambda name: Module)
    (tmp_path / "net.pt").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return made


def frames(setup: Setup, count: int, form: str = "nv12", first: int = 0) -> list[Frame]:
    known = pixel_format(form)
    made = []
    for number in range(first, first + count):
        frame = host.empty(form, 16, 8, Meta(number, 1, Fraction(1, 25)))
        for plane in frame.planes:
            plane[...] = min(number + 20, known.peak)
        made.append(cuda_frames.upload(setup.gpu, frame))
    return made


def values(setup: Setup, made: list[Any]) -> list[tuple[int | None, int]]:
    """Time and luma of each frame."""
    got = [cuda_frames.to_host(setup.gpu, frame) for frame in made]
    assert all((frame.planes[0] == frame.planes[0].flat[0]).all() for frame in got)
    return [(frame.meta.pts, int(frame.planes[0].flat[0])) for frame in got]


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("fixed", [None, 4])
def test_frames_come_out_in_order_and_a_short_batch_too(
    setup: Setup, batch: int, fixed: int | None
) -> None:
    setup.network, setup.fixed_batch = lambda x: x / 2, fixed
    text = f"dnn_processing=model=net.pt:precision=float32:batch_size={batch}"
    made = setup.run(text, frames(setup, 10))
    halves = (np.arange(20, 30, dtype=np.float32) * np.float32(1 / 255)) / 2 * np.float32(255)
    expected = list(enumerate(np.rint(halves).astype(int).tolist()))
    assert values(setup, made) == expected
    batches = setup.loaded[0].batches
    assert set(batches) == ({4} if fixed else {batch, 2} if batch == 4 else {1})
    assert setup.loaded[0].closed


def test_model_runs_on_the_frames_own_device_and_stream(setup: Setup) -> None:
    setup.run("dnn_processing=model=net.pt:precision=float32", frames(setup, 1))
    for name in ("gpu", "'gpu\\:0'", "'CUDA\\:0'"):
        text = f"dnn_processing=model=net.pt:precision=float32:device={name}"
        setup.run(text, frames(setup, 1))
    assert len(setup.loaded) == 4
    for loaded in setup.loaded:
        options = loaded.options
        assert (options.device, options.stream) == ("cuda:0", setup.gpu.compute)


def test_enlarged_frames_keep_times_and_their_chroma_grows(setup: Setup) -> None:
    setup.network = lambda x: x.repeat(2, -1).repeat(2, -2)
    made = setup.run("dnn_processing=model=net.pt:precision=float32", frames(setup, 3))
    assert [(frame.width, frame.height, frame.device) for frame in made] == [(32, 16, "cuda:0")] * 3
    got = cuda_frames.to_host(setup.gpu, made[2])
    assert got.planes[1].shape == (8, 16, 2)
    assert (got.planes[1] == 22).all()


def test_colour_model_takes_yuv_frames_through_their_matrix(setup: Setup) -> None:
    setup.channels = 3
    made = setup.run("dnn_processing=model=net.pt:precision=float32", frames(setup, 2, first=100))
    assert [luma for _, luma in values(setup, made)] == [120, 121]
    assert made[0].format == "nv12"


def test_colour_model_has_no_way_from_planar_yuv(setup: Setup) -> None:
    setup.channels = 3
    with pytest.raises(FormatError, match="hwdownload,format=rgb24,hwupload"):
        setup.run("dnn_processing=model=net.pt:precision=float32", frames(setup, 1, "yuv444p"))


def test_auto_takes_the_fast_precision_that_agrees(setup: Setup) -> None:
    made = setup.run("dnn_processing=model=net.pt:options=compile=1", frames(setup, 3))
    assert len(made) == 3
    exact, quick = setup.loaded
    assert (exact.options.precision, quick.options.precision) == ("float32", "float16")
    assert (dict(exact.options.config), dict(quick.options.config)) == ({}, {"compile": "1"})
    assert exact.closed
    assert "torch on cuda:0 in float16" in setup.said[0]


def test_auto_stays_with_float32_where_the_fast_one_differs(setup: Setup) -> None:
    setup.fast = lambda x: x + 0.1
    made = setup.run("dnn_processing=model=net.pt", frames(setup, 2))
    assert values(setup, made) == [(0, 20), (1, 21)]
    assert "float32" in setup.said[0]


def test_fast_precision_that_does_not_load_leaves_no_model_open(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str, model: Path, options: Options) -> FakeBackend:
        if options.precision is not Precision.FLOAT32:
            raise ModelError("there is no room for it")
        return setup.load(name, model, options)

    monkeypatch.setattr(backends, "load", load)
    with pytest.raises(ModelError, match="no room"):
        setup.run("dnn_processing=model=net.pt", frames(setup, 1))
    assert [loaded.closed for loaded in setup.loaded] == [True]


def test_auto_tries_a_precision_on_a_model_of_fixed_batch(setup: Setup) -> None:
    setup.fixed_batch = 4
    made = setup.run("dnn_processing=model=net.pt", frames(setup, 6))
    assert values(setup, made) == [(n, n + 20) for n in range(6)]
    assert {size for backend in setup.loaded for size in backend.batches} == {4}


def blows_up(above: float) -> Network:
    """NaN for pictures of one value that is larger: the test picture is none."""

    def network(x: Any) -> Any:
        flat = np.ptp(x, axis=(1, 2, 3), keepdims=True) < 1 / 512
        return np.where(flat & (x > above / 255), np.nan, x)

    return network


def test_nan_names_the_frame(setup: Setup) -> None:
    setup.network = blows_up(25.5)
    with pytest.raises(NonFiniteError, match=r"frame 6: .*on_nan=retry"):
        setup.run("dnn_processing=model=net.pt:precision=float16:batch_size=4", frames(setup, 10))


def test_nan_is_run_again_in_float32_where_that_is_asked(setup: Setup) -> None:
    setup.fast = blows_up(25.5)
    text = "dnn_processing=model=net.pt:precision=float16:on_nan=retry:batch_size=3"
    made = setup.run(text, frames(setup, 8))
    assert values(setup, made) == [(n, n + 20) for n in range(8)]
    assert [line.split(":")[0] for line in setup.said] == ["frame 6", "frame 7"]


def test_auto_gives_a_precision_up_that_makes_nan_later(setup: Setup) -> None:
    setup.fast = blows_up(25.5)
    made = setup.run("dnn_processing=model=net.pt:batch_size=2", frames(setup, 30))
    assert values(setup, made) == [(n, n + 20) for n in range(30)]
    assert "frame 6" in setup.said[1]
    assert "float32 from here on" in setup.said[1]
    assert max(sum(backend.batches) for backend in setup.loaded[-1:]) > 10


def test_nan_in_float32_too_is_an_error(setup: Setup) -> None:
    setup.network = setup.fast = blows_up(25.5)
    with pytest.raises(NonFiniteError, match=r"frame 6: .*in float32 too"):
        setup.run("dnn_processing=model=net.pt:batch_size=2", frames(setup, 30))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("device='cuda\\:1'", r"cuda:0.*-hwaccel_device and device= the same GPU"),
        ("device=cpu", "put hwdownload before the filter"),
    ],
)
def test_model_on_another_device_is_a_named_error(setup: Setup, options: str, words: str) -> None:
    with pytest.raises(DeviceError, match=words):
        setup.run(f"dnn_processing=model=net.pt:{options}", frames(setup, 1))


def test_backend_of_host_memory_gets_downloaded_frames_and_it_is_said(setup: Setup) -> None:
    setup.memory = frozenset({"host"})
    text = "dnn_processing=model=net.pt:precision=float32"
    with pytest.raises(DeviceError, match="hwdownload"):
        setup.run(f"{text}:strict=1", frames(setup, 2))
    made = setup.run(text, frames(setup, 2))
    assert [frame.device for frame in made] == ["cpu", "cpu"]
    assert "downloaded" in setup.said[-1]


@pytest.mark.parametrize(("batch", "count"), [(1, 9), (4, 16), (4, 11), (8, 3)])
def test_recorded_job_gives_the_same_frames(setup: Setup, batch: int, count: int) -> None:
    setup.network = lambda x: (x / 2).repeat(2, -1).repeat(2, -2)
    text = f"dnn_processing=model=net.pt:precision=float32:batch_size={batch}"
    slot = setup.run("scale=16:8", frames(setup, count))
    expected = setup.run(text, slot)
    calls = len(setup.loaded[0].batches)
    setup.captures = True
    made = setup.run(text, slot)
    for one, other in zip(made, expected, strict=True):
        assert one.meta == other.meta
        pair = [cuda_frames.to_host(setup.gpu, frame).planes for frame in (one, other)]
        assert all(np.array_equal(a, b) for a, b in zip(*pair, strict=True))
    # The first job, once to see what comes out, twice to try it, once to record; never again.
    assert len(setup.loaded[1].batches) == (5 if count > batch else 1)
    assert calls == -(-count // batch)


def test_recording_that_is_asked_for_takes_the_first_job(setup: Setup) -> None:
    setup.captures = True
    text = "dnn_processing=model=net.pt:precision=float32:options=capture=1"
    assert values(setup, setup.run(text, frames(setup, 1))) == [(0, 20)]
    assert len(setup.loaded[0].batches) == 4


def unable(setup: Setup, monkeypatch: pytest.MonkeyPatch, capture: Any) -> None:
    setup.captures = True
    monkeypatch.setattr(FakeBackend, "capture", capture)


CANNOT = "torch cannot record what the network does: it looks at its pixels"


def test_job_that_cannot_be_recorded_goes_step_by_step_and_it_is_said_once(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(backend: FakeBackend, work: Callable[[], object]) -> Any:
        raise ModelError(CANNOT)

    unable(setup, monkeypatch, capture)
    text = "dnn_processing=model=net.pt:precision=float32"
    made = setup.run(text, frames(setup, 9))
    assert values(setup, made) == [(n, n + 20) for n in range(9)]
    assert setup.said == [f"net.pt: jobs are put into the stream step by step: {CANNOT}"]
    with pytest.raises(ModelError, match=f"net.pt: capture=1: {CANNOT}"):
        setup.run(f"{text}:options=capture=1", frames(setup, 9))
    assert setup.loaded[-1].closed


def test_recording_of_other_pixels_is_not_used(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Graph:
        """Does nothing: what was there stays."""

        @staticmethod
        def replay() -> None:
            pass

    unable(setup, monkeypatch, lambda backend, work: Graph)
    text = "dnn_processing=model=net.pt:precision=float32"
    made = setup.run(text, frames(setup, 9))
    assert values(setup, made) == [(n, n + 20) for n in range(9)]
    assert len(setup.said) == 1
    assert "same pixels" in setup.said[0]


def test_memory_that_a_recording_lacks_is_told_where_it_was_asked_for(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capture(backend: FakeBackend, work: Callable[[], object]) -> Any:
        cause = RuntimeError("CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has")
        raise ModelError("it cannot be recorded") from cause

    unable(setup, monkeypatch, capture)
    text = "dnn_processing=model=net.pt:precision=float32"
    assert len(setup.run(text, frames(setup, 3))) == 3
    with pytest.raises(DeviceError, match=r"3.00 GiB more are needed.*batch_size="):
        setup.run(f"{text}:options=capture=1", frames(setup, 3))


def test_precision_that_is_given_up_is_recorded_anew(setup: Setup) -> None:
    setup.captures, setup.fast = True, blows_up(25.5)
    made = setup.run("dnn_processing=model=net.pt:batch_size=2", frames(setup, 40))
    assert values(setup, made) == [(n, n + 20) for n in range(40)]
    assert "float32 from here on" in setup.said[1]
    assert setup.loaded[-1].batches.count(2) == 5


def test_recorded_job_takes_frames_of_slots_at_once_and_falls_back_for_others(
    setup: Setup,
) -> None:
    setup.captures = True
    text = "dnn_processing=model=net.pt:precision=float32:batch_size=4"
    once = setup.run(text, frames(setup, 8))
    mixed = [*once[4:], *once[:2], *frames(setup, 3, first=50)]
    made = setup.run(text, mixed)
    wanted = [(n, n + 20) for n in (4, 5, 6, 7, 0, 1, 50, 51, 52)]
    assert values(setup, made) == wanted


def test_recorded_job_leaves_frames_of_another_matrix_to_others(setup: Setup) -> None:
    setup.channels = 3
    setup.network = lambda x: x[:, ::-1] * np.float32(0.5)
    tagged = []
    for number, frame in enumerate(frames(setup, 12)):
        template = av.VideoFrame(16, 8, "nv12")
        template.colorspace = 1 if number < 6 else 5
        tagged.append(replace(frame, meta=replace(frame.meta, template=template)))
    text = "dnn_processing=model=net.pt:precision=float32:batch_size=2"
    expected = setup.run(text, tagged)
    setup.captures = True
    made = setup.run(text, tagged)
    for one, other in zip(made, expected, strict=True):
        pair = [cuda_frames.to_host(setup.gpu, frame).planes for frame in (one, other)]
        assert all(np.array_equal(a, b) for a, b in zip(*pair, strict=True))
    # Recorded: the first job, four times while it is recorded, and the three of the other matrix.
    assert len(setup.loaded[1].batches) == 8
    setup.channels, setup.network = 1, lambda x: x
    setup.run(text, tagged)
    assert len(setup.loaded[2].batches) == 5


def test_recorded_job_tells_nan_of_its_own_frames(setup: Setup) -> None:
    setup.captures, setup.network = True, blows_up(27.5)
    text = "dnn_processing=model=net.pt:precision=float32:batch_size=4"
    with pytest.raises(NonFiniteError, match="frame 8"):
        setup.run(text, frames(setup, 12))
    assert values(setup, setup.run(text, frames(setup, 7))) == [(n, n + 20) for n in range(7)]


def test_exhausted_memory_of_the_framework_is_told_in_one_line(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Exhausted(FakeBackend):
        def infer_async(self, inputs: Arrays) -> Future[Arrays]:
            future: Future[Arrays] = Future()
            error = InferenceError("torch: the model failed")
            cause = "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has"
            error.__cause__ = RuntimeError(cause)
            future.set_exception(error)
            return future

    def load(name: str, model: Path, options: Options) -> FakeBackend:
        return Exhausted(setup.gpu, setup.network, 1, options)

    monkeypatch.setattr(backends, "load", load)
    with pytest.raises(DeviceError, match=r"3.00 GiB more are needed.*batch_size="):
        setup.run("dnn_processing=model=net.pt:precision=float32", frames(setup, 1))


def test_leaving_early_waits_for_the_stream_and_closes_the_model(setup: Setup) -> None:
    text = "dnn_processing=model=net.pt:precision=float32:batch_size=2"
    chain = filters.build(text, Context(say=setup.said.append))

    def source() -> Iterator[Any]:
        yield from frames(setup, 20)

    made: Any = filters.connect(chain, source())
    next(made)
    made.close()
    assert setup.loaded[0].closed
