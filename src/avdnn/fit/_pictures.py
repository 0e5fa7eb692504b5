"""Pictures inside 4-D tensors: sizes, regions, ratios."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from ..backends import Backend
from ..frame import Array, Layout, Shape, TensorSpec


@dataclass(frozen=True, slots=True)
class Area:
    """A picture's height and width."""

    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.width}x{self.height}"

    def holds(self, other: Area) -> bool:
        return self.height >= other.height and self.width >= other.width

    def up_to(self, multiple: int) -> Area:
        """The smallest size that is a multiple in both directions and holds this one."""
        return Area(*(-(-side // multiple) * multiple for side in (self.height, self.width)))

    def times(self, scale: Fraction) -> Area:
        """The size after scaling; part of a pixel counts as one."""
        return Area(*(-int(-side * scale // 1) for side in (self.height, self.width)))


def axis(spec: TensorSpec) -> int:
    """The axis of rows; that of columns is the next."""
    return 2 if spec.layout is Layout.NCHW else 1


def area(spec: TensorSpec, shape: Shape) -> Area:
    """The picture's size in a tensor of that shape."""
    rows = axis(spec)
    return Area(shape[rows], shape[rows + 1])


def shape_for(spec: TensorSpec, size: Area, channels: int) -> Shape:
    """The shape of a batch (the model's own, else 1) of pictures of a size."""
    batch = max(spec.shape[0], 1)
    depth = spec.channels if spec.channels > 0 else channels
    if spec.layout is Layout.NCHW:
        return (batch, depth, size.height, size.width)
    return (batch, size.height, size.width, depth)


def resized(spec: TensorSpec, size: Area) -> TensorSpec:
    """The spec for pictures of another size."""
    rows = axis(spec)
    shape = (*spec.shape[:rows], size.height, size.width, *spec.shape[rows + 2 :])
    return replace(spec, shape=shape)


def region(array: Array, rows_axis: int, top: int, left: int, size: Area) -> Array:
    """A part of each picture; beyond its right and bottom edge the edge goes on."""
    for number, (start, length) in enumerate(((top, size.height), (left, size.width))):
        along = rows_axis + number
        end = array.shape[along]
        if start + length <= end:
            index = [slice(None)] * array.ndim
            index[along] = slice(start, start + length)
            array = array[tuple(index)]
        else:
            array = np.take(array, np.minimum(np.arange(start, start + length), end - 1), along)
    return array


def picture_input(backend: Backend) -> TensorSpec | None:
    """The one input, if it takes a picture."""
    specs = backend.info.inputs
    return specs[0] if len(specs) == 1 and specs[0].layout is not None else None


def picture_outputs(backend: Backend, given: TensorSpec) -> tuple[TensorSpec, ...]:
    """The outputs; those without a layout have the input's."""
    return tuple(
        spec if spec.layout is not None else replace(spec, layout=given.layout)
        for spec in backend.info.outputs
    )


def ratios(
    backend: Backend, given: TensorSpec, size: Area, channels: int
) -> dict[str, tuple[Fraction, Fraction] | None]:
    """Each output's size over the input's, (rows, columns), for pictures of `size`.

    None for an output that is no picture. May run the model once.
    """
    shapes = backend.output_shapes({given.name: shape_for(given, size, channels)})
    found: dict[str, tuple[Fraction, Fraction] | None] = {}
    for spec in picture_outputs(backend, given):
        shape = shapes[spec.name]
        if len(shape) != 4:
            found[spec.name] = None
            continue
        made = area(spec, shape)
        found[spec.name] = Fraction(made.height, size.height), Fraction(made.width, size.width)
    return found


def scales(found: Mapping[str, tuple[Fraction, Fraction] | None]) -> dict[str, Fraction] | None:
    """One scale for each output, k or 1/k; None if any output has none."""
    made: dict[str, Fraction] = {}
    for name, ratio in found.items():
        if ratio is None or ratio[0] != ratio[1] or 1 not in ratio[0].as_integer_ratio():
            return None
        made[name] = ratio[0]
    return made
