"""NVIDIA GPUs, their driver, its video libraries, and cuDNN."""

from __future__ import annotations

import sys
from pathlib import Path

from ..devices import Machine, Nvidia, nvidia
from .finding import Findings, fail, last_line, ok, package, warn

CAPABILITIES = "-e NVIDIA_DRIVER_CAPABILITIES=compute,video,utility"


def cuda_wanted(machine: Machine) -> bool:
    """Whether this image or installation is one for NVIDIA GPUs."""
    return machine.image in ("cuda", "tensorflow") or _built_for() != (0, 0)


def _built_for() -> tuple[int, int]:
    """The CUDA version of the installed wheels, (0, 0) for none."""
    for suffix in ("", "-cu12", "-cu13"):
        text = package(f"nvidia-cuda-runtime{suffix}")
        if text:
            major, minor = text.split(".")[:2]
            return int(major), int(minor)
    return (0, 0)


def check_nvidia(machine: Machine) -> Findings:
    has = nvidia(machine)
    wanted = machine.image in ("cuda", "tensorflow")
    if not has.nodes and not has.gpus:
        if not wanted:
            return ok("nvidia-gpu", "none, and not needed here")
        what = "no NVIDIA GPU is passed in" if machine.container else "no NVIDIA GPU"
        return fail(
            "nvidia-gpu",
            f"{what}: there is no /dev/nvidia0",
            "docker run --gpus all (needs the NVIDIA Container Toolkit on the host)",
        )
    found = _driver(has, machine)
    if has.cuda:
        found += _video(has, machine)
    return found


def _driver(has: Nvidia, machine: Machine) -> Findings:
    if not has.cuda:
        return fail(
            "nvidia-driver",
            f"{', '.join(has.nodes)} is here, the driver's libcuda.so.1 is not",
            f"docker run --gpus all {CAPABILITIES}"
            if machine.container
            else "install NVIDIA's driver",
        )
    found: Findings = []
    built = _built_for()
    newest = ".".join(str(part) for part in has.version)
    if built > has.version and built[0] > has.version[0]:
        found += fail(
            "nvidia-driver",
            f"driver {has.driver or '?'} runs CUDA up to {newest}; the wheels here are built "
            f"for {built[0]}.{built[1]}",
            f"update the driver on the host to one for CUDA {built[0]}"
            + (", or use the image avdnn:tensorflow (CUDA 12)" if has.version[0] == 12 else ""),
        )
    elif has.error:
        return fail(
            "nvidia-driver",
            f"driver {has.driver or '?'} does not start: {has.error}",
            "check nvidia-smi on the host; after a driver update restart the machine",
        )
    else:
        found += ok("nvidia-driver", f"driver {has.driver or '?'}, CUDA up to {newest}")
    listed = "; ".join(
        f"cuda:{gpu.index} {gpu.name} {gpu.uuid} {gpu.pci} (nvidia-smi {gpu.smi_index})"
        for gpu in has.gpus
    )
    found += ok("nvidia-gpu", listed)
    swapped = [gpu for gpu in has.gpus if gpu.smi_index not in (-1, gpu.index)]
    if swapped:
        found += warn(
            "nvidia-order",
            "CUDA numbers the GPUs otherwise than nvidia-smi: see nvidia-gpu",
            f"choose by UUID: -e CUDA_VISIBLE_DEVICES={swapped[0].uuid}, "
            "or -e CUDA_DEVICE_ORDER=PCI_BUS_ID",
        )
    return found


NVENC = (
    "import av; c = av.CodecContext.create('h264_nvenc', 'w'); c.width = c.height = 256; "
    "c.pix_fmt = 'yuv420p'; c.framerate = 25; c.open()"
)


def _video(has: Nvidia, machine: Machine) -> Findings:
    found: Findings = []
    if machine.library("libnvcuvid.so.1") is None:
        found += fail(
            "nvdec",
            "libnvcuvid.so.1 is missing: no hardware decoding",
            f"docker run --gpus all {CAPABILITIES}"
            if machine.container
            else "install the driver's decode library (Debian: libnvcuvid1)",
        )
    else:
        found += ok("nvdec", "libnvcuvid.so.1 is here: -hwaccel cuda")
    if machine.library("libnvidia-encode.so.1") is None:
        fix = f"docker run --gpus all {CAPABILITIES}; or encode on the CPU: -c:v libx264"
        return found + warn("nvenc", "libnvidia-encode.so.1 is missing: no hardware encoding", fix)
    tried = machine.child(NVENC)
    if tried.code:
        return found + warn(
            "nvenc",
            f"no NVENC on this card: h264_nvenc does not open ({last_line(tried.error)})",
            "encode on the CPU: -c:v libx264",
        )
    return found + ok("nvenc", "h264_nvenc opens")


def check_cudnn(machine: Machine) -> Findings:
    if not cuda_wanted(machine):
        return []
    inside = [Path(entry) / "nvidia" for entry in sys.path if entry]
    places = [folder for place in inside for folder in place.glob("*/lib/libcudnn.so.9")]
    if places or machine.library("libcudnn.so.9") is not None:
        return ok("cudnn", "libcudnn.so.9 is here")
    major = _built_for()[0] or 13
    return fail(
        "cudnn",
        "libcudnn.so.9 is missing: convolutions on the GPU fail",
        f"pip install nvidia-cudnn-cu{major}, or use the image avdnn:cuda",
    )
