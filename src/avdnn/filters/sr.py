"""sr: super-resolution of the luma plane, FFmpeg's older filter for SRCNN and ESPCN."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..graph import Call
from ..pixfmt import FORMATS, Family
from . import Context
from ._dnn import DnnFilter
from ._options import DnnOptions, bind


@dataclass(frozen=True, slots=True)
class SrOptions(DnnOptions):
    """`scale_factor` enlarges frames before a model that keeps their size (SRCNN)."""

    scale_factor: int = field(default=2, kw_only=True)


ORDER = ("dnn_backend", "scale_factor", "model", "input", "output")
"""FFmpeg's order of options without a name."""


def make(call: Call, context: Context) -> DnnFilter:
    """The filter that a call describes. The scale factor is 2 to 4, as FFmpeg's."""
    options = bind(call, SrOptions, context.dnn_options, ORDER)
    if not 2 <= options.scale_factor <= 4:
        raise call.error(f"scale_factor is 2, 3 or 4, not {options.scale_factor}")
    luma = [name for name, form in FORMATS.items() if form.family is Family.LUMA]
    factor = options.scale_factor
    return DnnFilter(call, options, context, formats=luma, prescale=factor)
