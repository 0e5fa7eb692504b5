"""Frames in host memory: av frames to planes and back, planes to tensors and back.

Arithmetic is section 4 of the contract: v = code * (1 / peak) in float32, and
code = clip(round_half_even(peak * v), 0, peak).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np

from .chroma import ChromaScaler
from .errors import ModelError, NonFiniteError
from .frame import Array, Frame, Layout, Meta, TensorSpec
from .pixfmt import FORMATS, Family, PixelFormat, pixel_format
from .planes import views
from .properties import blank, with_fields
from .versions import fraction

STRIP_ROWS = 64
"""Rows converted at a time: a strip stays in the cache over the passes made on it."""


def from_av(frame: av.VideoFrame, sar: Fraction | None = None) -> Frame:
    """Wrap a decoded frame; nothing is copied. Formats that no dnn filter takes get no planes."""
    meta = Meta(
        pts=frame.pts,
        duration=frame.duration or 0,
        time_base=fraction(frame.time_base) or Fraction(1, 1000000),
        sar=sar,
        template=frame,
    )
    name = frame.format.name
    known = FORMATS.get(name)
    planes = views(frame, known) if known else ()
    return Frame(planes, name, frame.width, frame.height, meta, owner=frame)


def empty(form: str, width: int, height: int, meta: Meta) -> Frame:
    """A new writable frame of FFmpeg format `form`, with the properties that `meta` names."""
    source = meta.template
    bare = source is None
    made = av.VideoFrame(width, height, form) if bare else blank(source, width, height, form)
    made = with_fields(made, meta.field_order)
    return Frame(views(made, pixel_format(form)), form, width, height, meta, owner=made)


def to_av(frame: Frame) -> av.VideoFrame:
    """The av frame that a host frame lies in, stamped with the frame's own time."""
    own = frame.owner
    made: av.VideoFrame = own if isinstance(own, av.VideoFrame) else own.picture()
    return stamped(made, frame.meta)


def stamped(made: av.VideoFrame, meta: Meta) -> av.VideoFrame:
    """An av frame with the times of `meta`."""
    made.pts = meta.pts
    made.time_base = meta.time_base
    made.duration = meta.duration
    return made


# ---- planes to tensors -------------------------------------------------------------------------


def pack(frames: Sequence[Frame], spec: TensorSpec, order: str = "") -> Array:
    """One tensor of shape (N, C, H, W) or (N, H, W, C) from N frames of one format and size.

    Codes for an integer spec that fits the format (a view without a copy where that is one frame
    whose samples lie as the model wants them), values for a float one. `order` is "rgb", "bgr"
    or "": the frame's own.
    """
    known = pixel_format(frames[0].format)
    pictures = [_picture(frame, known, spec.layout, order) for frame in frames]
    direct = spec.dtype == known.dtype and known.shift == 0
    if len(pictures) == 1 and direct and not isinstance(pictures[0], list):
        return pictures[0][np.newaxis]
    first = pictures[0]
    shape = first.shape if not isinstance(first, list) else _stacked_shape(first, spec.layout)
    out = np.empty((len(pictures), *shape), spec.dtype)
    for slot, view in zip(out, pictures, strict=True):
        if isinstance(view, list):
            axis = 0 if spec.layout is Layout.NCHW else -1
            for target, plane in zip(np.moveaxis(slot, axis, 0), view, strict=True):
                _to_tensor(plane, target, known, spec)
        else:
            _to_tensor(view, slot, known, spec)
    return out


def _stacked_shape(planes: list[Array], layout: Layout | None) -> tuple[int, ...]:
    rows, columns = planes[0].shape
    return (3, rows, columns) if layout is Layout.NCHW else (rows, columns, 3)


def _picture(frame: Frame, known: PixelFormat, layout: Layout | None, order: str) -> Any:
    """The samples a model reads as one view in the model's layout, or a list of three planes."""
    if known.family is Family.LUMA:
        plane = frame.planes[0]
        return plane[np.newaxis] if layout is Layout.NCHW else plane[..., np.newaxis]
    if known.family is Family.PLANAR:
        green, blue, red = frame.planes[:3]
        return [blue, green, red] if order == "bgr" else [red, green, blue]
    view = _colour(frame.planes[0], known, order)
    return view.transpose(2, 0, 1) if layout is Layout.NCHW else view


def _colour(plane: Array, known: PixelFormat, order: str) -> Array:
    """Three channels of a packed plane, in `order` or in the frame's own, as a view."""
    first = 1 if known.order[0] in "0a" else 0
    view = plane[..., first : first + 3]
    own = known.order[first : first + 3]
    return view[..., ::-1] if order and order != own else view


def _to_tensor(source: Array, target: Array, known: PixelFormat, spec: TensorSpec) -> None:
    if spec.dtype == known.dtype:
        if known.shift:
            np.right_shift(source, known.shift, out=target)
        else:
            target[...] = source
            if known.dtype == "float32":
                _normalise(target, spec)
        return
    codes = source >> known.shift if known.shift else source
    if not spec.is_integer:
        np.multiply(codes, np.float32(1 / known.peak), out=target, casting="unsafe")
        _normalise(target, spec)
        return
    peak = np.float32(np.iinfo(spec.dtype).max)
    values = codes * (peak / np.float32(known.peak))
    target[...] = np.clip(np.rint(values), 0, peak)


def _normalise(target: Array, spec: TensorSpec) -> None:
    if spec.scale != 255.0 or spec.mean != 0.0:
        target *= np.float32(255 / spec.scale)
        target -= np.float32(spec.mean / spec.scale)


# ---- tensors to planes -------------------------------------------------------------------------


def output_size(shape: tuple[int, ...], spec: TensorSpec) -> tuple[int, int]:
    """(height, width) of a picture tensor of that shape, with or without a batch axis."""
    rows, columns = shape[-2:] if spec.layout is Layout.NCHW else shape[-3:-1]
    return rows, columns


def unpack(
    tensor: Array,
    spec: TensorSpec,
    source: Frame,
    scaler: ChromaScaler,
    order: str = "",
    peak: int = 0,
) -> Frame:
    """A frame of the source's format from one frame's output, shape (C, H, W) or (H, W, C).

    Chroma and alpha come from `source`: copied at the same size, else resampled by `scaler`.
    `peak` is the code of 1.0 in an integer tensor; 0 means the format's own.
    Raises NonFiniteError for NaN or infinity, ModelError for a wrong number of channels.
    """
    known = pixel_format(source.format)
    if tensor.ndim != 3:
        raise ModelError(f"the model gives {tensor.ndim} dimensions a frame; a picture has 3")
    picture = tensor if spec.layout is Layout.NCHW else tensor.transpose(2, 0, 1)
    if picture.shape[0] != known.channels:
        raise ModelError(
            f"the model gives {picture.shape[0]} channels; {source.format} needs {known.channels}"
        )
    rows, columns = picture.shape[1:]
    made = empty(source.format, columns, rows, source.meta)
    for target, channel in _targets(made, known, picture, order, spec.layout):
        _to_plane(channel, target, known, spec, peak)
    _fill_rest(made, source, known, scaler)
    return made


def _targets(
    made: Frame, known: PixelFormat, picture: Array, order: str, layout: Layout | None
) -> list[tuple[Array, Array]]:
    """Pairs of what to write and where from; one pair of 3-D views where both are packed.

    Channel by channel, a planar picture is packed five times faster than as one transposed view.
    """
    if known.family is Family.LUMA:
        return [(made.planes[0], picture[0])]
    if known.family is Family.PLANAR:
        red, green, blue = picture[::-1] if order == "bgr" else picture
        return list(zip(made.planes[:3], (green, blue, red), strict=True))
    packed = _colour(made.planes[0], known, order)
    if layout is Layout.NCHW or known.components == 4:
        return [(packed[..., index], channel) for index, channel in enumerate(picture)]
    return [(packed, picture.transpose(1, 2, 0))]


def _to_plane(
    source: Array, target: Array, known: PixelFormat, spec: TensorSpec, peak: int
) -> None:
    if spec.is_integer:
        own = peak or known.peak
        top = own if source.dtype == np.uint16 else 255
        if top == known.peak and known.dtype != "float32":
            if known.shift:
                np.left_shift(source, known.shift, out=target, casting="unsafe")
            else:
                np.copyto(target, source, casting="unsafe")
            return
        _float_strips(source, target, known, known.peak / top, 0.0)
        return
    factor = known.peak * (spec.scale / 255.0)
    offset = known.peak * (spec.mean / 255.0)
    _float_strips(source, target, known, factor, offset)


def _float_strips(
    source: Array, target: Array, known: PixelFormat, factor: float, offset: float
) -> None:
    """target = clip(round_half_even(factor * source + offset)), a strip of rows at a time."""
    strip = np.empty((min(STRIP_ROWS, source.shape[0]), *source.shape[1:]), np.float32)
    for top in range(0, source.shape[0], STRIP_ROWS):
        given, made = source[top : top + STRIP_ROWS], target[top : top + STRIP_ROWS]
        values = strip[: len(given)]
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(given, np.float32(factor), out=values, casting="unsafe")
            if offset:
                values += np.float32(offset)
            least, most = values.min(initial=np.inf), values.max(initial=-np.inf)
        if not (np.isfinite(least) and np.isfinite(most)):  # NaN passes through both
            raise NonFiniteError("the model's output holds NaN or infinity")
        if known.dtype == "float32":
            made[...] = values
            continue
        np.rint(values, out=values)
        if least < 0 or most > known.peak:
            np.clip(values, 0, known.peak, out=values)
        if known.shift:
            made[...] = values.astype(np.uint16) << known.shift
        else:
            np.copyto(made, values, casting="unsafe")


def _fill_rest(made: Frame, source: Frame, known: PixelFormat, scaler: ChromaScaler) -> None:
    """Chroma, alpha and padding of `made` from `source`."""
    same = (made.width, made.height) == (source.width, source.height)
    first = 3 if known.family is Family.PLANAR else 1
    pairs = list(zip(made.planes[first:], source.planes[first:], strict=True))
    if known.family is Family.PACKED and known.components == 4:
        index = next(i for i, name in enumerate(known.order) if name in "0a")
        target = made.planes[0][..., index]
        if known.alpha:
            pairs.append((target, source.planes[0][..., index]))
        else:
            target[...] = 255
    for target, plane in pairs:
        if same:
            np.copyto(target, plane)
        elif plane.ndim == 3 and known.depth > 8:
            for component in range(plane.shape[2]):
                scaler.resize(plane[..., component], target[..., component], known)
        else:
            scaler.resize(plane, target, known)
