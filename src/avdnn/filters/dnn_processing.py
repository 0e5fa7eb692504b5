"""dnn_processing: any image-to-image model."""

from __future__ import annotations

from ..graph import Call
from . import Context
from ._dnn import DnnFilter
from ._options import DnnOptions, bind


def make(call: Call, context: Context) -> DnnFilter:
    """The filter that a call describes; GraphError for options that no backend could honour."""
    options = bind(call, DnnOptions, context.dnn_options)
    return DnnFilter(call, options, context)
