"""derain: removal of rain or haze from RGB frames, FFmpeg's older filter."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from ..graph import Call
from ..pixfmt import FORMATS, Family
from . import Context
from ._dnn import DnnFilter
from ._options import DnnOptions, bind


class FilterType(StrEnum):
    """What the model removes; both run the same way."""

    DERAIN = "derain"
    DEHAZE = "dehaze"

    @classmethod
    def _missing_(cls, value: object) -> FilterType | None:
        """FFmpeg's numbers."""
        return {"0": cls.DERAIN, "1": cls.DEHAZE}.get(str(value))


@dataclass(frozen=True, slots=True)
class DerainOptions(DnnOptions):
    """`filter_type` is kept for command lines that set it."""

    models: ClassVar[str] = "derain takes models of 3 channels, dnn_processing others too"

    filter_type: FilterType = field(default=FilterType.DERAIN, kw_only=True)


ORDER = ("filter_type", "dnn_backend", "model", "input", "output")
"""FFmpeg's order of options without a name."""


def make(call: Call, context: Context) -> DnnFilter:
    """The filter that a call describes."""
    options = bind(call, DerainOptions, context.dnn_options, ORDER)
    colour = [name for name, form in FORMATS.items() if form.family is not Family.LUMA]
    return DnnFilter(call, options, context, formats=colour)
