"""The target's processes and threads, once a second. Fills `process` and `thread`.

What did not move is not read twice: a thread whose schedstat is unchanged has not run since, so
its ticks, faults and state are what they were. Most threads of an inference server sleep.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from bottletop.collectors.files import FileCollector
from bottletop.collectors.threads import ThreadReader
from bottletop.linux import procfs
from bottletop.linux.command import describe
from bottletop.linux.kept import KeptFiles, descriptor_allowance
from bottletop.linux.procfs import ProcStat, parse_stat
from bottletop.model import NOT_READ, Absent, Metric, ProcessId, Row, Table, Value
from bottletop.roots import read_record
from bottletop.tables.host import TICK_NS
from bottletop.tables.process import Process, Thread, state_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.model import Sample, Target, TargetProcess

DESCRIPTORS = 1024
"""Most descriptors kept open on files of the target."""
RETRY_EVERY = 10
"""Passes between new tries of what was denied, and between looks at the command line."""
KIB = 1024

_IO: tuple[tuple[Metric, bytes], ...] = (
    (Process.read_bytes, b"read_bytes"),
    (Process.write_bytes, b"write_bytes"),
    (Process.read_chars, b"rchar"),
)


@dataclass(slots=True)
class _Known:
    """What is remembered of one process between passes."""

    command: str = ""
    comm: bytes = b""
    io_denied: Absent | None = None
    passes: int = 0
    seen: tuple[object, ...] = ()
    row: tuple[Value, ...] = ()


class _Reading(NamedTuple):
    """One member of the tree as it was read in this pass."""

    member: TargetProcess
    stat: ProcStat
    raw: bytes
    t_ns: int


class ProcessCollector(FileCollector):
    """Rows for each process of the tree and each of its threads, keyed so that reuse cannot lie."""

    name: ClassVar[str] = "process"
    tables: ClassVar[tuple[type[Table], ...]] = (Process, Thread)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        kept = descriptor_allowance(DESCRIPTORS)
        self._files = KeptFiles(kept)
        self._known: dict[ProcessId, _Known] = {}
        self._threads = ThreadReader(context, self._files)

    def read(self) -> Sequence[Sample]:
        """Read the tree. Processes that vanish meanwhile are left out; nothing is raised."""
        target = self._context.target()
        if target is None:
            self.close()
            return ()
        began_ns = self._clock.monotonic_ns()
        readings = self._read_stats(target)
        for process in [process for process in self._known if process not in readings]:
            self._forget(process)
        rows = [self._row(target, reading) for reading in readings.values()]
        threads = self._threads.read({one: reading.stat for one, reading in readings.items()})
        return (
            self.sample(Process, began_ns, rows),
            self.sample(Thread, began_ns, threads),
        )

    def close(self) -> None:
        self._files.close()
        self._known.clear()
        self._threads.forget_all()

    def _forget(self, process: ProcessId) -> None:
        self._known.pop(process, None)
        self._files.drop(f"{self._roots.proc}/{process.pid}/stat")
        self._files.drop(f"{self._roots.proc}/{process.pid}/io")

    def _read_stats(self, target: Target) -> dict[ProcessId, _Reading]:
        """The members that are still there, each with its stat line and when it was read."""
        found: dict[ProcessId, _Reading] = {}
        for member in target.processes:
            try:
                raw = self._files.read(f"{self._roots.proc}/{member.id.pid}/stat", 1024)
                stat = parse_stat(raw)
            except (OSError, ValueError):
                continue
            if stat.start_ticks == member.id.start_ticks:
                found[member.id] = _Reading(member, stat, raw, self._clock.monotonic_ns())
            else:
                self._files.drop(f"{self._roots.proc}/{member.id.pid}/stat")
        return found

    def _row(self, target: Target, reading: _Reading) -> Row:
        member, stat, raw, t_ns = reading
        known = self._known.setdefault(member.id, _Known())
        if stat.comm != known.comm or known.passes % RETRY_EVERY == 0:
            known.command, known.comm = self._command(member.id.pid, stat), stat.comm
            known.io_denied = None
        known.passes += 1
        io = self._io(member.id, known)
        device_files = self._context.exchange.device_files.get(member.id, NOT_READ)
        seen = (raw, io, known.command, member, device_files)
        if seen != known.seen:
            known.seen = seen
            values = self._values(target, member, stat, io)
            values[Process.command] = known.command
            values[Process.device_fds] = device_files
            known.row = Process.row(member.id.key, t_ns, values).values
        return Row(member.id.key, t_ns, known.row)

    def _values(
        self, target: Target, member: TargetProcess, stat: ProcStat, io: bytes | Absent
    ) -> dict[Metric, Value]:
        values: dict[Metric, Value] = {
            Process.pid: stat.pid,
            Process.parent_pid: stat.parent_pid,
            Process.process: member.name,
            Process.role: member.role,
            Process.is_root: int(member.id == target.root),
            Process.state: state_of(stat.state),
            Process.cpu_user_ns: stat.user_ticks * TICK_NS,
            Process.cpu_system_ns: stat.system_ticks * TICK_NS,
            Process.children_cpu_ns: stat.children_ticks * TICK_NS,
            Process.rss_bytes: self._rss_bytes(stat),
            Process.threads: stat.threads,
            Process.major_faults: stat.major_faults,
            Process.minor_faults: stat.minor_faults,
        }
        numbers = {} if isinstance(io, Absent) else procfs.parse_numbers(io)
        for metric, name in _IO:
            absent = io if isinstance(io, Absent) else Absent.unsupported("not in /proc/PID/io")
            values[metric] = numbers.get(name, absent)
        return values

    def _command(self, pid: int, stat: ProcStat) -> str:
        try:
            return describe(procfs.read_argv(self._roots, pid), stat.comm).shown
        except OSError:
            return describe((), stat.comm).shown

    def _io(self, process: ProcessId, known: _Known) -> bytes | Absent:
        """The I/O counters, or why they are closed to us; a denial is not asked again at once."""
        if known.io_denied is not None:
            return known.io_denied
        try:
            return self._files.read(f"{self._roots.proc}/{process.pid}/io", 512)
        except PermissionError:
            known.io_denied = Absent.denied(
                f"it runs as another user: sudo bottletop attach {process.pid}"
            )
            return known.io_denied
        except FileNotFoundError:
            known.io_denied = Absent.unsupported("the kernel keeps no I/O accounts per process")
            return known.io_denied
        except OSError as error:
            return Absent.error(error.strerror or str(error))

    def _rss_bytes(self, stat: ProcStat) -> Value:
        if self._roots.live:
            return stat.rss_pages * resource.getpagesize()
        # The captured host's pages may have another size than ours; this line is in KiB.
        try:
            status = read_record(f"{self._roots.proc}/{stat.pid}/status", 8192)
        except OSError:
            return Absent.unsupported("the capture has no status file")
        fields = (procfs.status_field(status, b"VmRSS") or b"").split()
        return int(fields[0]) * KIB if fields and fields[0].isdigit() else NOT_READ
