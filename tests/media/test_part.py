"""Unfinished files of dead runs go; those in use stay."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from avdnn.media import part
from avdnn.media.part import Part

_WRITE = """
import sys, time
from pathlib import Path
from avdnn.media.part import Part
made = Part(Path(sys.argv[1]))
print(made.path, flush=True)
time.sleep(600)
"""


def test_a_part_goes_once_its_writer_is_dead_and_not_before(tmp_path: Path) -> None:
    final = tmp_path / "out [1].mp4"
    command = [sys.executable, "-c", _WRITE, str(final)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        theirs = Path(process.stdout.readline().strip())
        theirs.write_bytes(b"half")
        ours = Part(final)
        assert theirs.read_bytes() == b"half"
        process.kill()
        process.wait()
    again = Part(final)
    assert sorted(tmp_path.iterdir()) == sorted([ours.path, again.path])
    ours.release()
    again.release()


def test_files_of_other_names_stay(tmp_path: Path) -> None:
    others = [".out.mp4.part", ".out.mp4.0123456.part", ".out.mp4.0123456g.part", "out.mp4",
              ".a.out.mp4.01234567.part", ".outxmp4.01234567.part"]  # fmt: skip
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / ".out.mp4.89abcdef.part").symlink_to(tmp_path / "out.mp4")
    (tmp_path / ".out.mp4.89abcde0.part").mkdir()
    (tmp_path / ".out.mp4.01234567.part").touch()
    made = Part(tmp_path / "out.mp4")
    found = {path.name for path in tmp_path.iterdir()} - {made.path.name}
    assert found == {*others, ".out.mp4.89abcdef.part", ".out.mp4.89abcde0.part"}
    made.release()


def test_a_part_that_is_taken_for_a_stale_one_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may come between the making of a file and its lock."""
    final, lock, seen = tmp_path / "out.mp4", fcntl.flock, []

    def late(descriptor: int, operation: int) -> None:
        if not seen:
            seen.append(descriptor)
            part._remove_stale(tmp_path, final.name)
        else:
            lock(descriptor, operation)

    monkeypatch.setattr(part, "flock", late)
    made = Part(final)
    assert list(tmp_path.iterdir()) == [made.path]
    made.release()


def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(os.strerror(95))

    monkeypatch.setattr(part, "flock", refuse)
    one, two = Part(tmp_path / "out.mp4"), Part(tmp_path / "out.mp4")
    assert {one.path, two.path} == set(tmp_path.iterdir())
    one.release()
    two.release()
