"""A terminal that goes away is noticed, and an exit cannot be held up."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from bottletop import lifecycle

if TYPE_CHECKING:
    import pytest


def test_a_terminal_that_closes_is_noticed_once() -> None:
    master, slave = pty.openpty()
    called = threading.Event()
    calls: list[int] = []
    lifecycle.watch_hangup(slave, lambda: (calls.append(1), called.set()))
    assert not called.is_set()
    os.close(master)
    assert called.wait(5)
    assert calls == [1]
    os.close(slave)


def test_a_stopped_watch_stays_silent() -> None:
    master, slave = pty.openpty()
    calls: list[int] = []
    watch = lifecycle.watch_hangup(slave, lambda: calls.append(1))
    watch.stop()
    os.close(master)
    watch._thread.join(5)
    assert calls == []
    os.close(slave)


STUCK = """
import sys, threading
from bottletop.lifecycle import exit_deadline
exit_deadline(0.05, 129, lambda: (sys.stdout.write("closed"), sys.stdout.flush()))
threading.Event().wait()
"""


def test_the_deadline_ends_a_program_that_is_stuck_after_its_last_words() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (129, b"closed")


def test_last_words_that_never_end_do_not_hold_the_exit_up() -> None:
    stuck = STUCK.replace(
        'lambda: (sys.stdout.write("closed"), sys.stdout.flush())', "threading.Event().wait"
    )
    done = subprocess.run([sys.executable, "-c", stuck], capture_output=True, timeout=30)
    assert done.returncode == 129


def test_a_cancelled_deadline_lets_the_program_end_by_itself() -> None:
    source = (
        "from bottletop.lifecycle import exit_deadline\n"
        "deadline = exit_deadline(0.05, 129)\n"
        "deadline.cancel()\n"
        "deadline._thread.join()\n"
    )
    assert subprocess.run([sys.executable, "-c", source], timeout=30).returncode == 0


def test_no_screen_without_a_terminal_and_the_reason_names_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert lifecycle.no_terminal_reason({"TERM": "xterm"}) == "standard input is not a terminal"


def test_no_screen_on_a_dumb_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "r+b", buffering=0) as raw:
        stream = io.TextIOWrapper(raw)
        monkeypatch.setattr(sys, "stdin", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        dumb = lifecycle.no_terminal_reason({"TERM": "dumb"})
        unset = lifecycle.no_terminal_reason({})
        fine = lifecycle.no_terminal_reason({"TERM": "xterm-256color"})
        monkeypatch.undo()
        stream.detach()
    os.close(master)
    assert fine is None
    assert "TERM=dumb" in str(dumb)
    assert "TERM=dumb" in str(unset)
