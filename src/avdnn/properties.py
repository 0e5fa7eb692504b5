"""New frames that carry what another frame says: flags, side data, tags."""

from __future__ import annotations

import threading
from fractions import Fraction

import av
import av.error
import av.filter
from av.video.reformatter import VideoReformatter

from .versions import side_data

_READ_FROM_FRAMES = frozenset(
    {
        "A53_CC", "AFD", "AMBIENT_VIEWING_ENVIRONMENT", "DOVI_METADATA", "DOVI_RPU_BUFFER",
        "DYNAMIC_HDR_PLUS", "DYNAMIC_HDR_VIVID", "EXIF", "GOP_TIMECODE", "ICC_PROFILE", "PANSCAN",
        "REGIONS_OF_INTEREST", "S12M_TIMECODE", "SEI_UNREGISTERED", "SPHERICAL", "STEREO3D",
        "UNKNOWN_31",
    }
)  # fmt: skip
"""Side data that filters or encoders take from every frame; the rest belongs to the stream.
31 is EXIF."""

PROGRESSIVE, TOP_FIRST, BOTTOM_FIRST = 1, 4, 5
"""FFmpeg's numbers of the field orders of coded frames that hold both fields."""

_scalers = threading.local()
_markers = threading.local()


def blank(source: av.VideoFrame, width: int, height: int, form: str) -> av.VideoFrame:
    """A new writable frame with the properties of `source`; its pixels are not defined.

    Colour tags and times are always carried. Flags (interlacing) and side data are carried where
    the source has any that a filter or an encoder would miss: libav copies them only while
    converting, so that the source goes through a tiny picture, which costs one more pass over the
    new frame. What belongs to the stream (display matrix, mastering display) is the writer's.
    """
    if source.format.name != "cuda" and _has_more(source):
        side = 16 if width != 16 else 18
        small = _scaler("down").reformat(
            source, width=side, height=side, format="gray", interpolation="POINT", threads=1
        )
        return _scaler("up").reformat(
            small, width=width, height=height, format=form, interpolation="POINT", threads=1
        )
    made = av.VideoFrame(width, height, form)
    made.color_range, made.colorspace = source.color_range, source.colorspace
    made.color_primaries, made.color_trc = source.color_primaries, source.color_trc
    made.pts, made.duration = source.pts, source.duration
    if source.time_base:
        made.time_base = source.time_base
    return made


def _has_more(source: av.VideoFrame) -> bool:
    return source.interlaced_frame or any(
        data.type.name in _READ_FROM_FRAMES for data in side_data(source)
    )


def display_matrix(source: av.VideoFrame | None) -> list[int]:
    """The nine integers of a frame's display matrix; empty without one."""
    for data in side_data(source):
        if data.type.name == "DISPLAYMATRIX":
            return list(memoryview(bytes(data)).cast("i"))
    return []


def field_order(frame: av.VideoFrame) -> int:
    """FFmpeg's number for an encoder of such frames: progressive, top or bottom field first.

    Which field is first is asked of a filter; PyAV does not show it. A device frame says nothing
    here: its Meta does.
    """
    if not frame.interlaced_frame or frame.sw_format is not None:
        return PROGRESSIVE
    graph = av.filter.Graph()
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1, 25)
    )
    select = graph.add("select", "eq(interlace_type,TOPFIRST)")
    sink = graph.add("buffersink")
    source.link_to(select)
    select.link_to(sink)
    graph.configure()
    graph.push(frame)
    graph.push(None)
    try:
        graph.pull()
    except (av.error.EOFError, av.error.BlockingIOError):
        return BOTTOM_FIRST
    return TOP_FIRST


def with_fields(frame: av.VideoFrame, order: int) -> av.VideoFrame:
    """The frame's memory in a new av frame that is marked as interlaced in that order; the frame
    itself for 0 and PROGRESSIVE."""
    if order <= PROGRESSIVE:
        return frame
    kind = frame.width, frame.height, frame.format.name, order
    if getattr(_markers, "kind", None) != kind:
        _markers.kind, _markers.graph = kind, _marking(frame, order)
    graph: av.filter.Graph = _markers.graph
    graph.push(frame)
    made = graph.pull()
    assert isinstance(made, av.VideoFrame)
    return made


def _marking(frame: av.VideoFrame, order: int) -> av.filter.Graph:
    graph = av.filter.Graph()
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1, 25)
    )
    marked = graph.add("setfield", "tff" if order == TOP_FIRST else "bff")
    sink = graph.add("buffersink")
    source.link_to(marked)
    marked.link_to(sink)
    graph.configure()
    return graph


def _scaler(name: str) -> VideoReformatter:
    """This thread's own scaler of that name."""
    if not hasattr(_scalers, name):
        setattr(_scalers, name, VideoReformatter())
    made: VideoReformatter = getattr(_scalers, name)
    return made
