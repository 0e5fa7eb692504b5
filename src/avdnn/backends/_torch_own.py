"""Convolutions of a recorded network that kernels of our own do faster, with their activations.

Which those are depends on the layer and the card alone, so that every run gives the same pixels.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any

from ._torch_convolutions import Conv, constant, convolutions

WIDE = (16, 32, 64, 128)
"""Outputs that the kernel for one channel has."""


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
    """Give convolutions to kernels of our own where those are there; how many."""
    changed = 0
    for node, found in convolutions(graph):
        changed += _widened(graph, node, found, changed) or _fused(graph, node, found, changed)
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


def _fused(graph: Any, node: Any, found: Conv, number: int) -> bool:
    """Few channels: a kernel for tensor cores, on the cards that it is made for."""
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
