"""Gives an OpenVINO graph the batch and the size of the frames to come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..frame import Layout, Shape
from ._tensors import resized


def shape_of(port: Any) -> Shape:
    """The shape of a port, -1 where it is free; () where even the rank is."""
    if port.partial_shape.rank.is_dynamic:
        return ()
    return tuple(dim.get_length() if dim.is_static else -1 for dim in port.partial_shape)


def _size(shape: Shape, layout: Layout) -> tuple[int, int]:
    """(height, width) of a picture's shape."""
    first = 2 if layout is Layout.NCHW else 1
    return shape[first], shape[first + 1]


def reshape(
    graph: Any,
    layouts: list[Layout | None],
    model: Path,
    *,
    batch: int,
    size: tuple[int, int] | None,
    may_resize: bool,
) -> tuple[int, bool]:
    """Give the graph a batch and a size as far as it allows.

    Returns the batch that it has then, and whether its size can be changed at all. ModelError if
    a batch other than 1 was asked for and the graph has a fixed one.
    """
    pictures = [
        (port, layout)
        for port, layout in zip(graph.inputs, layouts, strict=True)
        if layout is not None
    ]
    if not pictures:
        return 1, False
    port, layout = pictures[0]
    own = shape_of(port)
    own_size = _size(own, layout)
    free = -1 in own_size
    asked = size if free or may_resize else None
    batches = [batch] if own[0] == -1 else list(dict.fromkeys([batch, own[0]]))
    sizes = [asked, None] if asked is not None and asked != own_size else [None]
    found = next(
        ((n, s) for s in sizes for n in batches if _try_reshape(graph, pictures, n, s)), None
    )
    made, got = found or (own[0], None)
    if batch not in (1, made):
        raise ModelError(
            f"{model}: its batch is fixed at {made}; leave batch_size={batch} out",
            backend="openvino",
        )
    able = free or (may_resize and (got is not None or _doubles(graph, layouts, made)))
    return made, able


def _doubles(graph: Any, layouts: list[Layout | None], batch: int) -> bool:
    """Whether a copy of the graph takes twice its height and width, a multiple of what fits."""
    copy = graph.clone()
    pictures = [
        (port, layout)
        for port, layout in zip(copy.inputs, layouts, strict=True)
        if layout is not None
    ]
    port, layout = pictures[0]
    rows, columns = _size(shape_of(port), layout)
    return _try_reshape(copy, pictures, batch, (2 * rows, 2 * columns))


def _try_reshape(
    graph: Any, pictures: list[tuple[Any, Layout]], batch: int, size: tuple[int, int] | None
) -> bool:
    """Reshape if the graph allows it and its outputs follow; else leave it as it was."""
    import openvino

    before = {port: shape_of(port) for port, _ in pictures}
    first, layout = pictures[0]
    inside = _size(before[first], layout)
    outside = [shape_of(port) for port in graph.outputs]
    shapes = {
        port: openvino.PartialShape(list(resized(before[port], layout, batch, size)))
        for port, layout in pictures
    }
    try:
        graph.reshape(shapes)
    except RuntimeError:
        return False
    after = [shape_of(port) for port in graph.outputs]
    if all(
        _follows(old, new, batch, layout, inside, size)
        for old, new in zip(outside, after, strict=True)
    ):
        return True
    graph.reshape({port: openvino.PartialShape(list(shape)) for port, shape in before.items()})
    return False


def _follows(
    old: Shape,
    new: Shape,
    batch: int,
    layout: Layout,
    inside: tuple[int, int],
    size: tuple[int, int] | None,
) -> bool:
    """Whether an output took the new batch and size; baked-in constants keep the old ones."""
    if len(new) != 4:
        return True
    if new[0] not in (-1, batch):
        return False
    (rows, columns), (height, width) = _size(old, layout), inside
    in_proportion = min(rows, columns, height, width) > 0 and rows * width == columns * height
    asked = size is not None and size != inside
    return not (in_proportion and asked and _size(new, layout) == _size(old, layout))
