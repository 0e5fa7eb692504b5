"""Which GPU an option means: an index, a UUID, a PCI address, or a name given before."""

from __future__ import annotations

import re

from ..devices import Gpu, Machine, nvidia
from ..errors import DeviceError, UsageError


def gpu_index(text: str) -> int:
    """CUDA's index of the GPU that `text` names: "", "cuda", "1", "cuda:1", a UUID or PCI address.

    UUIDs and addresses are nvidia-smi's, or any part at their front that is unique.
    """
    name = text.strip().removeprefix("cuda").removeprefix(":")
    if not name:
        return 0
    if name.isdecimal():
        return int(name)
    gpus = nvidia(Machine()).gpus
    found = [gpu for gpu in gpus if _named(gpu, name)]
    if len(found) != 1:
        listed = "; ".join(f"cuda:{gpu.index} {gpu.uuid} {gpu.pci}" for gpu in gpus) or "none"
        what = "several GPUs are" if found else "no GPU is"
        raise DeviceError(f"{what} called {name!r}; there are: {listed}", device="cuda")
    return found[0].index


def _named(gpu: Gpu, name: str) -> bool:
    lower = name.lower()
    address = re.sub(r"^0+:", "", gpu.pci.lower().lstrip("0"))
    return gpu.uuid.lower().startswith(lower) or lower in (
        gpu.pci.lower(),
        gpu.pci.lower()[-len(lower) :] if ":" in lower else "",
        address,
    )


def filter_gpu(init_hw_device: str, filter_hw_device: str) -> int:
    """The GPU of -init_hw_device TYPE[=NAME][:DEVICE] and -filter_hw_device NAME."""
    if not init_hw_device:
        return gpu_index(filter_hw_device)
    found = re.fullmatch(r"(\w+)(?:=(\w+))?(?::([^,]*))?(?:,.*)?", init_hw_device)
    if found is None or found[1] != "cuda":
        raise UsageError(
            f"-init_hw_device {init_hw_device}: cuda, cuda=NAME or cuda=NAME:INDEX is supported"
        )
    name = found[2] or "cuda0"
    if filter_hw_device and filter_hw_device not in (name, "cuda"):
        raise UsageError(
            f"-filter_hw_device {filter_hw_device}: no such device; -init_hw_device made {name}"
        )
    return gpu_index(found[3] or "")
