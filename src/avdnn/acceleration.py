"""Whether a job decodes and runs on a GPU, and what that changes in its chain."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import av
import av.error

from . import backends, host, models
from .errors import AvdnnError, DeviceError, UsageError
from .frame import Frame
from .job import InputSpec, Job
from .media.opening import is_device, is_local, open_input
from .media.reader import Reader

if TYPE_CHECKING:
    from .cuda import Device
    from .filters import Context, Filter

BATCH = 8
"""Frames of a job where the user did not say: more gain nothing, as measured."""

DECODED = frozenset(
    ("h264", "hevc", "av1", "vp9", "vp8", "mpeg2video", "mpeg1video", "mpeg4", "vc1", "mjpeg")
)
"""Codecs that some NVDEC decodes."""

PROBE_PACKETS, PROBE_DAMAGE = 64, 8
"""Packets in which a first picture has to come, and how many of them may be damaged."""

Say: TypeAlias = Callable[[str], None]
"""Takes a line for the user."""

WhyHost: TypeAlias = Callable[[Frame], str | None]
"""Why a device frame has to be downloaded for its encoder, as Writer.why_host says."""


def _always(frame: Frame) -> str | None:
    return ""


@dataclass(frozen=True, slots=True)
class Plan:
    """How the input is read: on `device` or, where that is None, on the CPU.

    `stays` says that the frames go into the chain on the device, `automatic` that nobody asked.
    """

    spec: InputSpec
    device: Device | None = None
    stays: bool = False
    automatic: bool = False

    def reader(self) -> Reader:
        """The reader of the input."""
        if self.device is None:
            return Reader(self.spec)
        from .cuda.decode import DeviceReader

        return DeviceReader(self.spec, self.device)

    def around(
        self, chain: list[Filter], context: Context, why_host: WhyHost = _always
    ) -> list[Filter]:
        """The chain with the downloads that the plan needs.

        Frames end in host memory, but for those of which `why_host` says that they need not.
        """
        uploads = any(type(link).__name__ == "HwUpload" for link in chain)
        if self.device is None and not uploads:
            return chain
        from .filters.hwdownload import Direct, HwDownload

        strict = any(getattr(link, "strict", False) for link in chain)
        direct = Direct(why_host, context.say, strict=strict)
        first = [HwDownload(context)] if self.device is not None and not self.stays else []
        return [*first, *chain, HwDownload(context, lenient=True, stays=direct)]


def plan(job: Job, say: Say, note: Say | None = None) -> Plan:
    """Read the options; -hwaccel auto and a job without a filter look what the machine has.

    `say` takes what is not as one may expect, `note` what is.
    """
    spec = job.input
    wanted = spec.hwaccel.lower()
    if spec.hwaccel_output_format not in ("", "cuda"):
        raise UsageError(
            f"-hwaccel_output_format {spec.hwaccel_output_format}: cuda is supported; frames in "
            f"host memory need no option"
        )
    if spec.hwaccel_output_format and wanted not in ("cuda", "nvdec", "auto"):
        raise UsageError("-hwaccel_output_format cuda goes with -hwaccel cuda")
    stays = spec.hwaccel_output_format == "cuda"
    if wanted in ("cuda", "nvdec"):
        return Plan(spec, _device(spec), stays)
    if wanted == "auto":
        return _auto(spec, stays, say, note or say)
    unasked = wanted == "" and job.vf is None and _may_run_on_gpu(job)
    found = _unasked(job, say, note or say) if unasked else Plan(spec)
    if found.device is None and wanted in ("", "none"):
        _refuse_gpu_options(spec)
    return found


def _refuse_gpu_options(spec: InputSpec) -> None:
    """Refuse what says how a GPU decodes where none does; -decoders auto is none of it."""
    for name, given in (("decoders", spec.decoders), ("hwaccel_device", spec.hwaccel_device)):
        if given:
            raise UsageError(
                f"-{name} {given}: the CPU decodes this input; add -hwaccel cuda, or leave it out"
            )


def unwrapper() -> Callable[[Frame], av.VideoFrame]:
    """Makes the av frames of one job for its encoder, wherever the frames lie."""
    made: list[Callable[[Frame], av.VideoFrame]] = []

    def unwrap(frame: Frame) -> av.VideoFrame:
        if frame.device == "cpu":
            return host.to_av(frame)
        if not made:
            from .cuda.encode import Feed

            made.append(Feed())
        return made[0](frame)

    return unwrap


def filter_device(job: Job) -> str:
    """The GPU of -init_hw_device and -filter_hw_device, "" where neither is given."""
    if not job.init_hw_device and not job.filter_hw_device:
        return ""
    from .cuda.choice import filter_gpu

    return f"cuda:{filter_gpu(job.init_hw_device, job.filter_hw_device)}"


def _device(spec: InputSpec) -> Any:
    from . import cuda
    from .cuda import choice as cuda_choice

    return cuda.device(cuda_choice.gpu_index(spec.hwaccel_device))


def _auto(spec: InputSpec, stays: bool, say: Say, note: Say) -> Plan:
    """NVDEC where it decodes the file, else the CPU; says which."""
    try:
        device = _device(spec)
        why = refusal(spec, device)
    except AvdnnError as error:
        device, why = None, str(error)
    if device is None or why:
        if stays:
            raise UsageError(f"-hwaccel_output_format cuda: decoding is left to the CPU: {why}")
        say(f"decoding on the CPU: {why}")
        return Plan(replace(spec, hwaccel=""))
    note(f"decoding on {device.label} ({device.name})")
    return Plan(spec, device, stays)


def _may_run_on_gpu(job: Job) -> bool:
    """Whether nothing in the job speaks for another device, and the GPU's parts are installed."""
    from .cuda import installed

    options = job.dnn_options
    backend = options.get("dnn_backend", "") or os.environ.get("AVDNN_BACKEND", "")
    device = options.get("device", "cuda")
    if backend not in ("", "auto", "torch") or not device.startswith(("cuda", "gpu")):
        return False
    return installed() and backends.installed("torch") and _has_torch_form(job.model)


def _has_torch_form(model: str) -> bool:
    bundled = models.registry().get(model or "espcn-x2")
    if bundled is not None:
        return "torch" in bundled.files
    return backends.reads("torch", models.resolve(model))


def _unasked(job: Job, say: Say, note: Say) -> Plan:
    """The whole way on the GPU where there is one and it decodes the file."""
    spec = job.input
    named = spec.hwaccel_device or job.dnn_options.get("device", "").removeprefix("gpu")
    try:
        device = _device(replace(spec, hwaccel_device=named))
    except AvdnnError:
        return Plan(spec)
    try:
        why = refusal(spec, device)
    except DeviceError as error:
        why = str(error)
    if why:
        say(f"{device.label} ({device.name}) is not used: {why}")
        return Plan(spec)
    note(f"{device.label} ({device.name}) decodes and runs the network; frames stay on it")
    decoders = 0 if spec.decoders is None else spec.decoders
    return Plan(replace(spec, decoders=decoders), device, stays=True, automatic=True)


def refusal(spec: InputSpec, device: Device) -> str:
    """Why NVDEC does not decode the input's first picture; "" if it does."""
    from .cuda import decode as cuda_decode
    from .cuda.frames import FORMATS

    if is_device(spec.format) or not is_local(spec.url):
        return "it is tried on the file first, and this input can be read only once"
    container, video = open_input(replace(spec, hwaccel=""))
    with container:
        if container.format.name.startswith("image2") or container.format.name.endswith("_pipe"):
            return "pictures are decoded on the CPU"
        name = video.codec_context.codec.canonical_name
        if name not in DECODED:
            return f"NVDEC does not decode {name}"
        cuda_decode.check_library()
        decoder = cuda_decode.open_decoder(device, video)
        kind = f"{name} stream ({video.codec_context.pix_fmt})"
        why = f"NVDEC gave no picture in the first {PROBE_PACKETS} packets"
        refused = 0
        packets = islice(container.demux(video), PROBE_PACKETS)
        while refused < PROBE_DAMAGE:
            try:
                packet = next(packets, None)
                if packet is None:
                    break
                pictures = decoder.decode(packet if packet.size else None)
            except av.error.FFmpegError as error:
                why = f"NVDEC cannot decode this {kind}: {error.strerror}"
                refused += 1
                continue
            for picture in pictures:
                form: Any = picture.sw_format
                known = form is not None and form.name in FORMATS
                return "" if known else f"NVDEC gives frames that are no device frames ({form})"
    return why


def device_figures() -> dict[str, int]:
    """Bytes over the bus and the peak of device memory, of all GPUs that this process used."""
    cuda = sys.modules.get(f"{__package__}.cuda")
    devices = cuda.opened() if cuda is not None else []
    torch: Any = sys.modules.get("torch")
    peak = sum(device.pool.peak for device in devices)
    if devices and torch is not None:
        peak += sum(torch.cuda.max_memory_reserved(device.index) for device in devices)
    return {
        "host_to_device_bytes": sum(device.traffic.up for device in devices),
        "device_to_host_bytes": sum(device.traffic.down for device in devices),
        "device_peak_bytes": peak,
    }
