"""What a torch program takes and gives, found by running it on small pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..frame import Layout, Shape, TensorSpec
from ._torch_file import Program, first_line

Size = tuple[int, int]

SIZES: tuple[Size, ...] = ((32, 32), (64, 64), (256, 256), (128, 128), (224, 224), (512, 512))
"""Tried until one works, the cheapest first; exported models often have a later one baked in."""

OTHERS: tuple[Size, ...] = ((40, 48), (64, 96), (128, 192))
"""A program that takes a second size takes any; some want multiples of a power of two."""

Run = Callable[[Shape], Sequence[TensorSpec]]
"""Runs a program on zeros of a shape: its outputs as they came, or what it raises."""


@dataclass(frozen=True, slots=True)
class Found:
    """A program's input and outputs; float tensors are declared float32. -1 marks what is free.

    `scale` is how much larger the first output is, "" where it is no picture or not in proportion.
    """

    input: TensorSpec
    outputs: tuple[TensorSpec, ...]
    batch: int
    scale: str


@dataclass(frozen=True, slots=True)
class _Trial:
    channels: int
    size: Size
    outputs: Sequence[TensorSpec]


def named(result: Any) -> list[tuple[str, Any]]:
    """A program's tensors by name: y, y1, y2 where it has no names for them, or a dict's keys."""
    import torch

    if isinstance(result, Mapping):
        pairs = [(str(name), value) for name, value in result.items()]
    elif isinstance(result, (tuple, list)):
        pairs = [(f"y{index or ''}", value) for index, value in enumerate(result)]
    else:
        pairs = [("y", result)]
    for name, value in pairs:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"output {name} is a {type(value).__name__}, not a tensor")
    if not pairs:
        raise TypeError("the program gives no tensor")
    return pairs


def examine(program: Program, model: Path, run: Run, layout: Layout, size: Size | None) -> Found:
    """Try channels, sizes and a batch; ModelError if no picture fits.

    TorchScript says nothing about its input: what it takes is what it runs on. Where both 1 and 3
    channels work and as many come out as go in, channels are free.
    """
    told = program.shape or (-1, -1, -1, -1)
    if len(told) != 4:
        raise ModelError(
            f"{model}: its input {program.input} has {len(told)} dimensions; a picture has 4",
            backend="torch",
        )
    axis = 1 if layout is Layout.NCHW else 3
    fixed = (told[2], told[3]) if layout is Layout.NCHW else (told[1], told[2])
    batch = max(told[0], 1)
    sizes = [SIZES[0], *([size] if size else []), *SIZES[1:]]

    def attempt(channels: int, wanted: Size, count: int = batch) -> _Trial:
        rows, columns = (
            own if own != -1 else asked for own, asked in zip(fixed, wanted, strict=True)
        )
        shape = (
            (count, channels, rows, columns)
            if layout is Layout.NCHW
            else (count, rows, columns, channels)
        )
        return _Trial(channels, (rows, columns), run(shape))

    trials, errors = [], {}
    for channels in (told[axis],) if told[axis] != -1 else (3, 1):
        trial, error = _first(partial(attempt, channels), sizes)
        if trial:
            trials.append(trial)
        errors[channels] = error
    if not trials:
        error = next(iter(errors.values()))
        raise ModelError(
            f"{model}: does not run on a picture of {' or '.join(map(str, errors))} channels: "
            f"{first_line(error) if error else 'no size works'}",
            backend="torch",
        ) from error
    free_channels = len(trials) == 2 and _keeps(trials, axis) and _first_conv(program) != 3
    trial = trials[0]

    def works(wanted: Size, count: int = batch) -> bool:
        made = _first(lambda asked: attempt(trial.channels, asked, count), [wanted])[0]
        return made is not None and (count == batch or made.outputs[0].shape[0] == count)

    seconds = [*OTHERS, *([size] if size and size != trial.size else [])]
    free = program.shape is None and any(works(other) for other in seconds)
    free_batch = told[0] == -1 and works(trial.size, 2)
    given = (-1 if told[0] == -1 and free_batch else batch, -1 if free_channels else trial.channels)
    sides = fixed if program.shape else (-1, -1) if free else trial.size
    free_sides = (sides[0] == -1, sides[1] == -1)
    return Found(
        TensorSpec(program.input, _order((*given, *sides), layout), "float32", layout),
        tuple(
            _output(output, layout, (free_batch, free_channels, *free_sides))
            for output in trial.outputs
        ),
        -1 if free_batch else batch,
        _scale(trial, layout),
    )


def _first(
    attempt: Callable[[Size], _Trial], sizes: Iterable[Size]
) -> tuple[_Trial | None, Exception | None]:
    """The first trial that works, or the first error."""
    first: Exception | None = None
    for size in sizes:
        try:
            return attempt(size), None
        except Exception as error:
            # A program may raise anything; whether it does is what is asked here.
            first = first or error
    return None, first


def _scale(trial: _Trial, layout: Layout) -> str:
    """How much larger a trial's first output is than its input."""
    shape = (1, *trial.outputs[0].shape)[-4:]
    if len(shape) != 4:
        return ""
    rows, columns = shape[2:] if layout is Layout.NCHW else shape[1:3]
    factor = rows / trial.size[0]
    return f"{factor:g}" if columns / trial.size[1] == factor else ""


def _keeps(trials: Sequence[_Trial], axis: int) -> bool:
    """Whether a program gives as many channels as it gets."""
    shapes = [(1, *trial.outputs[0].shape)[-4:] for trial in trials]
    return all(
        len(shape) == 4 and shape[axis] == trial.channels
        for shape, trial in zip(shapes, trials, strict=True)
    )


def _first_conv(program: Program) -> int:
    """Channels that the first convolution's weights are for; 0 if there is none."""
    for _, weights in program.network.named_parameters():
        if weights.dim() == 4 and weights.shape[2] > 1:
            return int(weights.shape[1])
    return 0


def _order(free: tuple[Any, ...], layout: Layout) -> tuple[Any, ...]:
    """What is said of N, C, H, W in a layout's order."""
    return free if layout is Layout.NCHW else (free[0], free[2], free[3], free[1])


def _output(made: TensorSpec, layout: Layout, free: tuple[bool, ...]) -> TensorSpec:
    """An output as declared; rank 3 is a picture without a batch, and gets one."""
    shape = (1, *made.shape) if len(made.shape) == 3 else made.shape
    if len(shape) != 4:
        return replace(made, shape=(-1,) * len(shape))
    marks = _order(free, layout)
    known = tuple(-1 if mark else dim for dim, mark in zip(shape, marks, strict=True))
    return replace(made, shape=known, layout=layout)
