"""A GPU made of host memory: the real kernels.cu through a C++ compiler, streams that run late.

Work put into a stream runs only when somebody waits for an event, streams in random order, so
that a missing event or a block given back too early shows as a wrong result.
"""

from __future__ import annotations

import ctypes
import random
import re
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import avdnn
from avdnn.cuda._device import SAMPLES, TENSORS, TILE, Device, Traffic
from avdnn.cuda.blocks import Block, Pool
from avdnn.cuda.geometry import Plane

KERNELS = Path(avdnn.__file__).with_name("cuda") / "kernels.cu"
COMPILER = shutil.which("g++")

SHIM = """
#include <cmath>
#include <cstring>
#include <algorithm>
using std::min; using std::max;
#define __device__
#define __global__
#define __forceinline__ inline
#define __align__(n) alignas(n)
struct Three { int x, y, z; };
static thread_local Three threadIdx, blockIdx, blockDim;
static inline float __fmul_rn(float a, float b) { volatile float c = a * b; return c; }
static inline float __fadd_rn(float a, float b) { volatile float c = a + b; return c; }
static inline float __fsub_rn(float a, float b) { volatile float c = a - b; return c; }
static inline float __uint_as_float(unsigned int i) { float f; memcpy(&f, &i, 4); return f; }
static inline float __int_as_float(int i) { float f; memcpy(&f, &i, 4); return f; }
static inline unsigned int __float_as_uint(float f) { unsigned int i; memcpy(&i, &f, 4); return i; }
"""
MACROS = {
    "PLANE": "data row frame",
    "TENSOR_OF": "data frame channel row column",
    "NORM": "unit gain offset factor shift peak",
    "WEIGHTS": (
        "black per_luma middle per_chroma red_v green_u green_v blue_u luma_ chroma_ red_ green_ "
        "blue_"
    ),
}


def _names(signature: str) -> list[str]:
    """Argument names of a kernel, its macros spelled out."""
    names: list[str] = []
    for part in re.split(r",\s*", " ".join(signature.split())):
        macro = re.fullmatch(r"(PLANE|TENSOR_OF)\((\w+)\)", part)
        if macro:
            names += [f"{macro[2]}_{field}" for field in MACROS[macro[1]].split()]
        elif part in MACROS:
            names += MACROS[part].split()
        else:
            names.append(part.split()[-1].lstrip("*"))
    return names


def compile_kernels(folder: Path, sample: str, tensor: str) -> ctypes.CDLL:
    """kernels.cu as a shared library with one `cpu_<kernel>(grid, ...)` for each kernel."""
    source = KERNELS.read_text()
    kernels = re.findall(r'extern "C" __global__ void (\w+)\(([^{]*)\) \{', source)
    wrappers = [
        f"""extern "C" void cpu_{name}(wide_t gx, wide_t gy, wide_t gz, {signature}) {{
            blockDim = {{{TILE[0]}, {TILE[1]}, 1}};
            for (int z = 0; z < gz; z++) for (int y = 0; y < gy; y++) for (int x = 0; x < gx; x++)
            for (int j = 0; j < {TILE[1]}; j++) for (int i = 0; i < {TILE[0]}; i++) {{
                blockIdx = {{x, y, z}}; threadIdx = {{i, j, 0}};
                {name}({", ".join(_names(signature))});
            }}
        }}"""
        for name, signature in kernels
    ]
    assert len(wrappers) == 10
    text = f"#define SAMPLE {SAMPLES[sample]}\n#define TENSOR {TENSORS[tensor]}\n{SHIM}\n{source}\n"
    path = folder / f"{sample}_{tensor}.cpp"
    path.write_text(text + "\n".join(wrappers))
    built = path.with_suffix(".so")
    command = [str(COMPILER), "-O2", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-std=c++17"]
    subprocess.run([*command, str(path), "-o", str(built)], check=True)
    return ctypes.CDLL(str(built))


class FakeEvent:
    """Passed when the work that stood before it in its stream has run."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self.passed = False

    @property
    def done(self) -> bool:
        return self.passed

    def synchronize(self) -> None:
        with self._gpu.turn:  # another thread may run what this one is waiting for
            while not self.passed:
                self._gpu.step()


class FakeStream:
    def __init__(self, gpu: FakeGpu, ptr: int) -> None:
        self._gpu = gpu
        self.ptr = ptr
        self.work: deque[Callable[[], None] | FakeEvent] = deque()

    def wait_event(self, event: FakeEvent) -> None:
        self.work.append(event)

    def put(self, work: Callable[[], None]) -> None:
        self.work.append(work)

    def run_one(self) -> bool:
        """Do the next piece of work, unless it is an event that has not passed."""
        if not self.work:
            return False
        first = self.work[0]
        if isinstance(first, FakeEvent):
            if not first.passed:
                return False
            self.work.popleft()
            return True
        self.work.popleft()
        first()
        return True


class FakeGpu(Device):
    """A Device in host memory; `seed` chooses the order in which streams run."""

    dlpack_type = 1

    def __init__(self, folder: Path, seed: int = 0, index: int = 0, room: int = 1 << 40) -> None:
        self.index = index
        self.label = f"cuda:{index}"
        self.name = "fake"
        self.traffic = Traffic()
        self._folder = folder
        self._random = random.Random(seed)
        self.turn = threading.RLock()
        self._taking = threading.RLock()
        self._jobs = threading.RLock()
        self._buffers: dict[int, Any] = {}
        self._room = room
        self._constant: dict[int, Any] = {}
        self.decode = FakeStream(self, 0)
        self.compute = FakeStream(self, 1)
        self.copies = FakeStream(self, 2)
        self.encode = FakeStream(self, 3) if index == 0 else self.decode
        self.launched: list[str] = []
        self.pool = Pool(self._malloc, self._release, self.mark, grain=64)
        self.pinned = Pool(self._malloc, self._release, self.mark, grain=64)

    def use(self) -> None:
        pass

    @property
    def _streams(self) -> list[FakeStream]:
        own = [] if self.encode is self.decode else [self.encode]
        return [self.decode, self.compute, self.copies, *own]

    def order(self, before: Any, after: int) -> None:
        event = self.mark(before)
        next(one for one in self._streams if one.ptr == after).wait_event(event)  # type: ignore[arg-type]

    def step(self) -> None:
        """Let a random stream that can go on do one piece of work."""
        with self.turn:
            streams = self._streams
            self._random.shuffle(streams)
            if not any(stream.run_one() for stream in streams):
                raise AssertionError("every stream waits for another: a deadlock")

    def event(self) -> FakeEvent:
        return FakeEvent(self)

    def _record(self, event: FakeEvent, stream: Any) -> None:
        def passed() -> None:
            event.passed = True

        stream.put(passed)

    def _malloc(self, size: int) -> int:
        if self._room < size:
            raise MemoryError(f"{size} bytes")
        self._room -= size
        buffer = np.full(size + 64, 0xA5, np.uint8)
        pointer = -(-buffer.ctypes.data // 64) * 64
        self._buffers[pointer] = buffer
        return pointer

    def _release(self, pointer: int) -> None:
        buffer = self._buffers.pop(pointer)
        self._room += buffer.size - 64
        buffer[:] = 0xDD

    def array(self, block: Block, shape: Sequence[int], dtype: str) -> Any:
        kind = "uint16" if dtype == "bfloat16" else dtype
        holder = type("Holder", (), {})()
        holder.block = block
        holder.__array_interface__ = {
            "shape": (block.size,),
            "typestr": "|u1",
            "data": (block.pointer, False),
            "version": 3,
        }
        return np.ndarray(tuple(shape), kind, np.asarray(holder))

    def holds(self, array: Any) -> bool:
        """Whether an array lies in one of the device's blocks."""
        while isinstance(array, np.ndarray):
            array = array.base
        return hasattr(array, "block")

    def adopt(self, array: Any) -> Any:
        return np.asarray(array)

    def memory(self) -> tuple[int, int]:
        return self._room, 1 << 40

    def pointer(self, array: Any) -> int:
        return array.pointer if isinstance(array, Plane) else int(array.ctypes.data)

    def table(self, values: Any) -> Any:
        return self._constant.setdefault(id(values), np.ascontiguousarray(values))

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
        self.traffic.up += width * rows * (way == "up")
        self.traffic.down += width * rows * (way == "down")

        def work() -> None:
            for row in range(rows):
                ctypes.memmove(target + row * target_pitch, source + row * source_pitch, width)

        stream.put(work)

    def clear(self, array: Any, stream: Any) -> None:
        stream.put(lambda: array.fill(0))

    def launch(
        self,
        kernel: str,
        sample: str,
        tensor: str,
        grid: tuple[int, int, int],
        args: Sequence[int | float],
        stream: Any,
    ) -> None:
        library = self._library(sample, tensor)
        function = getattr(library, f"cpu_{kernel}")
        typed = [
            ctypes.c_float(arg) if isinstance(arg, float) else ctypes.c_longlong(int(arg))
            for arg in (*grid, *args)
        ]
        self.launched.append(kernel)
        stream.put(lambda: function(*typed))

    def _library(self, sample: str, tensor: str) -> ctypes.CDLL:
        key = (self._folder, sample, tensor)
        if key not in _LIBRARIES:
            _LIBRARIES[key] = compile_kernels(self._folder, sample, tensor)
        return _LIBRARIES[key]

    def settle(self) -> None:
        """Run all that is queued."""
        for stream in self._streams:
            self.mark(stream).synchronize()


_LIBRARIES: dict[tuple[Path, str, str], ctypes.CDLL] = {}
