"""How far a job is: a bar on a terminal, lines in a log, JSON for machines.

The pipeline calls `start`, `update` and `finish` from its main thread, as often as it likes;
what is shown is thinned out here.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, TextIO

Clock = Callable[[], float]

_WINDOW = 10.0
"""Seconds over which the shown rate is taken: the start is slower than the rest."""


class ProgressKind(StrEnum):
    """What `--progress` takes; `auto` is a bar on a terminal and plain lines elsewhere."""

    AUTO = "auto"
    PLAIN = "plain"
    JSON = "json"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class State:
    """A moment of a job. `time` is the output's position; None marks what is not known.

    `fps` is that of the last seconds, or of the whole job once it is done.
    """

    frames: int
    total_frames: int | None
    time: float | None
    duration: float | None
    fraction: float | None
    fps: float
    eta: float | None
    elapsed: float


class Progress:
    """Keeps count and shows nothing; its heirs show."""

    every = float("inf")
    """Seconds between two things shown."""

    def __init__(self, *, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._began = self._shown = clock()
        self._recent: deque[tuple[float, int]] = deque()
        self._total: int | None = None
        self._duration: float | None = None
        self._frames = 0
        self._time: float | None = None

    def start(self, total_frames: int | None, duration: float | None) -> None:
        """The job begins; both may be unknown, and the frame count may be wrong."""
        self._total, self._duration = total_frames, duration
        self._began = self._shown = self._clock()
        self._recent.append((self._began, 0))
        self._show_start(self._state(self._began))

    def update(self, frames: int, time: float | None = None) -> None:
        """So many frames are out, and the output is `time` seconds long."""
        now = self._clock()
        self._frames, self._time = frames, time
        if not self._recent or now - self._recent[-1][0] >= 0.1:
            self._recent.append((now, frames))
        while len(self._recent) > 1 and self._recent[1][0] <= now - _WINDOW:
            self._recent.popleft()
        if now - self._shown >= self.every:
            self._shown = now
            self._show(self._state(now))

    def finish(self, frames: int | None = None) -> None:
        """The job is done, with so many frames if the last come with the end; not called if it
        failed."""
        if frames is not None:
            self._frames = frames
        state = self._state(self._clock(), whole=True)
        self._show_finish(state)

    def close(self) -> None:
        """Leave the terminal in order, whether or not the job came to its end."""

    def _state(self, now: float, *, whole: bool = False) -> State:
        """What is known now; `whole` says that the job is done."""
        since, before = self._recent[0] if self._recent and not whole else (self._began, 0)
        fps = (self._frames - before) / (now - since) if now > since else 0.0
        elapsed = now - self._began
        fraction = 1.0 if whole else self._fraction()
        return State(
            frames=self._frames,
            total_frames=self._total,
            time=self._time,
            duration=self._duration,
            fraction=fraction,
            fps=fps,
            eta=self._eta(fraction, fps, elapsed),
            elapsed=elapsed,
        )

    def _fraction(self) -> float | None:
        if self._total:
            return min(self._frames / self._total, 1.0)
        if self._duration and self._time is not None:
            return min(max(self._time / self._duration, 0.0), 1.0)
        return None

    def _eta(self, fraction: float | None, fps: float, elapsed: float) -> float | None:
        if not fraction:
            return None
        if fraction < 1 and self._total and fps:
            return (self._total - self._frames) / fps
        return elapsed / fraction - elapsed

    def _show_start(self, state: State) -> None:
        pass

    def _show(self, state: State) -> None:
        pass

    def _show_finish(self, state: State) -> None:
        self._show(state)


class Lines(Progress):
    """A line every few seconds."""

    every = 5.0

    def __init__(self, stream: TextIO, *, clock: Clock = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._stream = stream

    def _show(self, state: State) -> None:
        parts = [f"frame {_count(state)}"]
        if state.fraction is not None:
            parts.append(f"{100 * state.fraction:.0f} %")
        parts.append(f"{state.fps:.4g} fps")
        if state.eta is not None:
            parts.append(f"{clock_time(state.eta)} left")
        self._print(", ".join(parts))

    def _show_finish(self, state: State) -> None:
        self._print(_done(state))

    def _print(self, line: str) -> None:
        with suppress(OSError):  # a full log is no reason to lose a job
            print(line, file=self._stream, flush=True)


class JsonLines(Progress):
    """One JSON object a line: `event` is start, progress or end, the rest is a `State`."""

    every = 0.5

    def __init__(self, stream: TextIO, *, clock: Clock = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._stream = stream

    def _show_start(self, state: State) -> None:
        self._write("start", state)

    def _show(self, state: State) -> None:
        self._write("progress", state)

    def _show_finish(self, state: State) -> None:
        self._write("end", state)

    def _write(self, event: str, state: State) -> None:
        rounded = {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in asdict(state).items()
        }
        print(json.dumps({"event": event, **rounded}), file=self._stream, flush=True)


class Bar(Progress):
    """A bar that is drawn again in place."""

    every = 0.25

    def __init__(self, stream: TextIO, *, clock: Clock = time.monotonic) -> None:
        super().__init__(clock=clock)
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Display

        columns = (BarColumn(), TextColumn("{task.description}"))
        # Without auto_refresh rich starts no thread of its own.
        self._display = Display(
            *columns,
            console=Console(file=stream),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
        )
        self._task: Any = None
        self._stream = stream

    def _show_start(self, state: State) -> None:
        self._task = self._display.add_task("starting", total=None)
        self._display.start()
        self._display.refresh()

    def _show(self, state: State) -> None:
        parts = [_count(state), f"{state.fps:.4g} fps"]
        if state.eta is not None:
            parts.append(f"{clock_time(state.eta)} left")
        self._display.update(
            self._task,
            total=None if state.fraction is None else 1.0,
            completed=state.fraction or 0.0,
            description="  ".join(parts),
        )
        self._display.refresh()

    def _show_finish(self, state: State) -> None:
        self.close()
        print(_done(state), file=self._stream, flush=True)

    def close(self) -> None:
        self._display.stop()


def create(kind: ProgressKind, stream: TextIO | None = None) -> Progress:
    """The progress of that kind; JSON goes to standard output, all else to standard error."""
    if kind is ProgressKind.NONE:
        return Progress()
    if kind is ProgressKind.JSON:
        return JsonLines(stream or sys.stdout)
    stream = stream or sys.stderr
    if kind is ProgressKind.AUTO and stream.isatty():
        return Bar(stream)
    return Lines(stream)


def clock_time(seconds: float) -> str:
    """1:05 or 2:00:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _count(state: State) -> str:
    if state.total_frames:
        return f"{state.frames}/{state.total_frames}"
    if state.fraction is None and state.time is not None:
        return f"{state.frames} at {clock_time(state.time)}"
    return str(state.frames)


def _done(state: State) -> str:
    frames = "1 frame" if state.frames == 1 else f"{state.frames} frames"
    return f"{frames} in {state.elapsed:.3g} s, {state.fps:.4g} fps"
