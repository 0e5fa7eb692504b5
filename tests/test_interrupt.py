"""Signals: raised once, kept away from clean-ups, and at last obeyed at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from avdnn.interrupt import ShieldedStack, Terminated, shielded, signals_raise

from .test_cli import ENV


def _send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_the_first_signal_raises_and_the_next_does_not(
    number: signal.Signals, kind: type[BaseException]
) -> None:
    before = signal.getsignal(number)
    with signals_raise():
        with pytest.raises(kind):
            _send(number)
        _send(signal.SIGINT)
        _send(signal.SIGTERM)
    assert signal.getsignal(number) is before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals_raise():
            _send(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_shield_defers_to_its_end() -> None:
    done = []

    def work() -> None:
        with shielded():
            _send(signal.SIGTERM)
            done.append("inside")
        done.append("after")

    with signals_raise(), pytest.raises(Terminated):
        work()
    assert done == ["inside"]


def test_a_shield_works_with_the_usual_handler_too() -> None:
    done = []

    def work() -> None:
        with shielded():
            _send(signal.SIGINT)
            done.append("inside")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inside"]


def test_a_shield_on_another_thread_changes_nothing() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with shielded():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_an_error_within_a_shield_passes() -> None:
    with signals_raise(), pytest.raises(ValueError, match="wrong"), shielded():
        raise ValueError("wrong")


@contextmanager
def _closing(done: list[str], name: str, *, entering: bool = False) -> Iterator[str]:
    if entering:
        _send(signal.SIGTERM)
    try:
        yield name
    finally:
        _send(signal.SIGTERM)
        done.append(name)


def test_a_stack_leaves_all_of_its_contexts() -> None:
    done: list[str] = []

    def work() -> None:
        with ShieldedStack() as opened:
            opened.enter_context(_closing(done, "first"))
            opened.enter_context(_closing(done, "second"))

    with signals_raise(), pytest.raises(Terminated):
        work()
    assert done == ["second", "first"]


def test_a_context_entered_during_a_signal_is_left() -> None:
    done: list[str] = []

    def work() -> None:
        with ShieldedStack() as opened:
            opened.enter_shielded(_closing(done, "thread", entering=True))
            done.append("never")

    with signals_raise(), pytest.raises(Terminated):
        work()
    assert done == ["thread"]


IMPATIENT = """
import os, signal, time
from avdnn.interrupt import signals_raise, shielded, Terminated
with signals_raise():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except Terminated:
        with shielded():
            time.sleep(1.1)
            os.kill(os.getpid(), signal.SIGINT)
            print("still here")
"""


def test_a_clean_up_that_takes_too_long_can_be_ended() -> None:
    command = [sys.executable, "-c", IMPATIENT]
    done = subprocess.run(command, capture_output=True, text=True, env=ENV, timeout=60)
    assert (done.returncode, done.stdout) == (130, "")
