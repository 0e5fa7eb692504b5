"""NVIDIA's encoders: whether a machine has them, and which frames they take from GPU memory."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import av
import av.error
from av.codec import Codec

from ..errors import DeviceError
from ..frame import Frame
from .listening import listening

ON_CPU = {"h264_nvenc": "libx264", "hevc_nvenc": "libx265", "av1_nvenc": "libsvtav1"}
"""What encodes the same on a CPU, by encoder."""

MOST_BITS = 10

_TAKEN = {
    "nv12": ("nv12", "yuv420p"),
    "p010le": ("p010le", "p010"),
    "p016le": ("p016le", "p016"),
}
"""sw_formats that go from GPU memory to the encoder, and the -pix_fmt that they satisfy."""

_AS_THEY_ARE = ("", "cuda")
_ANY_GPU = ("", "-1", "any")


def check(codec: Codec, options: Mapping[str, str]) -> None:
    """DeviceError where a GPU's encoder does not open on this machine, for whatever frames."""
    if codec.name not in ON_CPU:
        return
    trial: Any = av.CodecContext.create(codec, "w")
    trial.width, trial.height, trial.pix_fmt = 640, 480, "nv12"
    trial.time_base = Fraction(1, 25)
    trial.options = {"gpu": options["gpu"]} if "gpu" in options else {}
    said: list[str] = []
    try:
        with listening() as said:
            trial.open()
    except (av.error.FFmpegError, ValueError, OSError) as error:
        why = "; ".join(said) or str(error)
        raise DeviceError(
            f"-c:v {codec.name}: no GPU here encodes with it ({why}); take "
            f"-c:v {ON_CPU[codec.name]}, which runs on the CPU, or see avdnn doctor",
            device="cuda",
        ) from error


def why_host(codec: Codec, frame: Frame, pix_fmt: str, gpu: str) -> str | None:
    """Why a device frame has to go to the encoder through host memory.

    None if it need not, "" if there is nothing to say: the encoder is none of a GPU's. `pix_fmt`
    and `gpu` are -pix_fmt and the encoder's own option, "" where not given.
    """
    if codec.name not in ON_CPU:
        return ""
    if frame.format not in _TAKEN:
        takes = ", ".join(_TAKEN)
        return f"{codec.name} takes {takes} from GPU memory, not {frame.format}"
    if frame.width % 2 or frame.height % 2:
        return f"{codec.name} takes even sizes from GPU memory, not {frame.width}x{frame.height}"
    if pix_fmt not in (*_AS_THEY_ARE, *_TAKEN[frame.format]):
        return f"-pix_fmt {pix_fmt} is made in host memory, the frames are {frame.format}"
    if gpu not in (*_ANY_GPU, frame.device.partition(":")[2]):
        return f"-gpu {gpu} is not the frames' own GPU, {frame.device}"
    return None


def lost_bits(codec: Codec, pix_fmt: str, depth: int) -> str:
    """A sentence where frames of so many bits a sample lose some in the encoder; "" where not."""
    if codec.name not in ON_CPU or depth <= MOST_BITS:
        return ""
    return (
        f"{codec.name} encodes {MOST_BITS} bits of {pix_fmt} frames, which hold up to {depth} "
        f"(-c:v libx265 encodes 12, ffv1 all)"
    )
