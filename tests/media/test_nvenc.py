"""Which frames NVENC takes from GPU memory, and what is said where it cannot run."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import av
import pytest

from avdnn import pipeline
from avdnn.errors import DeviceError, FormatError
from avdnn.frame import Frame, Meta
from avdnn.job import InputSpec, Job, OutputSpec
from avdnn.media import nvenc
from avdnn.media.encoding import choose_format

NVENC = av.Codec("hevc_nvenc", "w")


def on_gpu(form: str = "nv12", width: int = 64, height: int = 48) -> Frame:
    return Frame((), form, width, height, Meta(0, 1, Fraction(1, 25)), device="cuda:1")


@pytest.mark.parametrize("name", nvenc.ON_CPU)
@pytest.mark.parametrize(
    ("form", "pix_fmt"),
    [
        *((form, wanted) for form in ("nv12", "p010le", "p016le") for wanted in ("", form, "cuda")),
        ("nv12", "yuv420p"),
        ("p010le", "p010"),
    ],
)
def test_frames_that_go_as_they_are(name: str, form: str, pix_fmt: str) -> None:
    assert nvenc.why_host(av.Codec(name, "w"), on_gpu(form), pix_fmt, "") is None


@pytest.mark.parametrize(
    ("frame", "pix_fmt", "gpu", "why"),
    [
        (on_gpu("yuv444p"), "", "", "hevc_nvenc takes nv12, p010le, p016le .*, not yuv444p"),
        (on_gpu("rgb0"), "", "", "not rgb0"),
        (on_gpu(width=63), "", "", "even sizes from GPU memory, not 63x48"),
        (on_gpu(height=47), "", "", "not 64x47"),
        (on_gpu(), "p010le", "", "-pix_fmt p010le is made in host memory, the frames are nv12"),
        (on_gpu("p016le"), "p010le", "", "the frames are p016le"),
        (on_gpu(), "", "0", "-gpu 0 is not the frames' own GPU, cuda:1"),
    ],
)
def test_frames_that_go_through_the_host(frame: Frame, pix_fmt: str, gpu: str, why: str) -> None:
    said = nvenc.why_host(NVENC, frame, pix_fmt, gpu)
    assert said
    assert re.search(why, said)


@pytest.mark.parametrize("gpu", ["1", "any", "-1"])
def test_gpu_that_is_the_frames_own_is_no_reason(gpu: str) -> None:
    assert nvenc.why_host(NVENC, on_gpu(), "", gpu) is None


def test_other_encoders_get_host_frames_without_a_word() -> None:
    assert nvenc.why_host(av.Codec("libx264", "w"), on_gpu(), "", "") == ""


def test_depth_that_nvenc_cuts_is_told() -> None:
    assert "hevc_nvenc encodes 10 bits of p016le" in nvenc.lost_bits(NVENC, "p016le", 16)
    assert nvenc.lost_bits(NVENC, "p010le", 10) == ""
    assert nvenc.lost_bits(av.Codec("ffv1", "w"), "p016le", 16) == ""


def test_cuda_is_no_format_for_host_frames() -> None:
    with pytest.raises(FormatError, match="-pix_fmt cuda: the frames come from host memory"):
        choose_format(NVENC, "cuda", "yuv420p")
    assert choose_format(NVENC, "", "rgb24").pix_fmt != "cuda"


def opens(name: str) -> bool:
    try:
        nvenc.check(av.Codec(name, "w"), {})
    except DeviceError:
        return False
    return True


@pytest.mark.parametrize("name", nvenc.ON_CPU)
def test_machine_without_nvenc_is_told_before_the_first_frame(name: str, tmp_path: Path) -> None:
    if opens(name):
        pytest.skip(f"{name} opens here")
    target = tmp_path / "out.mp4"
    source = InputSpec("testsrc2=s=64x48:d=0.2", format="lavfi")
    wanted = rf"-c:v {name}: no GPU here encodes with it \(.+\); take -c:v {nvenc.ON_CPU[name]}"
    with pytest.raises(DeviceError, match=wanted) as raised:
        pipeline.run(Job(source, OutputSpec(str(target), codec=name), vf="null"))
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 3
    assert list(tmp_path.iterdir()) == []


def test_encoders_of_the_cpu_are_not_tried() -> None:
    nvenc.check(av.Codec("libx264", "w"), {})
