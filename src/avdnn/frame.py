"""Plain data that every part of avdnn shares: frames, tensors, models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any, TypeAlias

Array: TypeAlias = Any
"""A numpy.ndarray on the host or a cupy.ndarray on a device."""

Arrays: TypeAlias = Mapping[str, Array]
"""Tensors by name."""

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Mapping[str, Shape]


class Layout(StrEnum):
    """The order of a 4-D tensor's axes."""

    NCHW = "nchw"
    NHWC = "nhwc"


class Precision(StrEnum):
    """The arithmetic of a model; `auto` is decided by measuring what it makes of pictures."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


@dataclass(frozen=True, slots=True)
class Region:
    """A box found in a frame, in pixels of that frame: left, top, width, height."""

    x: int
    y: int
    width: int
    height: int
    label: str
    confidence: float
    classifications: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Meta:
    """What a frame carries beside its pixels.

    `template` is the av.VideoFrame that the frame descends from; side data and all that is not
    named here is copied from it. `pts` and `duration` are in units of `time_base` (seconds);
    `sar` is the sample aspect ratio, None where unknown. `field_order` is FFmpeg's number for
    device frames of two fields; on the host the av frame says it, and this is 0.
    """

    pts: int | None
    duration: int
    time_base: Fraction
    sar: Fraction | None = None
    regions: tuple[Region, ...] = ()
    template: Any = None
    field_order: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture.

    `planes` are array views (rows, columns[, components]) whose strides hold the pitch; `format`
    is FFmpeg's name of what they hold (for device frames: the sw_format). `owner` keeps the
    memory alive; on the host it is the av.VideoFrame that the planes lie in, or makes it: see
    host.to_av. `ready` is None on the host, the producer's event on a device.
    """

    planes: tuple[Array, ...] = field(repr=False)
    format: str
    width: int
    height: int
    meta: Meta
    owner: Any = field(default=None, repr=False)
    ready: Any = None
    device: str = "cpu"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model, as the seam wants it; -1 marks a free dimension.

    `dtype` is NumPy's name. An integer type means that sample codes (0..255 or 0..peak) go
    through as they are; a float type means values v = code / peak, and the tensor holds
    (255 * v - mean) / scale. With the defaults that is v itself.
    `layout` is None for tensors that are not pictures. `order` is the order of three colour
    channels, "rgb" or "bgr"; "" where the model does not say.
    """

    name: str
    shape: Shape
    dtype: str = "float32"
    layout: Layout | None = None
    order: str = ""
    scale: float = 255.0
    mean: float = 0.0

    @property
    def channels(self) -> int:
        """Channels of a picture tensor; -1 if free or not a picture."""
        if self.layout is None or len(self.shape) != 4:
            return -1
        return self.shape[1] if self.layout is Layout.NCHW else self.shape[3]

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of a picture tensor; -1 where free or not a picture."""
        if self.layout is None or len(self.shape) != 4:
            return (-1, -1)
        return self.shape[2:4] if self.layout is Layout.NCHW else self.shape[1:3]

    @property
    def is_integer(self) -> bool:
        """Whether sample codes go through without conversion."""
        return self.dtype in ("uint8", "uint16")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model takes and gives, and how it runs.

    `memory`: where arrays may live, a subset of {"host", "cuda"}. `max_batch`: None where the
    batch dimension is free, else the fixed batch. `device` and `precision` are what really runs.
    `reshapeable`: whether a fixed height and width may be changed by loading with another size.
    `facts` are further lines for `avdnn inspect` (producer, opset, ...).
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    memory: frozenset[str] = frozenset({"host"})
    max_batch: int | None = None
    max_in_flight: int = 1
    device: str = "cpu"
    precision: Precision = Precision.FLOAT32
    reshapeable: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)
