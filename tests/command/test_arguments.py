"""The command line in FFmpeg's order becomes a Job, or one line that says what to do."""

from __future__ import annotations

import shlex
from fractions import Fraction

import pytest

from avdnn.command.arguments import parse
from avdnn.errors import UsageError
from avdnn.job import FILTERED, InputSpec, Job, OutputSpec, StreamFlags, StreamMap, Tag
from avdnn.progress import ProgressKind


def _job(text: str) -> Job:
    return parse(shlex.split(text))


def test_short_form() -> None:
    assert _job("in.mp4 out.mp4") == Job(InputSpec("in.mp4"), OutputSpec("out.mp4"))


def test_options_of_the_short_form_are_the_outputs_except_those_of_inputs_only() -> None:
    job = _job("-hwaccel cuda in.mp4 -vf hflip -ss 1 out.mp4")
    assert job.input == InputSpec("in.mp4", hwaccel="cuda")
    assert job.output == OutputSpec("out.mp4", start=1.0)
    assert job.vf == "hflip"


def test_options_belong_to_the_file_that_follows_them() -> None:
    job = _job(
        "-f rawvideo -pix_fmt yuv420p -s 64x48 -r pal -ss 1 -t 2 -threads 1 -probesize 99 -i x.raw"
        " -f mp4 -pix_fmt nv12 -r 30000/1001 -ss 0:03 -t 4 -threads 2 -movflags +faststart y.mp4"
    )
    assert job.input == InputSpec(
        "x.raw",
        format="rawvideo",
        pix_fmt="yuv420p",
        size=(64, 48),
        rate="25",
        start=1.0,
        duration=2.0,
        options={"threads": "1", "probesize": "99"},
    )
    assert job.output == OutputSpec(
        "y.mp4",
        format="mp4",
        pix_fmt="nv12",
        rate="30000/1001",
        start=3.0,
        duration=4.0,
        options={"threads": "2", "movflags": "+faststart"},
    )


def test_recipe_with_trailing_benchmark() -> None:
    job = _job(
        "-i 480p.mp4 -vf 'scale=960:540,format=yuv420p,dnn_processing=model=a.xml' "
        "-y espcn.ov.mp4 -benchmark"
    )
    assert job.vf == "scale=960:540,format=yuv420p,dnn_processing=model=a.xml"
    assert job.output.overwrite
    assert job.benchmark


@pytest.mark.parametrize("option", ["-vf", "-filter:v", "-filter", "-filter:v:0"])
def test_spellings_of_vf(option: str) -> None:
    assert _job(f"-i a {option} hflip b").vf == "hflip"


@pytest.mark.parametrize("option", ["-c:v", "-vcodec", "-codec:v", "-c", "-codec", "-c:v:0"])
def test_spellings_of_the_encoder(option: str) -> None:
    assert _job(f"-i a {option} libx264 b").output.codec == "libx264"


@pytest.mark.parametrize("option", ["-frames:v", "-vframes", "-frames"])
def test_spellings_of_the_frame_limit(option: str) -> None:
    assert _job(f"-i a {option} 3 b").output.frames == 3


def test_encoder_named_after_copy_of_all() -> None:
    assert _job("-i a -c copy -c:v libx265 b").output.codec == "libx265"


def test_encoder_options_lose_their_stream_specifier() -> None:
    job = _job("-i a -crf 20 -preset:v slow -b:v 2M -profile:v:0 high -x264-params a=1:b=2 b")
    assert job.output.options == {
        "crf": "20",
        "preset": "slow",
        "b": "2M",
        "profile": "high",
        "x264-params": "a=1:b=2",
    }


def test_values_may_begin_with_a_dash() -> None:
    assert _job("-i a -flags -psy b").output.options == {"flags": "-psy"}


@pytest.mark.parametrize("option", ["-q:v", "-qscale:v", "-qscale"])
def test_spellings_of_the_fixed_quality(option: str) -> None:
    assert _job(f"-i a {option} 2 b").output.options == {"q": "2"}


def test_streams_to_leave_out() -> None:
    output = _job("-i a -an -sn -dn b").output
    assert (output.audio, output.subtitles, output.data) == (False, False, False)


def test_times_of_the_input() -> None:
    job = _job("-itsoffset -0:01.5 -sseof -10 -i a b")
    assert job.input == InputSpec("a", offset=-1.5, start_from_end=-10.0)


@pytest.mark.parametrize(
    ("text", "speed"), [("", None), ("-re ", 1.0), ("-readrate 2.5 ", 2.5), ("-readrate 0 ", None)]
)
def test_reading_at_the_native_rate(text: str, speed: float | None) -> None:
    assert _job(f"{text}-i a b").input.speed == speed


def test_dispositions() -> None:
    job = _job("-i a -disposition:v:0 default -disposition:a -default -disposition:2 0 b")
    assert job.output.dispositions == (
        StreamFlags("v:0", "default"),
        StreamFlags("a", "-default"),
        StreamFlags("2", "0"),
    )


@pytest.mark.parametrize(("text", "kept"), [("", True), ("0", True), ("-1", False)])
def test_tags_and_chapters_of_the_source(text: str, kept: bool) -> None:
    options = f"-map_metadata {text} -map_chapters {text}" if text else ""
    output = _job(f"-i a {options} b").output
    assert (output.source_tags, output.chapters) == (kept, kept)


def test_streams_of_the_input_to_leave_out() -> None:
    output = _job("-an -dn -i a -sn b").output
    assert (output.audio, output.subtitles, output.data) == (False, False, False)


def test_what_only_sizes_buffers_changes_nothing() -> None:
    job = _job(
        "-thread_queue_size 512 -i a -max_muxing_queue_size 1024 -filter_threads 2 "
        "-c:a:0 copy -c:s copy -c:d copy -c:t copy -filter_complex_threads 2 b"
    )
    assert job == _job("a b")


def test_shortest() -> None:
    assert _job("-i a -shortest b").output == OutputSpec("b", shortest=True)


@pytest.mark.parametrize(
    ("text", "ratio"), [("16:9", (16, 9)), ("16/9", (16, 9)), ("1.85", (37, 20)), ("0.5", (1, 2))]
)
def test_aspect_ratios(text: str, ratio: tuple[int, int]) -> None:
    assert _job(f"-i a -aspect:v {text} b").output.aspect == Fraction(*ratio)


@pytest.mark.parametrize(
    ("maps", "found"),
    [
        ("", []),
        ("-map 0", [StreamMap("")]),
        ("-map 0:V:0 -map 0:a?", [StreamMap("V:0"), StreamMap("a", optional=True)]),
        ("-map 0:1 -map 0:s:2?", [StreamMap("1"), StreamMap("s:2", optional=True)]),
        ("-map 0 -map -0:d -map -0:3", [StreamMap(""), StreamMap("d", True), StreamMap("3", True)]),
    ],
)
def test_map_names_streams(maps: str, found: list[StreamMap]) -> None:
    job = _job(f"-i a {maps} b")
    assert list(job.output.maps) == list(job.input.maps) == found


def test_accepted_and_without_effect() -> None:
    job = _job("-hide_banner -nostdin -stats -i a -c:a copy -c:s copy -fps_mode passthrough b")
    assert job == _job("a b")


def test_end_becomes_duration() -> None:
    job = _job("-ss 10 -to 12.5 -i a -to 3 b")
    assert (job.input.start, job.input.duration) == (10.0, 2.5)
    assert (job.output.start, job.output.duration) == (None, 3.0)


def test_output_size_is_one_more_filter() -> None:
    job = _job("-i a -vf hflip -s hd720 b")
    assert (job.vf, job.output.size) == ("hflip", (1280, 720))


@pytest.mark.parametrize("option", ["-tag:v", "-vtag", "-tag", "-tag:v:0"])
def test_spellings_of_the_codec_tag(option: str) -> None:
    assert _job(f"-i a {option} hvc1 b").output.options == {"tag": "hvc1"}


def test_metadata_of_the_file_and_of_streams() -> None:
    job = _job(
        "-i a -metadata title='a = b' -metadata:g artist= -metadata:s:v:0 k=1 -metadata:s:a "
        "language=deu -metadata:s:2 x=y b"
    )
    assert job.output.tags == (
        Tag("", "title", "a = b"),
        Tag("", "artist", ""),
        Tag("s:v:0", "k", "1"),
        Tag("s:a", "language", "deu"),
        Tag("s:2", "x", "y"),
    )
    assert not job.output.options


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("-filter_complex '[0:v]hflip[out]' -map '[out]'", []),
        ("-filter_complex '[0:v]hflip[out]' -map '[out]' -map 0:a?", [StreamMap("a", False, True)]),
        ("-filter_complex '[0:v:0]hflip' -map 0:s", [StreamMap("s")]),
    ],
)
def test_a_complex_filter_of_one_chain_is_a_chain(text: str, others: list[StreamMap]) -> None:
    job = _job(f"-i a {text} b")
    assert "hflip" in (job.vf or "")
    assert list(job.output.maps) == [StreamMap(FILTERED), *others]


def test_a_complex_filter_without_maps_keeps_all_streams() -> None:
    job = _job("-i a -lavfi hflip b")
    assert (job.vf, job.output.maps) == ("hflip", ())


def test_hardware_options_are_kept_as_given() -> None:
    job = _job(
        "-init_hw_device cuda=cu:1 -filter_hw_device cu -hwaccel cuda -hwaccel_device 1 "
        "-hwaccel_output_format cuda -i a b"
    )
    assert job.input == InputSpec(
        "a", hwaccel="cuda", hwaccel_device="1", hwaccel_output_format="cuda"
    )
    assert (job.init_hw_device, job.filter_hw_device) == ("cuda=cu:1", "cu")


@pytest.mark.parametrize(
    ("text", "count"), [("", None), ("-decoders 4 ", 4), ("-decoders auto ", 0)]
)
def test_decoders_share_an_input(text: str, count: int | None) -> None:
    assert _job(f"{text}-i a b").input.decoders == count


def test_decoders_are_counted_or_auto() -> None:
    with pytest.raises(UsageError, match="-decoders: expected a whole number"):
        _job("-decoders none -i a b")


def test_own_options_may_stand_anywhere() -> None:
    job = _job("--debug a --backend=onnx --on-nan retry b --precision float32 --model espcn-x2")
    assert job.debug
    assert job.model == "espcn-x2"
    assert job.dnn_options == {
        "dnn_backend": "onnx",
        "on_nan": "retry",
        "precision": "float32",
    }


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ("", ProgressKind.AUTO),
        ("--progress json", ProgressKind.JSON),
        ("-v error", ProgressKind.NONE),
        ("-v error -stats", ProgressKind.AUTO),
        ("-loglevel repeat+level+24", ProgressKind.NONE),
        ("-v error --progress plain", ProgressKind.PLAIN),
        ("-v verbose", ProgressKind.AUTO),
        ("-nostats", ProgressKind.NONE),
    ],
)
def test_what_is_shown(options: str, kind: ProgressKind) -> None:
    assert _job(f"{options} a b").progress is kind


def test_lavfi_input_and_null_output() -> None:
    job = _job("-f lavfi -i testsrc2=s=64x48:d=1 -f null - --progress json")
    assert (job.input.format, job.input.url) == ("lavfi", "testsrc2=s=64x48:d=1")
    assert (job.output.format, job.output.url) == ("null", "-")


def test_odd_file_names() -> None:
    name = "a b'c\"d:e,größe 日本.mp4"
    job = parse(["-i", name, f"./-{name}"])
    assert (job.input.url, job.output.url) == (name, f"./-{name}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no input file: avdnn run -i INPUT"),
        ("-vf hflip", "no input file"),
        ("-i a", "no output file"),
        ("a", "no output file"),
        ("-i a -i b c", "a second input, b"),
        ("-i a b c", "a second output, c"),
        ("a b c", "a second output, c"),
        ("a -i b c", "a stands before -i"),
        ("-i", "-i needs a value"),
        ("-i a b -vf", "-vf needs a value"),
        ("-i a -crf -y b", "-crf needs a value: -y, which follows it, is an option"),
        ("-i a b -crf 20", "-crf stands after the output file: put it before b"),
        ("-vf hflip -i a b", "-vf belongs after the input: avdnn run"),
        ("-i a -hwaccel cuda b", "-hwaccel belongs before -i: avdnn run"),
        ("-y -n -i a b", "-y and -n contradict"),
        ("-t 1 -to 2 -i a b", "-t and -to contradict"),
        ("-ss 3 -to 2 -i a b", "-to 2 is not after -ss 3"),
        ("-i a -c copy b", "filtered video cannot be copied; name an encoder"),
        ("-i a -c:v copy b", "filtered video cannot be copied"),
        ("-i a -c:a aac b", "-c:a aac is not supported: audio streams are copied"),
        ("-i a -scodec mov_text b", "-c:s mov_text is not supported: subtitle streams are copied"),
        ("-i a -b:a 128k b", "-b:a is not supported: only the video is encoded"),
        ("-i a -crf:1 20 b", "-crf:1 is not supported"),
        ("-i a -filter_complex null -vf null b", "-filter_complex and -vf exclude each other"),
        ("-i a -filter_complex [1:v]null b", r"\[1:v\] is not supported: one chain from \[0:v\]"),
        ("-i a -filter_complex null[x] b", r"its output is left out: add -map '\[x\]'"),
        ("-i a -filter_complex null[x] -map [y] b", r"-map \[y\]: .* no output of this name"),
        ("-i a -filter_complex null[x] -map [x] -map 0 b", "-map 0 adds the unfiltered video"),
        ("-i a -filter_complex null[x] -map [x] -map [x] b", r"-map \[x\] is given twice: .* once"),
        ("-i a -map [x] b", r"-map \[x\] is not supported: use 0"),
        ("-i a -metadata title b", "-metadata title: expected key=value"),
        ("-i a -metadata:c:0 a=b c", "-metadata:c:0 is not supported: use -metadata, "),
        ("-metadata a=b -i c d", "-metadata belongs after the input"),
        ("-i a -af volume=2 b", "-af is not supported: audio streams are copied"),
        ("-i a -vn b", "-vn is not supported: the output is the filtered video"),
        ("-i a -start_at_zero b", "-start_at_zero is not supported: leave it out"),
        ("-i a -c:d bin_data b", "-c:d bin_data is not supported: data streams are copied"),
        ("-i a -sws_flags lanczos b", "-sws_flags is not supported: write flags= in"),
        ("-i a -filter:a volume=2 b", "-filter:a is not supported"),
        ("-i a -map 1:a b", "-map 1:a is not supported: use 0, 0:v, 0:a:1, 0:2, -0:s and"),
        ("-i a -map filtered b", "-map filtered is not supported"),
        ("-i a -map -0:a b", "-map -0:a takes away from nothing: put it behind -map 0"),
        ("-i a -map 0:s:0 -map -0:v b", "-map leaves out the video: add -map 0:v"),
        ("-i a -map 0:a b", "-map leaves out the video: add -map 0:v"),
        ("-i a -vsync cfr b", "-vsync cfr is not supported: set a rate with -r"),
        ("-i a -fps_mode cfr b", "-fps_mode cfr is not supported: set a rate with -r"),
        ("-i a -vf hflip -s big b", "-s: expected a size"),
        ("-i a -r 0 b", "-r: expected a rate"),
        ("-i a -aspect 0:9 b", "-aspect: expected a ratio such as 16:9 or 1.85, got '0:9'"),
        ("-i a -map_metadata 1 b", "-map_metadata 1 is not supported: 0 takes from the input"),
        ("-i a -map_chapters 0:c b", "-map_chapters 0:c is not supported"),
        ("-i a -map_metadata:s:a -1 b", "-map_metadata:s:a is not supported"),
        ("-i a -disposition:p:1 0 b", "-disposition:p:1 is not supported: use -disposition,"),
        ("-itsoffset soon -i a b", "-itsoffset: expected a time"),
        ("-i a -sseof -1 b", "-sseof belongs before -i"),
        ("-readrate fast -i a b", "-readrate: expected a number above 0"),
        ("-i a -t soon b", "-t: expected a time"),
        ("-i a -vframes 0 b", "-frames:v: expected a whole number"),
        ("-i a --model m -vf hflip b", "--model and -vf exclude each other"),
        ("-i a --model m -lavfi hflip b", "--model and -filter_complex exclude each other"),
        ("-i a -- b", "unknown option --"),
        ("-i a -20 b", "unknown option -20"),
        ("--progess json a b", "unknown option --progess: did you mean --progress[?]"),
        ("--frobnicate a b", "unknown option --frobnicate: see avdnn run --help"),
        ("--progress loud a b", "--progress loud: expected auto, plain, json, none"),
        ("--progress json -i a -f rawvideo -", "standard output"),
        ("-v loud a b", "-loglevel loud: expected one of quiet"),
        ("-init_hw_device cuda -init_hw_device vaapi a b", "one device is supported"),
        ("-progress url a b", "-progress is not supported: avdnn's own is --progress"),
    ],
)
def test_usage_errors_are_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        _job(text)
    assert "\n" not in str(caught.value)
