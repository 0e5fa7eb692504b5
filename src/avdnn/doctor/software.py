"""The installation, the processor and the backends."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from .. import backends, models
from ..devices import Machine, cpu_flags
from .finding import Findings, fail, last_line, ok, package, warn

IMAGES = {
    "cpu": ("openvino", "onnx", "tensorflow"),
    "openvino": ("openvino",),
    "cuda": ("torch",),
    "tensorflow": ("tensorflow",),
}
"""The images and the backends in each, beside native, which is in all."""


def check_install(machine: Machine) -> Findings:
    kept = [f"avdnn {package('avdnn') or 'from source'}"]
    kept.append(f"Python {sys.version.split()[0]}")
    kept += [f"{name} {package(wheel)}" for name, wheel in (("PyAV", "av"), ("NumPy", "numpy"))]
    place = f"image {machine.image}" if machine.image else "no avdnn image"
    groups = ",".join(str(group) for group in os.getgroups())
    who = f"user {os.geteuid()}:{os.getegid()}, groups {groups or 'none'}"
    return ok("install", f"{', '.join(kept)}; {place}; {who}")


NEEDS = (
    ("numpy", "sse4_2", "NumPy"),
    ("openvino", "sse4_2", "OpenVINO"),
    ("tensorflow", "avx", "TensorFlow"),
    ("tensorflow-cpu", "avx", "TensorFlow"),
)
"""Package, the instruction set that its wheel cannot do without, and its name for people."""


def check_cpu(machine: Machine) -> Findings:
    flags = cpu_flags(machine)
    name = "cpu-instructions"
    if not flags:
        return ok(name, "this system does not list the processor's instruction sets")
    lacking = {who: flag for wheel, flag, who in NEEDS if package(wheel) and flag not in flags}
    if lacking:
        what = " and ".join(f"{who} needs {flag}" for who, flag in lacking.items())
        return fail(
            name,
            f"{what}, which this processor does not have: it would end by an illegal instruction",
            "use another processor (virtual machines: pass the host's, -cpu host), or dnn_backend="
            + ("native" if "NumPy" not in lacking else "none"),
        )
    if "avx2" not in flags:
        return warn(
            name,
            "this processor has no avx2: everything runs, several times slower",
            "in a virtual machine pass the host's processor (-cpu host)",
        )
    wide = [flag for flag in ("avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16") if flag in flags]
    return ok(name, f"avx2{''.join(' ' + flag for flag in wide)}")


def check_backends(machine: Machine) -> Findings:
    found: Findings = []
    for name in backends.NAMES:
        found += _backend(name, machine)
    return found


DESCRIBE = (
    "import json; from avdnn import backends; "
    "d = backends.module({name!r}).describe(); "
    "print(json.dumps([str(d['version']), "
    "{{str(k): str(v) for k, v in d['devices'].items()}}]))"
)


def _backend(name: str, machine: Machine) -> Findings:
    label = f"backend-{name}"
    if not backends.installed(name):
        fix = _where(name)
        if machine.env.get("AVDNN_BACKEND") == name:
            return fail(label, f"AVDNN_BACKEND names {name}, which is not installed", fix)
        return ok(label, "not installed", fix)
    told = machine.child(DESCRIBE.format(name=name))
    if told.code < 0:
        return fail(
            label,
            f"importing it ended by {signal.Signals(-told.code).name}",
            "see cpu-instructions above"
            if told.code == -signal.SIGILL
            else f"install it anew: pip install --force-reinstall 'avdnn[{name}]'",
        )
    if told.code:
        last = last_line(told.error)
        return fail(label, f"installed, but broken: {last}", _mend(name, last))
    text, devices = json.loads(told.out.strip().splitlines()[-1])
    listed = ", ".join(f"{key} ({value})" if value else key for key, value in devices.items())
    return ok(label, f"{text}; devices: {listed or 'none'}")


def _where(name: str) -> str:
    images = [f"avdnn:{image}" for image, has in IMAGES.items() if name in has]
    return f"use the image {' or '.join(images)}, or pip install 'avdnn[{name}]'"


def _mend(name: str, error: str) -> str:
    if "libcudnn" in error:
        return "pip install nvidia-cudnn-cu13 (or -cu12, as the framework was built), or its image"
    if "cannot open shared object file" in error:
        return f"that library is missing: use an avdnn image, or pip install 'avdnn[{name}]' anew"
    return f"pip install --force-reinstall 'avdnn[{name}]'"


def check_model(model: Path) -> Findings:
    bundled = models.registry().get(str(model))
    if bundled is None and not model.exists():
        return fail("model", f"{model}: no such file", "check the path; images see /data only")
    if bundled is not None:
        readers = [name for name in backends.NAMES if name in bundled.files]
    else:
        readers = [name for name in backends.NAMES if backends.reads(name, model)]
    here = [name for name in readers if backends.installed(name)]
    if here:
        return ok("model", f"{model} runs on {', '.join(here)}")
    if readers:
        what = f"{model} needs {' or '.join(readers)}, which is not installed here"
        return fail("model", what, _where(readers[0]))
    return fail(
        "model",
        f"{model}: no backend reads {model.suffix or 'such'} files",
        "convert it to ONNX (.onnx) or TorchScript (.pt)",
    )
