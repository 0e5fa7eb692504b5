"""Whole jobs through the command line: what must work, and what must fail well."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

import avdnn
from avdnn import backends, host
from avdnn.backends import _native_file as native_file
from avdnn.backends._native_model import BinaryOp, Kind, MathBinary, Model, Operand
from avdnn.cli import main

from . import clips
from .conftest import require_module

ENV = {**os.environ, "PYTHONPATH": str(Path(avdnn.__file__).parent.parent)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip with sound, and models of one and three channels that halve."""
    made = tmp_path_factory.mktemp("jobs")
    clips.clip(made / "in.mp4", frames=5, audio=[0.0])
    for name, channels in (("luma", 1), ("colour", 3)):
        native_file.write(made / f"{name}.model", halving(channels))
    (made / "text.mp4").write_text("this is no video\n" * 100)
    (made / "empty.mp4").touch()
    (made / "broken.model").write_bytes(b"FFMPEGDNNNATIVE\x01")
    return made


def halving(channels: int) -> Model:
    dims = (-1, -1, -1, channels)
    operands = (Operand("x", Kind.INPUT, dims), Operand("y", Kind.OUTPUT, dims))
    return Model((MathBinary("x", 0.5, "y", BinaryOp.MUL),), operands)


def halved(codes: Any, peak: int = 255) -> Any:
    """What the halving models make of codes, in float32 as the contract has it."""
    values = codes * np.float32(1 / peak) * np.float32(0.5)
    return np.rint(values * np.float32(peak))


def frames(path: Path) -> list[Any]:
    """The planes of every frame."""
    with av.open(str(path)) as opened:
        return [host.from_av(frame).planes for frame in opened.decode(video=0)]


def assert_luma_halved(source: Path, made: Path, peak: int) -> None:
    pairs = zip(frames(source), frames(made), strict=True)
    for before, after in pairs:
        assert np.array_equal(after[0], halved(before[0], peak))
        for one, other in zip(before[1:], after[1:], strict=True):
            assert np.array_equal(one, other)


def run(*words: object) -> int:
    return main(["run", *map(str, words)])


def dnn(model: Path | str, more: str = "") -> str:
    return f"dnn_processing=dnn_backend=native:model={model}{more}"


# ---- what must work ----------------------------------------------------------------------------


def test_a_model_runs_on_every_frame_and_the_sound_is_kept(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.mkv"
    assert run("-i", folder / "in.mp4", "-vf", dnn(folder / "luma.model"), "-c:v", "ffv1", out) == 0
    assert_luma_halved(folder / "in.mp4", out, 255)
    sound, kept = (clips.payloads(path, "audio")[0] for path in (folder / "in.mp4", out))
    assert [data for _, data in kept] == [data for _, data in sound]


def test_without_a_filter_the_bundled_model_doubles_the_size(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    assert run(folder / "in.mp4", out, "--precision", "float32") == 0
    with av.open(str(out)) as opened:
        stream = opened.streams.video[0]
        assert (stream.width, stream.height, stream.frames) == (128, 96, 5)


@pytest.mark.parametrize("vf", [[], ["-vf", "[in]hflip[out]"], ["-vf", "hflip"]])
def test_an_output_size_is_scaled_to_at_the_end(
    folder: Path, tmp_path: Path, vf: list[str]
) -> None:
    out = tmp_path / "out.mp4"
    assert run("-i", folder / "in.mp4", *vf, "-s", "96x80", out) == 0
    with av.open(str(out)) as opened:
        stream = opened.streams.video[0]
        assert (stream.width, stream.height, stream.frames) == (96, 80, 5)


def test_a_complex_filter_of_one_chain_and_a_codec_tag(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    text = f"[0:v]format=yuv420p[a];[a]{dnn(folder / 'luma.model')}[b]"
    words = ["-filter_complex", text, "-map", "[b]", "-map", "0:a?", "-tag:v", "avc3"]
    assert run("-i", folder / "in.mp4", *words, "-qp", "0", out) == 0
    assert_luma_halved(folder / "in.mp4", out, 255)
    assert len(clips.payloads(out, "audio")) == 1
    assert b"avc3" in out.read_bytes()


def test_a_named_colour_model_keeps_the_pixel_format(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.mkv"
    assert run(folder / "in.mp4", out, "--model", folder / "colour.model") == 0
    with av.open(str(out)) as opened:
        assert opened.streams.video[0].format.name == "yuv420p"


def test_losses_are_warnings_and_the_rest_is_noted(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = f"format=yuva420p,{dnn(folder / 'luma.model', ':precision=auto')}"
    words = ["-y", "-i", folder / "in.mp4", "-vf", chain, "-c:v", "libx264", tmp_path / "out.mp4"]
    assert run(*words) == 0
    said = capsys.readouterr().err
    assert "luma.model: native on" in said
    assert run("-loglevel", "warning", *words) == 0
    left = capsys.readouterr().err.splitlines()
    assert left
    assert all("loses" in line for line in left)


@pytest.mark.parametrize("depth", ["yuv420p10le", "yuv422p10le"])
def test_deep_video_stays_deep(folder: Path, tmp_path: Path, depth: str) -> None:
    deep, out = tmp_path / "deep.mkv", tmp_path / "out.mkv"
    clips.clip(deep, frames=3, form=depth, codec="ffv1")
    assert run("-i", deep, "-vf", dnn(folder / "luma.model"), "-c:v", "ffv1", out) == 0
    assert_luma_halved(deep, out, 1023)


def test_pictures_in_and_out(folder: Path, tmp_path: Path) -> None:
    assert run("-i", folder / "in.mp4", "-frames:v", "1", tmp_path / "one.png") == 0
    text = f"derain=dnn_backend=native:model={folder / 'colour.model'}"
    assert run("-i", tmp_path / "one.png", "-vf", text, tmp_path / "two.png") == 0
    ((source,),), ((made,),) = frames(tmp_path / "one.png"), frames(tmp_path / "two.png")
    assert np.array_equal(made, halved(source))


@pytest.mark.parametrize("model", ["espcn-x2", "compact-x2"])
@pytest.mark.parametrize(
    ("form", "made"),
    [
        ("rgb24", "rgb24"),
        ("rgba", "rgba"),
        ("pal8", ("rgba", "rgb24")),
        ("gray16be", "gray16be"),
        ("ya8", "rgba"),
        ("monob", "gray"),
    ],
)
def test_pictures_of_any_kind_without_a_filter(
    form: str, made: str | tuple[str, ...], model: str, tmp_path: Path
) -> None:
    source, out = tmp_path / "in.png", tmp_path / "out.png"
    text = f"format={form}"
    test = ("-f", "lavfi", "-i", "testsrc2=size=64x48", "-frames:v", "1", "-vf", text)
    assert run(*test, source) == 0
    assert run(source, out, "--model", model, "--precision", "float32") == 0
    with av.open(str(source)) as before, av.open(str(out)) as after:
        assert before.streams.video[0].format.name == form
        assert after.streams.video[0].format.name in made
        (small,), (large,) = before.decode(video=0), after.decode(video=0)
    assert (large.width, large.height) == (128, 96)
    # Means of blocks, since the models sharpen (dithered black and white most, up to 9); wrong
    # colours are 50 codes and more apart.
    wanted = small.reformat(format="rgb24").to_ndarray().reshape(6, 8, 8, 8, 3).mean((1, 3))
    got = large.reformat(format="rgb24").to_ndarray().reshape(6, 16, 8, 16, 3).mean((1, 3))
    assert np.abs(got - wanted).mean() < 12


def test_numbered_pictures(folder: Path, tmp_path: Path) -> None:
    assert run("-i", folder / "in.mp4", tmp_path / "frame%04d.png") == 0
    text = dnn(folder / "colour.model")
    assert run("-i", tmp_path / "frame%04d.png", "-vf", text, tmp_path / "o%03d.png") == 0
    assert len(list(tmp_path.glob("o*.png"))) == 5


def test_raw_video_in_and_framemd5_out(folder: Path, tmp_path: Path) -> None:
    raw = tmp_path / "x.raw"
    raw.write_bytes(np.random.default_rng(1).bytes(64 * 48 * 3 // 2 * 4))
    words = ("-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", "64x48", "-r", "25", "-i", raw)
    for out in ("one.md5", "two.md5"):
        assert run(*words, "-vf", dnn(folder / "luma.model"), "-f", "framemd5", tmp_path / out) == 0
    text = (tmp_path / "one.md5").read_text()
    assert text == (tmp_path / "two.md5").read_text()
    assert sum(not line.startswith("#") for line in text.splitlines()) == 4


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="no /dev/stdout")
def test_the_output_may_be_the_name_of_a_pipe(folder: Path) -> None:
    words = ("run", "-i", "in.mp4", "-vf", "null", "-an", "-f", "framemd5", "/dev/stdout")
    done = program(*words, folder=folder, stdout=subprocess.PIPE)
    assert done.returncode == 0
    assert sum(not line.startswith(b"#") for line in done.stdout.splitlines()) == 5


@pytest.mark.parametrize("closed", ["stdin", "stdout", "stderr"])
def test_a_closed_standard_stream_stops_nothing(folder: Path, closed: str) -> None:
    number = ("stdin", "stdout", "stderr").index(closed)
    shell = f'exec "$0" -m avdnn run -i in.mp4 -vf null -f null - {number}>&-'
    command = ["sh", "-c", shell, sys.executable]
    done = subprocess.run(command, cwd=folder, env=ENV, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"Traceback" not in done.stderr


def program(*words: str, folder: Path, stdout: int) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "avdnn", *words]
    return subprocess.run(command, cwd=folder, env=ENV, stdout=stdout, check=False)


def test_test_sources_need_no_file(folder: Path) -> None:
    words = ("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25:duration=0.2")
    assert run(*words, "-vf", f"format=gray,{dnn(folder / 'luma.model')}", "-f", "null", "-") == 0


def test_names_of_any_kind(folder: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a b, c:d 'e' ü"
    odd.mkdir()
    model, out = odd / "net [1];x.model", odd / "out %d.mp4".replace("%d", "ö")
    model.write_bytes((folder / "luma.model").read_bytes())
    inner = str(model).replace("\\", "\\\\").replace(":", "\\:").replace("'", "\\'")
    quoted = "'" + inner.replace("'", "'\\''") + "'"
    assert run("-i", folder / "in.mp4", "-vf", dnn(quoted), out) == 0
    assert out.exists()


@pytest.mark.parametrize("count", [1, 2])
def test_very_short_clips_with_large_batches(folder: Path, tmp_path: Path, count: int) -> None:
    out = tmp_path / "out.mkv"
    text = dnn(folder / "luma.model", ":batch_size=8:nireq=4")
    assert run("-i", folder / "in.mp4", "-vf", text, "-frames:v", count, out) == 0
    assert len(frames(out)) == count


SEED_JOBS = {
    "openvino": (
        "480p.mp4",
        "scale=960:540,format=yuv420p,dnn_processing=dnn_backend=openvino:model={seed}/espcn1080p"
        ".xml:input=x:output=espcn/prediction:options=device=CPU",
        (1920, 1080),
    ),
    "native": (
        "480p.mp4",
        "format=yuv420p,dnn_processing=dnn_backend=native:model={seed}/espcn.model:input=x:output=y",
        (1440, 960),
    ),
    "sr": ("480p.mp4", "sr=dnn_backend=native:model={seed}/espcn.model", (1440, 960)),
    "tensorflow": (
        "480p.mp4",
        "format=yuv420p,dnn_processing=dnn_backend=tensorflow:model={seed}/espcn.pb:input=x:output=y"
        ":backend_configs=sess_config=0x30012a0332",
        (1440, 960),
    ),
    "derain": ("rain.jpg", "derain=dnn_backend=native:model={seed}/can.model", None),
}


@pytest.mark.parametrize("name", SEED_JOBS)
def test_the_recipes_run_unchanged(name: str, seed: Path, tmp_path: Path) -> None:
    source, text, size = SEED_JOBS[name]
    require_module(backends.FRAMEWORKS.get(name, "numpy"))
    out = tmp_path / ("out.png" if name == "derain" else "out.mp4")
    words = ("-i", seed / source, "-vf", text.format(seed=seed), "-frames:v", 1, "-y", out)
    assert run(*words, "-benchmark") == 0
    with av.open(str(out)) as opened:
        stream = opened.streams.video[0]
        assert size in (None, (stream.width, stream.height))


# ---- what must fail well -----------------------------------------------------------------------

Words = Callable[[Path, Path], tuple[Any, ...]]

BAD: dict[str, tuple[int, str, Words]] = {
    "no such file": (1, "no such file", lambda f, t: (f / "none.mp4", t / "out.mp4")),
    "not a video": (1, "text.mp4", lambda f, t: (f / "text.mp4", t / "out.mp4")),
    "empty file": (1, "empty.mp4", lambda f, t: (f / "empty.mp4", t / "out.mp4")),
    "a folder": (1, "folder", lambda f, t: (f, t / "out.mp4")),
    "missing model": (1, "no.model", lambda f, t: vf(f, t, dnn("no.model"))),
    "no bundled name": (1, "espcn-x2", lambda f, t: vf(f, t, dnn("espcn-x9"))),
    "broken model": (1, "broken.model", lambda f, t: vf(f, t, dnn(f / "broken.model"))),
    "wrong input name": (1, "x", lambda f, t: vf(f, t, dnn(f / "luma.model", ":input=in"))),
    "wrong output name": (1, "y", lambda f, t: vf(f, t, dnn(f / "luma.model", ":output=out"))),
    "wrong channels": (1, "format=rgb24", lambda f, t: vf(f, t, dnn(f / "colour.model"))),
    "unknown filter": (2, "dnn_processing", lambda f, t: vf(f, t, "dnn_procesing=model=x")),
    "unknown option": (2, "backend_configs", lambda f, t: vf(f, t, dnn("x", ":backend_confgs=1"))),
    "unknown backend key": (1, "tint", lambda f, t: vf(f, t, dnn(f / "luma.model", ":options=tint=1"))),  # noqa: E501
    "bad libavfilter option": (2, "scale", lambda f, t: vf(f, t, "scale=wdith=3")),
    "two chains": (2, "one chain", lambda f, t: vf(f, t, "null;null")),
    "foreign model": (1, "no model file by its ending", lambda f, t: vf(f, t, dnn(f / "text.mp4"))),
    "no output folder": (1, "none", lambda f, t: (f / "in.mp4", t / "none" / "out.mp4")),
    "output is input": (1, "in.mp4", lambda f, t: ("-y", f / "in.mp4", f / "in.mp4")),
    "unknown container": (2, "out.xyz", lambda f, t: (f / "in.mp4", t / "out.xyz")),
    "unknown encoder": (2, "libx999", lambda f, t: (f / "in.mp4", "-c:v", "libx999", t / "o.mp4")),
    "unknown encoder option": (2, "tempo", lambda f, t: (f / "in.mp4", "-tempo", "3", t / "o.mp4")),
    "no output": (2, "output", lambda f, t: ("-i", f / "in.mp4")),
    "both -y and -n": (2, "-n", lambda f, t: ("-y", "-n", f / "in.mp4", t / "out.mp4")),
}  # fmt: skip


def vf(folder: Path, target: Path, text: str) -> tuple[Any, ...]:
    return ("-i", folder / "in.mp4", "-vf", text, target / "out.mp4")


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_a_code_and_no_file(
    case: str, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said, words = BAD[case]
    before = {path.name: digest(path) for path in folder.iterdir()}
    assert run(*words(folder, tmp_path)) == code
    text = capfd.readouterr().err
    error = [line for line in text.splitlines() if line.startswith("avdnn: error:")]
    assert len(error) == 1
    assert said in text if said != "folder" else str(folder) in text
    assert "Traceback" not in text
    assert list(tmp_path.iterdir()) == []
    assert {path.name: digest(path) for path in folder.iterdir()} == before


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_existing_output_is_kept_without_y(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.mp4"
    out.write_text("precious")
    for more in ([], ["-n"]):
        assert run(*more, folder / "in.mp4", out) == 1
        assert "-y" in capfd.readouterr().err
        assert out.read_text() == "precious"
    assert run("-y", folder / "in.mp4", out) == 0
    assert len(frames(out)) == 5


def test_a_missing_backend_names_the_install(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(backends, "installed", lambda name: name == "native")
    (tmp_path / "net.onnx").write_bytes(b"x")
    text = f"dnn_processing=dnn_backend=onnx:model={tmp_path / 'net.onnx'}"
    assert run("-i", folder / "in.mp4", "-vf", text, tmp_path / "out.mp4") == 3
    assert "pip install 'avdnn[onnx]'" in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_said(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o500)
    assert run(folder / "in.mp4", tmp_path / "out.mp4") == 1
    assert str(tmp_path) in capfd.readouterr().err
