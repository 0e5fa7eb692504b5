"""What this machine has: processor, NVIDIA and Intel devices, as the kernel and drivers tell.

No framework is imported. Everything is asked through a Machine, so that a test can be another one.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from .access import in_container


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a child process ended: `code` as subprocess gives it, below 0 for a signal."""

    code: int
    out: str
    error: str


def _child(code: str, timeout: float = 120) -> Outcome:
    """Run Python text in a child, so that a crash of a library is a result and not our end."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return Outcome(1, "", f"no answer within {timeout:.0f} s")
    return Outcome(done.returncode, done.stdout, done.stderr)


def _open_error(path: Path) -> int:
    """The errno of opening a device for reading and writing, 0 where it opens."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


@dataclass(frozen=True, slots=True)
class Machine:
    """The ways to ask a machine: files below `root`, environment, libraries, children."""

    root: Path = Path("/")
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    container: bool = field(default_factory=in_container)
    load: Callable[[str], Any] = ctypes.CDLL
    open_error: Callable[[Path], int] = _open_error
    child: Callable[[str], Outcome] = _child

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str:
        """A file's text, "" where it cannot be read."""
        try:
            return self.path(name).read_text(errors="replace")
        except OSError:
            return ""

    def library(self, name: str) -> Any | None:
        """A shared library of the system, None where the loader does not find it."""
        try:
            return self.load(name)
        except OSError:
            return None

    @property
    def image(self) -> str:
        """The name of the avdnn image that this runs in, "" for a plain installation."""
        return self.env.get("AVDNN_IMAGE", "")


def cpu_flags(machine: Machine) -> frozenset[str]:
    """The processor's instruction sets by the kernel's names; empty where it does not tell."""
    for line in machine.text("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()


@dataclass(frozen=True, slots=True)
class RenderNode:
    """A GPU's node below /dev/dri; `error` is the errno of opening it, 0 for none."""

    path: Path
    group: int
    error: int
    vendor: str

    @property
    def intel(self) -> bool:
        return self.vendor in ("0x8086", "")


def render_nodes(machine: Machine) -> list[RenderNode]:
    """The render nodes that are here, with what opening each gives."""
    found = []
    for path in sorted(machine.path("/dev/dri").glob("renderD*")):
        vendor = machine.text(f"/sys/class/drm/{path.name}/device/vendor").strip()
        found.append(RenderNode(path, path.stat().st_gid, machine.open_error(path), vendor))
    return found


@dataclass(frozen=True, slots=True)
class Gpu:
    """One NVIDIA GPU: CUDA's index beside nvidia-smi's; -1 where one of them does not list it."""

    index: int
    smi_index: int
    name: str
    uuid: str
    pci: str


@dataclass(frozen=True, slots=True)
class Nvidia:
    """The NVIDIA driver as this process sees it.

    nodes      the GPU nodes below /dev
    cuda       whether libcuda.so.1 loads
    version    the newest CUDA that the driver runs, (0, 0) without one
    driver     the driver's own version, "" where NVML is missing
    error      what cuInit said, "" for success
    """

    nodes: tuple[str, ...] = ()
    cuda: bool = False
    version: tuple[int, int] = (0, 0)
    driver: str = ""
    error: str = ""
    gpus: tuple[Gpu, ...] = ()


def nvidia(machine: Machine) -> Nvidia:
    """Ask the driver's two libraries, CUDA and NVML, for the GPUs and how their indexes map."""
    nodes = tuple(
        sorted(
            path.name
            for path in machine.path("/dev").glob("nvidia[0-9]*")
            if path.name[6:].isdigit()
        )
    )
    if machine.path("/dev/dxg").exists():
        nodes += ("dxg",)
    by_uuid, driver = _smi(machine.library("libnvidia-ml.so.1"))
    cuda = machine.library("libcuda.so.1")
    if cuda is None:
        gpus = tuple(Gpu(-1, i, name, uuid, pci) for uuid, (i, name, pci) in by_uuid.items())
        return Nvidia(nodes, driver=driver, gpus=gpus)
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    code = cuda.cuInit(0)
    return Nvidia(
        nodes,
        cuda=True,
        version=(version.value // 1000, version.value % 1000 // 10),
        driver=driver,
        error=_cuda_error(cuda, code),
        gpus=_cuda_gpus(cuda, by_uuid) if code == 0 else (),
    )


def _cuda_error(cuda: Any, code: int) -> str:
    if code == 0:
        return ""
    name = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(name))
    return (name.value or b"CUDA error").decode() + f" ({code})"


def _cuda_gpus(cuda: Any, by_uuid: Mapping[str, tuple[int, str, str]]) -> tuple[Gpu, ...]:
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    found = []
    for index in range(count.value):
        device = ctypes.c_int()
        cuda.cuDeviceGet(ctypes.byref(device), index)
        name, raw, pci = (ctypes.create_string_buffer(size) for size in (96, 16, 32))
        cuda.cuDeviceGetName(name, len(name), device)
        cuda.cuDeviceGetUuid_v2(raw, device)
        cuda.cuDeviceGetPCIBusId(pci, len(pci), device)
        uuid = _uuid(raw.raw)
        smi = by_uuid.get(uuid, (-1, "", ""))[0]
        found.append(Gpu(index, smi, name.value.decode(), uuid, pci.value.decode().lower()))
    return tuple(found)


def _uuid(raw: bytes) -> str:
    digits = raw.hex()
    cuts = (0, 8, 12, 16, 20, 32)
    return "GPU-" + "-".join(digits[a:b] for a, b in pairwise(cuts))


def _smi(nvml: Any | None) -> tuple[dict[str, tuple[int, str, str]], str]:
    """What nvidia-smi lists, uuid -> (index, name, pci), and the driver's version."""
    if nvml is None or nvml.nvmlInit_v2() != 0:
        return {}, ""
    text = ctypes.create_string_buffer(96)
    nvml.nvmlSystemGetDriverVersion(text, len(text))
    driver = text.value.decode()
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    found = {}
    for index in range(count.value):
        handle = ctypes.c_void_p()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
            continue
        nvml.nvmlDeviceGetUUID(handle, text, len(text))
        uuid = text.value.decode()
        nvml.nvmlDeviceGetName(handle, text, len(text))
        name = text.value.decode()
        pci = ctypes.create_string_buffer(128)
        nvml.nvmlDeviceGetPciInfo_v3(handle, pci)
        # nvmlPciInfo_t: 16 bytes of the old bus id, five 32-bit numbers, then the bus id.
        found[uuid] = (index, name, pci.raw[36:68].split(b"\0")[0].decode().lower()[-12:])
    nvml.nvmlShutdown()
    return found, driver
