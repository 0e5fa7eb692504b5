"""Intel GPUs: the render node, who may open it, and the compute runtime."""

from __future__ import annotations

import errno
import os

from ..devices import Machine, render_nodes
from .finding import Findings, fail, ok, warn


def check_intel(machine: Machine) -> Findings:
    nodes = [node for node in render_nodes(machine) if node.intel]
    if not nodes:
        if machine.image != "openvino":
            return ok("intel-gpu", "none, and not needed here")
        return warn(
            "intel-gpu",
            "no /dev/dri/renderD*: OpenVINO has the CPU only",
            "docker run --device /dev/dri "
            '--group-add "$(stat -c %g /dev/dri/renderD128)" (on a host with an Intel GPU)',
        )
    found: Findings = []
    for node in nodes:
        shown = f"/dev/dri/{node.path.name}"
        if node.error in (errno.EACCES, errno.EPERM):
            fix = f"docker run --device /dev/dri --group-add {node.group}"
            if not machine.container:
                fix = f"add yourself to group {node.group}: sudo usermod -aG {node.group} $USER"
            elif node.error == errno.EPERM:
                fix = f"pass the device in, not the folder: --device {shown}, not -v /dev/dri"
            what = f"{shown} is here, this process may not open it ({os.strerror(node.error)})"
            found += fail("intel-access", f"{what}: it belongs to group {node.group}", fix)
        elif node.error:
            found += fail(
                "intel-access",
                f"{shown} does not open: {os.strerror(node.error)}; no driver stands behind it",
                "load the kernel's i915 or xe module on the host",
            )
        else:
            found += ok("intel-access", f"{shown} opens")
    return found + _runtime(machine)


def _runtime(machine: Machine) -> Findings:
    if machine.library("libze_intel_gpu.so.1") is not None:
        return ok("intel-runtime", "Intel's compute runtime is here")
    return fail(
        "intel-runtime",
        "Intel's compute runtime (libze_intel_gpu.so.1) is missing: OpenVINO sees no GPU",
        "use the image avdnn:openvino, or install intel-opencl-icd and libze-intel-gpu1",
    )
