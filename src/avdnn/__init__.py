"""FFmpeg's DNN video filters as a Python library and program."""

__version__ = "0.1.0"
