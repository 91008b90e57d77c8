"""Runs py-spy on one process for a second, without ever pausing it.

`py-spy record --nonblocking` only reads memory (process_vm_readv). It is started anew for each
second, since it prints nothing before its end; a few percent of the time are lost in between. It
runs in a session of its own, so that no Ctrl-C or Ctrl-Z at our terminal reaches it, and it ends by
itself. Blocking mode, which stops the target up to 22 ms a sample, is never used.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from bottletop.text import clean

if TYPE_CHECKING:
    from bottletop.clock import Clock

MAX_PRINTED_BYTES = 4 * 1024 * 1024
MAX_ERROR_BYTES = 8192
LATE_S = 3.0
"""After so long a run of one second is given up."""


class Window(NamedTuple):
    """What one run gave."""

    pid: int
    printed: str
    """Stacks in py-spy's raw format; empty where it failed."""
    error: str
    """Its own words, where it failed."""
    began_ns: int
    ended_ns: int
    cpu_s: float
    """CPU time of the sampler itself."""


def find_pyspy() -> str | None:
    """Path of the py-spy program: beside our own interpreter, else on the PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


class PySpy:
    """One run. `done` is asked until it gives the window; nothing waits for a run that hangs."""

    def __init__(self, clock: Clock, program: str, pid: int, rate_hz: int) -> None:
        self._clock = clock
        self._pid = pid
        self._began_ns = clock.monotonic_ns()
        self._printed, output = _pipe()
        self._said, errors = _pipe()
        self._stacks, self._errors = bytearray(), bytearray()
        command = [program, "record", "--pid", str(pid), "--rate", str(rate_hz)]
        command += ["--duration", "1", "--format", "raw", "--nonblocking", "--idle", "--threads"]
        command += ["--function", "--full-filenames", "--output", f"/dev/fd/{output}"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(output,),
                start_new_session=True,
                close_fds=True,
            )
        except OSError:
            os.close(self._printed)
            os.close(self._said)
            raise
        finally:
            os.close(output)
            os.close(errors)

    def done(self) -> Window | None:
        """The window once the run has ended; None while it goes on."""
        self._drain()
        waited, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        now_ns = self._clock.monotonic_ns()
        if waited == 0:
            if now_ns - self._began_ns < LATE_S * 1e9:
                return None
            os.kill(self._process.pid, signal.SIGKILL)
            _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._drain()
        os.close(self._printed)
        os.close(self._said)
        failed = self._process.returncode != 0 or not self._stacks
        return Window(
            pid=self._pid,
            printed="" if failed else self._stacks.decode("utf-8", "replace"),
            error=_last_words(self._errors.decode("utf-8", "replace")) if failed else "",
            began_ns=self._began_ns,
            ended_ns=now_ns,
            cpu_s=usage.ru_utime + usage.ru_stime,
        )

    def end(self) -> None:
        """End the run now. Only the sampler is signalled, never the target."""
        if self._process.returncode is None:
            # Not `Popen.kill`, which waits for the process itself where it has ended.
            os.kill(self._process.pid, signal.SIGKILL)
            _, status, _ = os.wait4(self._process.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
            os.close(self._printed)
            os.close(self._said)

    def _drain(self) -> None:
        for fd, into, limit in (
            (self._printed, self._stacks, MAX_PRINTED_BYTES),
            (self._said, self._errors, MAX_ERROR_BYTES),
        ):
            while True:
                try:
                    part = os.read(fd, 65536)
                except BlockingIOError:
                    break
                if not part:
                    break
                into += part[: max(0, limit - len(into))]


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    return read, write


def _last_words(said: str) -> str:
    """What py-spy says went wrong, without its backtrace."""
    lines = [clean(line, 160) for line in said.splitlines()]
    telling = [line for line in lines if line.startswith(("Error", "Reason", "Permission"))]
    return " ".join(telling or [line for line in lines if line][:1])[:300]
