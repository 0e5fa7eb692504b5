"""What the doctor says about one thing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: `fix` is what to do, "" where nothing is."""

    name: str
    status: Status
    message: str
    fix: str = ""


Findings = list[Finding]


def ok(name: str, message: str, fix: str = "") -> Findings:
    return [Finding(name, Status.OK, message, fix)]


def warn(name: str, message: str, fix: str) -> Findings:
    return [Finding(name, Status.WARN, message, fix)]


def fail(name: str, message: str, fix: str) -> Findings:
    return [Finding(name, Status.FAIL, message, fix)]


def package(name: str) -> str:
    """The version of an installed package, "" for none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def last_line(text: str) -> str:
    """The line of a traceback that says what went wrong."""
    return (text.strip().splitlines() or ["no message"])[-1]
