"""One NVIDIA GPU: context, streams, events, memory, kernels. The only module that imports cupy.

Four streams and nothing that waits for the whole device: `decode` is the legacy default stream,
FFmpeg's own; `compute` runs networks and kernels, shared with the framework; `copies` carries
transfers; `encode` is NVENC's. The last three do not wait for the default stream unless an event
says so.
"""

from __future__ import annotations

import atexit
import importlib.util
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from ..errors import BackendUnavailable, DeviceError
from ..frame import Array
from .blocks import Block, Event, Pool
from .driver import Driver, Stream, packed
from .failures import OUT_OF_MEMORY, OutOfDeviceMemory, explained
from .geometry import Plane

SAMPLES = {"uint8": "unsigned char", "uint16": "unsigned short"}
TENSORS = {"float32": "float", "float16": "half_t", "bfloat16": "bfloat_t"}
TILE = (32, 8)
"""Threads of a block across and down."""

_current = threading.local()
"""The GPU that is current on each thread, as far as `use` made it so."""


@dataclass(slots=True)
class Traffic:
    """Bytes that went over the bus."""

    up: int = 0
    down: int = 0


class Device:
    """The GPU `index` of this process; see `device()`, which keeps one object for each."""

    dlpack_type = 2
    """DLPack's number of CUDA devices."""

    def __init__(self, index: int) -> None:
        self._cp: Any = _cupy()
        self.index = index
        self.label = f"cuda:{index}"
        self.traffic = Traffic()
        self._modules: dict[tuple[str, str], Any] = {}
        self._functions: dict[tuple[str, str, str], int] = {}
        self._tables: dict[int, tuple[Array, Any]] = {}
        self._lock = threading.Lock()
        self._jobs = threading.RLock()
        with reporting(self.label, "start"):
            count = self._cp.cuda.runtime.getDeviceCount()
            if not 0 <= index < count:
                have = f"cuda:0 to cuda:{count - 1}" if count > 1 else "cuda:0 alone"
                raise DeviceError(f"no GPU cuda:{index}; this machine has {have}", device="cuda")
            self.use()
            self._cp.cuda.runtime.free(0)
            properties = self._cp.cuda.runtime.getDeviceProperties(index)
            self.name: str = properties["name"].decode()
            streams = self._cp.cuda.Stream
            self._driver = Driver(self.label)
            self._taking = self._driver.taking
            self.decode = Stream(self._driver, streams.null)
            self.compute = Stream(self._driver, streams(non_blocking=True))
            self.copies = Stream(self._driver, streams(non_blocking=True))
            # PyAV names a stream to encoders on the first GPU alone; others use the default one.
            own = streams(non_blocking=True) if index == 0 else streams.null
            self.encode = Stream(self._driver, own)
        self.pool = Pool(self._allocate, self._cp.cuda.runtime.free, self.mark)
        self.pinned = Pool(self._allocate_pinned, self._cp.cuda.runtime.freeHost, self.mark)
        atexit.register(self.close)

    def use(self) -> None:
        """Make this GPU and its primary context current on the calling thread."""
        if getattr(_current, "index", None) != self.index:
            self._cp.cuda.runtime.setDevice(self.index)
            _current.index = self.index

    def close(self) -> None:
        """Free what is idle; nothing goes back to the pools any more."""
        self.pool.close()
        self.pinned.close()

    # ---- streams -------------------------------------------------------------------------------

    def mark(self, stream: Any) -> Event:
        """An event behind all that is in `stream`; waiting for it lets the thread sleep."""
        event = self.event()
        self.record(event, stream)
        return event

    def event(self) -> Event:
        """An event that waits to be recorded; nothing may wait for it before."""
        self.use()
        return self._driver.event()

    def record(self, event: Any, stream: Any) -> None:
        """Put an event behind all that is in `stream`."""
        self.use()
        with self._taking:
            self._record(event, stream)

    def _record(self, event: Any, stream: Any) -> None:
        self._driver.record(event, stream.ptr)

    @contextmanager
    def job(self) -> Iterator[None]:
        """Put a framework's work into `compute`, when no other thread does so or records."""
        with self._jobs:
            yield

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Keep other threads' work and events out of `compute` while work there is recorded."""
        with self._jobs, self._taking:
            yield

    def order(self, before: Any, after: int) -> None:
        """Let the stream of handle `after` wait for what is in `before` now."""
        event: Any = self.mark(before)
        self._driver.wait(after, event)

    # ---- memory --------------------------------------------------------------------------------

    def _allocate(self, size: int) -> int:
        self.use()
        try:
            pointer: int = self._cp.cuda.runtime.malloc(size)
        except self._cp.cuda.runtime.CUDARuntimeError as error:
            if error.status != OUT_OF_MEMORY:
                raise
            free, total = self._cp.cuda.runtime.memGetInfo()
            raise OutOfDeviceMemory(self.label, size, free, total) from error
        return pointer

    def _allocate_pinned(self, size: int) -> int:
        self.use()
        with reporting(self.label, f"pin {size >> 20} MiB of host memory"):
            pointer: int = self._cp.cuda.runtime.hostAlloc(size, 0)
        return pointer

    def array(self, block: Block, shape: Sequence[int], dtype: str) -> Array:
        """A contiguous tensor in a block, which it keeps alive; bfloat16 is shown as uint16."""
        cp = self._cp
        whole = cp.cuda.UnownedMemory(block.pointer, block.size, block, self.index)
        kind = "uint16" if dtype == "bfloat16" else dtype
        return cp.ndarray(tuple(shape), kind, cp.cuda.MemoryPointer(whole, 0))

    def adopt(self, array: Any) -> Array:
        """A framework's tensor on this GPU as an array over the same memory; nothing waits.

        What has no CUDA array interface comes through DLPack, ordered on `compute`.
        """
        cp = self._cp
        if isinstance(array, cp.ndarray):
            return array
        told = getattr(array, "__cuda_array_interface__", None)
        if told is None:
            with self.compute.owner:
                return cp.from_dlpack(array)
        kind, shape, strides = np.dtype(told["typestr"]), told["shape"], told.get("strides")
        reach = zip(shape, strides or (), strict=False)
        size = kind.itemsize + sum((count - 1) * step for count, step in reach)
        size = max(size, int(np.prod(shape)) * kind.itemsize)
        whole = cp.cuda.UnownedMemory(told["data"][0], size, array, self.index)
        return cp.ndarray(shape, kind, cp.cuda.MemoryPointer(whole, 0), strides)

    def pointer(self, array: Any) -> int:
        """Where a plane or an array of this device begins."""
        if isinstance(array, Plane):
            return array.pointer
        address: int = array.data.ptr
        return address

    def table(self, values: Array) -> Array:
        """A small constant array on the device; one copy for each array object."""
        known = self._tables.get(id(values))
        if known is None:
            # A stream whose work is recorded cannot be waited for.
            with self._taking, self._lock:
                known = self._tables.get(id(values)) or self._told(values)
        return known[1]

    def _told(self, values: Array) -> tuple[Array, Any]:
        self.use()
        with self.compute.owner as stream:
            made = values, self._cp.asarray(values)
            stream.synchronize()
        self._tables[id(values)] = made
        return made

    def copy(
        self,
        target: int,
        target_pitch: int,
        source: int,
        source_pitch: int,
        width: int,
        rows: int,
        stream: Any,
        *,
        way: str = "within",
    ) -> None:
        """Copy `rows` of `width` bytes: "up" to the device, "down" to pinned memory, "within"."""
        if way == "up":
            self.traffic.up += width * rows
        elif way == "down":
            self.traffic.down += width * rows
        self.use()
        if target_pitch == source_pitch == width:
            self._driver.copy(target, source, width * rows, stream.ptr)
            return
        self._driver.copy_rows(target, target_pitch, source, source_pitch, width, rows, stream.ptr)

    def clear(self, array: Array, stream: Any) -> None:
        """Fill a contiguous array with zero bytes."""
        self.use()
        self._driver.clear(array.data.ptr, array.nbytes, stream.ptr)

    # ---- kernels -------------------------------------------------------------------------------

    def launch(
        self,
        kernel: str,
        sample: str,
        tensor: str,
        grid: tuple[int, int, int],
        args: Sequence[int | float],
        stream: Any,
    ) -> None:
        """Run one of kernels.cu; integers go as 64 bits, floats as 32."""
        self.use()
        function = self._functions.get((kernel, sample, tensor))
        if function is None:
            function = self._function(kernel, sample, tensor)
        self._driver.launch(function, grid, (*TILE, 1), packed(tuple(args)), stream.ptr)

    def play(self, graph: int) -> None:
        """Put a graph that a framework recorded into `compute`."""
        self.use()
        self._driver.play(graph, self.compute.ptr)

    def _function(self, kernel: str, sample: str, tensor: str) -> int:
        with self._lock:
            module = self._modules.get((sample, tensor))
            if module is None:
                source = resources.files(__package__).joinpath("kernels.cu").read_text()
                kinds = f"#define SAMPLE {SAMPLES[sample]}\n#define TENSOR {TENSORS[tensor]}\n"
                module = self._cp.RawModule(code=kinds + source, options=("-std=c++17",))
                self._modules[sample, tensor] = module
            function: int = module.get_function(kernel).kernel.ptr
            self._functions[kernel, sample, tensor] = function
            return function

    def memory(self) -> tuple[int, int]:
        """Free and total bytes of the device, all programs counted."""
        self.use()
        free, total = self._cp.cuda.runtime.memGetInfo()
        return int(free), int(total)


_devices: dict[int, Device] = {}
_opening = threading.Lock()


def device(index: int = 0) -> Device:
    """The GPU of that index: one object a process."""
    with _opening:
        if index not in _devices:
            _devices[index] = Device(index)
        return _devices[index]


def opened() -> list[Device]:
    """The GPUs that this process uses."""
    return list(_devices.values())


def installed() -> bool:
    """Whether cupy is there, without importing it."""
    found = importlib.util.find_spec("cupy")
    return found is not None and found.origin is not None  # no origin: a folder of that name


def _cupy() -> Any:
    if not installed():
        raise BackendUnavailable("frames on a GPU need cupy: pip install 'avdnn[cuda]'")
    import cupy

    return cupy


@contextmanager
def reporting(label: str, doing: str) -> Iterator[None]:
    """Turn CUDA's errors into a DeviceError of one line that says what to do."""
    cp = _cupy()
    try:
        yield
    except cp.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(
            explained(label, doing, error.status, str(error)), device=label
        ) from error
