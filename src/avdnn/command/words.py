"""The words of FFmpeg's command line: which options there are, where they stand, what they mean."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from ..errors import UsageError


class Place(StrEnum):
    """Where an option may stand."""

    ANYWHERE = "anywhere"
    INPUT = "before -i"
    OUTPUT = "after the input"
    EITHER = "before -i or after it"


FLAGS = {
    "y": Place.ANYWHERE,
    "n": Place.ANYWHERE,
    "benchmark": Place.ANYWHERE,
    "hide_banner": Place.ANYWHERE,
    "nostdin": Place.ANYWHERE,
    "stats": Place.ANYWHERE,
    "nostats": Place.ANYWHERE,
    "an": Place.EITHER,
    "re": Place.INPUT,
    "sn": Place.EITHER,
    "dn": Place.EITHER,
    "shortest": Place.OUTPUT,
}
"""Options without a value."""

VALUES = {
    "loglevel": Place.ANYWHERE,
    "init_hw_device": Place.ANYWHERE,
    "filter_hw_device": Place.ANYWHERE,
    "filter_threads": Place.ANYWHERE,
    "filter_complex_threads": Place.ANYWHERE,
    "thread_queue_size": Place.EITHER,
    "max_muxing_queue_size": Place.OUTPUT,
    "hwaccel": Place.INPUT,
    "hwaccel_device": Place.INPUT,
    "hwaccel_output_format": Place.INPUT,
    "decoders": Place.INPUT,
    "vf": Place.OUTPUT,
    "filter_complex": Place.OUTPUT,
    "metadata": Place.OUTPUT,
    "disposition": Place.OUTPUT,
    "map_metadata": Place.OUTPUT,
    "map_chapters": Place.OUTPUT,
    "c": Place.OUTPUT,
    "c:v": Place.OUTPUT,
    "c:a": Place.OUTPUT,
    "c:s": Place.OUTPUT,
    "c:d": Place.OUTPUT,
    "c:t": Place.OUTPUT,
    "frames": Place.OUTPUT,
    "map": Place.OUTPUT,
    "fps_mode": Place.OUTPUT,
    "aspect": Place.OUTPUT,
    "f": Place.EITHER,
    "itsoffset": Place.INPUT,
    "sseof": Place.INPUT,
    "readrate": Place.INPUT,
    "ss": Place.EITHER,
    "t": Place.EITHER,
    "to": Place.EITHER,
    "r": Place.EITHER,
    "s": Place.EITHER,
    "pix_fmt": Place.EITHER,
}
"""Options with a value; names that are in neither table go to encoder, muxer or demuxer."""

SPELLINGS = {
    "filter": "vf",
    "vcodec": "c:v",
    "acodec": "c:a",
    "scodec": "c:s",
    "dcodec": "c:d",
    "codec": "c",
    "codec:a": "c:a",
    "codec:s": "c:s",
    "codec:v": "c:v",
    "vframes": "frames",
    "qscale": "q",
    "vb": "b",
    "v": "loglevel",
    "vsync": "fps_mode",
    "vtag": "tag",
    "lavfi": "filter_complex",
}

DNN_OPTIONS = {
    "backend": "dnn_backend",
    **{
        name.replace("_", "-"): name
        for name in (
            "dnn_backend",
            "device",
            "precision",
            "nireq",
            "batch_size",
            "async",
            "fit",
            "overlap",
            "on_nan",
            "strict",
        )
    },
}
"""avdnn's own `--name VALUE` that stand for the dnn filters' option of that name."""

OWN = ("model", "progress", "debug", *DNN_OPTIONS)

_FOR_STREAMS = ("metadata:", "disposition:")
_AUDIO = "audio streams are copied as they are"
_UNSUPPORTED = {
    **dict.fromkeys(("af", "ar", "ac", "ab", "aq", "ch_layout", "channel_layout"), _AUDIO),
    "progress": "avdnn's own is --progress json|plain|auto|none",
    "vn": "the output is the filtered video",
    "sws_flags": "write flags= in the filter scale",
    **dict.fromkeys(
        (
            *("attach", "target", "pass", "passlogfile", "stream_loop", "start_at_zero"),
            *("copyinkf", "copy_unknown", "ignore_unknown", "debug_ts", "dump", "hex", "psnr"),
            *("qphist", "vstats", "xerror"),
            *("copyts", "bsf", "autorotate", "noautorotate", "display_rotation"),
            *("accurate_seek", "noaccurate_seek", "report", "benchmark_all", "filter_script"),
            "filter_complex_script",
            "stdin",
        ),
        "leave it out",
    ),
}


class Word(NamedTuple):
    """An option, as it was written and in one spelling, with its value; a file has no `name`."""

    written: str
    name: str
    value: str

    @property
    def is_own(self) -> bool:
        """Whether it is one of avdnn's own `--name` options."""
        return bool(self.name) and self.written.startswith("--")

    @property
    def place(self) -> Place:
        """Where it may stand; options that are not known here go to either file."""
        return FLAGS.get(self.kind) or VALUES.get(self.kind) or Place.EITHER

    @property
    def is_known(self) -> bool:
        """Whether it means something here, rather than to an encoder, muxer or demuxer."""
        return self.kind in FLAGS or self.kind in VALUES

    @property
    def kind(self) -> str:
        """The name, without the streams that it is for."""
        return self.name.partition(":")[0] if self.name.startswith(_FOR_STREAMS) else self.name


def words(argv: Sequence[str]) -> Iterator[Word]:
    """Options and files in their order; UsageError for an option that is unknown or incomplete."""
    rest = iter(argv)
    for word in rest:
        if word == "-" or not word.startswith("-"):
            yield Word(word, "", word)
        elif word.startswith("--"):
            yield _own(word, rest)
        else:
            name = _name(word)
            yield Word(word, name, "" if name in FLAGS else _value(word, rest))


def _own(word: str, rest: Iterator[str]) -> Word:
    name, equals, value = word[2:].partition("=")
    name = name.replace("_", "-")
    if name not in OWN:
        near = difflib.get_close_matches(name, OWN, 1)
        hint = f"did you mean --{near[0]}?" if near else "see avdnn run --help"
        raise UsageError(f"unknown option {word}: {hint}")
    if name != "debug" and not equals:
        value = _value(word, rest)
    return Word(word, name, value)


def _name(word: str) -> str:
    """The option's name without a stream specifier for video, in one spelling."""
    match = re.fullmatch(r"-([A-Za-z]\w*(?:-\w+)*)((?::\w+)*)", word, re.ASCII)
    if match is None:
        raise UsageError(f"unknown option {word}: see avdnn run --help")
    name, specifier = match.groups()
    if name in _UNSUPPORTED:
        raise UsageError(f"{word} is not supported: {_UNSUPPORTED[name]}")
    if name in ("metadata", "disposition"):
        return name + specifier
    if name in ("c", "codec") and specifier[1:2] in ("a", "s", "d", "t"):
        return f"c{specifier[:2]}"
    if name in ("c", "codec") and specifier:
        name = "c:v"
    if specifier not in ("", ":v", ":v:0"):
        raise UsageError(f"{word} is not supported: only the video is encoded")
    return SPELLINGS.get(name, name)


def _value(word: str, rest: Iterator[str]) -> str:
    value = next(rest, None)
    if value is None:
        raise UsageError(f"{word} needs a value: it is the last word of the command")
    bare = value[1:] if value.startswith("-") else ""
    if bare and (bare in FLAGS or bare in VALUES or bare in SPELLINGS or bare == "i"):
        raise UsageError(f"{word} needs a value: {value}, which follows it, is an option")
    return value
