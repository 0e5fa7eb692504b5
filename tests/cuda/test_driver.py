"""Calls of NVIDIA's driver, on a library that only notes them."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest

from avdnn.cuda import driver as cuda_driver
from avdnn.cuda.driver import Driver, Stream, packed
from avdnn.errors import DeviceError


class Library:
    """Answers every call with success, or with `status`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.status = 0
        self.events = 0

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> int:
            self.calls.append((name, args))
            if name == "cuEventCreate":
                self.events += 1
                args[0]._obj.value = 100 + self.events
            if name == "cuGetErrorString":
                args[1]._obj.value = b"a reason"
                return 0
            return self.status

        return call


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(ctypes, "PyDLL", lambda name: made)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: made)
    return made


def test_arguments_lie_as_c_lays_them_out() -> None:
    data = packed((1, 2.5, 3.5, 4, 5.5))
    assert len(data) == 28
    assert struct.unpack_from("<q", data, 0) == (1,)
    assert struct.unpack_from("<ff", data, 8) == (2.5, 3.5)
    assert struct.unpack_from("<q", data, 16) == (4,)
    assert struct.unpack_from("<f", data, 24) == (5.5,)
    assert len(packed((1.0, 2))) == 16


def test_events_are_made_once_and_used_again(library: Library) -> None:
    driver = Driver("cuda:0")
    for _ in range(5):
        event = driver.event()
        driver.record(event, 7)
        del event
    assert library.events == 1
    held = [driver.event() for _ in range(3)]
    assert library.events == 3
    assert len({event.handle for event in held}) == 3


def test_passed_event_is_not_asked_again(library: Library) -> None:
    driver = Driver("cuda:0")
    event = driver.event()
    library.status = cuda_driver.NOT_READY
    assert not event.done
    library.status = 0
    assert event.done
    library.calls.clear()
    assert event.done
    event.synchronize()
    assert library.calls == []


def test_stream_waits_by_its_handle(library: Library) -> None:
    class Owner:
        ptr = 77

    driver = Driver("cuda:0")
    event = driver.event()
    Stream(driver, Owner()).wait_event(event)
    name, args = library.calls[-1]
    assert name == "cuStreamWaitEvent"
    assert (args[0].value, args[1].value) == (77, event.handle)


def test_work_of_other_threads_waits_for_who_holds_the_streams(library: Library) -> None:
    driver = Driver("cuda:0")
    event = driver.event()
    ways: list[Callable[[], None]] = [
        lambda: driver.record(event, 7),
        lambda: driver.wait(7, event),
        lambda: driver.copy(1, 2, 3, 7),
        lambda: driver.copy_rows(1, 2, 3, 4, 1, 1, 7),
        lambda: driver.clear(1, 2, 7),
        lambda: driver.launch(1, (1, 1, 1), (1, 1, 1), b"", 7),
        lambda: driver.play(1, 7),
    ]
    before = len(library.calls)
    with driver.taking:
        threads = [threading.Thread(target=way) for way in ways]
        for thread in threads:
            thread.start()
        threads[0].join(0.1)
        assert len(library.calls) == before
        ways[2]()
        assert len(library.calls) == before + 1
    for thread in threads:
        thread.join()
    assert len(library.calls) == before + 1 + len(ways)


def test_stream_waits_once_for_an_event(library: Library) -> None:
    class Owner:
        ptr = 77

    driver = Driver("cuda:0")
    one, other = driver.event(), driver.event()
    made = Stream(driver, Owner())
    library.calls.clear()
    for event in (one, one, other, one):
        made.wait_event(event)
    assert [args[1].value for _, args in library.calls] == [one.handle, other.handle, one.handle]


def test_kernel_gets_its_arguments_in_one_buffer(library: Library) -> None:
    seen = {}

    def launch(*args: Any) -> int:
        extra = args[-1]
        size = ctypes.c_size_t.from_address(extra[3]).value
        seen["data"] = ctypes.string_at(extra[1], size)
        seen["grid"] = args[1:7]
        return 0

    library.cuLaunchKernel = launch  # type: ignore[attr-defined]
    Driver("cuda:0").launch(5, (1, 2, 3), (32, 8, 1), packed((9, 1.5)), 0)
    assert seen == {"data": packed((9, 1.5)), "grid": (1, 2, 3, 32, 8, 1)}


def test_rows_are_copied_with_both_pitches(library: Library) -> None:
    Driver("cuda:0").copy_rows(1000, 256, 2000, 512, 200, 10, 0)
    name, args = library.calls[-1]
    told = args[0]._obj
    assert name == "cuMemcpy2DAsync_v2"
    assert (told.dst_device, told.dst_pitch, told.src_device, told.src_pitch) == (
        1000,
        256,
        2000,
        512,
    )
    assert (told.width, told.height) == (200, 10)
    assert ctypes.sizeof(told) == 128


@pytest.mark.parametrize(
    "call",
    [
        lambda driver, event: driver.record(event, 0),
        lambda driver, event: event.done,
        lambda driver, event: event.synchronize(),
        lambda driver, event: driver.copy(1, 2, 3, 0),
        lambda driver, event: driver.clear(1, 2, 0),
        lambda driver, event: driver.play(1, 0),
    ],
)
def test_failures_name_the_gpu_and_the_reason(
    library: Library, call: Callable[[Driver, Any], Any]
) -> None:
    driver = Driver("cuda:3")
    event = driver.event()
    library.status = 700
    with pytest.raises(DeviceError, match=r"cuda:3 could not .*: a reason"):
        call(driver, event)


def test_missing_driver_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "PyDLL", missing)
    with pytest.raises(DeviceError, match=r"libcuda.so.1 is missing: .*--gpus all"):
        Driver("cuda:0")


def test_stream_is_waited_for_by_an_event_of_its_own(library: Library) -> None:
    owner = type("Owner", (), {"ptr": 7})()
    Stream(Driver("cuda:0"), owner).synchronize()
    names = [name for name, _ in library.calls]
    assert names == ["cuEventCreate", "cuEventRecord", "cuEventSynchronize"]
    recorded, waited = (args for _, args in library.calls[1:])
    assert (recorded[0].value, recorded[1].value) == (101, 7)
    assert waited[0].value == 101
