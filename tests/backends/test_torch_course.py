"""Whether a torch network does the same to all pixels, which a recorded job needs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from avdnn.backends._torch_file import read
from avdnn.backends._torch_network import Network
from avdnn.errors import ModelError
from avdnn.frame import Layout

from ..conftest import require_module

require_module("torch")

import torch  # noqa: E402

SHAPE = (4, 3, 16, 24)


class Conv(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x))


class Looks(Conv):
    """Takes another way for bright pictures."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.mean() > 0.4):
            return self.body(x)
        return x


class Counts(Conv):
    """Does something else each time."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.body(x) * self.count


def network(tmp_path: Path, module: torch.nn.Module) -> Network:
    path = tmp_path / "net.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(module.eval().requires_grad_(False)).save(str(path))
    return Network(read(path, "cpu"), Layout.NCHW, optimize=True)


def check(made: Network) -> None:
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        made.check_course(SHAPE, torch.device("cpu"))


@pytest.mark.parametrize("fuse", [False, True])
def test_convolutions_do_the_same_to_all_pixels(tmp_path: Path, fuse: bool) -> None:
    made = network(tmp_path, Conv())
    if fuse:
        made.fuse(compiled=False, cache=None)
    check(made)


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("kind", [Looks, Counts])
def test_network_that_looks_at_its_pixels_or_counts_is_found(
    tmp_path: Path, kind: Any, fuse: bool
) -> None:
    made = network(tmp_path, kind())
    if fuse:
        made.fuse(compiled=False, cache=None)
    with pytest.raises(ModelError, match=r"cannot record|depends on its input") as error:
        check(made)
    assert "\n" not in str(error.value)


def test_memory_that_the_trial_lacks_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rand(*shape: Any, **told: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has")

    made = network(tmp_path, Conv())
    monkeypatch.setattr(torch, "rand", rand)
    with pytest.raises(ModelError, match="no room to try it: CUDA out of memory"):
        check(made)
