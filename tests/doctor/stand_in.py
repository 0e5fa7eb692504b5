"""Machines for the doctor to look at: a folder as root file system, and drivers made of Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from avdnn.devices import Machine, Outcome

UUIDS = (bytes(range(16)), bytes(range(16, 32)))


def uuid_text(raw: bytes) -> str:
    h = raw.hex()
    return f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


@dataclass
class Cuda:
    """libcuda.so.1 of a machine whose CUDA lists the GPUs `order` of UUIDS."""

    version: int = 13000
    init: int = 0
    order: tuple[int, ...] = (0,)

    def cuDriverGetVersion(self, out: Any) -> int:
        out._obj.value = self.version
        return 0

    def cuInit(self, flags: int) -> int:
        return self.init

    def cuGetErrorName(self, code: int, out: Any) -> int:
        out._obj.value = b"CUDA_ERROR_NO_DEVICE"
        return 0

    def cuDeviceGetCount(self, out: Any) -> int:
        out._obj.value = len(self.order)
        return 0

    def cuDeviceGet(self, out: Any, index: int) -> int:
        out._obj.value = index
        return 0

    def cuDeviceGetName(self, out: Any, size: int, device: Any) -> int:
        out.value = b"Card"
        return 0

    def cuDeviceGetUuid_v2(self, out: Any, device: Any) -> int:
        out.raw = UUIDS[self.order[device.value]]
        return 0

    def cuDeviceGetPCIBusId(self, out: Any, size: int, device: Any) -> int:
        out.value = f"0000:0{self.order[device.value]}:00.0".encode()
        return 0


@dataclass
class Nvml:
    """libnvidia-ml.so.1 of a machine with `count` GPUs, in the order of UUIDS."""

    count: int = 1

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlShutdown(self) -> int:
        return 0

    def nvmlSystemGetDriverVersion(self, out: Any, size: int) -> int:
        out.value = b"580.1"
        return 0

    def nvmlDeviceGetCount_v2(self, out: Any) -> int:
        out._obj.value = self.count
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, out: Any) -> int:
        out._obj.value = index + 1
        return 0

    def nvmlDeviceGetUUID(self, handle: Any, out: Any, size: int) -> int:
        out.value = uuid_text(UUIDS[handle.value - 1]).encode()
        return 0

    def nvmlDeviceGetName(self, handle: Any, out: Any, size: int) -> int:
        out.value = b"Card"
        return 0

    def nvmlDeviceGetPciInfo_v3(self, handle: Any, out: Any) -> int:
        out.raw = bytes(36) + f"00000000:0{handle.value - 1}:00.0".encode().ljust(92, b"\0")
        return 0


def machine(
    root: Path,
    *,
    libraries: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    container: bool = True,
    child: Outcome | None = None,
    open_error: int = 0,
) -> Machine:
    """A machine with the files below `root` and nothing else but what is given."""
    have = libraries or {}

    def load(name: str) -> Any:
        if name not in have:
            raise OSError(f"{name}: cannot open shared object file")
        return have[name]

    return Machine(
        root=root,
        env=env or {},
        container=container,
        load=load,
        open_error=lambda path: open_error,
        child=lambda code: child or Outcome(0, '["1.0", {"CPU": "a processor"}]', ""),
    )


def node(root: Path, name: str) -> Path:
    """A device node's stand-in: an ordinary file."""
    path = root / "dev" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path
