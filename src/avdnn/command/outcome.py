"""What becomes of a command: an exit code, one line for an error, lines for notes."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress

import typer

from ..errors import AvdnnError
from ..interrupt import Terminated, signals_raise
from ..notes import NOTE

_log = logging.getLogger("avdnn")


class _Notes(logging.Handler):
    """Lines on what is standard error at the time, which a progress bar may have taken over."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # a full log is no reason to lose a job
            print(f"avdnn: {record.getMessage()}", file=sys.stderr, flush=True)


def exit_code(app: typer.Typer, argv: list[str]) -> int:
    """Run the command that `argv` names, and return its exit code."""
    with _standard_streams():
        return _told(app, argv)


def _told(app: typer.Typer, argv: list[str]) -> int:
    notes = _Notes()
    _log.addHandler(notes)
    _log.setLevel(NOTE)
    try:
        with signals_raise():
            return _run(app, argv)
    except KeyboardInterrupt:
        return _say("interrupted", 130)
    except Terminated:
        return _say("terminated", 143)
    finally:
        _log.removeHandler(notes)
        _log.setLevel(logging.NOTSET)


@contextmanager
def _standard_streams() -> Iterator[None]:
    """Put the null device where the caller closed a stream, lest a file take its number."""
    with ExitStack() as opened:
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            if getattr(sys, name) is None:
                setattr(sys, name, opened.enter_context(open(os.devnull, mode)))
                opened.callback(setattr, sys, name, None)
        yield


def _run(app: typer.Typer, argv: list[str]) -> int:
    try:
        if not argv:
            with redirect_stdout(sys.stderr):
                app(["--help"], prog_name="avdnn", standalone_mode=False)
            return 2
        code = app(argv, prog_name="avdnn", standalone_mode=False)
        sys.stdout.flush()
    except AvdnnError as error:
        return _failed(error, str(error), error.exit_code)
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except BrokenPipeError:
        # Whoever read our output has gone; Python would complain once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _failed(error, str(error), 1)
    except Exception as error:
        usage = getattr(error, "format_message", None)
        if usage is not None:
            command = getattr(getattr(error, "ctx", None), "command_path", "avdnn")
            return _failed(error, f"{usage().rstrip('.')} (see {command} --help)", 2)
        return _failed(error, f"{type(error).__name__}: {error} (--debug shows where)", 1)
    if code == 130:  # Typer has swallowed the KeyboardInterrupt
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _failed(error: Exception, message: str, code: int) -> int:
    if _log.isEnabledFor(logging.DEBUG):
        traceback.print_exception(error)
    return _say(f"error: {message}", code)


def _say(message: str, code: int) -> int:
    print(f"avdnn: {message}", file=sys.stderr)
    return code
