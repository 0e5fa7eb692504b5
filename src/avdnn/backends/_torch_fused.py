"""A torch network recorded as plain operations, and what that allows: fusing, exact float32."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import ModelError

_log = logging.getLogger(__name__)

Run = Callable[[Any], Any]

BLOCK = (2, 4)
"""Pixels down and across that a convolution of one channel is gathered over: eight channels."""

LEAST_OUTPUTS = 16

CLOSE = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""How far, against the largest value, a recording may be from the network itself."""


class Fused:
    """A network that is recorded for each shape that comes, and compiled or captured if asked.

    `compiled` fuses it by torch.compile, `captured` replays its launches as a CUDA graph; the
    result is the caller's own either way. It runs in torch's current stream.
    """

    def __init__(
        self, module: Run, *, compiled: bool, captured: bool = False, cache: Path | None = None
    ) -> None:
        self._module = module
        self._compiled = compiled
        self._captured = captured
        self._ready: dict[tuple[int, ...], Run] = {}
        if compiled and cache is not None:
            keep_cache(cache)

    def __call__(self, tensor: Any) -> Any:
        """The output for one input tensor."""
        shape = tuple(tensor.shape)
        run = self._ready.get(shape)
        if run is None:
            run = self._ready[shape] = self._prepared(tensor)
        return run(tensor)

    def _prepared(self, example: Any) -> Run:
        began = time.perf_counter()
        run = self._recorded(example)
        if self._compiled:
            run(example)
        if self._captured:
            run = captured(run, example)
        if self._compiled:
            shape = "x".join(map(str, example.shape))
            _log.warning("compiled for %s in %.1f s", shape, time.perf_counter() - began)
        return run

    def _recorded(self, example: Any) -> Run:
        if self._compiled:
            return fused(self._module, example)
        try:
            return recorded(self._module, example)
        except ModelError as error:
            _log.warning("%s: it runs as it is, and its convolutions may use TF32", error)
            return self._module

    @property
    def is_made_ready(self) -> bool:
        """Whether each new shape is compiled or captured."""
        return self._compiled or self._captured


def recorded(module: Run, example: Any) -> Run:
    """The network's recording for tensors like `example`, once it is known to agree with it."""
    made: Run = record(module, example)
    _same(module, made, example, "recording")
    return made


def fused(module: Run, example: Any) -> Run:
    """The network fused for tensors like `example`; ModelError where torch cannot."""
    import torch

    graph = record(module, example)
    spread(graph, tuple(example.shape))
    made: Run = torch.compile(graph, dynamic=False)
    _same(module, made, example, "torch.compile")
    return made


def _same(module: Run, made: Run, example: Any, what: str) -> None:
    """ModelError unless both agree on other values than those that were recorded."""
    import torch

    try:
        other = torch.rand_like(example)
        wanted, got = module(other).float(), made(other).float()
    except Exception as error:
        # Whatever the compiler raises means the same to the user.
        text = str(error).strip().splitlines()[0]
        raise ModelError(f"{what} failed: {text}", backend="torch") from error
    scale = float(wanted.abs().max()) or 1.0
    limit = CLOSE[str(example.dtype).removeprefix("torch.")]
    if not float((wanted - got).abs().max()) <= limit * scale:
        message = f"{what} changes what the network gives, whose course depends on its input"
        raise ModelError(message, backend="torch")


def record(module: Run, example: Any) -> Any:
    """The operations on `example` as a torch.fx.GraphModule with constant weights.

    TorchScript is recorded too. A traced convolution carries the TF32 switch of the machine that
    traced it; recorded ones follow this process's.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    try:
        with torch.no_grad(), torch.jit.optimized_execution(False):
            made: Any = make_fx(lambda tensor: module(tensor))(example)
    except Exception as error:
        # The network or the recorder may raise anything; a network that runs has run before.
        text = str(error).strip().splitlines()[0]
        message = f"torch cannot record what the network does: {text}"
        raise ModelError(message, backend="torch") from error
    plain = torch.ops.aten.convolution.default
    for node in made.graph.nodes:
        if node.target is torch.ops.aten._convolution.default:
            node.target, node.args = plain, node.args[:9]
    made.recompile()
    return made


def captured(run: Run, example: Any) -> Run:
    """A CUDA graph of `run` on tensors like `example`, in the current stream.

    Other threads may use the device while it is made. The result is copied out.
    """
    import torch

    static = example.clone()
    for _ in range(2):
        run(static)
    stream = torch.cuda.current_stream(example.device)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        made = run(static)

    def replay(tensor: Any) -> Any:
        static.copy_(tensor)
        graph.replay()
        return made.clone()

    return replay


# ---- convolutions of one channel ----------------------------------------------------------------


def spread(graph: Any, shape: tuple[int, ...]) -> int:
    """Gather pixels into channels before convolutions of one channel; how many were changed.

    Tensor cores take channels eight at a time: a convolution of one channel wastes seven eighths
    of them. The same sums over blocks of 2x4 pixels, as eight channels and eight times the
    outputs, fill them; the products are the same, and zeros fill the corners of the kernel.
    """
    import torch

    rows, columns = shape[-2:]
    if shape[1] != 1 or rows % BLOCK[0] or columns % BLOCK[1]:
        return 0
    changed = 0
    for node in list(graph.graph.nodes):
        if node.target is not torch.ops.aten.convolution.default:
            continue
        source, weight, bias = node.args[:3]
        kernel, offsets = _constant(graph, weight), _constant(graph, bias)
        if source.op != "placeholder" or kernel is None or not _spreads(kernel, node.args[3:]):
            continue
        names = [f"spread_{changed}", f"spread_{changed}_bias"]
        graph.register_buffer(names[0], spread_kernel(kernel))
        if offsets is not None:
            graph.register_buffer(names[1], offsets.repeat(BLOCK[0] * BLOCK[1]))
        with graph.graph.inserting_before(node):
            wide = graph.graph.get_attr(names[0])
            added = None if offsets is None else graph.graph.get_attr(names[1])
            made = graph.graph.call_function(spread_convolution, (source, wide, added))
        node.replace_all_uses_with(made)
        graph.graph.erase_node(node)
        changed += 1
    graph.recompile()
    return changed


def _spreads(kernel: Any, rest: Any) -> bool:
    """Whether a convolution is one that `spread` knows: one channel, one step, the size kept."""
    stride, padding, dilation, transposed, _, groups = rest
    size = kernel.shape[2]
    return (
        not transposed
        and groups == 1
        and kernel.shape[0] >= LEAST_OUTPUTS
        and kernel.shape[1] == 1
        and kernel.shape[3] == size
        and size in (3, 5)
        and list(stride) == [1, 1]
        and list(dilation) == [1, 1]
        and list(padding) == [size // 2, size // 2]
    )


def _constant(graph: Any, node: Any) -> Any:
    return getattr(graph, node.target) if node is not None and node.op == "get_attr" else None


def spread_kernel(kernel: Any) -> Any:
    """Weights (outputs, 1, k, k) as (8 * outputs, 8, 3, 3) over blocks of pixels.

    Output channel (oy * 4 + ox) * outputs + o is output o at place (oy, ox) of its block, input
    channel iy * 4 + ix the pixel at (iy, ix).
    """
    down, across = BLOCK
    outputs, size = kernel.shape[0], kernel.shape[2]
    made = kernel.new_zeros(down, across, outputs, down, across, 3, 3)
    for oy in range(down):
        for ox in range(across):
            for ky in range(size):
                for kx in range(size):
                    by, iy = divmod(oy + ky - size // 2, down)
                    bx, ix = divmod(ox + kx - size // 2, across)
                    made[oy, ox, :, iy, ix, by + 1, bx + 1] = kernel[:, 0, ky, kx]
    return made.reshape(down * across * outputs, down * across, 3, 3)


def spread_convolution(tensor: Any, kernel: Any, bias: Any) -> Any:
    """The convolution that `kernel` was made from by spread_kernel, zeros around the picture."""
    import torch

    down, across = BLOCK
    batch, _, rows, columns = tensor.shape
    high, wide, outputs = rows // down, columns // across, kernel.shape[0] // (down * across)
    blocks = tensor.reshape(batch, high, down, wide, across).permute(0, 2, 4, 1, 3)
    blocks = blocks.reshape(batch, down * across, high, wide)
    made = torch.nn.functional.conv2d(blocks, kernel, bias, padding=1)
    made = made.reshape(batch, down, across, outputs, high, wide).permute(0, 3, 4, 1, 5, 2)
    return made.reshape(batch, outputs, rows, columns)


def keep_cache(folder: Path) -> None:
    """Let what torch.compile makes survive the process, in `folder`."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "torch"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
