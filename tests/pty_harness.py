"""A terminal for tests: starts a real program on a pty, shows its screen, types, hangs up.

Nothing here waits for time to pass: every wait is for something to appear on the screen or for the
program to end, bounded by `PATIENCE_S`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING

import pyte

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

PATIENCE_S = 30.0
"""How long anything may take before a test fails; far beyond what it takes."""

KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "ctrl+c": "\x03",
    "ctrl+z": "\x1a",
}

_QUERIES = {
    b"\x1b[?2026$p": b"\x1b[?2026;2$y",
    b"\x1b[?2048$p": b"\x1b[?2048;0$y",
    b"\x1b[c": b"\x1b[?62;22c",
    b"\x1b[6n": b"\x1b[1;1R",
}
"""What a program asks of its terminal, and what a modern one answers."""

# pyte would print parts of these: mode queries, keyboard protocol, XTVERSION.
_FOREIGN = re.compile(rb"\x1b\[\?[\d;]*\$p|\x1b\[[<>=?][\d;]*[uqcm]|\x1b\[>[\d;]*[a-zA-Z]")
_MODE = re.compile(rb"\x1b\[\?([\d;]+)([hl])")


class PtyProgram:
    """A program on a terminal of its own. Use as a context manager; it never outlives the block."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        size: tuple[int, int] = (80, 24),
        env: Mapping[str, str] | None = None,
        controlling: bool = True,
        cwd: Path | None = None,
    ) -> None:
        """Start `argv` in `cwd`. Without a controlling terminal a hang-up sends it no SIGHUP."""
        self.width, self.height = size
        self.raw = b""
        self._screen = pyte.Screen(self.width, self.height)
        self._stream = pyte.ByteStream(self._screen)
        self._pending = b""
        self._answered = 0
        self.master, slave = os.openpty()
        self._set_size(*size)
        self.settings_before = termios.tcgetattr(self.master)
        environ = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "TZ": "UTC",
            **(env or {}),
        }
        for name in ("NO_COLOR", "COLUMNS", "LINES"):
            if name not in (env or {}):
                environ.pop(name, None)
        self.process = subprocess.Popen(
            argv,
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environ,
            start_new_session=True,
            preexec_fn=_take_terminal if controlling else None,
        )
        os.close(slave)

    def __enter__(self) -> PtyProgram:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        self._close()

    # -- what is seen -----------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The screen as of the last read, trailing blanks left out."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def wait_for(self, what: str | Callable[[str], bool]) -> str:
        """Read until the screen contains a text or fulfils a condition, and return it."""
        holds = what if callable(what) else (lambda text: what in text)
        end = time.monotonic() + PATIENCE_S
        while not holds(self.text):
            if time.monotonic() > end or not self._read(0.2):
                raise AssertionError(f"{what!r} never appeared; the screen is:\n{self.text}")
        return self.text

    def modes_left(self) -> set[int]:
        """Private modes that the program switched on and did not switch off."""
        on: set[int] = set()
        for numbers, switch in _MODE.findall(self.raw):
            for number in map(int, numbers.split(b";")):
                (on.add if switch == b"h" else on.discard)(number)
        return on

    def is_restored(self) -> bool:
        """Main screen, cursor shown, no reports switched on, line settings as before."""
        hidden = self.raw.rfind(b"\x1b[?25l") > self.raw.rfind(b"\x1b[?25h")
        odd = self.modes_left() - {7, 25}
        return not odd and not hidden and termios.tcgetattr(self.master) == self.settings_before

    # -- what is done -----------------------------------------------------------------------

    def press(self, *keys: str) -> None:
        """Type keys: names of `KEYS`, everything else as it is."""
        for key in keys:
            os.write(self.master, KEYS.get(key, key).encode())

    def resize(self, width: int, height: int) -> None:
        """Change the size of the terminal."""
        self.width, self.height = width, height
        self._screen.resize(height, width)
        self._set_size(width, height)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program."""
        self.process.send_signal(number)

    def hang_up(self) -> None:
        """The line drops: the terminal is gone."""
        self._close()

    def stall(self) -> None:
        """Stop reading, as a stuck line does, until the program can write no more.

        Each new size makes a full repaint: they fill the pty, then the program's own queue.
        """
        for step in range(60):
            self.resize(100 + step % 50, 30 + step % 20)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.06)

    def wait(self) -> int:
        """Read until the program ends, and return its exit code."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise AssertionError(f"it does not end; the screen is:\n{self.text}")
            self._read(0.05)
        while self._read(0):
            pass
        return self.process.returncode

    # -- the terminal's side ----------------------------------------------------------------

    def _read(self, timeout_s: float) -> bool:
        """Take in output. False when the other side is gone."""
        if self.master < 0:
            time.sleep(timeout_s)
            return self.process.poll() is None
        ready, _, _ = select.select([self.master], [], [], timeout_s)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:
            return False
        self.raw += data
        self._answer()
        self._stream.feed(self._whole(data))
        return bool(data)

    def _whole(self, data: bytes) -> bytes:
        """Output up to the last whole escape sequence, without what pyte does not know."""
        data = self._pending + data
        start = data.rfind(b"\x1b")
        cut = (
            start
            if start >= 0 and not re.match(rb"\x1b(\[[^@-~]*[@-~]|[^\[])", data[start:])
            else len(data)
        )
        self._pending = data[cut:]
        return _FOREIGN.sub(b"", data[:cut])

    def _answer(self) -> None:
        for query, answer in _QUERIES.items():
            count = self.raw.count(query, max(0, self._answered - len(query)))
            for _ in range(count):
                with contextlib.suppress(OSError):
                    os.write(self.master, answer)
        self._answered = len(self.raw)

    def _set_size(self, width: int, height: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def _close(self) -> None:
        if self.master >= 0:
            os.close(self.master)
            self.master = -1


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
