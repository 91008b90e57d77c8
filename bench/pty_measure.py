"""Runs a terminal program under a pty and measures CPU, memory, bytes, first frame, key latency.

CPU is user + system of every process in the child's session, from /proc; memory is the sum of their
resident pages. The pty is drained all the time, so the program never waits for the terminal. The
screen is emulated after the run, so that emulation does not disturb the timing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import statistics
import struct
import termios
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SYNC_QUERY = b"\x1b[?2026$p"
SYNC_ANSWER = b"\x1b[?2026;2$y"


@dataclass
class Measured:
    """What one run gave. Times in seconds from exec."""

    cpu_ms_per_s: float = 0.0
    rss_mib: float = 0.0
    bytes_per_s: float = 0.0
    first_byte_s: float | None = None
    first_match_s: float | None = None
    key_ms: list[float] = field(default_factory=list)
    exit_code: int | None = None
    screen: str = ""

    @property
    def key_p90_ms(self) -> float | None:
        """90th percentile of the time from a key to the next output byte."""
        return statistics.quantiles(self.key_ms, n=10)[-1] if len(self.key_ms) > 1 else None


def session_processes(session: int) -> Iterator[tuple[str, list[str]]]:
    """Pid and the fields of /proc/PID/stat from the state on, of each live process of a session."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                yield entry, fields


def session_cpu_s(session: int) -> float:
    """CPU seconds of a session: schedstat of live threads, ticks of the children they reaped."""
    total = 0.0
    for pid, fields in session_processes(session):
        total += (int(fields[13]) + int(fields[14])) * TICK_S
        with contextlib.suppress(OSError, IndexError):
            for task in os.listdir(f"/proc/{pid}/task"):
                stat = Path(f"/proc/{pid}/task/{task}/schedstat").read_text()
                total += int(stat.split()[0]) / 1e9
    return total


def session_rss_mib(session: int) -> float:
    """Resident memory of all live processes of a session."""
    pages = 0
    for pid, _ in session_processes(session):
        with contextlib.suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(
    command: list[str],
    *,
    size: tuple[int, int] = (200, 50),
    run_s: float = 30,
    warm_s: float = 6,
    expect: str | None = None,
    keys: list[tuple[float, bytes]] | None = None,
    env: dict[str, str] | None = None,
) -> Measured:
    """Run `command` for `run_s` seconds, then ask it to end with SIGTERM.

    CPU and bytes count from `warm_s` on. `expect` is a pattern looked for on the emulated screen.
    """
    import pyte

    columns, lines = size
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm-256color", "COLORTERM": "truecolor", **(env or {})})
        os.execvp(command[0], command)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    began = time.monotonic()
    chunks: list[tuple[float, bytes]] = []
    pending = sorted(keys or [])
    pressed_at: float | None = None
    out = Measured()
    cpu0: float | None = None
    while (now := time.monotonic() - began) < run_s:
        if cpu0 is None and now >= warm_s:
            cpu0, warm_at = session_cpu_s(pid), now
        if pending and now >= pending[0][0]:
            os.write(master, pending.pop(0)[1])
            pressed_at = time.monotonic()
        wait = min(0.05, max(0.0, pending[0][0] - now)) if pending else 0.05
        if not select.select([master], [], [], wait)[0]:
            continue
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        at = time.monotonic()
        if SYNC_QUERY in data:
            os.write(master, SYNC_ANSWER)
        chunks.append((at - began, data))
        if pressed_at is not None:
            out.key_ms.append((at - pressed_at) * 1000)
            pressed_at = None
    ended = time.monotonic() - began
    if cpu0 is not None:
        out.cpu_ms_per_s = (session_cpu_s(pid) - cpu0) * 1000 / (ended - warm_at)
        sent = sum(len(data) for at, data in chunks if at >= warm_at)
        out.bytes_per_s = sent / (ended - warm_at)
    out.rss_mib = session_rss_mib(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    out.exit_code = _reap(pid, master)
    screen = pyte.Screen(columns, lines)
    stream = pyte.ByteStream(screen)
    pattern = re.compile(expect) if expect else None
    for at, data in chunks:
        out.first_byte_s = at if out.first_byte_s is None else out.first_byte_s
        stream.feed(data)
        if pattern and out.first_match_s is None and pattern.search("\n".join(screen.display)):
            out.first_match_s = at
    out.screen = "\n".join(line.rstrip() for line in screen.display)
    return out


def _reap(pid: int, master: int) -> int | None:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if select.select([master], [], [], 0.05)[0]:
                os.read(master, 65536)
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            os.close(master)
            return os.waitstatus_to_exitcode(status)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(master)
    return None
