"""The program: commands, exit codes, one line for each error, nothing imported too early."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import avdnn
from avdnn import backends, pipeline
from avdnn.cli import main
from avdnn.errors import BackendUnavailable, DeviceError, GraphError, InferenceError
from avdnn.job import Job
from avdnn.notes import NOTE
from avdnn.pipeline import Report
from avdnn.progress import Progress

from .conftest import require_module

ENV = {**os.environ, "PYTHONPATH": str(Path(avdnn.__file__).parent.parent)}
CLIP = ["-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=0.2"]


@pytest.fixture(autouse=True)
def _log_levels() -> Iterator[None]:
    """Put back what --debug and -loglevel set for the process."""
    loggers = [logging.getLogger(name) for name in ("avdnn", "libav")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def _program(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "avdnn", *argv]
    return subprocess.run(command, capture_output=True, text=True, env=ENV)


def test_help_names_commands_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for command in ("run", "inspect", "backends", "models", "doctor", "compare", "convert"):
        assert f" {command} " in shown
    assert "0 done; 1 failed; 2 usage; 3 device or backend unavailable; 130" in shown
    assert "143 terminated by SIGTERM" in shown


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("Usage: avdnn")
    assert captured.out == ""


@pytest.mark.parametrize("command", [[], ["run"], ["inspect"], ["compare"]])
def test_h_is_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "-h"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(" ".join(["Usage: avdnn", *command]))
    assert "..." not in shown.replace("[ARGS]...", "")


def test_hwaccel_is_not_taken_for_h(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-hwaccel", "none", "-i", "nosuch.mp4", "-f", "null", "-"]) == 1
    assert "nosuch.mp4: no such file" in capsys.readouterr().err


def test_help_imports_no_framework() -> None:
    heavy = {*backends.FRAMEWORKS.values(), "av", "cupy"}
    code = (
        "import sys, avdnn.cli; avdnn.cli.main(['--help']); "
        f"print(sorted(set(sys.modules) & {heavy!r}))"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENV)
    assert made.stdout.splitlines()[-1] == "[]"


def test_help_is_quick() -> None:
    """CPU time, since other jobs stretch the clock; twice the goal of 0.3 s, for slow machines."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert _program("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.6


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"avdnn {avdnn.__version__}\n"


def test_run_writes_a_file_and_reports(tmp_path: Path) -> None:
    out = tmp_path / "out.mkv"
    done = _program("run", *CLIP, "-vf", "hflip,scale=32:24", str(out), "-benchmark")
    assert done.returncode == 0, done.stderr
    assert out.stat().st_size > 0
    assert "5 frames in" in done.stderr
    for name in ("frames ", "fps ", "first frame ", "CPU time ", "peak memory ", "in decode "):
        assert f"\n{name}" in done.stderr
    assert done.stdout == ""


def test_progress_json_is_all_of_standard_output() -> None:
    done = _program("run", *CLIP, "-vf", "null", "--progress", "json", "-f", "null", "-")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "start"
    assert (events[-1]["event"], events[-1]["frames"]) == ("end", 5)


def test_progress_counts_to_the_last_frame_that_is_wanted() -> None:
    argv = ["run", *CLIP, "-vf", "null", "--progress", "json", "-frames:v", "3", "-f", "null", "-"]
    done = _program(*argv)
    assert done.returncode == 0, done.stderr
    start, *_, end = [json.loads(line) for line in done.stdout.splitlines()]
    assert (start["total_frames"], end["frames"]) == (3, 3)


def test_sess_config_is_made_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sess-config", "--visible-devices", "1", "--memory-fraction", "0.5"]) == 0
    made = capsys.readouterr().out.strip()
    assert made == "0x320c09000000000000e03f2a0131"
    assert main(["sess-config", made]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "gpu_options.visible_device_list 1" in shown
    assert "gpu_options.per_process_gpu_memory_fraction 0.5" in shown


def test_compare_tells_equal_from_different(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = str(tmp_path / "one.mkv"), str(tmp_path / "other.mkv")
    for name, vf in ((one, "null"), (other, "negate")):
        assert main(["run", "-v", "error", *CLIP, "-vf", vf, "-c:v", "ffv1", name]) == 0
    assert main(["compare", one, one]) == 0
    assert "inf (equal)" in capsys.readouterr().out
    assert main(["compare", one, other, "--max-diff", "1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["same"] is False


def test_convert_makes_a_file_and_says_how_near_it_is(
    tmp_path: Path, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_module("openvino")
    require_module("onnxruntime")
    source = str(reference / "models" / "half_1.onnx")
    target = str(tmp_path / "half.xml")
    assert main(["convert", source, target, "--size", "32x16"]) == 0
    assert (
        capsys.readouterr().out
        == f"{target} from {source}: at most 0 apart on a picture of 32x16\n"
    )
    assert main(["convert", source, target]) == 1
    assert "exists already; -y overwrites it" in capsys.readouterr().err
    assert main(["convert", "-y", source, target]) == 0


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["frobnicate"], 2, "frobnicate"),
        (["inspect"], 2, "Missing argument 'MODEL' (see avdnn inspect --help)"),
        (["models", "--jsn"], 2, "--jsn"),
        (["convert", "nosuch.onnx", "a.xml"], 1, "nosuch.onnx: no such model file"),
        (["sess-config"], 2, "nothing to set"),
        (["sess-config", "--memory-fraction", "2"], 2, "above 0 and at most 1"),
        (["sess-config", "0xzz"], 1, "hex digits"),
        (["run", "-i", "a"], 2, "no output file"),
        (["run", "--progess", "json", "a", "b"], 2, "did you mean --progress"),
        (["run", "nosuch.mp4", "out.mp4"], 1, "nosuch.mp4: no such file"),
        (["run", *CLIP, "-vf", "null", "nosuch/out.mkv"], 1, "no such folder"),
        (["run", *CLIP, "-vf", "null", "--fit", "pad", "out.mkv"], 2, "no dnn filter is there to"),
        (["inspect", "nosuch.xml"], 1, "nosuch.xml: no such model file"),
        (["inspect", "a.xml", "--size", "big"], 2, "--size: expected a size"),
        (["inspect", "a.xml", "--backend", "tf"], 2, "no backend 'tf'"),
    ],
)
def test_errors_are_one_line(
    argv: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == code
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("avdnn: error: ")
    assert message in line
    assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


def test_filter_errors_show_the_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *CLIP, "-vf", "hflip,hflop", "-f", "null", "-"]) == 2
    message, text, caret = capsys.readouterr().err.splitlines()
    assert message.startswith("avdnn: error: no filter named 'hflop'; did you mean hflip")
    assert text[caret.index("^") :] == "hflop"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InferenceError("frame 3: broken"), 1),
        (GraphError("no"), 2),
        (BackendUnavailable("not installed"), 3),
        (DeviceError("no GPU"), 3),
        (OSError(28, "No space left on device", "out.mp4"), 1),
        (ZeroDivisionError("surprise"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_failure_has_its_exit_code(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(job: Job, *, progress: Progress) -> Report:
        raise error

    monkeypatch.setattr(pipeline, "run", fail)
    assert main(["run", "a", "b"]) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("avdnn: ")
    assert len(captured.err.splitlines()) == 1
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("argv", [["--debug", "run", "a", "b"], ["run", "--debug", "a", "b"]])
def test_debug_shows_the_traceback(
    argv: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(job: Job, *, progress: Progress) -> Report:
        raise InferenceError("frame 3: broken")

    monkeypatch.setattr(pipeline, "run", fail)
    assert main(argv) == 1
    assert "Traceback" in capsys.readouterr().err


def test_notes_are_shown_unless_the_level_is_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def note(job: Job, *, progress: Progress) -> Report:
        log = logging.getLogger("avdnn.pipeline")
        log.info("an inner matter")
        log.log(NOTE, "runs in %s", "float32")
        log.warning("on the CPU")
        return Report(1, 1.0, 0.5, 2.0, 1 << 20)

    def shown(*words: str) -> str:
        assert main(["run", *words, "a", "b"]) == 0
        return capsys.readouterr().err

    monkeypatch.setattr(pipeline, "run", note)
    assert shown("-v", "error") == ""
    assert shown("-v", "warning") == "avdnn: on the CPU\n"
    assert shown() == shown("-v", "info") == "avdnn: runs in float32\navdnn: on the CPU\n"


def _until(ready: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not ready.exists() or not any(ready.iterdir()):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_leaves_no_file(number: int, code: int, word: str, tmp_path: Path) -> None:
    out = tmp_path / "out" / "long.mkv"
    out.parent.mkdir()
    endless = ["-f", "lavfi", "-i", "testsrc2=s=64x48:r=25"]
    command = [sys.executable, "-m", "avdnn", "run", *endless, "-vf", "null", "-y", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENV) as process:
        _until(out.parent, process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    assert errors.splitlines()[-1] == f"avdnn: {word}"
    assert list(out.parent.iterdir()) == []


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = [sys.executable, "-m", "avdnn", "--help"]
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(
        command, stdout=writing, stderr=subprocess.PIPE, text=True, env=ENV
    ) as process:
        os.close(writing)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in errors


ODD = "a b'c;d:e,f[g]=größe 日本"


def _in_filter_text(value: str) -> str:
    once = "".join(f"\\{char}" if char in "\\':" else char for char in value)
    return "".join(f"\\{char}" if char in "\\'[],;" else char for char in once)


def test_odd_file_names_reach_libavfilter(tmp_path: Path) -> None:
    cube = tmp_path / f"{ODD}.cube"
    corners = "\n".join(f"{r} {g} {b}" for b in (0, 1) for g in (0, 1) for r in (0, 1))
    cube.write_text(f"LUT_3D_SIZE 2\n{corners}\n")
    text = f"lut3d=file={_in_filter_text(str(cube))}"
    done = _program("run", *CLIP, "-vf", text, "-f", "null", "-")
    assert done.returncode == 0, done.stderr


def test_odd_file_names_reach_dnn_filters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / f"{ODD}.onnx"
    text = f"dnn_processing=dnn_backend=onnx:model={_in_filter_text(str(model))}"
    assert main(["run", *CLIP, "-vf", text, "-f", "null", "-"]) == 1
    assert f"{model}: no such model file" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "inspect"])
def test_odd_file_names_are_shown_as_they_are(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = {"run": [f"{ODD}.mp4", "out.mp4"], "inspect": [f"{ODD}.onnx"]}[command]
    assert main([command, *argv]) == 1
    assert f"avdnn: error: {argv[0]}: no such" in capsys.readouterr().err
