"""FFmpeg's command line: options before -i are the input's, those after it the output's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import UsageError
from ..job import InputSpec, Job, OutputSpec, StreamFlags, StreamMap, Tag
from ..progress import ProgressKind
from . import quantities, streams
from .words import DNN_OPTIONS, Place, Word, words

_LEVELS = ("quiet", "panic", "fatal", "error", "warning", "info", "verbose", "debug", "trace")
_LEVEL_NUMBERS = ("-8", "0", "8", "16", "24", "32", "40", "48", "56")


@dataclass(slots=True)
class _Options:
    """Options that belong together: those that are known here, and those that are passed on."""

    known: dict[str, str] = field(default_factory=dict)
    passed: dict[str, str] = field(default_factory=dict)
    maps: list[str] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)
    dispositions: list[StreamFlags] = field(default_factory=list)


@dataclass(slots=True)
class _Line:
    """A command line, sorted."""

    every: _Options = field(default_factory=_Options)
    input: _Options = field(default_factory=_Options)
    output: _Options = field(default_factory=_Options)
    own: dict[str, str] = field(default_factory=dict)
    source: str | None = None
    target: str | None = None

    @property
    def left_out(self) -> set[str]:
        """Which of -an, -sn and -dn are given, whose input's or output's they may be."""
        return {"an", "sn", "dn"} & (self.input.known.keys() | self.output.known.keys())


def parse(argv: Sequence[str]) -> Job:
    """The job that `avdnn run ARGV` asks for; UsageError for what makes no sense."""
    line = _sort(argv)
    if line.source is None:
        raise UsageError("no input file: avdnn run -i INPUT [options] OUTPUT")
    if line.target is None:
        raise UsageError("no output file: it stands at the end (-f null - writes none)")
    every = line.every.known
    if "y" in every and "n" in every:
        raise UsageError("-y and -n contradict each other: give one of them")
    known, mapped = line.output.known, line.output.maps
    vf, others = streams.filters(known, mapped)
    maps = streams.maps(others, filtered=bool(mapped) and "filter_complex" in known)
    model = line.own.get("model", "")
    if model and vf is not None:
        given = "-filter_complex" if "filter_complex" in line.output.known else "-vf"
        raise UsageError(f"--model and {given} exclude each other: write model= in the filter")
    return Job(
        input=_input(line.source, line.input, maps),
        output=_output(line.target, line.output, maps, line.left_out, overwrite="y" in every),
        vf=vf,
        model=model,
        init_hw_device=every.get("init_hw_device", ""),
        filter_hw_device=every.get("filter_hw_device", ""),
        benchmark="benchmark" in every,
        dnn_options={DNN_OPTIONS[n]: value for n, value in line.own.items() if n in DNN_OPTIONS},
        progress=_progress(line),
        loglevel=_level(every) if "loglevel" in every else "",
        debug="debug" in line.own,
    )


# ---- words to options ----------------------------------------------------------------------------


def _sort(argv: Sequence[str]) -> _Line:
    line = _Line()
    pending: list[Word] = []
    short = "-i" not in argv
    for word in words(argv):
        if word.name == "i":
            _set_source(line, word.value)
            _assign(pending, line, line.input)
        elif not word.name and line.source is None:
            if not short:
                raise UsageError(f"{word.value} stands before -i: the output goes to the end")
            _set_source(line, word.value)
        elif not word.name:
            if line.target is not None:
                raise UsageError(f"a second output, {word.value}: one output is supported")
            line.target = word.value
            _assign(pending, line, line.output, short=short)
        elif word.is_own:
            line.own[word.name] = word.value
        elif word.place is Place.ANYWHERE:
            _keep(line.every, word)
        elif line.target is not None:
            raise UsageError(
                f"{word.written} stands after the output file: put it before {line.target}"
            )
        else:
            pending.append(word)
    return line


def _set_source(line: _Line, url: str) -> None:
    if line.source is not None:
        raise UsageError(f"a second input, {url}: one input is supported")
    line.source = url


def _assign(pending: list[Word], line: _Line, target: _Options, *, short: bool = False) -> None:
    """Give options to the file that follows them (in the short form: to whom they fit)."""
    wrong = Place.OUTPUT if target is line.input else Place.INPUT
    for word in pending:
        if word.place is wrong and not short:
            raise UsageError(
                f"{word.written} belongs {word.place}: avdnn run [...] -i INPUT [...] OUTPUT"
            )
        _keep(line.input if word.place is Place.INPUT else target, word)
    pending.clear()


def _keep(options: _Options, word: Word) -> None:
    if word.name == "map":
        options.maps.append(word.value)
    elif word.kind == "metadata":
        options.tags.append(streams.tag(word.name, word.value))
    elif word.kind == "disposition":
        options.dispositions.append(streams.disposition(word.name, word.value))
    elif word.name == "fps_mode":
        _check_fps_mode(word)
    elif not word.is_known:
        options.passed[word.name] = word.value
    elif word.name == "init_hw_device" and word.name in options.known:
        raise UsageError(f"-init_hw_device {word.value}: one device is supported")
    else:
        options.known[word.name] = word.value


# ---- options to a job ----------------------------------------------------------------------------


def _input(url: str, options: _Options, maps: tuple[StreamMap, ...]) -> InputSpec:
    known = options.known
    start, duration = _cut(known)
    return InputSpec(
        url=url,
        format=known.get("f", ""),
        pix_fmt=known.get("pix_fmt", ""),
        size=quantities.size(known["s"], "-s") if "s" in known else None,
        rate=quantities.rate(known["r"], "-r") if "r" in known else "",
        start=start,
        start_from_end=_signed(known, "sseof"),
        duration=duration,
        offset=_signed(known, "itsoffset") or 0.0,
        speed=_speed(known),
        hwaccel=known.get("hwaccel", ""),
        hwaccel_device=known.get("hwaccel_device", ""),
        hwaccel_output_format=known.get("hwaccel_output_format", ""),
        decoders=_decoders(known["decoders"]) if "decoders" in known else None,
        maps=maps,
        options=options.passed,
    )


def _signed(known: Mapping[str, str], option: str) -> float | None:
    """The seconds of an option that may be negative."""
    return quantities.signed_seconds(known[option], f"-{option}") if option in known else None


def _speed(known: Mapping[str, str]) -> float | None:
    """Times the native rate at which -readrate or -re reads."""
    text = known.get("readrate", "1" if "re" in known else "0")
    return None if text == "0" else quantities.speed(text, "-readrate")


def _decoders(text: str) -> int:
    """Decode sessions that share the file on a GPU; 0 stands for auto."""
    return 0 if text == "auto" else quantities.count(text, "-decoders")


def _output(
    url: str,
    options: _Options,
    maps: tuple[StreamMap, ...],
    left_out: set[str],
    *,
    overwrite: bool,
) -> OutputSpec:
    known = options.known
    start, duration = _cut(known)
    _check_copied(known)
    return OutputSpec(
        url=url,
        format=known.get("f", ""),
        codec=_codec(known),
        pix_fmt=known.get("pix_fmt", ""),
        size=quantities.size(known["s"], "-s") if "s" in known else None,
        rate=quantities.rate(known["r"], "-r") if "r" in known else "",
        start=start,
        duration=duration,
        shortest="shortest" in known,
        aspect=quantities.aspect(known["aspect"], "-aspect") if "aspect" in known else None,
        frames=quantities.count(known["frames"], "-frames:v") if "frames" in known else None,
        maps=maps,
        audio="an" not in left_out,
        subtitles="sn" not in left_out,
        data="dn" not in left_out,
        chapters=streams.is_taken(known, "map_chapters"),
        source_tags=streams.is_taken(known, "map_metadata"),
        overwrite=overwrite,
        tags=tuple(options.tags),
        dispositions=tuple(options.dispositions),
        options=options.passed,
    )


def _cut(known: Mapping[str, str]) -> tuple[float | None, float | None]:
    """Start and duration of -ss, -t and -to."""
    times = {
        name: quantities.seconds(known[name], f"-{name}")
        for name in ("ss", "t", "to")
        if name in known
    }
    if "t" in times and "to" in times:
        raise UsageError("-t and -to contradict each other: give one of them")
    if "to" in times and times["to"] <= times.get("ss", 0.0):
        raise UsageError(f"-to {known['to']} is not after -ss {known.get('ss', '0')}")
    duration = times["to"] - times.get("ss", 0.0) if "to" in times else times.get("t")
    return times.get("ss"), duration


def _codec(known: Mapping[str, str]) -> str:
    codec = known.get("c:v", known.get("c", ""))
    if codec == "copy":
        raise UsageError("-c copy: filtered video cannot be copied; name an encoder with -c:v")
    return codec


def _check_copied(known: Mapping[str, str]) -> None:
    for option, what in (
        ("c:a", "audio"),
        ("c:s", "subtitle"),
        ("c:d", "data"),
        ("c:t", "attachment"),
    ):
        codec = known.get(option, "copy")
        if codec != "copy":
            raise UsageError(f"-{option} {codec} is not supported: {what} streams are copied")


def _check_fps_mode(word: Word) -> None:
    if word.value not in ("0", "2", "passthrough", "vfr", "-1", "auto"):
        raise UsageError(
            f"{word.written} {word.value} is not supported: set a rate with -r or the filter fps"
        )


def _progress(line: _Line) -> ProgressKind:
    known = line.every.known
    given = line.own.get("progress")
    if given is None:
        quiet = _level(known) in _LEVELS[:5] and "stats" not in known
        return ProgressKind.NONE if quiet or "nostats" in known else ProgressKind.AUTO
    if given not in list(ProgressKind):
        raise UsageError(f"--progress {given}: expected {', '.join(ProgressKind)}")
    kind = ProgressKind(given)
    if kind is ProgressKind.JSON and _is_stdout(line):
        raise UsageError("--progress json writes to standard output, and so does the output file")
    return kind


def _is_stdout(line: _Line) -> bool:
    written = line.output.known.get("f") != "null"
    return written and line.target in ("-", "pipe:", "pipe:1")


def _level(known: Mapping[str, str]) -> str:
    """FFmpeg's name of the level of -loglevel, info without one."""
    given = known.get("loglevel", "info")
    level = given.rpartition("+")[2]
    level = dict(zip(_LEVEL_NUMBERS, _LEVELS, strict=True)).get(level, level)
    if level not in _LEVELS:
        raise UsageError(f"-loglevel {given}: expected one of {', '.join(_LEVELS)}")
    return level
