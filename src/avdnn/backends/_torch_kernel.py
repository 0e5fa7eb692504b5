"""convolution.cu: built for a kind of layer, launched in torch's current stream, as an operation.

The tensor cores of a GPU are busy with few channels only if nothing around them waits: here a
convolution, its bias and its activation are one pass through memory.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

CHANNELS = (16, 32, 64)
"""Channels in that convolution.cu takes; fewer are filled up with zeros."""

LEAST_OUT, MOST_OUT = 4, 64
SIZES = (3, 5)
HALVES = {"float16": "f16", "bfloat16": "bf16"}
THREADS = 128
CARD = (9, 0)
"""The compute capability whose warps multiply in groups of four, and where all these layers were
measured to be faster than torch's. A choice by time could differ between two runs of one job."""

ALIGNMENT = 16
"""Bytes that the kernel fetches at once; it begins at multiples of them."""

_SHARED_LIMIT = 97
"""The device attribute of the shared memory that a block may ask for."""

_SHARED_SIZE = 8
"""The function attribute of the shared memory that a block asks for."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A kind of layer: channels in (filled up) and out (filled up), taps, element type."""

    channels: int
    outputs: int
    size: int
    dtype: str

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile, as measured to be best."""
        return 8, 16 if self.channels == 64 and self.outputs >= 32 else 32

    @property
    def shared(self) -> int:
        """Bytes of shared memory for a block: weights, a tile with its border, alignment."""
        rows, columns = (side + self.size - 1 for side in self.tile)
        weights = self.size**2 * self.outputs * self.channels * 2
        return 1024 + -(-weights // 1024) * 1024 + rows * columns * self.channels * 2


def layer(kernel: Any) -> Layer | None:
    """The kind for weights (outputs, channels, k, k); None for what the kernel does not do."""
    outputs, channels, size = kernel.shape[:3]
    dtype = str(kernel.dtype).removeprefix("torch.")
    if not (LEAST_OUT <= outputs <= MOST_OUT and channels <= CHANNELS[-1]):
        return None
    if size not in SIZES or dtype not in HALVES or channels * outputs < CHANNELS[0]:
        return None
    filled = next(count for count in CHANNELS if count >= channels)
    rounded = next(count for count in (8, 16, 32, 64) if count >= outputs)
    return Layer(filled, rounded, size, dtype)


def packed_kernel(kernel: Any, kind: Layer) -> Any:
    """Weights (outputs, channels, k, k) as (k * k, outputs, channels), in the kernel's order.

    A lane of a warp gets two of every eight outputs. They are ordered so that what a lane gets
    lies together.
    """
    outputs, channels, size = kernel.shape[:3]
    filled = kernel.new_zeros(kind.outputs, kind.channels, size, size)
    filled[:outputs, :channels] = kernel
    made = filled[order(kind.outputs)].permute(2, 3, 0, 1)
    return made.reshape(size * size, kind.outputs, kind.channels).contiguous()


def order(outputs: int) -> list[int]:
    """The output that each row of weights makes; see `channel` in convolution.cu."""
    tiles = outputs // 8
    together = 4 if tiles % 4 == 0 else tiles
    return [
        tile // together * 8 * together
        + column // 2 * 2 * together
        + tile % together * 2
        + column % 2
        for tile in range(tiles)
        for column in range(8)
    ]


def filled(values: Any, kind: Layer, rest: float) -> Any:
    """One float32 for each output, `rest` where there is none."""
    made = values.new_full((kind.outputs,), rest).float()
    made[: values.shape[0]] = values
    return made.contiguous()


def runs_on(kind: Layer, device: Any) -> bool:
    """Whether a GPU has what the kernel needs."""
    import torch

    if torch.cuda.get_device_capability(device) != CARD:
        return False
    import cupy

    index = torch.device(device).index or 0
    return kind.shared <= int(cupy.cuda.runtime.deviceGetAttribute(_SHARED_LIMIT, index))


@functools.cache
def operation() -> Any:
    """Register avdnn::same_convolution: (NHWC tensor, weights, bias, slope, k) -> NHWC tensor."""
    import torch

    def run(tensor: Any, kernel: Any, bias: Any, slope: Any, size: int) -> Any:
        tensor = tensor.contiguous()
        if tensor.data_ptr() % ALIGNMENT:
            tensor = tensor.clone()
        batch, rows, columns, channels = tensor.shape
        kind = Layer(channels, kernel.shape[1], size, str(tensor.dtype).removeprefix("torch."))
        made = tensor.new_empty((batch, rows, columns, kind.outputs))
        _built(kind, tensor.device.index).launch(tensor, kernel, bias, slope, made)
        return made

    schema = "(Tensor tensor, Tensor kernel, Tensor bias, Tensor slope, int size) -> Tensor"
    made = torch.library.custom_op(
        "avdnn::same_convolution", run, mutates_args=(), schema=schema, device_types="cuda"
    )

    def shape(tensor: Any, kernel: Any, bias: Any, slope: Any, size: int) -> Any:
        return tensor.new_empty((*tensor.shape[:3], kernel.shape[1]))

    made.register_fake(shape)
    return made


def same_convolution(
    tensor: Any, kernel: Any, bias: Any, slope: Any, size: int, outputs: int
) -> Any:
    """The convolution with bias and a (leaky, parametric) ReLU: NCHW views of NHWC memory."""
    import torch

    flat = tensor.permute(0, 2, 3, 1)
    missing = kernel.shape[2] - flat.shape[3]
    if missing:
        flat = torch.nn.functional.pad(flat, (0, missing))
    made = torch.ops.avdnn.same_convolution(flat, kernel, bias, slope, size)
    return made[..., :outputs].permute(0, 3, 1, 2)


class _Built:
    """The kernel of one kind of layer on one GPU."""

    def __init__(self, kind: Layer, index: int) -> None:
        import cupy
        import torch

        self._cp = cupy
        self._kind = kind
        self._index = index
        with cupy.cuda.Device(index):
            self._module = cupy.cuda.function.Module()
            self._module.load(_binary(kind))
            self._function = self._module.get_function("convolve")
            driver = cupy.cuda.driver
            driver.funcSetAttribute(self._function.ptr, _SHARED_SIZE, kind.shared)
            blocks = driver.occupancyMaxActiveBlocksPerMultiprocessor(
                self._function.ptr, THREADS, kind.shared
            )
            processors = torch.cuda.get_device_properties(index).multi_processor_count
            self._most = max(1, blocks) * processors

    def launch(self, tensor: Any, kernel: Any, bias: Any, slope: Any, made: Any) -> None:
        """Fill `made` in the current stream."""
        import torch

        number = self._cp.int32
        batch, rows, columns, _ = tensor.shape
        across, down = -(-columns // self._kind.tile[1]), -(-rows // self._kind.tile[0])
        tiles = batch * across * down
        pointers = [array.data_ptr() for array in (tensor, kernel, bias, slope, made)]
        sizes = [number(size) for size in (rows, columns, across, down, tiles)]
        stream = torch.cuda.current_stream(self._index).cuda_stream
        with self._cp.cuda.Device(self._index):
            self._function(
                (min(tiles, self._most), 1, 1),
                (THREADS, 1, 1),
                (*pointers, *sizes),
                shared_mem=self._kind.shared,
                stream=_Stream(stream),
            )


class _Stream:
    """A stream as CuPy's launch wants it."""

    def __init__(self, pointer: int) -> None:
        self.ptr = pointer


@functools.cache
def _built(kind: Layer, index: int) -> _Built:
    return _Built(kind, index)


def _source(kind: Layer) -> str:
    """convolution.cu for a kind of layer."""
    told = {
        "CIN": kind.channels,
        "COUT": kind.outputs,
        "SIZE": kind.size,
        "TH": kind.tile[0],
        "TW": kind.tile[1],
        "KIND": f'"{HALVES[kind.dtype]}"',
    }
    head = "".join(f"#define {name} {value}\n" for name, value in told.items())
    head += _group_multiply(kind.outputs)
    return head + resources.files(__package__).joinpath("convolution.cu").read_text()


def _group_multiply(outputs: int) -> str:
    """64 pixels by `outputs` by 16 channels for four warps, which has a name for each size."""
    count = outputs // 2
    sums = ", ".join(f"%{number}" for number in range(count))
    bound = ", ".join(f'"+f"(c[{number // 4}][{number % 4}])' for number in range(count))
    return f"""
__device__ __forceinline__ void group_multiply(float (&c)[{outputs // 8}][4], unsigned long long a,
                                               unsigned long long b, int more) {{
    asm volatile("{{.reg .pred p; setp.ne.b32 p, %{count + 2}, 0; "
                 "wgmma.mma_async.sync.aligned.m64n{outputs}k16.f32." KIND "." KIND " "
                 "{{{sums}}}, %{count}, %{count + 1}, p, 1, 1, 0, 0;}}"
                 : {bound} : "l"(a), "l"(b), "r"(more));
}}
"""


def _binary(kind: Layer) -> bytes:
    """The machine code, from the cache folder where it is there."""
    from cupy.cuda import nvrtc

    options = ["-std=c++17", f"-arch=sm_{CARD[0]}{CARD[1]}a"]
    source = _source(kind)
    told = repr((source, options, nvrtc.getVersion()))
    kept = _cache()
    path = kept / f"{hashlib.sha256(told.encode()).hexdigest()}.cubin" if kept else None
    if path is not None and path.is_file():
        return path.read_bytes()
    program = nvrtc.createProgram(source, "convolution.cu", [], [])
    try:
        nvrtc.compileProgram(program, options)
        made: bytes = nvrtc.getCUBIN(program)
    finally:
        nvrtc.destroyProgram(program)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        mine = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        mine.write_bytes(made)
        mine.replace(path)
    return made


def _cache() -> Path | None:
    """The folder beside torch's own cache, where one is set."""
    told = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return Path(told).parent / "kernels" if told else None
