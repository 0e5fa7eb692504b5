"""dnn_processing: any image-to-image model."""

from __future__ import annotations

from .. import graph
from ..graph import Call
from . import Context
from ._dnn import DnnFilter
from ._options import DnnOptions, check


def make(call: Call, context: Context) -> DnnFilter:
    """The filter that a call describes; GraphError for options that no backend could honour."""
    options = graph.bind(call, DnnOptions, aliases={"options": "backend_configs"})
    return DnnFilter(call, check(options, call), context)
