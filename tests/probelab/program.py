"""A program under test: started as `bottletop run` starts it, stopped by closing its input."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bottletop.launch import with_probe
from bottletop.linux import procfs
from bottletop.linux.probe_memory import ProbeReading, StageTotals, combined, probes_of
from bottletop.model import ProcessId
from bottletop.roots import Roots

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from probelab.interpreters import Interpreter

WITHIN_S = 60.0
PREAMBLE = """\
import os, sys, threading, time
from bottletop.probe import stage
def say(*words):
    print(*words, flush=True)
def hold():
    say("ready")
    sys.stdin.read()
"""


class Program:
    """Python source run by an interpreter. It calls `hold()` where the test shall look at it."""

    def __init__(
        self,
        interpreter: Interpreter,
        source: str,
        folder: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        script = folder / "program.py"
        script.write_text(PREAMBLE + source)
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "BOTTLETOP", "COV"))
        }
        self._child = subprocess.Popen(
            [interpreter.path, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=with_probe({**clean, **(env or {})}),
            cwd=folder,
            start_new_session=True,
        )
        self.pid = self._child.pid
        self._said = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # With all that it started: a child that is left would hold its pipes open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._child.communicate()

    def line(self) -> str:
        """The next line that it prints; fails with what it wrote to stderr when it does not."""
        assert self._child.stdout is not None
        fd = self._child.stdout.fileno()
        while b"\n" not in self._said:
            ready, _, _ = select.select([fd], [], [], WITHIN_S)
            more = os.read(fd, 65536) if ready else b""
            if not more:
                os.killpg(self.pid, signal.SIGKILL)
                _, errors = self._child.communicate()
                raise AssertionError(f"the program said nothing more: {errors.decode()}")
            self._said += more
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def until_ready(self) -> list[str]:
        """Lines up to where it holds."""
        lines = []
        while (line := self.line()) != "ready":
            lines.append(line)
        return lines

    def go_on(self) -> None:
        """Let it go on from where it holds."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.stdin = None

    def finish(self, *, errors: str = "") -> list[str]:
        """Let it go on to its end, which must be a good one, and return the lines it still said.

        Whatever it wrote to stderr must be `errors`: the probe says nothing.
        """
        out, err = self._child.communicate(timeout=WITHIN_S)
        assert err.decode() == errors
        assert self._child.returncode == 0
        return (self._said + out).decode().splitlines()

    def readings(self, pid: int | None = None) -> list[ProbeReading]:
        """What the probes of the program (or of a child of it) say now."""
        roots = Roots()
        process = identify(pid or self.pid)
        with contextlib.ExitStack() as stack:
            probes = [
                stack.enter_context(contextlib.closing(probe))
                for probe in probes_of(roots, process)
            ]
            return [probe.read(time.monotonic_ns()) for probe in probes]

    def stages(self, pid: int | None = None) -> dict[str, StageTotals]:
        """Totals by stage name; every reading must be possible and free of errors."""
        readings = self.readings(pid)
        assert readings, "no probe was found"
        for reading in readings:
            assert (reading.rejected, reading.errors, reading.on) == (0, 0, True)
        return {one.name: one for one in combined(readings)}

    def memfd(self) -> Path:
        """Path of its probe's memory under /proc."""
        folder = Path(f"/proc/{self.pid}/fd")
        (found,) = [fd for fd in folder.iterdir() if "bottletop-probe" in os.readlink(fd)]
        return found


def identify(pid: int) -> ProcessId:
    """A live process by pid and start time."""
    return ProcessId(pid, procfs.read_stat(Roots(), pid).start_ticks)
