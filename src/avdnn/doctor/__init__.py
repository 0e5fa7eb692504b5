"""avdnn doctor: what works on this machine, and one line for each thing that does not.

Names of findings are stable: docs/doctor.md has a section for each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from ..devices import Machine
from .cuda import check_cudnn, check_nvidia
from .finding import Finding, Findings, Status
from .folders import check_folders
from .intel import check_intel
from .software import check_backends, check_cpu, check_install, check_model

CHECKS: tuple[Callable[[Machine], Findings], ...] = (
    check_install,
    check_cpu,
    check_backends,
    check_nvidia,
    check_cudnn,
    check_intel,
    check_folders,
)


def doctor(model: Path | None = None, *, machine: Machine | None = None) -> list[Finding]:
    """Look at everything; with `model`, also at what runs that file."""
    machine = machine or Machine()
    found: Findings = []
    for check in CHECKS:
        found += check(machine)
    return found + (check_model(model) if model else [])


def exit_code(findings: Sequence[Finding]) -> int:
    """3, device or backend unavailable, where something failed."""
    return 3 if any(found.status is Status.FAIL for found in findings) else 0


def report(findings: Sequence[Finding]) -> str:
    """The findings for people, a line each and a second one for its fix."""
    wide = max(len(found.name) for found in findings)
    lines = []
    for found in findings:
        lines.append(f"{found.status:<4}  {found.name:<{wide}}  {found.message}")
        if found.fix:
            lines.append(f"{'':<4}  {'':<{wide}}  -> {found.fix}")
    return "\n".join(lines)


def as_json(findings: Sequence[Finding]) -> str:
    """The findings for programs: a list of objects with name, status, message and fix."""
    return json.dumps([asdict(found) for found in findings], indent=2)


__all__ = ["Finding", "Machine", "Status", "as_json", "doctor", "exit_code", "report"]
