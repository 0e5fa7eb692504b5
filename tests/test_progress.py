"""Progress: what is shown, how often, and what is known of the end."""

from __future__ import annotations

import errno
import io
import json

import pytest

from avdnn.progress import Bar, JsonLines, Lines, Progress, ProgressKind, clock_time, create


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _drive(progress: Progress, clock: Clock, *, frames: int, seconds: float, rate: float) -> None:
    """Frames at an even pace; the output's time goes at `rate` frames per second."""
    for number in range(1, frames + 1):
        clock.now += seconds / frames
        progress.update(number, number / rate)


def _events(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_tells_start_progress_and_end() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = JsonLines(stream, clock=clock)
    progress.start(128, 4.0)
    _drive(progress, clock, frames=128, seconds=2.0, rate=32.0)
    progress.finish()
    events = _events(stream)
    assert [event["event"] for event in events] == ["start", *["progress"] * 4, "end"]
    first, half, end = events[0], events[2], events[-1]
    assert (first["frames"], first["total_frames"], first["duration"]) == (0, 128, 4.0)
    assert (half["frames"], half["fraction"], half["fps"], half["eta"]) == (64, 0.5, 64.0, 1.0)
    assert (end["frames"], end["time"], end["elapsed"], end["eta"]) == (128, 4.0, 2.0, 0.0)


def test_frames_that_come_with_the_end_are_counted() -> None:
    stream = io.StringIO()
    lines = Lines(stream, clock=Clock())
    lines.start(3, None)
    lines.update(2, 0.04)
    lines.finish(3)
    assert stream.getvalue().startswith("3 frames in")


def test_unknown_total_goes_by_time() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = JsonLines(stream, clock=clock)
    progress.start(None, 10.0)
    clock.now += 1
    progress.update(50, 2.5)
    event = _events(stream)[-1]
    assert (event["fraction"], event["eta"]) == (0.25, 3.0)


def test_nothing_known_is_no_error() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = JsonLines(stream, clock=clock)
    progress.start(None, None)
    clock.now += 1
    progress.update(30, None)
    progress.finish()
    event, end = _events(stream)[-2:]
    assert (event["fraction"], event["eta"], event["total_frames"]) == (None, None, None)
    assert (event["frames"], event["fps"]) == (30, 30.0)
    assert (end["fraction"], end["eta"]) == (1.0, 0.0)


def test_more_frames_than_promised_stay_at_the_end() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = JsonLines(stream, clock=clock)
    progress.start(10, None)
    clock.now += 1
    progress.update(12, None)
    event = _events(stream)[-1]
    assert (event["fraction"], event["eta"]) == (1.0, 0.0)


def test_fps_follows_the_last_seconds() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = JsonLines(stream, clock=clock)
    progress.start(10_000, None)
    clock.now += 60  # a first inference that compiles
    progress.update(1, None)
    for number in range(2, 1002):
        clock.now += 0.02
        progress.update(number, None)
    fps = _events(stream)[-1]["fps"]
    assert fps == pytest.approx(50, rel=0.02)


def test_lines_come_every_few_seconds() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = Lines(stream, clock=clock)
    progress.start(640, 20.0)
    _drive(progress, clock, frames=640, seconds=10.0, rate=32.0)
    progress.finish()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0] == "frame 320/640, 50 %, 64 fps, 0:05 left"
    assert lines[-1] == "640 frames in 10 s, 64 fps"


def test_lines_show_the_position_where_the_length_is_unknown() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = Lines(stream, clock=clock)
    progress.start(None, None)
    clock.now += 10
    progress.update(250, 75.0)
    assert stream.getvalue() == "frame 250 at 1:15, 25 fps\n"


def test_silence_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    progress = create(ProgressKind.NONE)
    progress.start(None, None)
    progress.update(1, 0.0)
    progress.finish()
    progress.close()
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_on_a_terminal_ends_with_a_line() -> None:
    stream, clock = Terminal(), Clock()
    progress = Bar(stream, clock=clock)
    progress.start(128, None)
    _drive(progress, clock, frames=128, seconds=4.0, rate=25.0)
    shown = stream.getvalue()
    progress.finish()
    progress.close()
    assert "64/128  32 fps  0:02 left" in shown
    assert stream.getvalue().endswith("128 frames in 4 s, 32 fps\n")


def test_bar_is_removed_when_a_job_fails() -> None:
    stream = Terminal()
    progress = Bar(stream)
    progress.start(None, None)
    progress.update(1, None)
    progress.close()
    assert "frames in" not in stream.getvalue()


def test_a_job_that_fails_before_its_start_leaves_nothing() -> None:
    stream = Terminal()
    Bar(stream).close()
    assert stream.getvalue() == ""


def test_auto_is_a_bar_only_on_a_terminal() -> None:
    assert isinstance(create(ProgressKind.AUTO, Terminal()), Bar)
    assert isinstance(create(ProgressKind.AUTO, io.StringIO()), Lines)
    assert isinstance(create(ProgressKind.PLAIN, Terminal()), Lines)
    assert isinstance(create(ProgressKind.JSON, Terminal()), JsonLines)


def test_clock_times() -> None:
    assert [clock_time(s) for s in (0.4, 59.6, 75, 7205)] == ["0:00", "1:00", "1:15", "2:00:05"]


class Full(io.StringIO):
    """A log on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_log_does_not_end_the_job() -> None:
    lines = Lines(Full())
    lines.start(2, None)
    lines.update(2)
    lines.finish()
