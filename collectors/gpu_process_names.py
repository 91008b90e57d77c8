"""Names for the PIDs that the driver gives.

They are numbers of the host's PID namespace. In a container with PIDs of its own the same number is
another process, or none, unless the host's /proc is what is read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from bottletop.linux.procfs import read_stat, status_field
from bottletop.model import Absent, State, Value
from bottletop.roots import read_bytes, read_record
from bottletop.text import clean

if TYPE_CHECKING:
    from bottletop.roots import Roots

FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of the kernel's include/linux/proc_ns.h."""
KTHREADD = 2
"""Parent of the kernel's threads; only the first PID namespace has it."""
MAX_KNOWN = 4096

_ELSEWHERE = Absent.unsupported(
    "the driver gives the host's PIDs and this container has its own: run with the host's"
    " (docker run --pid=host) to name processes"
)
_GONE = Absent(State.LOST, "it has ended since the driver listed it")
_HIDDEN = Absent.denied("/proc hides other users' processes (hidepid): run as root to name it")
_TORN = Absent.error("/proc gives no whole line for it")
_NO_NAMESPACE_PID = Absent.unsupported("this kernel does not tell it")


class Named(NamedTuple):
    """What /proc says of one PID of the driver."""

    pid: Value
    """The PID, where it is a number of the /proc that is read; else why not, and `raw`."""
    name: Value
    namespace_pid: Value
    """Its PID in the innermost PID namespace that it is in (NSpid of /proc/PID/status)."""


class ProcessNames:
    """Names processes; what does not change of a process is read once."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._elsewhere: bool | None = None
        self._known: dict[tuple[int, int], Value] = {}
        """`namespace_pid` by PID and start time, so that a number used again is read anew."""

    def name(self, pid: int) -> Named:
        """What is known of a PID. Never raises: a process may end at any moment."""
        if self._elsewhere is None:
            self._elsewhere = not has_host_pids(self._roots)
        if self._elsewhere:
            absent = Absent(_ELSEWHERE.state, _ELSEWHERE.reason, pid)
            return Named(absent, _ELSEWHERE, _ELSEWHERE)
        try:
            stat = read_stat(self._roots, pid)
            key = pid, stat.start_ticks
            inner = self._known.get(key)
            if inner is None:
                inner = self._namespace_pid(pid)
                if len(self._known) >= MAX_KNOWN:
                    self._known.clear()
                self._known[key] = inner
        except (FileNotFoundError, ProcessLookupError):
            why = self._why_not_there()
            return Named(pid, why, why)
        except PermissionError:
            return Named(pid, _HIDDEN, _HIDDEN)
        except (OSError, ValueError):
            return Named(pid, _TORN, _TORN)
        return Named(pid, clean(stat.comm), inner)

    def _namespace_pid(self, pid: int) -> Value:
        """Raises OSError."""
        raw = read_record(f"{self._roots.proc}/{pid}/status")
        numbers = (status_field(raw, b"NSpid") or b"").split()
        return int(numbers[-1]) if numbers and numbers[-1].isdigit() else _NO_NAMESPACE_PID

    def _why_not_there(self) -> Absent:
        """With hidepid=2 other users' processes are not there at all; init never ends."""
        return _GONE if os.path.exists(f"{self._roots.proc}/1") else _HIDDEN


def has_host_pids(roots: Roots) -> bool:
    """Whether `roots.proc` numbers processes as the host, and so the driver, does.

    Our own namespace tells, or the kernel's threads in a host's /proc that was mounted into a
    container. A captured tree without either is taken to be the host's.
    """
    try:
        own = os.readlink(f"{roots.proc}/self/ns/pid")
    except OSError:
        return True
    if own == FIRST_PID_NAMESPACE:
        return True
    try:
        return read_bytes(f"{roots.proc}/{KTHREADD}/comm", 64).strip() == b"kthreadd"
    except OSError:
        return False
