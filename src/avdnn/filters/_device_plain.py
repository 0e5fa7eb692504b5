"""format and scale for device frames; what else libavfilter does needs host memory."""

from __future__ import annotations

import re
from collections.abc import Callable

from .. import cuda, graph
from ..cuda import frames as cuda_frames
from ..cuda import tensors as cuda_tensors
from ..cuda.choice import gpu_index
from ..errors import DeviceError
from ..frame import Frame
from ..graph import Call
from ..pixfmt import pixel_format

PLAIN = ("format", "scale", "null", "copy")


def on_device(calls: list[Call], frame: Frame) -> Callable[[Frame], Frame]:
    """What runs `calls` on frames like this one; DeviceError where that cannot be done."""
    steps = [_step(call, frame) for call in calls]

    def run(made: Frame) -> Frame:
        for step in steps:
            made = step(made)
        return made

    return run


def _step(call: Call, frame: Frame) -> Callable[[Frame], Frame]:
    if call.name not in PLAIN:
        raise DeviceError(
            f"filter {call.name} takes frames in host memory, these are on {frame.device}: put "
            f"hwdownload before it",
            device=frame.device,
        )
    if call.name in ("null", "copy"):
        return lambda made: made
    device = cuda.device(gpu_index(frame.device))
    if call.name == "format":
        wanted = _formats(call)
        return lambda made: cuda_tensors.convert(device, made, _choice(made.format, wanted))
    width, height = _sizes(call)
    return lambda made: cuda_tensors.scale(device, made, *_size(made, width, height, call))


def _options(call: Call, names: tuple[str, ...], known: tuple[str, ...]) -> dict[str, str]:
    """Options by name; the first ones may stand without."""
    found: dict[str, str] = {}
    for place, argument in enumerate(graph.arguments(call)):
        key = argument.key or (names[place] if place < len(names) else "")
        if key not in known:
            raise DeviceError(
                f"{call.name} on a GPU takes {', '.join(known)}, not {argument.key or key!r}: put "
                f"hwdownload before it",
                device="cuda",
            )
        found[key] = argument.value.chars
    return found


def _formats(call: Call) -> list[str]:
    text = _options(call, ("pix_fmts",), ("pix_fmts",)).get("pix_fmts", "")
    return [name for name in text.split("|") if name]


def _choice(own: str, wanted: list[str]) -> str:
    """The frame's own format if it is one of them, else the first that device frames have."""
    names = [pixel_format(name).name for name in wanted if name != "cuda"]
    if own in names or not names:
        return own
    able = [name for name in names if name in cuda_frames.FORMATS]
    if not able:
        raise DeviceError(
            f"format={'|'.join(wanted)}: frames on a GPU cannot have it: put hwdownload before it",
            device="cuda",
        )
    return able[0]


def _sizes(call: Call) -> tuple[str, str]:
    known = ("w", "width", "h", "height", "flags")
    found = _options(call, ("w", "h"), known)
    if found.get("flags", "bicubic") != "bicubic":
        raise DeviceError(
            f"scale on a GPU is bicubic, not {found['flags']}: put hwdownload before it",
            device="cuda",
        )
    return found.get("w", found.get("width", "iw")), found.get("h", found.get("height", "ih"))


def _size(frame: Frame, width: str, height: str, call: Call) -> tuple[int, int]:
    """FFmpeg's sizes: numbers, iw and ih with a factor, 0 for the same, -n for the proportion."""
    first = _length(width, frame, frame.width)
    second = _length(height, frame, frame.height)
    if first is None or second is None:
        raise DeviceError(
            f"scale={call.args}: a GPU takes numbers, iw*N, ih/N, and -N: put hwdownload before it",
            device="cuda",
        )
    if first < 0 and second < 0:
        return frame.width, frame.height
    if first < 0:
        first = _proportion(second, frame.width, frame.height, -first)
    elif second < 0:
        second = _proportion(first, frame.height, frame.width, -second)
    return first, second


def _length(text: str, frame: Frame, own: int) -> int | None:
    found = re.fullmatch(r"(-?\d+)|(iw|ih)(?:([*/])(\d+(?:\.\d+)?))?", text.strip())
    if found is None:
        return None
    if found[1]:
        return int(found[1]) or own
    base = frame.width if found[2] == "iw" else frame.height
    factor = float(found[4] or 1)
    return int(base / factor) if found[3] == "/" else int(base * factor)


def _proportion(given: int, own: int, other: int, multiple: int) -> int:
    return max(multiple, round(given * own / other / multiple) * multiple)
