"""A torch network recorded as plain operations, and what that allows: fusing, exact float32."""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from ..errors import ModelError
from ._torch_convolutions import spread
from ._torch_own import adopt

_log = logging.getLogger(__name__)

Run = Callable[[Any], Any]

CLOSE = {"float32": 5e-3, "float16": 2e-2, "bfloat16": 1e-1}
"""How far, against the largest value, a recording may be from the network itself.

The network itself may use TF32 for float32, with a mantissa of 10 bits.
"""


class Fused:
    """A network that is recorded for each shape that comes, and fused if asked.

    `compiled` fuses it by torch.compile. It runs in torch's current stream.
    """

    def __init__(self, module: Run, *, compiled: bool, cache: Path | None = None) -> None:
        self._module = module
        self._compiled = compiled
        self._ready: dict[tuple[int, ...], Run] = {}
        self._refused: dict[tuple[int, ...], ModelError] = {}
        self._preparing = Lock()
        if compiled and cache is not None:
            keep_cache(cache)

    def __call__(self, tensor: Any) -> Any:
        """The output for one input tensor."""
        shape = tuple(tensor.shape)
        run = self._ready.get(shape)
        if run is None:
            with self._preparing:
                run = self._ready.get(shape)
                if run is None:
                    run = self._ready[shape] = self._prepared(tensor)
        return run(tensor)

    def _prepared(self, example: Any) -> Run:
        began = time.perf_counter()
        run = self._recorded(example)
        if self._compiled:
            run(example)
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
            self._refused[tuple(example.shape)] = error
            return self._module

    def check(self, example: Any) -> None:
        """ModelError if tensors like `example` go through it in no known course."""
        self(example)
        error = self._refused.get(tuple(example.shape))
        if error is not None:
            raise error

    @property
    def is_made_ready(self) -> bool:
        """Whether each new shape is compiled."""
        return self._compiled


def recorded(module: Run, example: Any) -> Run:
    """The network's recording for tensors like `example`, once it is known to agree with it."""
    made: Run = record(module, example)
    _same(module, made, example, "recording")
    return made


def check_course(run: Run, example: Any) -> None:
    """ModelError unless the network does the same to all tensors like `example`."""
    if isinstance(run, Fused):
        run.check(example)
    else:
        recorded(run, example)


def fused(module: Run, example: Any) -> Run:
    """The network fused for tensors like `example`; ModelError where torch cannot."""
    import torch

    graph = record(module, example)
    if example.is_cuda and example.dtype in (torch.float16, torch.bfloat16):
        # Only tensor cores gain: elsewhere the zeros of a spread kernel cost what they save.
        return _on_tensor_cores(module, graph, example)
    return _compiled(module, graph, example)


def _on_tensor_cores(module: Run, graph: Any, example: Any) -> Run:
    """Fused with kernels of our own where they are faster; other convolutions are spread."""
    shape, changed = tuple(example.shape), True
    try:
        changed = bool(adopt(graph))
        spread(graph, shape)
        return _compiled(module, graph, example)
    except Exception as error:
        # Whatever a kernel's compiler raises means that the network goes without.
        if isinstance(error, ModelError) and not changed:
            raise
        _log.warning("%s: trying without kernels of our own", _first_line(error))
    graph = record(module, example)
    spread(graph, shape)
    return _compiled(module, graph, example)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _compiled(module: Run, graph: Any, example: Any) -> Run:
    import torch

    made: Run = torch.compile(graph, dynamic=False)
    _same(module, made, example, "torch.compile")
    return made


def _same(module: Run, made: Run, example: Any, what: str) -> None:
    """ModelError unless both agree on other values than those that were recorded.

    Where the network itself gives NaN or infinity there is nothing to agree on.
    """
    import torch

    try:
        other = torch.rand_like(example)
        wanted, got = module(other).float(), made(other).float()
    except Exception as error:
        # Whatever the compiler raises means the same to the user.
        raise ModelError(f"{what} failed: {_first_line(error)}", backend="torch") from error
    apart = torch.where(torch.isfinite(wanted), (wanted - got).abs(), 0.0)
    scale = float(torch.where(torch.isfinite(wanted), wanted.abs(), 0.0).max()) or 1.0
    limit = CLOSE[str(example.dtype).removeprefix("torch.")]
    if not float(apart.max()) <= limit * scale:
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
        message = f"torch cannot record what the network does: {_first_line(error)}"
        raise ModelError(message, backend="torch") from error
    plain = torch.ops.aten.convolution.default
    for node in made.graph.nodes:
        if node.target is torch.ops.aten._convolution.default:
            node.target, node.args = plain, node.args[:9]
    made.recompile()
    return made


def captured(work: Callable[[], object]) -> Any:
    """What `work` puts into the current stream as a CUDA graph; other threads may go on.

    What it allocates belongs to the graph as long as that lives.
    """
    import torch

    stream = torch.cuda.current_stream()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    collects = gc.isenabled()
    gc.disable()
    try:
        # An object that is collected now might put its own work into the stream.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            work()
    finally:
        if collects:
            gc.enable()
    return graph


def keep_cache(folder: Path) -> None:
    """Let what torch.compile makes survive the process, in `folder`."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "torch"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
