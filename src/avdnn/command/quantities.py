"""Times, sizes and rates as FFmpeg's command line writes them."""

from __future__ import annotations

import re
from fractions import Fraction

from ..errors import UsageError

_CLOCK = re.compile(r"(-?)(?:(\d+):)?(\d\d?):(\d\d?(?:\.\d*)?)", re.ASCII)
_SECONDS = re.compile(r"(-?)(\d+\.?\d*|\.\d+)(s|ms|us)?", re.ASCII)
_UNITS = {None: 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}

RATES = {
    **dict.fromkeys(("ntsc", "qntsc", "sntsc"), "30000/1001"),
    **dict.fromkeys(("pal", "qpal", "spal"), "25"),
    "film": "24",
    "ntsc-film": "24000/1001",
}

SIZES = {
    "ntsc": "720x480",
    "pal": "720x576",
    "qntsc": "352x240",
    "qpal": "352x288",
    "sntsc": "640x480",
    "spal": "768x576",
    "film": "352x240",
    "ntsc-film": "352x240",
    "sqcif": "128x96",
    "qcif": "176x144",
    "cif": "352x288",
    "4cif": "704x576",
    "16cif": "1408x1152",
    "qqvga": "160x120",
    "qvga": "320x240",
    "vga": "640x480",
    "svga": "800x600",
    "xga": "1024x768",
    "uxga": "1600x1200",
    "qxga": "2048x1536",
    "sxga": "1280x1024",
    "qsxga": "2560x2048",
    "hsxga": "5120x4096",
    "wvga": "852x480",
    "wxga": "1366x768",
    "wsxga": "1600x1024",
    "wuxga": "1920x1200",
    "woxga": "2560x1600",
    "wqhd": "2560x1440",
    "wqsxga": "3200x2048",
    "wquxga": "3840x2400",
    "whsxga": "6400x4096",
    "whuxga": "7680x4800",
    "cga": "320x200",
    "ega": "640x350",
    "hd480": "852x480",
    "hd720": "1280x720",
    "hd1080": "1920x1080",
    "2k": "2048x1080",
    "2kdci": "2048x1080",
    "2kflat": "1998x1080",
    "2kscope": "2048x858",
    "4k": "4096x2160",
    "4kdci": "4096x2160",
    "4kflat": "3996x2160",
    "4kscope": "4096x1716",
    "nhd": "640x360",
    "hqvga": "240x160",
    "wqvga": "400x240",
    "fwqvga": "432x240",
    "hvga": "480x320",
    "qhd": "960x540",
    "uhd2160": "3840x2160",
    "uhd4320": "7680x4320",
}


def seconds(text: str, option: str) -> float:
    """The seconds of `[HH:]MM:SS[.m]` or `N[.m][s|ms|us]`."""
    clock = _CLOCK.fullmatch(text)
    plain = _SECONDS.fullmatch(text)
    if clock and int(clock[3]) < 60 and float(clock[4]) < 60:
        value = 3600 * int(clock[2] or 0) + 60 * int(clock[3]) + float(clock[4])
    elif plain:
        value = float(plain[2]) * _UNITS[plain[3]]
    else:
        raise UsageError(
            f"{option}: expected a time such as 12.5, 200ms or 1:02:03.5, got {text!r}"
        )
    if text.startswith("-"):
        raise UsageError(f"{option}: a time cannot be negative here, got {text!r}")
    return value


def signed_seconds(text: str, option: str) -> float:
    """The same, with a minus before it or not."""
    value = seconds(text.removeprefix("-"), option)
    return -value if text.startswith("-") else value


def size(text: str, option: str) -> tuple[int, int]:
    """(width, height) of `WxH` or of one of FFmpeg's names for sizes."""
    match = re.fullmatch(r"(\d+)x(\d+)", SIZES.get(text, text), re.ASCII)
    if match is None or not int(match[1]) or not int(match[2]):
        raise UsageError(f"{option}: expected a size such as 1280x720 or hd720, got {text!r}")
    return int(match[1]), int(match[2])


def rate(text: str, option: str) -> str:
    """A frame rate as `N`, `N.N` or `N/N`; FFmpeg's names become numbers."""
    text = RATES.get(text, text)
    try:
        positive = Fraction(text) > 0
    except (ValueError, ZeroDivisionError):
        positive = False
    if not positive:
        raise UsageError(f"{option}: expected a rate such as 25 or 30000/1001, got {text!r}")
    return text


def aspect(text: str, option: str) -> Fraction:
    """The ratio of `W:H`, `W/H` or a number, in terms of at most 255 as FFmpeg takes it."""
    try:
        ratio = Fraction(text.replace(":", "/", 1))
    except (ValueError, ZeroDivisionError):
        ratio = Fraction(0)
    wide = ratio > 1
    ratio = (1 / ratio if wide else ratio).limit_denominator(255)
    if ratio <= 0:
        raise UsageError(f"{option}: expected a ratio such as 16:9 or 1.85, got {text!r}")
    return 1 / ratio if wide else ratio


def speed(text: str, option: str) -> float:
    """A positive number."""
    try:
        value = float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError):
        value = 0.0
    if value <= 0:
        raise UsageError(f"{option}: expected a number above 0, such as 1 or 2.5, got {text!r}")
    return value


def count(text: str, option: str) -> int:
    """A whole number of at least 1."""
    if not re.fullmatch(r"0*[1-9]\d*", text, re.ASCII):
        raise UsageError(f"{option}: expected a whole number of at least 1, got {text!r}")
    return int(text)
