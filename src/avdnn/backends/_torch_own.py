"""Convolutions of a recorded network that kernels of our own do faster, with their activations."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import dataclass
from typing import Any

from ._torch_convolutions import Conv, constant, convolutions

_log = logging.getLogger(__name__)

WIDE = (16, 32, 64, 128)
"""Outputs that the kernel for one channel has."""

RUNS = 8
"""Runs of which each way's time is taken."""


@dataclass(frozen=True, slots=True)
class _Activation:
    """The (leaky, parametric) ReLU behind a convolution: its node, and its slope or slopes.

    Without one the node is the convolution itself, and the slope 1.
    """

    node: Any
    slope: Any

    def slopes(self, like: Any) -> Any:
        """One slope for each output."""
        import torch

        if isinstance(self.slope, torch.Tensor):
            return self.slope.to(like.dtype).expand_as(like)
        return like.new_full(like.shape, self.slope)


def adopt(graph: Any) -> int:
    """Give convolutions to kernels of our own where those are there and faster; how many."""
    changed = 0
    known: dict[Any, bool] = {}
    for node, found in convolutions(graph):
        changed += _widened(graph, node, found, changed) or _fused(
            graph, node, found, changed, known
        )
    graph.recompile()
    return changed


def _widened(graph: Any, node: Any, found: Conv, number: int) -> bool:
    """One channel in: a kernel in Triton."""
    if found.kernel.shape[1] != 1 or found.kernel.shape[0] not in WIDE:
        return False
    if importlib.util.find_spec("triton") is None:
        return False
    from . import _torch_triton as own

    kernels: Any = own
    kernels.operation()
    active = _activation(graph, node)
    bias = found.offsets()
    held = {
        "kernel": kernels.packed_kernel(found.kernel),
        "bias": bias,
        "slope": active.slopes(bias),
    }
    _replace(graph, node, active, f"wide_{number}", held, kernels.wide_convolution, [found.size])
    return True


def _fused(graph: Any, node: Any, found: Conv, number: int, known: dict[Any, bool]) -> bool:
    """Few channels: a kernel for tensor cores, where it is faster than torch's.

    `known` holds for which shapes it is, as far as that has been measured.
    """
    if importlib.util.find_spec("cupy") is None:
        return False
    from . import _torch_kernel as own

    kernels: Any = own
    kind = kernels.layer(found.kernel)
    if kind is None or not kernels.runs_on(kind, found.kernel.device):
        return False
    kernels.operation()
    active = _activation(graph, node)
    bias = found.offsets()
    held = {
        "kernel": kernels.packed_kernel(found.kernel, kind),
        "bias": kernels.filled(bias, kind, 0.0),
        "slope": kernels.filled(active.slopes(bias), kind, 1.0),
    }
    more = [found.size, found.kernel.shape[0]]
    shapes = (tuple(found.kernel.shape), found.shape)
    if shapes not in known:
        known[shapes] = _faster(found, kernels.same_convolution, [*held.values(), *more])
    if not known[shapes]:
        return False
    _replace(graph, node, active, f"fused_{number}", held, kernels.same_convolution, more)
    return True


def _replace(
    graph: Any,
    node: Any,
    active: _Activation,
    name: str,
    held: dict[str, Any],
    function: Any,
    more: list[Any],
) -> None:
    """Put function(source, *held, *more) in the place of a convolution and its activation."""
    for key, value in held.items():
        graph.register_buffer(f"{name}_{key}", value)
    with graph.graph.inserting_before(node):
        constants = [graph.graph.get_attr(f"{name}_{key}") for key in held]
        made = graph.graph.call_function(function, (node.args[0], *constants, *more))
    made.meta = dict(node.meta)
    active.node.replace_all_uses_with(made)
    if active.node is not node:
        graph.graph.erase_node(active.node)
    graph.graph.erase_node(node)


def _activation(graph: Any, node: Any) -> _Activation:
    import torch

    aten = torch.ops.aten
    users = list(node.users)
    if len(users) == 1 and users[0].args[0] is node:
        user = users[0]
        if user.target is aten.relu.default:
            return _Activation(user, 0.0)
        if user.target is aten.leaky_relu.default:
            return _Activation(user, float(user.args[1] if len(user.args) > 1 else 0.01))
        if user.target is aten._prelu_kernel.default:
            slopes = constant(graph, user.args[1])
            if slopes is not None:
                return _Activation(user, slopes.flatten())
    return _Activation(node, 1.0)


def _faster(found: Conv, function: Any, args: list[Any]) -> bool:
    """Whether our kernel takes less time than torch's convolution and a pass for the rest.

    What is compiled adds the bias and the activation in a pass of their own.
    """
    import torch

    kernel = found.kernel
    source = torch.zeros(found.shape, dtype=kernel.dtype, device=kernel.device)
    source = source.contiguous(memory_format=torch.channels_last)
    weights = kernel.contiguous(memory_format=torch.channels_last)
    half = found.size // 2
    theirs = _milliseconds(
        lambda: torch.nn.functional.conv2d(source, weights, padding=half).relu_()
    )
    ours = _milliseconds(lambda: function(source, *args))
    shape = "x".join(map(str, kernel.shape))
    _log.info("convolution %s: %.3f ms by torch, %.3f ms here", shape, theirs, ours)
    return ours < theirs


def _milliseconds(run: Any) -> float:
    """GPU time of a run in the current stream, the shortest of a few."""
    import torch

    run()
    times: list[float] = []
    for _ in range(RUNS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return min(times)
