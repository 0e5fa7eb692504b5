"""Opens inputs: what a name means, why it cannot be read, and how its video is decoded."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import av
import av.container
import av.error
from av.codec.context import ThreadType
from av.codec.hwaccel import HWAccel, hwdevices_available

from ..errors import DeviceError, MediaError, UsageError
from ..job import InputSpec
from ..versions import AS_BYTES
from .demuxing import check_options, decoder_options
from .listening import heard
from .mapping import chosen, is_cover

_PROTOCOL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_PICTURE_RATE = ("image2", "image2pipe", "rawvideo")
_GENPTS: Any = av.container.Flags.gen_pts.value
"""PyAV sets it; its guesses are wrong for streams that hold no presentation times (AVI)."""
_DEFAULT_BONUS = 5_000_000
"""What FFmpeg adds to the pixels of a default stream."""
_RAW_HINT = "raw video needs -f rawvideo -pix_fmt FORMAT -s WIDTHxHEIGHT before -i"
_GUESSES = frozenset({"tty", "bin", "adf", "idf", "xbin"})
"""Text art: what libavformat takes a plain text file for."""


def open_input(
    spec: InputSpec, *, threaded: bool = True
) -> tuple[av.container.InputContainer, av.VideoStream]:
    """The open file and its main video stream, ready to decode; one-line errors.

    `threaded` decodes several frames at a time.
    """
    if not is_device(spec.format) and is_local(spec.url):
        _check_readable(spec.url)
    hardware = _hardware(spec)
    container = _open(spec, hardware)
    try:
        video = _main_video(container, spec)
        if is_device(spec.format) or is_local(spec.url):
            check_options(container, video, spec)
        _prepare_decoder(video, spec, hardware, ThreadType.AUTO if threaded else ThreadType.SLICE)
    except BaseException:
        container.close()
        raise
    return container, video


# ---- names -------------------------------------------------------------------------------------


def is_device(form: str) -> bool:
    """Whether a format reads its name as text rather than as a file."""
    return form == "lavfi"


def is_local(url: str) -> bool:
    """Whether a name means a file (or a pattern of files) here, not a pipe or an address."""
    if url == "-" or url.startswith("pipe:"):
        return False
    return not _PROTOCOL.match(url) or url.startswith("file:") or Path(url).exists()


def local_path(url: str) -> Path:
    """The path that a local name means."""
    return Path(url if Path(url).exists() else url.removeprefix("file:"))


def av_name(url: str, pipe: str) -> str:
    """The name for libavformat; `file:` keeps colons in a file's name from being a protocol."""
    if url == "-":
        return pipe
    return f"file:{local_path(url)}" if is_local(url) else url


def is_pattern(url: str) -> bool:
    """Whether a name stands for numbered pictures: `frame%04d.png`."""
    return re.search(r"%0?\d*d", url) is not None and not Path(url).exists()


def _check_readable(url: str) -> None:
    path = local_path(url)
    if is_pattern(str(path)) or "*" in path.name:
        if not path.parent.is_dir():
            raise MediaError(f"{url}: no such folder: {path.parent}", url)
        return
    try:
        kind = path.stat()
        if stat.S_ISDIR(kind.st_mode):
            raise MediaError(f"{url}: is a folder, not a file", url)
        if stat.S_ISREG(kind.st_mode):
            with path.open("rb"):
                pass
            if kind.st_size == 0:
                raise MediaError(f"{url}: the file is empty", url)
    except MediaError:
        raise
    except OSError as error:
        raise MediaError(f"{url}: {(error.strerror or str(error)).lower()}", url) from error


# ---- opening -----------------------------------------------------------------------------------


def _open(spec: InputSpec, hardware: HWAccel | None) -> av.container.InputContainer:
    glob = spec.options.get("pattern_type") == "glob"
    name = spec.url if is_device(spec.format) or glob else av_name(spec.url, "pipe:0")
    form = spec.format or ("image2" if is_pattern(spec.url) else None)
    options = dict(spec.options) | _demuxer_options(spec, form)

    def attempt() -> av.container.InputContainer:
        opened: av.container.InputContainer = av.open(
            name,
            "r",
            format=form,
            options=options,
            hwaccel=hardware,
            **AS_BYTES,
        )
        return opened

    try:
        container = attempt()
    except av.error.FFmpegError as error:
        again = "" if name.startswith("pipe:") else heard(attempt)
        raise MediaError(_why_unreadable(spec, error, again), spec.url) from error
    except ValueError as error:
        raise UsageError(f"-f {form}: no such input format") from error
    except RuntimeError as error:
        if hardware is None:
            raise
        raise DeviceError(f"-hwaccel {spec.hwaccel}: {error}", device=spec.hwaccel) from error
    if "genpts" not in spec.options.get("fflags", ""):
        container.flags &= ~_GENPTS
    if form is None and container.format.name in _GUESSES:
        container.close()
        raise MediaError(f"{spec.url}: not a video or a picture", spec.url)
    return container


def _demuxer_options(spec: InputSpec, form: str | None) -> dict[str, str]:
    options = {}
    if spec.pix_fmt:
        options["pixel_format"] = spec.pix_fmt
    if spec.size:
        options["video_size"] = f"{spec.size[0]}x{spec.size[1]}"
    if spec.rate and form in _PICTURE_RATE:
        options["framerate"] = spec.rate
    if form == "rawvideo" and not spec.size:
        raise UsageError("-f rawvideo needs the frame size before -i: -s WIDTHxHEIGHT")
    return options


def _why_unreadable(spec: InputSpec, error: av.error.FFmpegError, said: str) -> str:
    detail = f" ({said})" if said else ""
    if is_pattern(spec.url) and not is_device(spec.format):
        return f"{spec.url}: no pictures found that match the pattern"
    if isinstance(error, av.error.InvalidDataError):
        return f"{spec.url}: not a video or a picture, or damaged{detail}"
    if isinstance(error, av.error.EOFError):
        return f"{spec.url}: not a single frame: the file ends in its header"
    if Path(spec.url).suffix in (".raw", ".yuv", ".rgb") and not spec.format:
        return f"{spec.url}: {_RAW_HINT}"
    return f"{spec.url}: {(error.strerror or str(error)).lower()}{detail}"


def _main_video(container: av.container.InputContainer, spec: InputSpec) -> av.VideoStream:
    """The stream that FFmpeg would pick, cover art aside: the largest, the default one first.

    With -map, one of those that it chooses.
    """
    moving = [stream for stream in container.streams.video if not is_cover(stream)]
    if moving:
        mapped = {stream.index for stream in chosen(container.streams, spec.maps)}
        wanted = [stream for stream in moving if stream.index in mapped]
        if not wanted:
            raise UsageError("-map leaves out the video: add -map 0:v")
        return max(wanted, key=_rank)
    kinds = sorted({stream.type for stream in container.streams})
    what = f"only {', '.join(kinds)}" if kinds else "no streams at all"
    if container.streams.video:
        what = "only cover art and sound"
    raise MediaError(f"{spec.url}: has no video: {what}", spec.url)


def _rank(stream: av.VideoStream) -> int:
    if stream.codec_context is None:
        return 0
    default = bool(stream.disposition & av.stream.Disposition.default)
    return stream.codec_context.width * stream.codec_context.height + default * _DEFAULT_BONUS


# ---- decoding ----------------------------------------------------------------------------------


def _hardware(spec: InputSpec) -> HWAccel | None:
    """What -hwaccel asks for; DeviceError where this build or machine does not have it.

    `auto` leaves the choice to who opens the reader; here it is the CPU.
    """
    if spec.hwaccel in ("", "none", "auto"):
        return None
    built = hwdevices_available()
    if spec.hwaccel not in built:
        raise DeviceError(
            f"-hwaccel {spec.hwaccel}: not available; this build has {', '.join(built)}",
            device=spec.hwaccel,
        )
    return HWAccel(spec.hwaccel, device=spec.hwaccel_device or None, allow_software_fallback=False)


def _prepare_decoder(
    video: av.VideoStream, spec: InputSpec, hardware: HWAccel | None, threads: ThreadType
) -> None:
    context = video.codec_context
    if context is None:
        raise MediaError(f"{spec.url}: no decoder for its video", spec.url)
    if hardware is not None and not context.is_hwaccel:
        raise DeviceError(
            f"-hwaccel {spec.hwaccel}: cannot decode {context.name}", device=spec.hwaccel
        )
    context.thread_type = threads
    known = decoder_options(video)
    context.options = {key: value for key, value in spec.options.items() if key in known}
    if hardware is None:
        try:
            context.open(strict=False)
        except av.error.FFmpegError as error:
            raise MediaError(
                f"{spec.url}: the {context.name} decoder does not open; {_RAW_HINT}",
                spec.url,
            ) from error
