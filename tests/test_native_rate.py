"""-re and -readrate hold frames back until it is their time."""

from __future__ import annotations

from pathlib import Path

import pytest

from avdnn import pipeline
from avdnn.errors import MediaError
from avdnn.frame import Frame
from avdnn.job import InputSpec, Job, OutputSpec
from avdnn.media.reader import Reader
from avdnn.native_rate import at_native_rate

from .clips import clip, times


class Clock:
    """Time that passes in waits, and `work` seconds between one look at it and the next."""

    def __init__(self, work: float = 0.0, stops_at: float = 1e9) -> None:
        self.time, self._work, self._stops_at = 100.0, work, stops_at
        self.waits: list[float] = []

    def now(self) -> float:
        self.time += self._work
        return self.time

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.time += seconds
        return self.time - 100.0 >= self._stops_at


def _frames(path: Path, speed: float, clock: Clock) -> list[Frame]:
    with Reader(InputSpec(str(path), offset=50.0)) as reader:
        paced = at_native_rate(iter(reader), speed, clock.wait, clock.now)
        return [item for item in paced if isinstance(item, Frame)]


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_frames_wait_for_their_time(tmp_path: Path, speed: float) -> None:
    clock = Clock()
    frames = _frames(clip(tmp_path / "a.mkv", frames=5, audio=[0.0]), speed, clock)
    assert len(frames) == 5
    assert clock.waits == pytest.approx([0.04 / speed] * 4)


def test_a_job_that_is_slower_waits_for_nothing(tmp_path: Path) -> None:
    clock = Clock(work=0.1)
    assert len(_frames(clip(tmp_path / "a.mkv", frames=5), 1.0, clock)) == 5
    assert clock.waits == []


def test_a_wait_that_is_broken_off_ends_the_reading(tmp_path: Path) -> None:
    clock = Clock(stops_at=0.07)
    assert len(_frames(clip(tmp_path / "a.mkv", frames=5), 1.0, clock)) == 2


def test_a_job_that_fails_waits_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken_off = []

    def paced(items, speed, wait):  # type: ignore[no-untyped-def]
        try:
            yield from items
        finally:
            broken_off.append(wait(0))

    def fail(*_: object) -> None:
        raise MediaError("full")

    monkeypatch.setattr(pipeline, "at_native_rate", paced)
    monkeypatch.setattr(pipeline.Writer, "write", fail)
    source = InputSpec(str(clip(tmp_path / "a.mkv", frames=50)), speed=1.0)
    with pytest.raises(MediaError, match="full"):
        pipeline.run(Job(source, OutputSpec(str(tmp_path / "b.mkv")), vf="hflip"))
    assert broken_off == [True]


def test_a_job_reads_at_the_rate_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, speeds = Clock(), []

    def paced(items, speed, wait):  # type: ignore[no-untyped-def]
        speeds.append(speed)
        return at_native_rate(items, speed, clock.wait, clock.now)

    monkeypatch.setattr(pipeline, "at_native_rate", paced)
    source = clip(tmp_path / "a.mkv", frames=5)
    for speed in (2.0, None):
        output = OutputSpec(str(tmp_path / "b.mkv"), codec="ffv1", overwrite=True)
        pipeline.run(Job(InputSpec(str(source), speed=speed), output, vf="hflip"))
        assert len(times(tmp_path / "b.mkv")) == 5
    assert speeds == [2.0]
    assert clock.waits == pytest.approx([0.02] * 4)
