"""Which machine a job takes, by its options and by what is there."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest

from avdnn import acceleration, cuda
from avdnn.acceleration import Plan, filter_device, plan
from avdnn.cuda import choice as cuda_choice
from avdnn.devices import Gpu, Nvidia
from avdnn.errors import DeviceError, UsageError
from avdnn.filters import Context
from avdnn.filters.hwdownload import HwDownload
from avdnn.filters.hwupload import HwUpload
from avdnn.job import InputSpec, Job, OutputSpec

GPUS = (
    Gpu(0, 1, "one", "GPU-aaaa-1111", "00000000:01:00.0"),
    Gpu(1, 0, "two", "GPU-bbbb-2222", "00000000:41:00.0"),
)
REFUSAL = acceleration.refusal
H200 = SimpleNamespace(label="cuda:0", name="H200")


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs that decode everything, and all packages."""
    has = Nvidia(nodes=("/dev/nvidia0",), cuda=True, version=(13, 0), driver="580", gpus=GPUS)
    monkeypatch.setattr(cuda_choice, "nvidia", lambda machine: has)
    monkeypatch.setattr(cuda, "device", lambda index: H200)
    monkeypatch.setattr(cuda, "installed", lambda: True)
    monkeypatch.setattr("avdnn.backends.installed", lambda name: True)
    monkeypatch.setattr(acceleration, "refusal", lambda spec, device: "")
    monkeypatch.delenv("AVDNN_BACKEND", raising=False)


def job(vf: str | None = "hflip", model: str = "", **spec: Any) -> Job:
    return Job(InputSpec("in.mp4", **spec), OutputSpec("out.mp4"), vf=vf, model=model)


def test_filter_without_hwaccel_stays_on_the_cpu() -> None:
    assert plan(job(), print).device is None


def test_hwaccel_cuda_decodes_there_and_downloads_unless_told_to_stay() -> None:
    assert not plan(job(hwaccel="cuda"), print).stays
    stays = plan(job(hwaccel="cuda", hwaccel_output_format="cuda"), print)
    assert stays.stays
    context = Context(say=print)
    assert [type(link) for link in stays.around([], context)] == [HwDownload]
    chain = plan(job(hwaccel="cuda"), print).around([], context)
    assert [type(link) for link in chain] == [HwDownload, HwDownload]


def test_uploaded_frames_come_down_at_the_end_of_a_chain() -> None:
    chain = Plan(InputSpec("in.mp4")).around([HwUpload(0)], Context(say=print))
    assert [type(link) for link in chain] == [HwUpload, HwDownload]
    assert Plan(InputSpec("in.mp4")).around([], Context(say=print)) == []


def test_auto_says_which_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert plan(job(hwaccel="auto"), said.append).device is H200
    monkeypatch.setattr(acceleration, "refusal", lambda spec, device: "NVDEC does not decode ffv1")
    chosen = plan(job(hwaccel="auto"), said.append)
    assert (chosen.device, chosen.spec.hwaccel) == (None, "")
    assert said == ["decoding on cuda:0 (H200)", "decoding on the CPU: NVDEC does not decode ffv1"]


def test_auto_without_a_gpu_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(index: int) -> Any:
        raise DeviceError("no NVIDIA GPU is visible")

    monkeypatch.setattr(cuda, "device", none)
    said: list[str] = []
    assert plan(job(hwaccel="auto"), said.append).device is None
    assert "no NVIDIA GPU is visible" in said[0]


@pytest.mark.parametrize(
    ("given", "text"),
    [({"decoders": 4}, "-decoders 4"), ({"hwaccel_device": "1"}, "-hwaccel_device 1")],
)
def test_how_a_gpu_decodes_is_not_for_the_cpu(
    monkeypatch: pytest.MonkeyPatch, given: Any, text: str
) -> None:
    with pytest.raises(UsageError, match=f"{text}: the CPU decodes this input"):
        plan(job("null", **given), print)
    assert plan(job(None, **given), print).device is H200
    monkeypatch.setattr(acceleration, "_may_run_on_gpu", lambda job: False)
    with pytest.raises(UsageError, match="add -hwaccel cuda, or leave it out"):
        plan(job(None, **given), print)
    assert plan(job(None, decoders=0), print).device is None


def test_job_without_a_filter_takes_the_gpu_with_several_decoders() -> None:
    said: list[str] = []
    chosen = plan(job(None), said.append)
    assert chosen.device is H200
    assert chosen.stays
    assert chosen.spec.decoders == 0
    assert "frames stay on it" in said[0]
    assert plan(job(None, decoders=1), said.append).spec.decoders == 1


def test_job_without_a_filter_decodes_on_the_gpu_of_its_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def device(index: int) -> Any:
        asked.append(index)
        return H200

    monkeypatch.setattr(cuda, "device", device)
    for name in ("cuda:1", "cuda", ""):
        told = {"device": name} if name else {}
        plan(Job(InputSpec("in.mp4"), OutputSpec("out.mp4"), dnn_options=told), print)
    assert asked == [1, 0, 0]


@pytest.mark.parametrize("options", [{"dnn_backend": "openvino"}, {"device": "cpu"}])
def test_job_without_a_filter_stays_where_its_options_say(options: dict[str, str]) -> None:
    wanted = Job(InputSpec("in.mp4"), OutputSpec("out.mp4"), dnn_options=options)
    assert plan(wanted, print).device is None


def test_job_without_a_filter_says_why_the_gpu_does_not_do_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(acceleration, "refusal", lambda spec, device: "NVDEC does not decode ffv1")
    said: list[str] = []
    assert plan(job(None), said.append).device is None
    assert said == ["cuda:0 (H200) is not used: NVDEC does not decode ffv1"]


def test_gpu_that_nobody_asked_for_and_that_cannot_decode_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refusal(spec: InputSpec, device: Any) -> str:
        raise DeviceError("libnvcuvid.so.1 is missing", device="cuda")

    monkeypatch.setattr(acceleration, "refusal", refusal)
    said: list[str] = []
    assert plan(job(None), said.append).device is None
    assert said == ["cuda:0 (H200) is not used: libnvcuvid.so.1 is missing"]
    with pytest.raises(UsageError, match="libnvcuvid"):
        plan(job(hwaccel="auto", hwaccel_output_format="cuda"), said.append)


@pytest.mark.parametrize(
    ("url", "form", "words"),
    [
        ("-", "", "read only once"),
        ("pipe:0", "", "read only once"),
        ("testsrc2", "lavfi", "read only once"),
    ],
)
def test_inputs_that_can_be_read_once_are_not_tried(url: str, form: str, words: str) -> None:
    assert words in REFUSAL(InputSpec(url, format=form), H200)  # type: ignore[arg-type]


def test_pictures_and_other_codecs_are_left_to_the_cpu(tmp_path: Path) -> None:
    picture = np.zeros((16, 16, 3), np.uint8)
    frame = av.VideoFrame.from_ndarray(picture, "rgb24")
    for name, codec, words in (("a.png", "png", "pictures"), ("a.mkv", "ffv1", "decode ffv1")):
        path = tmp_path / name
        with av.open(str(path), "w", options={"update": "1"} if codec == "png" else {}) as out:
            stream = out.add_stream(codec, rate=25)
            stream.width = stream.height = 16
            stream.pix_fmt = "rgb24" if codec == "png" else "yuv420p"
            out.mux(stream.encode(frame.reformat(format=stream.pix_fmt)))
            out.mux(stream.encode(None))
        assert words in REFUSAL(InputSpec(str(path)), H200)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (0, ""),
        (3, ""),
        (100, r"NVDEC cannot decode this mpeg4 stream \(yuv420p\): Invalid data"),
    ],
)
def test_some_damage_at_the_beginning_does_not_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int, words: str
) -> None:
    path = tmp_path / "a.mkv"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mpeg4", rate=25, options={"g": "5"})
        stream.width = stream.height = 32
        for _ in range(20):
            picture = np.zeros((32, 32, 3), np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(format="yuv420p")
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    seen: list[Any] = []

    class Decoder:
        def decode(self, packet: Any) -> list[Any]:
            seen.append(packet)
            if len(seen) <= broken:
                raise av.error.InvalidDataError(1094995529, "Invalid data found")
            return [SimpleNamespace(sw_format=SimpleNamespace(name="nv12"))]

    monkeypatch.setattr("avdnn.cuda.decode.check_library", lambda: None)
    monkeypatch.setattr("avdnn.cuda.decode.open_decoder", lambda device, video: Decoder())
    why = REFUSAL(InputSpec(str(path)), H200)  # type: ignore[arg-type]
    assert re.match(words, why) if words else why == ""
    assert len(seen) == min(broken + 1, 8)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"hwaccel": "cuda", "hwaccel_output_format": "vaapi"}, "cuda is supported"),
        ({"hwaccel_output_format": "cuda"}, "goes with -hwaccel cuda"),
    ],
)
def test_output_formats_that_make_no_sense(spec: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan(job(**spec), print)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("", 0),
        ("cuda", 0),
        ("1", 1),
        ("cuda:1", 1),
        ("GPU-bbbb", 1),
        ("gpu-aaaa-1111", 0),
        ("00000000:41:00.0", 1),
        ("41:00.0", 1),
        ("0000:01:00.0", 0),
    ],
)
def test_gpu_is_named_by_index_uuid_or_pci_address(name: str, index: int) -> None:
    assert cuda_choice.gpu_index(name) == index


@pytest.mark.parametrize(("name", "words"), [("GPU-cc", "no GPU is"), ("GPU-", "several GPUs")])
def test_unknown_and_unclear_gpus_are_listed(name: str, words: str) -> None:
    with pytest.raises(DeviceError, match=words) as caught:
        cuda_choice.gpu_index(name)
    assert "cuda:1 GPU-bbbb-2222 00000000:41:00.0" in str(caught.value)


@pytest.mark.parametrize(
    ("init", "name", "device"),
    [
        ("", "", ""),
        ("cuda=cuda", "cuda", "cuda:0"),
        ("cuda=cu:1", "cu", "cuda:1"),
        ("cuda", "", "cuda:0"),
        ("", "1", "cuda:1"),
        ("cuda=cu:1,primary_ctx=1", "cu", "cuda:1"),
    ],
)
def test_filter_device_follows_ffmpegs_options(init: str, name: str, device: str) -> None:
    wanted = Job(InputSpec("a"), OutputSpec("b"), vf="", init_hw_device=init, filter_hw_device=name)
    assert filter_device(wanted) == device


@pytest.mark.parametrize(("init", "name"), [("vaapi=va", "va"), ("cuda=cu", "other")])
def test_other_filter_devices_are_refused(init: str, name: str) -> None:
    with pytest.raises(UsageError):
        cuda_choice.filter_gpu(init, name)
