"""The few calls of NVIDIA's driver that a frame loop makes, without giving up the interpreter.

Putting work into a stream takes microseconds. A binding that lets other threads run meanwhile
waits longer for its turn than the call takes; these calls keep it. What may block lets go.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import Any

from ..errors import DeviceError

OUT_OF_MEMORY, NOT_READY = 2, 600
_BLOCKING_SYNC, _NO_TIMING = 1, 2
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 0
_HOST, _DEVICE, _UNIFIED = 1, 2, 4


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = (
        ("src_x", ctypes.c_size_t),
        ("src_y", ctypes.c_size_t),
        ("src_type", ctypes.c_int),
        ("src_host", ctypes.c_void_p),
        ("src_device", ctypes.c_uint64),
        ("src_array", ctypes.c_void_p),
        ("src_pitch", ctypes.c_size_t),
        ("dst_x", ctypes.c_size_t),
        ("dst_y", ctypes.c_size_t),
        ("dst_type", ctypes.c_int),
        ("dst_host", ctypes.c_void_p),
        ("dst_device", ctypes.c_uint64),
        ("dst_array", ctypes.c_void_p),
        ("dst_pitch", ctypes.c_size_t),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


class Driver:
    """libcuda for one GPU; its context must be current on the calling thread.

    Who holds `taking` puts work into streams alone: other threads' work waits.
    """

    def __init__(self, label: str) -> None:
        try:
            self._quick = ctypes.PyDLL("libcuda.so.1")
            self._patient = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DeviceError(
                "libcuda.so.1 is missing: install NVIDIA's driver, or run the container with "
                "--gpus all",
                device=label,
            ) from error
        self._label = label
        self.taking = threading.RLock()
        self._idle: list[int] = []

    def check(self, status: int, doing: str) -> None:
        """DeviceError for a status that is not success."""
        if status:
            text = ctypes.c_char_p()
            self._quick.cuGetErrorString(status, ctypes.byref(text))
            told = (text.value or b"unknown error").decode()
            raise DeviceError(f"{self._label} could not {doing}: {told}", device=self._label)

    # ---- events ----------------------------------------------------------------------------

    def event(self) -> Event:
        """A new event, not recorded yet."""
        try:
            handle = self._idle.pop()
        except IndexError:
            made = ctypes.c_void_p()
            flags = _BLOCKING_SYNC | _NO_TIMING
            self.check(self._quick.cuEventCreate(ctypes.byref(made), flags), "make an event")
            handle = made.value or 0
        return Event(self, handle)

    def record(self, event: Event, stream: int) -> None:
        """Put an event behind all that is in `stream` now."""
        with self.taking:
            status = self._quick.cuEventRecord(
                ctypes.c_void_p(event.handle), ctypes.c_void_p(stream)
            )
        self.check(status, "record an event")

    def wait(self, stream: int, event: Event) -> None:
        """Let what is put into `stream` from now on wait for `event`."""
        with self.taking:
            status = self._quick.cuStreamWaitEvent(
                ctypes.c_void_p(stream), ctypes.c_void_p(event.handle), 0
            )
        self.check(status, "wait for an event")

    def passed(self, handle: int) -> bool:
        """Whether an event has been passed."""
        status: int = self._quick.cuEventQuery(ctypes.c_void_p(handle))
        if status != NOT_READY:
            self.check(status, "run what was put into its streams")
        return status == 0

    def synchronize(self, handle: int) -> None:
        """Wait for an event while other threads run."""
        status = self._patient.cuEventSynchronize(ctypes.c_void_p(handle))
        self.check(status, "run what was put into its streams")

    def reuse(self, handle: int) -> None:
        """Take an event's handle back; streams that wait for it wait for what it marked."""
        self._idle.append(handle)

    # ---- work ------------------------------------------------------------------------------

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy `size` bytes; the addresses tell between which memories."""
        with self.taking:
            status = self._quick.cuMemcpyAsync(
                ctypes.c_uint64(target),
                ctypes.c_uint64(source),
                ctypes.c_size_t(size),
                ctypes.c_void_p(stream),
            )
        self.check(status, "copy")

    def copy_rows(
        self,
        target: int,
        target_pitch: int,
        source: int,
        source_pitch: int,
        width: int,
        rows: int,
        stream: int,
    ) -> None:
        """Copy `rows` of `width` bytes."""
        told = _Copy2D(
            src_type=_UNIFIED,
            src_device=source,
            src_pitch=source_pitch,
            dst_type=_UNIFIED,
            dst_device=target,
            dst_pitch=target_pitch,
            width=width,
            height=rows,
        )
        with self.taking:
            status = self._quick.cuMemcpy2DAsync_v2(ctypes.byref(told), ctypes.c_void_p(stream))
        self.check(status, "copy")

    def clear(self, target: int, size: int, stream: int) -> None:
        """Fill with zero bytes."""
        with self.taking:
            status = self._quick.cuMemsetD8Async(
                ctypes.c_uint64(target),
                ctypes.c_ubyte(0),
                ctypes.c_size_t(size),
                ctypes.c_void_p(stream),
            )
        self.check(status, "clear memory")

    def launch(
        self,
        function: int,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        packed: bytes,
        stream: int,
    ) -> None:
        """Run a kernel; `packed` are its arguments as C lays them out."""
        buffer = ctypes.create_string_buffer(packed, len(packed))
        size = ctypes.c_size_t(len(packed))
        extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, ctypes.addressof(buffer), _BUFFER_SIZE, ctypes.addressof(size), _END
        )
        with self.taking:
            status = self._quick.cuLaunchKernel(
                ctypes.c_void_p(function), *grid, *block, 0, ctypes.c_void_p(stream), None, extra
            )
        self.check(status, "run a kernel")

    def play(self, graph: int, stream: int) -> None:
        """Put a recorded graph into `stream`."""
        with self.taking:
            status = self._quick.cuGraphLaunch(ctypes.c_void_p(graph), ctypes.c_void_p(stream))
        self.check(status, "replay a job")


class Event:
    """A point in a stream's work; its handle is used again when nobody holds it."""

    __slots__ = ("_done", "_driver", "handle")

    def __init__(self, driver: Driver, handle: int) -> None:
        self._driver = driver
        self._done = False
        self.handle = handle

    @property
    def done(self) -> bool:
        """Whether the stream has passed it."""
        self._done = self._done or self._driver.passed(self.handle)
        return self._done

    def synchronize(self) -> None:
        """Wait until the stream has passed it."""
        if not self._done:
            self._driver.synchronize(self.handle)
            self._done = True

    def __del__(self) -> None:
        self._driver.reuse(self.handle)


class Stream:
    """One of the device's streams; `owner` keeps it open."""

    __slots__ = ("_driver", "_waited", "owner", "ptr")

    def __init__(self, driver: Driver, owner: Any) -> None:
        self._driver = driver
        self._waited: Event | None = None
        self.owner = owner
        self.ptr: int = owner.ptr

    def wait_event(self, event: Event) -> None:
        """Let what is put into the stream from now on wait for `event`, which is recorded."""
        if event is not self._waited:
            self._driver.wait(self.ptr, event)
            self._waited = event

    def synchronize(self) -> None:
        """Wait, while other threads run, for what is in the stream now."""
        event = self._driver.event()
        self._driver.record(event, self.ptr)
        event.synchronize()


def packed(args: tuple[int | float, ...]) -> bytes:
    """Arguments as C lays them out: integers 64 bits, floats 32, each at its own alignment."""
    codes = "".join("f" if isinstance(arg, float) else "q" for arg in args)
    return struct.pack(f"@{codes}", *args)
