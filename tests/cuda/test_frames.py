"""Life of device frames: surfaces, blocks, streams and events, on a device that runs late."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from avdnn import cuda
from avdnn.clock import Clock
from avdnn.cuda import frames as cuda_frames
from avdnn.cuda import tensors as cuda_tensors
from avdnn.cuda.blocks import Memory, Pool
from avdnn.cuda.slots import Slots
from avdnn.errors import DeviceError, FormatError
from avdnn.filters import Context
from avdnn.filters.hwdownload import HwDownload
from avdnn.filters.hwupload import HwUpload
from avdnn.frame import Frame, Layout, Meta, TensorSpec
from avdnn.pixfmt import pixel_format

from .fake_gpu import FakeGpu

WIDTH, HEIGHT = 16, 8
LUMA = TensorSpec("x", (-1, 1, -1, -1), layout=Layout.NCHW)


@pytest.fixture
def gpu(kernels: Path) -> FakeGpu:
    return FakeGpu(kernels)


@dataclass
class Surface:
    """A decoder's surface: a pitch wider than the picture, as NVDEC has it."""

    gpu: FakeGpu
    memory: Any

    def picture(self, number: int) -> Any:
        """The decoder writes picture `number`, in its own stream, and hands the surface out."""
        memory = self.memory

        def write() -> None:
            memory[:HEIGHT, :WIDTH] = number
            memory[HEIGHT:, :WIDTH] = 255 - number

        self.gpu.decode.put(write)
        planes = [
            SimpleNamespace(buffer_ptr=memory.ctypes.data, line_size=64),
            SimpleNamespace(buffer_ptr=memory[HEIGHT:].ctypes.data, line_size=64),
        ]
        return SimpleNamespace(
            sw_format=SimpleNamespace(name="nv12"),
            width=WIDTH,
            height=HEIGHT,
            planes=planes,
            pts=number,
            dts=None,
            duration=1,
            time_base=Fraction(1, 25),
            interlaced_frame=False,
            colorspace=2,
            color_range=0,
            color_primaries=2,
            color_trc=2,
        )


def decoded(gpu: FakeGpu, count: int, slot_frames: int, surfaces: int = 2) -> Iterator[Frame]:
    """Frames from a decoder with few surfaces, which it writes again as soon as they are back.

    The surfaces live until the decoder's stream has passed their last copy.
    """
    pool = [Surface(gpu, np.zeros((HEIGHT * 3 // 2, 64), np.uint8)) for _ in range(surfaces)]
    slots = Slots(gpu, slot_frames)
    for number in range(count):
        yield from frames(gpu, slots.add(pool[number % surfaces].picture(number)))
    yield from frames(gpu, slots.flush())
    gpu.decode.put(pool.clear)


def frames(gpu: FakeGpu, slots: Iterator[Any]) -> Iterator[Frame]:
    for slot in slots:
        for number, stamp in enumerate(slot.stamps):
            meta = Meta(stamp.pts, 1, Fraction(1, 25))
            yield cuda_frames.frame_in(
                gpu,
                slot.block,
                pixel_format("nv12"),
                slot.width,
                slot.height,
                slot.laid,
                number * slot.laid.size,
                meta,
                slot.ready,
            )


def run(gpu: FakeGpu, count: int, slot_frames: int, batch: int) -> list[Frame]:
    """Decode, through tensors and back in `compute`, down on `copies`; two batches wait."""
    down = HwDownload(Context(say=print, clock=Clock()), device=lambda index: gpu)

    def through() -> Iterator[Frame]:
        held: list[Frame] = []
        waiting: deque[list[Frame]] = deque()
        for frame in decoded(gpu, count, slot_frames):
            held.append(frame)
            del frame
            if len(held) == batch:
                waiting.append(infer(held))
                held = []
            if len(waiting) > 2:
                yield from waiting.popleft()
        if held:
            waiting.append(infer(held))
        for made in waiting:
            yield from made

    def infer(sources: list[Frame]) -> list[Frame]:
        flags = gpu.array(gpu.pool.take(4 * len(sources), gpu.compute), (len(sources),), "int32")
        gpu.clear(flags, gpu.compute)
        tensor = cuda_tensors.pack(gpu, sources, LUMA)
        return cuda_tensors.unpack(gpu, tensor, LUMA, sources, flags)

    return list(down(through()))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("slot_frames", "batch"), [(1, 1), (4, 4), (4, 3), (3, 8)])
def test_every_frame_comes_through_whatever_order_the_streams_run_in(
    kernels: Path, seed: int, slot_frames: int, batch: int
) -> None:
    gpu = FakeGpu(kernels, seed)
    made = run(gpu, 40, slot_frames, batch)
    assert [frame.meta.pts for frame in made] == list(range(40))
    for number, frame in enumerate(made):
        assert (frame.planes[0] == number).all()
        assert (frame.planes[1] == 255 - number).all()
    assert gpu.traffic.up == 0


@pytest.mark.parametrize("broken", ["follow", "touch"])
def test_these_tests_would_see_a_missing_event_and_a_block_given_back_too_early(
    kernels: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    if broken == "follow":
        for module in (cuda_frames, cuda_tensors):
            monkeypatch.setattr(module, "follow", lambda frame, stream: None)
    else:
        monkeypatch.setattr("avdnn.cuda.blocks.Block.touch", lambda block, stream: None)
    wrong = 0
    for seed in range(12):
        for number, frame in enumerate(run(FakeGpu(kernels, seed), 40, 2, 2)):
            wrong += not (frame.planes[0] == number).all()
    assert wrong


def test_memory_does_not_grow_with_the_number_of_frames(kernels: Path) -> None:
    held = []
    for count in (60, 240):
        gpu = FakeGpu(kernels, 3)
        run_and_drop = run(gpu, count, 4, 4)
        del run_and_drop
        held.append(gpu.pool.peak)
    assert held[1] <= held[0] * 1.5


def test_upload_leaves_the_host_frame_to_the_caller(gpu: FakeGpu) -> None:
    frame = Frame((np.full((4, 6, 3), 7, np.uint8),), "rgb24", 6, 4, Meta(0, 1, Fraction(1, 25)))
    (uploaded,) = HwUpload(0, device=lambda index: gpu)(iter([frame]))
    frame.planes[0][...] = 99
    assert (cuda_frames.to_host(gpu, uploaded).planes[0] == 7).all()
    assert uploaded.device == "cuda:0"


def test_hwdownload_refuses_host_frames_by_name(gpu: FakeGpu) -> None:
    frame = Frame((np.zeros((4, 6), np.uint8),), "gray", 6, 4, Meta(0, 1, Fraction(1, 25)))
    strict = HwDownload(Context(say=print))
    with pytest.raises(FormatError, match="host memory"):
        list(strict(iter([frame])))
    assert list(HwDownload(Context(say=print), lenient=True)(iter([frame]))) == [frame]


def test_packets_keep_their_place_between_frames(gpu: FakeGpu) -> None:
    source = list(decoded(gpu, 6, 2))
    items: list[Any] = ["a", *source[:3], "b", *source[3:], "c"]
    down = HwDownload(Context(say=print), device=lambda index: gpu)
    got = [item if isinstance(item, str) else item.meta.pts for item in down(iter(items))]
    assert got == ["a", 0, 1, 2, "b", 3, 4, 5, "c"]


def test_frames_of_another_gpu_are_refused(gpu: FakeGpu) -> None:
    frame = next(decoded(gpu, 1, 1))
    other = SimpleNamespace(label="cuda:1")
    with pytest.raises(DeviceError, match=r"cuda:0.*cuda:1"):
        cuda_frames.same_device(other, [frame])  # type: ignore[arg-type]


# ---- pools -------------------------------------------------------------------------------------


class Clockwork:
    """Streams by number, with events that pass when told."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.freed: list[int] = []
        self.room = 10**9
        self.events: list[Any] = []

    def allocate(self, size: int) -> int:
        if size > self.room:
            raise MemoryError(f"{size} bytes")
        self.room -= size
        self.sizes.append(size)
        return len(self.sizes)

    def free(self, pointer: int) -> None:
        self.freed.append(pointer)
        self.room += self.sizes[pointer - 1]

    def mark(self, stream: Any) -> Any:
        event = SimpleNamespace(done=False, waited=0, stream=stream)
        event.synchronize = lambda: setattr(event, "waited", event.waited + 1)
        self.events.append(event)
        return event

    def pool(self, **more: Any) -> Pool:
        return Pool(self.allocate, self.free, self.mark, grain=64, **more)


def stream(number: int) -> Any:
    made = SimpleNamespace(ptr=number, waited=[])
    made.wait_event = made.waited.append
    return made


def test_block_in_use_elsewhere_is_not_waited_for_while_there_is_room() -> None:
    works, one = Clockwork(), stream(1)
    pool = works.pool()
    block = pool.take(100, one)
    pointer = block.pointer
    del block
    other = pool.take(100, stream(2))
    assert other.pointer != pointer
    works.events[0].done = True
    again = stream(3)
    assert pool.take(100, again).pointer == pointer
    assert again.waited == []


def test_without_room_the_stream_waits_for_the_last_use() -> None:
    works = Clockwork()
    works.room = 128
    pool = works.pool()
    block = pool.take(100, stream(1))
    block.touch(stream(2))
    del block
    waiting = stream(3)
    again = pool.take(100, waiting)
    assert [event.stream.ptr for event in waiting.waited] == [1, 2]
    assert again.size == 128
    with pytest.raises(MemoryError):
        pool.take(100, stream(1))


def test_idle_memory_of_an_old_size_makes_room_for_a_new_one() -> None:
    works = Clockwork()
    works.room = 256
    pool = works.pool()
    block = pool.take(200, stream(1))
    del block
    assert pool.take(64, stream(1)).size == 64
    assert works.freed == [1]
    assert works.events[0].waited == 1


def test_idle_memory_above_the_limit_is_freed() -> None:
    works = Clockwork()
    pool = works.pool(idle_limit=256)
    blocks = [pool.take(128, stream(1)) for _ in range(4)]
    blocks.clear()
    pool.take(64, stream(1))
    assert len(works.freed) == 2
    assert pool.peak == 4 * 128
    pool.close()
    assert len(works.freed) == 5


def test_closed_pool_takes_nothing_back() -> None:
    works = Clockwork()
    pool = works.pool()
    block = pool.take(1, stream(1))
    pool.close()
    del block
    assert works.events == []
    assert Memory(1, 2).events == []


# ---- messages ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (35, "driver is missing or older"),
        (100, "no NVIDIA GPU is visible"),
        (101, "no GPU cuda:3"),
        (2, "out of memory"),
        (700, "illegal"),
    ],
)
def test_cuda_errors_say_what_to_do_in_one_line(status: int, words: str) -> None:
    text = cuda.explained("cuda:3", "start", status, "illegal memory access")
    assert words in text
    assert "\n" not in text


def test_exhausted_memory_says_how_much_was_needed() -> None:
    error = cuda.OutOfDeviceMemory("cuda:0", 3 << 20, 1 << 20, 8 << 30)
    assert "3.0 MiB more are needed" in str(error)
    assert "batch_size=" in str(error)
    assert "fit=tile" in str(error)
    assert isinstance(error, DeviceError)
    assert error.exit_code == 3
