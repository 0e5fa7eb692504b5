"""What one run of avdnn is to do, as plain data: made by the command line, read by the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from .progress import ProgressKind

FILTERED = "filtered"
"""Where of a map: the video that the filters make."""


class StreamMap(NamedTuple):
    """One -map: streams of the input to keep, or to leave out if `negative`.

    `where` is "" for all streams, else `N`, `KIND` or `KIND:N` with KIND v, V (no cover art), a, s,
    d or t, or FILTERED. A map that is not `optional` has to match a stream.
    """

    where: str
    negative: bool = False
    optional: bool = False

    def __str__(self) -> str:
        return f"{'-' if self.negative else ''}0{':' if self.where else ''}{self.where}"


@dataclass(frozen=True, slots=True)
class InputSpec:
    """The input file and the options that stood before its -i.

    `start` (-ss) and `duration` (-t) are seconds, as is `start_from_end` (-sseof), a negative
    number. `offset` (-itsoffset) seconds are added to all times. `speed` reads at that many times
    the native rate (-readrate, 1 is -re), None as fast as it goes. `options` go to the demuxer or
    decoder as they are. `hwaccel` is "" or FFmpeg's name; `hwaccel_output_format` is "" or "cuda".
    `decoders` is how many decode sessions share one file on a GPU: 0 is automatic, None is one,
    or automatic where nobody asked for the GPU. `maps` are those of the output: the video that is
    decoded is one of those that they keep.
    """

    url: str
    format: str = ""
    pix_fmt: str = ""
    size: tuple[int, int] | None = None
    rate: str = ""
    start: float | None = None
    start_from_end: float | None = None
    duration: float | None = None
    offset: float = 0.0
    speed: float | None = None
    hwaccel: str = ""
    hwaccel_device: str = ""
    hwaccel_output_format: str = ""
    decoders: int | None = None
    maps: tuple[StreamMap, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


class Tag(NamedTuple):
    """Metadata to set: `where` is "" for the file, else `s`, `s:N`, `s:KIND` or `s:KIND:N`, with
    KIND v, a or s. An empty value takes the tag away."""

    where: str
    key: str
    value: str


class StreamFlags(NamedTuple):
    """A disposition to set: `where` is "" for all streams, else `N`, `KIND` or `KIND:N` with KIND
    v, a, s, d or t. `flags` are FFmpeg's: `default+forced`, `+forced-default`, 0."""

    where: str
    flags: str


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """The output file and its options.

    `size` (width, height) scales what the filters make; None leaves it.
    `frames` limits the video frames; `start` and `duration` (seconds) cut the output; `shortest`
    ends it with the video or the first sound that ends. `aspect` is the shown picture's width over
    its height, None for that of the frames.
    `overwrite`: True -y, False -n or neither. `options` go to the video encoder (crf, preset, b)
    or, where it does not know them, to the muxer; one known to neither is an error.
    `pix_fmt` and `codec` are "" where the writer chooses. `maps` choose the streams to copy,
    all without one; `source_tags` are all tags of the input, those of streams and chapters too.
    """

    url: str
    format: str = ""
    codec: str = ""
    pix_fmt: str = ""
    size: tuple[int, int] | None = None
    rate: str = ""
    start: float | None = None
    duration: float | None = None
    shortest: bool = False
    aspect: Fraction | None = None
    frames: int | None = None
    maps: tuple[StreamMap, ...] = ()
    audio: bool = True
    subtitles: bool = True
    data: bool = True
    overwrite: bool = False
    chapters: bool = True
    source_tags: bool = True
    tags: tuple[Tag, ...] = ()
    dispositions: tuple[StreamFlags, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """One input, one filter chain, one output.

    `vf` is FFmpeg filter text. None means: the bundled model `model` on the best backend.
    `dnn_options` are options, by their names in filter text, for every dnn filter that does not
    set them itself.
    `init_hw_device` and `filter_hw_device` are FFmpeg's options, as given.
    `progress`, `loglevel` and `debug` say what the command line shows.
    """

    input: InputSpec
    output: OutputSpec
    vf: str | None = None
    model: str = ""
    init_hw_device: str = ""
    filter_hw_device: str = ""
    benchmark: bool = False
    dnn_options: Mapping[str, str] = field(default_factory=dict)
    progress: ProgressKind = ProgressKind.AUTO
    loglevel: str = ""
    debug: bool = False
