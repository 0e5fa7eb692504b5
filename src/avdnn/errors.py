"""Every error that avdnn raises on purpose.

AvdnnError                                  exit code
  UsageError(ValueError)                    2   the command line
  GraphError(ValueError)                    2   the filter text; text, position
  FormatError(ValueError)                   1   a frame or pixel format; wanted, got
  MediaError(OSError)                       1   a file; path
  BackendError                              1   backend
    BackendUnavailable(ImportError)         3   not installed
    ModelError(ValueError)                  1   the model file, its tensors, its options
    InferenceError(RuntimeError)            1   a run of the model
      NonFiniteError                        1   NaN or infinity in an output
  DeviceError(RuntimeError)                 3   device
    HostMemoryOnly                          3   a backend cannot use frames where they are
"""

from __future__ import annotations

from unicodedata import east_asian_width


class AvdnnError(Exception):
    """Base of all; `exit_code` is what the command line returns for it."""

    exit_code = 1


class UsageError(AvdnnError, ValueError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = 2


class GraphError(AvdnnError, ValueError):
    """The filter text is wrong; `position` is the offset in `text`, or -1."""

    exit_code = 2

    def __init__(self, message: str, text: str = "", position: int = -1) -> None:
        super().__init__(message)
        self.text = text
        self.position = position

    def __str__(self) -> str:
        message = str(self.args[0])
        if self.position < 0 or not self.text:
            return message
        start = self.text.rfind("\n", 0, self.position) + 1
        line = self.text[start:].partition("\n")[0].replace("\t", " ")
        before = self.text[start : self.position]
        column = sum(1 + (east_asian_width(char) in "WF") for char in before)
        return f"{message}\n  {line}\n  {' ' * column}^"


class FormatError(AvdnnError, ValueError):
    """A pixel format or a frame is not what the model or the encoder takes."""

    def __init__(self, message: str, *, wanted: str = "", got: str = "") -> None:
        super().__init__(message)
        self.wanted = wanted
        self.got = got


class MediaError(AvdnnError, OSError):
    """A file cannot be read or written."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path

    def __str__(self) -> str:
        return str(self.args[0])


class BackendError(AvdnnError):
    """Something went wrong in, or in choosing, the backend named `backend`."""

    def __init__(self, message: str, *, backend: str = "") -> None:
        super().__init__(message)
        self.backend = backend


class BackendUnavailable(BackendError, ImportError):
    """The backend's framework is not installed."""

    exit_code = 3


class ModelError(BackendError, ValueError):
    """The model cannot be loaded, or does not fit what was asked of it."""


class InferenceError(BackendError, RuntimeError):
    """The model failed on a frame."""


class NonFiniteError(InferenceError):
    """The model's output holds NaN or infinity."""


class DeviceError(AvdnnError, RuntimeError):
    """A device is missing, or cannot do what was asked."""

    exit_code = 3

    def __init__(self, message: str, *, device: str = "") -> None:
        super().__init__(message)
        self.device = device


class HostMemoryOnly(DeviceError):
    """A backend cannot use the memory of the device that the frames are on."""
