"""The report as a whole: its text, its JSON, its exit code, and the page that documents it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from avdnn.devices import Outcome
from avdnn.doctor import Finding, Status, as_json, doctor, exit_code, report

from ..conftest import ROOT
from .stand_in import machine

PAGE = ROOT / "docs" / "doctor.md"
FOUND = [
    Finding("shm", Status.OK, "large"),
    Finding("intel-access", Status.FAIL, "closed", "--group-add 109"),
]


def test_report_shows_each_fix_below_its_finding() -> None:
    assert report(FOUND).splitlines() == [
        "ok    shm           large",
        "fail  intel-access  closed",
        "                    -> --group-add 109",
    ]


def test_json_has_the_four_fields() -> None:
    assert json.loads(as_json(FOUND))[1] == {
        "name": "intel-access",
        "status": "fail",
        "message": "closed",
        "fix": "--group-add 109",
    }


def test_exit_code_is_3_when_something_failed() -> None:
    assert exit_code(FOUND) == 3
    assert exit_code(FOUND[:1]) == 0


def test_every_finding_that_is_not_ok_has_a_fix(tmp_path: Path) -> None:
    found = doctor(tmp_path / "none.pt", machine=machine(tmp_path, env={"AVDNN_IMAGE": "cuda"}))
    assert {item.status for item in found} == set(Status)
    assert [item.name for item in found if item.status is not Status.OK and not item.fix] == []


def test_doctor_survives_backends_that_crash(tmp_path: Path) -> None:
    found = doctor(machine=machine(tmp_path, child=Outcome(-11, "", "")))
    native = next(item for item in found if item.name == "backend-native")
    assert native.status is Status.FAIL
    assert "SIGSEGV" in native.message


def names_in_code() -> set[str]:
    """Every name that the checks can give, read from their text."""
    text = "".join(path.read_text() for path in (ROOT / "src/avdnn/doctor").glob("*.py"))
    given = set(re.findall(r'\b(?:ok|warn|fail|_folder)\(\s*"([a-z-]+)"', text))
    return given | {"cpu-instructions"} | {"backend-NAME"}


@pytest.mark.skipif(not PAGE.exists(), reason="docs are not beside the tests")
def test_every_name_has_its_section_in_the_documentation() -> None:
    sections = set(re.findall(r"^### `([\w-]+)`", PAGE.read_text(), re.M))
    assert names_in_code() == sections
