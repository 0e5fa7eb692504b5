"""A run of ordinary FFmpeg filters as one libavfilter graph, in place and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

import av
import av.filter

from .. import host
from ..errors import DeviceError, GraphError
from ..frame import Frame
from ..graph import Call
from ..media.listening import heard
from ..media.losses import has_alpha, losses, palette_is_transparent
from . import Context, Item

SAR_STEPS = 1024


class LibavFilter:
    """Neighbouring calls that libavfilter does; rebuilt when the frames' format or size changes."""

    def __init__(self, calls: list[Call], context: Context) -> None:
        self._calls = calls
        self._context = context
        self._check()

    def _check(self) -> None:
        """Report what libavfilter does not take before a file is opened."""
        probe = av.filter.Graph()
        for call in self._calls:
            _add(probe, call)

    def __call__(self, items: Iterator[Item]) -> Iterator[Item]:
        running: _Running | None = None
        on_device: Callable[[Frame], Frame] | None = None
        for item in items:
            if not isinstance(item, Frame):
                yield item
                continue
            if item.device != "cpu":
                on_device = on_device or _on_device(self._calls, item)
                yield on_device(item)
                continue
            if running is None or not running.takes(item):
                if running is not None:
                    yield from running.flush()
                running = _Running(self._calls, item, self._context)
            yield from running.push(item)
            del item
        if running is not None:
            yield from running.flush()


def _on_device(calls: list[Call], frame: Frame) -> Callable[[Frame], Frame]:
    from . import _device_plain

    return _device_plain.on_device(calls, frame)


class Converter:
    """Converts frames to the nearest of some formats, as libavfilter would choose.

    A palette that is transparent where it is used keeps its transparency if one of the formats
    holds it. One object serves one thread. What is converted is said once.
    """

    def __init__(self, formats: Iterable[str], context: Context, why: str) -> None:
        self._formats = frozenset(formats)
        self._context = context
        self._why = why
        self._clear = False
        self._running: _Running | None = None

    def __call__(self, frame: Frame) -> Frame:
        """`frame` itself if its format is one of the formats, else a converted one."""
        if frame.format in self._formats:
            return frame
        clear = frame.format == "pal8" and palette_is_transparent(host.to_av(frame))
        if self._running is None or clear != self._clear or not self._running.takes(frame):
            holding = [name for name in self._formats if has_alpha(name)] if clear else []
            formats = "|".join(sorted(holding or self._formats))
            call = Call("format", "", formats, -1, "")
            self._running = _Running([call], frame, self._context, probe=False)
            self._clear = clear
            made = next(self._running.push(frame))
            lost = losses(frame.format, made.format, has_alpha(frame.format) or clear)
            say = self._context.say if lost else self._context.tell
            more = f", which loses {' and '.join(lost)}" if lost else ""
            say(f"{frame.format} frames become {made.format} for {self._why}{more}")
            return made
        return next(self._running.push(frame))


class _Running:
    """One configured graph."""

    def __init__(
        self, calls: list[Call], first: Frame, context: Context, *, probe: bool = True
    ) -> None:
        _refuse_device_frames(calls, first)
        self._context = context
        self._key = _key(first)
        self._first_meta = first.meta
        sar = first.meta.sar
        if probe:
            sar = _sar_after(calls, first, context)
        self._sar = sar
        self._graph = _graph(calls, first, context)

    def takes(self, frame: Frame) -> bool:
        """Whether frames like this one fit the graph as it is configured."""
        return _key(frame) == self._key

    def push(self, frame: Frame) -> Iterator[Frame]:
        """Put one frame in, yield what comes out."""
        with self._context.clock.measure("filter"):
            self._graph.push(host.to_av(frame))
        yield from self._pull()

    def flush(self) -> Iterator[Frame]:
        """End of the stream: yield the rest."""
        self._graph.push(None)
        yield from self._pull()

    def _pull(self) -> Iterator[Frame]:
        while True:
            try:
                with self._context.clock.measure("filter"):
                    pulled: Any = self._graph.pull()
            except (av.BlockingIOError, av.EOFError):
                return
            made = host.from_av(_upright(pulled), self._sar)
            del pulled
            yield made
            del made


def _key(frame: Frame) -> tuple[Any, ...]:
    own = host.to_av(frame)
    return (
        frame.format,
        frame.width,
        frame.height,
        frame.meta.sar,
        frame.meta.time_base,
        own.color_range,
        own.colorspace,
    )


def _refuse_device_frames(calls: list[Call], frame: Frame) -> None:
    if frame.device != "cpu":
        raise DeviceError(
            f"filter {calls[0].name} takes frames in host memory, these are on {frame.device}: "
            f"put hwdownload before it",
            device=frame.device,
        )


def _add(built: av.filter.Graph, call: Call) -> Any:
    try:
        return built.add(call.name, call.args or None)
    except (av.FFmpegError, ValueError) as error:
        said = heard(lambda: av.filter.Graph().add(call.name, call.args or None))
        raise GraphError(
            f"libavfilter refuses {call.name}={call.args}: {said or _reason(error)}",
            call.graph,
            call.position,
        ) from error


def _reason(error: Exception) -> str:
    log = getattr(error, "log", None)
    return str(log[2]) if log else str(getattr(error, "strerror", None) or error)


def _graph(calls: list[Call], first: Frame, context: Context, *, tail: str = "") -> Any:
    built = av.filter.Graph()
    own = host.to_av(first)
    args = [
        f"video_size={first.width}x{first.height}",
        f"pix_fmt={first.format}",
        f"time_base={first.meta.time_base}",
        f"pixel_aspect={first.meta.sar or '0/1'}",
        f"colorspace={int(own.colorspace)}",
        f"range={int(own.color_range)}",
    ]
    if context.frame_rate:
        args.append(f"frame_rate={context.frame_rate}")
    node = built.add("buffer", ":".join(args))
    nodes = [_add(built, call) for call in calls]
    if tail:
        nodes.append(built.add("format", "gray"))
        nodes.append(built.add("scale", tail))
    nodes.append(built.add("buffersink"))
    for call, following in zip([*calls, None, None, None], nodes, strict=False):
        try:
            node.link_to(following)
        except (av.FFmpegError, ValueError) as error:
            name = call.name if call else "the chain's end"
            raise GraphError(
                f"{name} does not fit here: one video input and one video output are needed",
                call.graph if call else "",
                call.position if call else -1,
            ) from error
        node = following
    try:
        built.configure()
    except (av.FFmpegError, ValueError) as error:
        names = ",".join(call.name for call in calls)
        raise GraphError(
            f"libavfilter cannot set up {names} for {first.format} frames of "
            f"{first.width}x{first.height}: {_reason(error)}",
            calls[0].graph,
            calls[0].position,
        ) from error
    return built


def _sar_after(calls: list[Call], first: Frame, context: Context) -> Fraction | None:
    """The sample aspect ratio behind the chain.

    PyAV shows neither a frame's nor a link's, but scale's size expressions may use it: the width
    and height of one more frame are made to tell it, ten bits each.
    """
    if all(call.name in ("format", "null", "fps", "setpts") for call in calls):
        return first.meta.sar
    width = f"sar*{SAR_STEPS}"
    height = f"({width}-trunc({width}))*{SAR_STEPS}"
    probe = _graph(calls, first, context, tail=f"w=16+trunc({width}):h=16+trunc({height})")
    probe.push(host.to_av(first))
    probe.push(None)
    try:
        told = probe.pull()
    except (av.BlockingIOError, av.EOFError):
        return first.meta.sar
    steps = (told.width - 16) * SAR_STEPS + told.height - 16
    sar = Fraction(steps, SAR_STEPS**2).limit_denominator(700)
    # The expression has 1 for an unknown aspect.
    return first.meta.sar if sar == 1 and first.meta.sar is None else sar


def _upright(frame: av.VideoFrame) -> av.VideoFrame:
    """The frame itself, or a copy where a filter (vflip) left its lines bottom up."""
    if all(plane.line_size >= 0 for plane in frame.planes):
        return frame
    copier = av.filter.Graph()
    source = copier.add(
        "buffer",
        f"video_size={frame.width}x{frame.height}:pix_fmt={frame.format.name}"
        f":time_base={frame.time_base}",
    )
    copied, sink = copier.add("copy"), copier.add("buffersink")
    source.link_to(copied)
    copied.link_to(sink)
    copier.push(frame)
    made = copier.pull()
    assert isinstance(made, av.VideoFrame)
    made.time_base = frame.time_base
    return made


class Resizer:
    """Enlarges frames by a whole factor with swscale's plain bicubic, after another conversion."""

    def __init__(self, before: Callable[[Frame], Frame], factor: int, context: Context) -> None:
        self._before = before
        args = f"w=iw*{factor}:h=ih*{factor}:flags=bicubic"
        self._calls = [Call("scale", "", args, -1, "")]
        self._context = context
        self._running: _Running | None = None

    def __call__(self, frame: Frame) -> Frame:
        """The enlarged frame."""
        frame = self._before(frame)
        if self._running is None or not self._running.takes(frame):
            self._running = _Running(self._calls, frame, self._context, probe=False)
        return next(self._running.push(frame))
