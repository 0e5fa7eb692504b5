"""Where PyAV 18 and 19 differ in what avdnn uses."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import av
from av.sidedata.sidedata import Type

_MAJOR = int(av.__version__.split(".")[0])

AS_BYTES: dict[str, Any] = {} if _MAJOR >= 19 else {"metadata_errors": "surrogateescape"}
"""Arguments of av.open that keep metadata that is not UTF-8; 19 does by itself."""


def fraction(value: Any) -> Fraction | None:
    """A rational of PyAV as a Fraction; None if unset, which 18 gives as None and 19 as 0/1."""
    return Fraction(value.numerator, value.denominator) if value else None


def side_data(frame: av.VideoFrame | None) -> list[Any]:
    """A frame's side data; it is iterated by position, since 19 iterates its types."""
    if frame is None:
        return []
    held: Any = frame.side_data
    return [held[position] for position in range(len(held))]


def _unknown_type(cls: Any, value: int) -> Any:
    """A member for side data that libav knows and PyAV does not, as 19 makes one."""
    made = object.__new__(cls)
    made._name_, made._value_ = f"UNKNOWN_{value}", value
    return cls._value2member_map_.setdefault(value, made)


if _MAJOR < 19:
    # Without it, reading the side data of a JPEG that holds EXIF raises ValueError.
    Type._missing_ = classmethod(_unknown_type)  # type: ignore[assignment]
