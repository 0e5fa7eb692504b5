"""Filter text: read as libavfilter reads it, and refused with a caret where it makes no sense."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import av
import av.filter
import numpy as np
import pytest

from avdnn.errors import GraphError
from avdnn.graph import Call, Range, arguments, bind, ends, key_values, names, parse

from .conftest import require

RECIPES = {
    "derain=dnn_backend=native:model=derain.model": {"model": "derain.model"},
    "derain=filter_type=derain:dnn_backend=native:model=can.model": {"filter_type": "derain"},
    "derain=dnn_backend=1:model=can.pb": {"dnn_backend": "1"},
    "dnn_processing=model=espcn.model:input=x:output=y": {"input": "x", "output": "y"},
    "format=rgb24,dnn_processing=dnn_backend=tensorflow:model=can.pb:input=x:output=y": {
        "dnn_backend": "tensorflow",
        "model": "can.pb",
    },
    "format=yuv420p,scale=w=iw*2:h=ih*2,"
    "dnn_processing=dnn_backend=tensorflow:model=srcnn.pb:input=x:output=y": {"model": "srcnn.pb"},
    "format=grayf32,dnn_processing=model=halve_gray_float.model:input=dnn_in:output=dnn_out"
    ":dnn_backend=native,format=gray": {"input": "dnn_in", "output": "dnn_out"},
    "format=yuv420p,dnn_processing=dnn_backend=tensorflow:model=espcn.pb:input=x:output=y"
    ":backend_configs=sess_config=0x10022805320e09cdccccccccccec3f20012a01303801": {
        "backend_configs": "sess_config=0x10022805320e09cdccccccccccec3f20012a01303801"
    },
    "dnn_processing=dnn_backend=openvino:model=a.xml:input=x:output=o1&o2"
    ":options=device=CPU&nireq=4": {"output": "o1&o2", "options": "device=CPU&nireq=4"},
    "scale=960:540,format=yuv420p,dnn_processing=dnn_backend=openvino"
    ":model=../shared/data/seed/espcn1080p.xml:input=x:output=espcn/prediction"
    ":options=device=CPU": {"output": "espcn/prediction"},
    "sr=dnn_backend=native:scale_factor=2:model=srcnn.model": {"scale_factor": "2"},
    "dnn_detect=dnn_backend=openvino:model=face-detection-adas-0001.xml:input=data"
    ":output=detection_out:confidence=0.6:labels=face-detection-adas-0001.label,showinfo": {
        "confidence": "0.6",
        "labels": "face-detection-adas-0001.label",
    },
    "dnn_detect=dnn_backend=openvino:model=yolo.xml:model_type=yolov3:cell_w=13:cell_h=13"
    ":nb_classes=80:anchors=81&82&135&169&344&319,dnn_classify=dnn_backend=openvino"
    ":model=emotions.xml:input=data:output=prob_emotion:confidence=0.3"
    ":labels=emotions.label:target=face": {"anchors": "81&82&135&169&344&319"},
}


@pytest.mark.parametrize("text", RECIPES)
def test_documented_recipes_parse(text: str) -> None:
    options: dict[str, str] = {}
    for call in parse(text):
        for key, value, _ in arguments(call):
            if key is not None and key not in options:
                options[key] = value.chars
    assert options.items() >= RECIPES[text].items()


def test_calls_keep_name_instance_arguments_text_and_position() -> None:
    text = " [in] scale@big = 64:48 ,\n hflip,null@ [out]\n"
    assert parse(text) == [
        Call("scale", "big", "64:48", 6, "scale@big = 64:48 "),
        Call("hflip", "", "", 27, "hflip"),
        Call("null", "", "", 33, "null@ "),
    ]


@pytest.mark.parametrize(
    ("args", "values"),
    [
        ("", []),
        ("a", [(None, "a")]),
        ("a:b", [(None, "a"), (None, "b")]),
        ("a::b", [(None, "a"), (None, ""), (None, "b")]),
        ("a:", [(None, "a")]),
        ("a:x=1", [(None, "a"), ("x", "1")]),
        (" x = 1 : y = 2 ", [("x", "1"), ("y", "2")]),
        (r"'a\:b'", [(None, "a:b")]),
        (r"a\\:b", [(None, "a:b")]),
        (r"a\:b", [(None, "a"), (None, "b")]),
        (r"C\\:\\\\models\\\\m.xml", [(None, r"C:\models\m.xml")]),
        (r"x=it\\\'s", [("x", "it's")]),
        (r"x=a\,b\;c\[d\]", [("x", "a,b;c[d]")]),
        ("x='a,b;c[d]'", [("x", "a,b;c[d]")]),
        (r"x='\ a\ '", [("x", " a ")]),
        ("x=a=b", [("x", "a=b")]),
        ("x=größe 日本.xml", [("x", "größe 日本.xml")]),
        ("x=a&b/c", [("x", "a&b/c")]),
    ],
)
def test_both_escape_levels_are_undone(args: str, values: list[tuple[str | None, str]]) -> None:
    (call,) = parse(f"f={args}")
    assert [(key, value.chars) for key, value, _ in arguments(call)] == values


def _random(seed: int, alphabet: str) -> str:
    rng = random.Random(seed)
    return "x" + "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 12))) + "x"


def test_texts_of_reference_frames_parse(reference: Path) -> None:
    cases = json.loads((reference / "index.json").read_text())
    for case in cases:
        calls = parse(case["filter"])
        assert [call.text for call in calls] == case["filter"].split(",")
        assert all(argument.key for call in calls for argument in arguments(call)[1:])


def _escaped(value: str, specials: str) -> str:
    return "".join(f"\\{char}" if char in specials else char for char in value)


@pytest.mark.parametrize("seed", range(40))
def test_escaped_values_come_back_whole(seed: int) -> None:
    value = _random(seed, "ab1 .:,;[]=&/\\'\"@#%é日\t\n")
    twice = _escaped(_escaped(value, "\\':"), "\\'[],;")
    (call,) = parse(f"dnn_processing=model={twice}:input=x")
    assert [argument.value.chars for argument in arguments(call)] == [value, "x"]


def _tricky_values() -> list[str]:
    """Random texts, not escaped with any sense, that are read as the value of one option."""
    kept = []
    for seed in range(2000):
        raw = _random(seed, "ab :,;[]=\\\\''")
        try:
            calls = parse(f"metadata=mode=add:key=k:value={raw}")
            given = [argument.key for argument in arguments(calls[0])]
        except GraphError:
            continue
        if len(calls) == 1 and given == ["mode", "key", "value"]:
            kept.append(raw)
    return kept


def test_enough_tricky_values_are_compared() -> None:
    assert len(_tricky_values()) > 300


def test_option_escapes_are_undone_as_libavfilter_does() -> None:
    for raw in _tricky_values():
        (call,) = parse(f"metadata=mode=add:key=k:value={raw}")
        graph = av.filter.Graph()
        source = graph.add("buffer", "video_size=16x16:pix_fmt=gray:time_base=1/25")
        middle, sink = graph.add("metadata", call.args), graph.add("buffersink")
        source.link_to(middle)
        middle.link_to(sink)
        graph.configure()
        frame = av.VideoFrame.from_ndarray(np.zeros((16, 16), np.uint8), "gray")
        frame.pts = 0
        graph.push(frame)
        echoed = graph.pull()
        assert isinstance(echoed, av.VideoFrame)
        assert arguments(call)[-1].value.chars == echoed.metadata["k"], raw


def test_graph_escapes_are_undone_as_ffmpeg_does() -> None:
    require("ffmpeg", shutil.which("ffmpeg") is not None, "ffmpeg is not installed")
    chain = [
        f"metadata=mode=add:key=k{index}:value={raw}" for index, raw in enumerate(_tricky_values())
    ]
    calls = parse(",".join(chain))
    assert len(calls) == len(chain)
    expected = {f"k{i}": arguments(call)[-1].value.chars for i, call in enumerate(calls)}
    source = ["-f", "lavfi", "-i", "color=s=16x16:d=0.04:r=25"]
    text = ",".join([*chain, "metadata=mode=print:file=-"])
    made = subprocess.run(
        ["ffmpeg", "-v", "error", "-nostdin", *source, "-vf", text, "-f", "null", "-"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = made.stdout.splitlines()[1:]
    assert dict(line.split("=", 1) for line in lines) == expected


class Backend(StrEnum):
    NATIVE = "native"
    ONNX = "onnx"


@dataclass(frozen=True, slots=True)
class Options:
    backend: Backend = Backend.NATIVE
    model: str = ""
    output: tuple[str, ...] = ()
    backend_configs: Mapping[str, str] = field(default_factory=dict)
    nireq: Annotated[int, Range(0, 64)] = 0
    async_: bool = True
    confidence: Annotated[float, Range(0, 1)] = 0.5
    scale: float | None = None
    strict: bool = field(default=False, kw_only=True)


def _bound(args: str, **defaults: str) -> Options:
    (call,) = parse(f"dnn={args}")
    return bind(
        call,
        Options,
        aliases={"options": "backend_configs"},
        defaults=defaults,
        collect=("threads",),
        lift=("nireq", "async"),
        into="backend_configs",
    )


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("", Options()),
        ("onnx:m.onnx", Options(Backend.ONNX, "m.onnx")),
        ("output=a&b/c", Options(output=("a", "b/c"))),
        ("backend_configs=a=1&b=x/y=z", Options(backend_configs={"a": "1", "b": "x/y=z"})),
        ("options=device=CPU", Options(backend_configs={"device": "CPU"})),
        ("nireq=4", Options(nireq=4)),
        ("nireq=0x10", Options(nireq=16)),
        ("nireq=1:nireq=2", Options(nireq=2)),
        ("async=0", Options(async_=False)),
        ("async=No", Options(async_=False)),
        ("confidence=.25", Options(confidence=0.25)),
        ("scale=-1e3", Options(scale=-1000.0)),
        ("strict=on", Options(strict=True)),
        ("threads=2", Options(backend_configs={"threads": "2"})),
        ("threads=2:options=a=1", Options(backend_configs={"threads": "2", "a": "1"})),
        ("options=a=1:options=b=2", Options(backend_configs={"b": "2"})),
        ("options=nireq=3&a=1", Options(backend_configs={"a": "1"}, nireq=3)),
        ("options=nireq=3:nireq=4", Options(nireq=4)),
        ("options=async=no", Options(async_=False)),
    ],
)
def test_options_become_the_types_of_their_fields(args: str, expected: Options) -> None:
    assert _bound(args) == expected


def test_defaults_give_way_to_the_text() -> None:
    assert _bound("nireq=2", nireq="3", model="m") == Options(nireq=2, model="m")
    assert _bound("options=nireq=2", nireq="3") == Options(nireq=2)


def test_order_names_what_has_no_name() -> None:
    (call,) = parse("dnn=m.xml:3")
    assert bind(call, Options, order=("model", "nireq")) == Options(model="m.xml", nireq=3)


def test_an_error_points_at_an_option_by_name() -> None:
    (call,) = parse("dnn=model=a:nireq=2")
    assert call.error("no", option="nireq").position == len("dnn=model=a:")
    assert call.error("no", option="device").position == 0
    assert call.error("no").position == 0


def test_required_options_are_asked_for() -> None:
    @dataclass(frozen=True, slots=True)
    class Needy:
        model: str

    with pytest.raises(GraphError, match=r"dnn needs the option model="):
        bind(parse("dnn")[0], Needy)


@pytest.mark.parametrize(
    ("args", "at", "message"),
    [
        ("modle=x", "modle", "no option 'modle'; did you mean model[?] .it has: backend, model, "),
        ("async_=1", "async_", "no option 'async_'"),
        ("model=x:enable='between(t,1,2)'", "enable", "dnn does not support timeline editing"),
        ("model=x:onnx", "onnx", "expected name=value"),
        ("onnx:m:c=d", "c=d", "no option 'c'"),
        ("onnx:m:o::1:1:1:1:9", "9", "no more options without a name"),
        ("backend=tf", "tf", "backend: expected native or onnx, got 'tf'"),
        ("nireq=four", "four", "nireq: expected an integer from 0 to 64, got 'four'"),
        ("nireq=1_0", "1_0", "got '1_0'"),
        ("nireq=65", "65", "from 0 to 64, got '65'"),
        ("async=maybe", "maybe", "expected 1 or 0"),
        ("confidence=nan", "nan", "expected a number from 0 to 1, got 'nan'"),
        ("scale=wide", "wide", "scale: expected a number, got 'wide'"),
        ("options=a=1&b", "b", "expected name=value"),
        ("options=nireq=x&a=1", "x&", "nireq: expected an integer"),
        ("options=b", "b", "expected key=value pairs joined by '&', found 'b'"),
        ("model='a\\:b':x", "x", "expected name=value"),
        ("model=\\'x", "\\'x", "quote is never closed"),
    ],
)
def test_a_wrong_option_is_pointed_at(args: str, at: str, message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        _bound(args)
    text = f"dnn={args}"
    assert caught.value.text == text
    if not at.startswith("\\"):
        assert caught.value.position == text.rindex(at)


def test_parts_that_one_label_joins_are_one_chain() -> None:
    text = "[0:v]scale=8:8 [a]; [a] hflip,vflip[b];[b]null [out]"
    calls = parse(text)
    assert [call.name for call in calls] == ["scale", "hflip", "vflip", "null"]
    assert [text[call.position :].startswith(call.name) for call in calls] == [True] * 4
    source, target, stop = ends(text)
    assert (source, target, text[stop:]) == ("0:v", "out", "[out]")
    assert ends("null") == ("", "", 4)


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 0, "name of a filter"),
        ("  ", 2, "name of a filter"),
        ("null,", 5, "name of a filter"),
        ("null,,null", 5, "name of a filter"),
        ("=3", 0, "name of a filter"),
        ("null;null", 4, "one chain of filters"),
        ("[a][b]hstack", 3, "one chain of filters"),
        ("split[a][b]", 5, "one chain of filters"),
        ("split[a],null", 5, "one chain of filters"),
        ("null,[a]null", 5, "one chain of filters"),
        ("null[a];[b]null", 7, "one chain of filters"),
        ("null[a];null", 7, "one chain of filters"),
        ("[innull", 0, "'\\[' without '\\]'"),
        ("[]null", 0, "expected a label"),
        ("null=x]y", 6, "'\\]' without '\\['"),
        ("null='x", 5, "quote is never closed"),
    ],
)
def test_what_is_not_a_chain_is_pointed_at(text: str, position: int, message: str) -> None:
    with pytest.raises(GraphError, match=message) as caught:
        parse(text)
    assert caught.value.position == position


def test_the_caret_stands_below_the_mistake() -> None:
    with pytest.raises(GraphError) as caught:
        _bound("model='a b':nirec=3")
    message, text, caret = str(caught.value).splitlines()
    assert message.startswith("dnn has no option 'nirec'; did you mean nireq?")
    assert text[caret.index("^") :] == "nirec=3"


def test_the_caret_shows_only_its_own_line() -> None:
    with pytest.raises(GraphError) as caught:
        parse("scale=64:48,\n  hflip;\n  null")
    _, text, caret = str(caught.value).splitlines()
    assert text.strip() == "hflip;"
    assert text[caret.index("^")] == ";"


def test_the_caret_counts_wide_letters_twice() -> None:
    with pytest.raises(GraphError) as caught:
        parse("f=日本;")
    _, _, caret = str(caught.value).splitlines()
    assert caret == "  " + " " * len("f=----") + "^"


def test_key_values_and_names_have_their_own_escapes() -> None:
    assert key_values(r"path=a\&b&device='C&PU'") == {"path": "a&b", "device": "C&PU"}
    assert names(r"a\&b&c/d") == ("a&b", "c/d")
    assert names("") == ()
