"""What the processor can do, and how much of it this process may use."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..frame import Precision

FLAGS = (
    (Precision.BFLOAT16, ("avx512_bf16", "amx_bf16", "bf16")),
    (Precision.FLOAT16, ("avx512_fp16", "amx_fp16")),
)
"""Precisions, and the flags in /proc/cpuinfo of which one is enough; the fastest first."""


def precisions(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[Precision, ...]:
    """What the processor computes in, the fastest first, float32 last."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        text = ""
    match = re.search(r"^(?:flags|Features)\s*: (.*)$", text, re.MULTILINE)
    flags = set(match[1].split()) if match else set()
    fast = [precision for precision, enough in FLAGS if flags.intersection(enough)]
    return (*fast, Precision.FLOAT32)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
