"""sr: super-resolution of the luma plane, FFmpeg's older filter for SRCNN and ESPCN."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from ..graph import Call, Range
from ..pixfmt import FORMATS, Family
from . import Context
from ._dnn import DnnFilter
from ._options import DnnOptions, bind


@dataclass(frozen=True, slots=True)
class SrOptions(DnnOptions):
    """`scale_factor` enlarges frames before a model that keeps their size (SRCNN)."""

    models: ClassVar[str] = "sr takes models of 1 channel, dnn_processing others too"

    scale_factor: Annotated[int, Range(2, 4)] = field(default=2, kw_only=True)


ORDER = ("dnn_backend", "scale_factor", "model", "input", "output")
"""FFmpeg's order of options without a name."""


def make(call: Call, context: Context) -> DnnFilter:
    """The filter that a call describes."""
    options = bind(call, SrOptions, context.dnn_options, ORDER)
    luma = [name for name, form in FORMATS.items() if form.family is Family.LUMA]
    factor = options.scale_factor
    return DnnFilter(call, options, context, formats=luma, prescale=factor)
