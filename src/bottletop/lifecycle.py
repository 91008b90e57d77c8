"""How a program on a terminal ends well: hang-ups noticed, exits that cannot be held up.

Nothing here knows a screen library. Measured reasons: a terminal that goes away without SIGHUP
(ignored by nohup and some su and container paths) leaves a screen program wedged at 30-80 % of a
core, and a driver or terminal call that never returns holds a normal exit back for as long.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HANGUP_CODE = 129
"""128 + SIGHUP, as a shell reports it."""
TERMINATED_CODE = 143
"""128 + SIGTERM."""

_POLL_S = 1.0
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL
_LAST_WORDS_S = 1.0


def no_terminal_reason(environ: Mapping[str, str] | None = None) -> str | None:
    """Say why a full screen cannot be shown here, or None where it can.

    The screen is written to stderr and keys are read from stdin; stdout may be redirected.
    """
    environ = os.environ if environ is None else environ
    for stream, name in ((sys.stdin, "standard input"), (sys.stderr, "standard error")):
        if not _is_tty(stream):
            return f"{name} is not a terminal"
    if environ.get("TERM", "") in ("dumb", ""):
        return "this terminal cannot draw a screen (TERM=dumb or unset)"
    return None


def _is_tty(stream: object) -> bool:
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        # None under pythonw or a closed stream: neither is a terminal.
        return False


def has_job_control() -> bool:
    """Whether a shell waits that can continue us once stopped: our parent, in our session, with a
    process group of its own. Without one (`ssh -t host bottletop`) nobody could.
    """
    try:
        parent = os.getppid()
        same_session = os.getsid(parent) == os.getsid(0)
        return same_session and os.getpgid(parent) != os.getpgrp()
    except OSError:
        return False


class HangupWatch:
    """Watches a terminal for its end in a daemon thread and calls back once."""

    def __init__(self, fd: int, on_hangup: Callable[[], None]) -> None:
        self._fd = fd
        self._on_hangup = on_hangup
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bottletop-hangup", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        poller = select.poll()
        # No events asked for: POLLHUP and POLLERR are reported always, and input stays with the
        # screen's own reader.
        poller.register(self._fd, 0)
        while not self._stopped.is_set():
            try:
                events = poller.poll(_POLL_S * 1000)
            except OSError:
                return
            if any(event & _GONE for _, event in events):
                if not self._stopped.is_set():
                    self._on_hangup()
                return

    def stop(self) -> None:
        """Stop watching; a call back under way is not waited for."""
        self._stopped.set()


def watch_hangup(fd: int, on_hangup: Callable[[], None]) -> HangupWatch:
    """Call `on_hangup` once, from another thread, when the terminal behind `fd` goes away."""
    return HangupWatch(fd, on_hangup)


class ExitDeadline:
    """Ends the process for good unless cancelled in time."""

    def __init__(
        self, seconds: float, code: int, last_words: Callable[[], None] | None = None
    ) -> None:
        self._seconds = seconds
        self._code = code
        self._last_words = last_words
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bottletop-exit", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        if self._cancelled.wait(self._seconds):
            return
        if self._last_words is not None:
            # In a thread of its own, as whatever wedged the exit may wedge this too.
            speaker = threading.Thread(target=self._speak, daemon=True)
            speaker.start()
            speaker.join(_LAST_WORDS_S)
        if not self._cancelled.is_set():
            os._exit(self._code)

    def _speak(self) -> None:
        assert self._last_words is not None
        with contextlib.suppress(OSError):
            self._last_words()

    def cancel(self) -> None:
        """The exit went well: call it off."""
        self._cancelled.set()


def exit_deadline(
    seconds: float, code: int, last_words: Callable[[], None] | None = None
) -> ExitDeadline:
    """End the process with `code` after `seconds`, whatever is stuck, unless `cancel` is called.

    `last_words` runs just before, such as closing a recording; it gets one second.
    """
    return ExitDeadline(seconds, code, last_words)
