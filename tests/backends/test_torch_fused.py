"""Recorded torch networks: the same values, whatever was recorded, spread, compiled."""

from __future__ import annotations

import importlib.util
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from avdnn.backends import _torch_convolutions, _torch_fused, _torch_kernel, _torch_own
from avdnn.errors import ModelError

from ..conftest import require_module

require_module("torch")

import torch  # noqa: E402


def network(kernel: int = 5, bias: bool = True) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, kernel, padding=kernel // 2, bias=bias),
        torch.nn.LeakyReLU(0.2),
        torch.nn.Conv2d(16, 4, 3, padding=1),
        torch.nn.PixelShuffle(2),
    ).requires_grad_(False)


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_spread_convolution_is_the_same_sum(kernel: int, bias: bool) -> None:
    module = network(kernel, bias)
    traced = torch.jit.trace(module, torch.rand(1, 1, 16, 16))
    picture = torch.rand(2, 1, 8, 20)
    graph = _torch_fused.record(traced, picture)
    assert _torch_convolutions.spread(graph, tuple(picture.shape)) == 2
    for values in (picture, torch.rand(2, 1, 8, 20)):
        with torch.inference_mode():
            torch.testing.assert_close(graph(values), module(values))


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Conv2d(1, 16, 3, padding=0),
        torch.nn.Conv2d(1, 16, 3, padding=1, stride=2),
        torch.nn.Conv2d(1, 8, 3, padding=1),
        torch.nn.Conv2d(1, 16, 4, padding=2),
        torch.nn.Conv2d(1, 16, 3, padding=2, dilation=2),
        torch.nn.Conv2d(1, 4, 3, padding=1),
        torch.nn.Sequential(torch.nn.PixelShuffle(1), torch.nn.Conv2d(1, 8, 5, padding=2)),
    ],
)
def test_other_convolutions_are_left_alone(module: Any) -> None:
    module.requires_grad_(False)
    picture = torch.rand(1, 1, 8, 16)
    graph = _torch_fused.record(module, picture)
    assert _torch_convolutions.spread(graph, (1, 1, 8, 16)) == 0
    torch.testing.assert_close(graph(picture), module(picture))


@pytest.mark.parametrize("shape", [(1, 1, 7, 16), (1, 1, 8, 18), (1, 3, 8, 16)])
def test_shapes_that_do_not_divide_are_left_alone(shape: tuple[int, ...]) -> None:
    module = torch.nn.Conv2d(shape[1], 16, 3, padding=1).requires_grad_(False)
    graph = _torch_fused.record(module, torch.rand(shape))
    assert _torch_convolutions.spread(graph, shape) == 0


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_recorded_convolutions_follow_this_process_and_not_the_tracing_one() -> None:
    module = network()
    traced = torch.jit.trace(module, torch.rand(1, 1, 16, 16))
    graph = _torch_fused.record(traced, torch.rand(1, 1, 8, 8))
    targets = {str(node.target) for node in graph.graph.nodes}
    assert "aten.convolution.default" in targets
    assert "aten._convolution.default" not in targets


class Wide:
    """What _torch_triton offers, in plain torch."""

    @staticmethod
    def operation() -> None: ...

    @staticmethod
    def packed_kernel(kernel: Any) -> Any:
        return kernel.flatten(1).T

    @staticmethod
    def wide_convolution(tensor: Any, kernel: Any, bias: Any, slope: Any, size: int) -> Any:
        weight = kernel.T.reshape(-1, 1, size, size)
        made = torch.nn.functional.conv2d(tensor, weight, bias, padding=size // 2)
        return torch.where(made > 0, made, made * slope[:, None, None])


def same_convolution(
    tensor: Any, kernel: Any, bias: Any, slope: Any, size: int, outputs: int
) -> Any:
    """What convolution.cu does with packed weights, in plain torch."""
    order = _torch_kernel.order(kernel.shape[1])
    weight = torch.empty_like(kernel)
    weight[:, order] = kernel
    weight = weight.reshape(size, size, *kernel.shape[1:]).permute(2, 3, 0, 1)
    missing = kernel.shape[2] - tensor.shape[1]
    padded = torch.nn.functional.pad(tensor, (0, 0, 0, 0, 0, missing))
    made = torch.nn.functional.conv2d(padded, weight.float(), bias, padding=size // 2)
    return torch.where(made > 0, made, made * slope[:, None, None])[:, :outputs]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Kernels of our own in plain torch; the list says whether the card has them."""
    answers = [True]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr("avdnn.backends._torch_triton", Wide, raising=False)
    monkeypatch.setitem(sys.modules, "avdnn.backends._torch_triton", Wide)
    monkeypatch.setattr(_torch_kernel, "HALVES", {"float32": "f32"})
    monkeypatch.setattr(_torch_kernel, "operation", lambda: None)
    monkeypatch.setattr(_torch_kernel, "runs_on", lambda kind, device: answers[0])
    monkeypatch.setattr(_torch_kernel, "same_convolution", same_convolution)
    return answers


def targets(graph: Any) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("activation", "left"),
    [
        (torch.nn.LeakyReLU(0.2), []),
        (torch.nn.ReLU(), []),
        (torch.nn.PReLU(16, 0.1), []),
        (torch.nn.PReLU(1, 0.1), []),
        (torch.nn.Tanh(), ["aten.tanh.default"]),
        (torch.nn.Identity(), []),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_own_kernels_take_layers_with_their_activation(
    channels: int, activation: Any, left: list[str], own: list[bool]
) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(channels, 16, 5, padding=2),
        activation,
        torch.nn.Conv2d(16, 4, 3, padding=1, bias=False),
        torch.nn.Conv2d(4, 100, 3, padding=1),
    ).requires_grad_(False)
    if isinstance(activation, torch.nn.PReLU):
        activation.weight.copy_(torch.rand_like(activation.weight))
    graph = _torch_fused.record(module, torch.rand(1, channels, 8, 8))
    assert _torch_own.adopt(graph) == 2
    found = targets(graph)
    assert [name for name in found if "tanh" in name or "relu" in name] == left
    assert sum("aten.convolution" in name for name in found) == 1
    picture = torch.rand(2, channels, 8, 8)
    torch.testing.assert_close(graph(picture), module(picture))


def test_own_kernel_leaves_an_activation_to_others_that_use_the_layer(own: list[bool]) -> None:
    layer = torch.nn.Conv2d(1, 16, 3, padding=1).requires_grad_(False)

    def module(tensor: Any) -> Any:
        made = layer(tensor)
        return torch.relu(made) + made

    graph = _torch_fused.record(module, torch.rand(1, 1, 8, 8))
    assert _torch_own.adopt(graph) == 1
    picture = torch.rand(1, 1, 8, 8)
    torch.testing.assert_close(graph(picture), module(picture))


def test_own_kernel_is_not_taken_on_other_cards(own: list[bool]) -> None:
    own[0] = False
    module = torch.nn.Conv2d(16, 16, 3, padding=1).requires_grad_(False)
    graph = _torch_fused.record(module, torch.rand(1, 16, 8, 8))
    assert _torch_own.adopt(graph) == 0
    assert any("aten.convolution" in name for name in targets(graph))


@pytest.mark.parametrize("outputs", [8, 16, 32, 64])
def test_packed_outputs_are_in_the_order_in_which_lanes_hold_them(outputs: int) -> None:
    """A lane's values of all tiles of eight, two of each, are four pairs that lie together."""
    order = _torch_kernel.order(outputs)
    assert sorted(order) == list(range(outputs))
    together = 4 if outputs >= 32 else outputs // 8
    for lane in range(4):
        held = [
            order[tile * 8 + lane * 2 + side] for tile in range(outputs // 8) for side in (0, 1)
        ]
        for start in range(0, len(held), 2 * together):
            run = held[start : start + 2 * together]
            assert run == list(range(run[0], run[0] + 2 * together))
            assert run[0] % (2 * together) == 0


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((64, 64, 3, 3), (64, 64, 3)),
        ((12, 64, 3, 3), (64, 16, 3)),
        ((64, 3, 3, 3), (16, 64, 3)),
        ((4, 32, 3, 3), (32, 8, 3)),
        ((128, 64, 3, 3), None),
        ((64, 128, 3, 3), None),
        ((64, 64, 7, 7), None),
        ((2, 3, 3, 3), None),
    ],
)
def test_kinds_of_layers_that_the_kernel_does(
    shape: tuple[int, ...], kind: tuple[int, int, int] | None
) -> None:
    found = _torch_kernel.layer(torch.zeros(shape, dtype=torch.float16))
    assert found == (kind and _torch_kernel.Layer(*kind, "float16"))
    assert _torch_kernel.layer(torch.zeros(shape)) is None


def test_network_whose_course_depends_on_its_input_is_found_out() -> None:
    def halves_dark_pictures(tensor: Any) -> Any:
        return tensor if float(tensor.max()) == 0.0 else tensor / 2

    with pytest.raises(ModelError, match="cannot record"):
        _torch_fused.recorded(halves_dark_pictures, torch.zeros(1, 1, 4, 4))
    run = _torch_fused.Fused(halves_dark_pictures, compiled=False)
    run(torch.zeros(1, 1, 4, 4))
    torch.testing.assert_close(run(torch.ones(1, 1, 4, 4)), torch.ones(1, 1, 4, 4) / 2)


def test_each_shape_is_recorded_once() -> None:
    calls = []

    def module(tensor: Any) -> Any:
        calls.append(tuple(tensor.shape))
        return tensor * 2

    run = _torch_fused.Fused(module, compiled=False)
    for shape in ((1, 1, 4, 4), (2, 1, 4, 4), (1, 1, 4, 4)):
        values = torch.rand(shape)
        with torch.inference_mode():
            torch.testing.assert_close(run(values), values * 2)
    # Each shape: once for the recording, once to compare.
    assert calls == [(1, 1, 4, 4)] * 2 + [(2, 1, 4, 4)] * 2


def test_what_the_network_makes_no_number_of_is_not_compared() -> None:
    def overflows(tensor: Any) -> Any:
        return torch.where(tensor > 0.5, tensor / 0, tensor)

    picture = torch.rand(1, 1, 4, 4)
    run = _torch_fused.recorded(overflows, picture)
    torch.testing.assert_close(run(picture), overflows(picture))

    def spoils(tensor: Any) -> Any:
        return torch.full_like(tensor, float("nan"))

    with pytest.raises(ModelError, match="changes what the network gives"):
        _torch_fused._same(overflows, spoils, picture, "recording")


def test_machine_code_is_kept_by_threads_that_build_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)
    replace = Path.replace

    def late(path: Path, target: Path) -> Path:
        both.wait(5)
        return replace(path, target)

    nvrtc = SimpleNamespace(
        getVersion=lambda: (13, 0),
        createProgram=lambda *told: 1,
        compileProgram=lambda program, options: None,
        getCUBIN=lambda program: b"code",
        destroyProgram=lambda program: None,
    )
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cupy.cuda", SimpleNamespace(nvrtc=nvrtc))
    monkeypatch.setattr(Path, "replace", late)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    kind = _torch_kernel.Layer(16, 16, 3, "float16")
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda _: _torch_kernel._binary(kind), range(2)))
    assert made == [b"code"] * 2
    assert [path.read_bytes() for path in (tmp_path / "kernels").iterdir()] == [b"code"]
    nvrtc.compileProgram = lambda program, options: pytest.fail("it is kept")
    assert _torch_kernel._binary(kind) == b"code"
