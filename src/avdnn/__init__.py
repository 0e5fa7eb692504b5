"""FFmpeg's DNN video filters as a Python library and program.

`run` does a whole job, `apply` filters av frames, `load` gives inference alone, `available` tells
which backends are installed. Importing this imports no framework.
"""

from .api import apply, available, load, run
from .backends import Backend, Options
from .errors import (
    AvdnnError,
    BackendError,
    BackendUnavailable,
    DeviceError,
    FormatError,
    GraphError,
    InferenceError,
    MediaError,
    ModelError,
    NonFiniteError,
    UsageError,
)
from .frame import Frame, Layout, Meta, ModelInfo, Precision, Region, TensorSpec
from .job import InputSpec, Job, OutputSpec

__version__ = "0.1.0"

__all__ = [
    "AvdnnError",
    "Backend",
    "BackendError",
    "BackendUnavailable",
    "DeviceError",
    "FormatError",
    "Frame",
    "GraphError",
    "InferenceError",
    "InputSpec",
    "Job",
    "Layout",
    "MediaError",
    "Meta",
    "ModelError",
    "ModelInfo",
    "NonFiniteError",
    "Options",
    "OutputSpec",
    "Precision",
    "Region",
    "TensorSpec",
    "UsageError",
    "apply",
    "available",
    "load",
    "run",
]
