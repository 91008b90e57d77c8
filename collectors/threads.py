"""Threads of the target, for the `process` collector: all of them every pass, as cheaply as may be.

CPU time is schedstat's nanoseconds; ticks of stat only split it into user and system. The third
file, status, is the dearest (17 us) and only there are the context switches, so it is read for the
busiest threads alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottletop.linux.procfs import parse_thread_stat, status_field
from bottletop.model import NS_PER_S, Absent, Metric, ProcessId, Row, State, Value
from bottletop.roots import read_record
from bottletop.tables.host import TICK_NS
from bottletop.tables.process import Thread, state_of
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bottletop.collectors.base import Context
    from bottletop.linux.kept import KeptFiles
    from bottletop.linux.procfs import ProcStat, ThreadStat

MAX_THREADS = 2048
"""Most threads that are read. Of a larger tree each process keeps its oldest threads, evenly."""
HOT_THREADS = 16
HOT_SHARE = 0.01
"""Share of a core below which a thread is never called hot."""
SMOOTHING = 0.5
"""Weight of the newest second in the ranking: one quiet second does not drop a hot thread."""

_BUSIEST_ONLY = Absent(State.NOT_READ, f"read for the {HOT_THREADS} busiest threads")
_NO_SCHEDSTAT = Absent.unsupported("the kernel keeps no run queue times (CONFIG_SCHED_INFO)")
_NO_DELAYS = Absent.unsupported(
    "delay accounting is off: sysctl kernel.task_delayacct=1, for tasks started later"
)


@dataclass(slots=True)
class _Known:
    """What is remembered of one thread between passes."""

    process: ProcessId
    tid: int
    key: str
    stat_path: str
    schedstat_path: str
    comm: bytes | None = None
    schedstat: bytes = b""
    cpu_ns: int = 0
    t_ns: int = 0
    share: float = 0.0
    """Smoothed share of a core."""
    is_hot: bool = False
    was_hot: bool = False
    """Whether it was hot when `values` were read."""
    values: tuple[Value, ...] = ()


class ThreadReader:
    """Reads every thread of the given processes and ranks them by CPU."""

    def __init__(self, context: Context, files: KeptFiles) -> None:
        self._context = context
        self._clock = context.clock
        self._proc = context.roots.proc
        self._files = files
        self._known: dict[ProcessId, dict[str, _Known]] = {}
        self._hot: list[_Known] = []
        self._has_schedstat = True
        self._delays: bool | None = None

    def read(self, processes: Mapping[ProcessId, ProcStat]) -> list[Row]:
        """Rows of all threads; those that vanish meanwhile are left out. Never raises."""
        if self._delays is None:
            self._delays = self._accounts_delays()
        for process in self._known.keys() - processes.keys():
            self._forget(self._known.pop(process).values())
        room = _room_per_process([stat.threads for stat in processes.values()])
        rows: list[Row] = []
        left_out = 0
        for process in processes:
            tids = self._tids(process.pid)
            if len(tids) > room:
                left_out += len(tids) - room
                tids = sorted(tids, key=int)[:room]
            rows += self._rows(process, tids)
        self._context.exchange.thread_note = (
            f"{len(rows) + left_out} threads; {len(rows)} are read" if left_out else ""
        )
        self._rank()
        return rows

    def forget_all(self) -> None:
        """Nothing is attached any more."""
        for known in self._known.values():
            self._forget(known.values())
        self._known.clear()
        self._hot = []
        self._context.exchange.hot_threads = ()

    def _tids(self, pid: int) -> list[str]:
        try:
            return os.listdir(f"{self._proc}/{pid}/task")
        except OSError:
            return []

    def _forget(self, ended: Iterable[_Known]) -> None:
        for known in ended:
            self._files.drop(known.schedstat_path)
            self._files.drop(known.stat_path)

    # -- one process ----------------------------------------------------------------------------

    def _rows(self, process: ProcessId, tids: list[str]) -> list[Row]:
        before = self._known.get(process, {})
        now: dict[str, _Known] = {}
        rows: list[Row] = []
        for tid in tids:
            known = before.get(tid) or self._first_seen(process, tid)
            try:
                row = self._row(known)
            except (OSError, ValueError):
                continue
            now[tid] = known
            rows.append(row)
        self._forget(before[tid] for tid in before.keys() - now.keys())
        self._known[process] = now
        return rows

    def _first_seen(self, process: ProcessId, tid: str) -> _Known:
        folder = f"{self._proc}/{process.pid}/task/{tid}"
        number = int(tid)
        key = process.thread_key(number)
        return _Known(process, number, key, f"{folder}/stat", f"{folder}/schedstat")

    # -- one thread -----------------------------------------------------------------------------

    def _row(self, known: _Known) -> Row:
        """Raises OSError and ValueError when the thread has ended or its line is torn."""
        schedstat = self._schedstat(known)
        t_ns = self._clock.monotonic_ns()
        if schedstat and schedstat == known.schedstat and known.is_hot == known.was_hot:
            known.share *= 1 - SMOOTHING
            known.t_ns = t_ns
            return Row(known.key, t_ns, known.values)
        # Threads that run now and then are worth a second descriptor, sleeping ones are not.
        read = self._files.read if known.share else read_record
        stat = parse_thread_stat(read(known.stat_path, 1024))
        self._take(known, stat, schedstat, t_ns)
        return Row(known.key, t_ns, known.values)

    def _schedstat(self, known: _Known) -> bytes:
        """The thread's run queue line; empty where the kernel has none."""
        if not self._has_schedstat:
            return b""
        try:
            return self._files.read(known.schedstat_path, 128)
        except FileNotFoundError:
            if os.path.exists(known.stat_path):
                self._has_schedstat = False
            return b""

    def _take(self, known: _Known, stat: ThreadStat, schedstat: bytes, t_ns: int) -> None:
        """Bring what is remembered of a thread that ran up to date."""
        times = schedstat.split()
        ticks_ns = (stat.user_ticks + stat.system_ticks) * TICK_NS
        cpu_ns = int(times[0]) if len(times) == 3 else ticks_ns
        wait_ns: Value = int(times[1]) if len(times) == 3 else _NO_SCHEDSTAT
        if known.t_ns:
            seconds = max((t_ns - known.t_ns) / NS_PER_S, 1e-3)
            newest = max(0, cpu_ns - known.cpu_ns) / NS_PER_S / seconds
            known.share += SMOOTHING * (newest - known.share)
        known.schedstat, known.cpu_ns, known.t_ns = schedstat, cpu_ns, t_ns
        values: dict[Metric, Value] = {
            Thread.state: state_of(stat.state),
            Thread.cpu_ns: cpu_ns,
            Thread.wait_ns: wait_ns,
            Thread.user_ns: stat.user_ticks * TICK_NS,
            Thread.system_ns: stat.system_ticks * TICK_NS,
            Thread.major_faults: stat.major_faults,
            Thread.block_io_ns: stat.block_io_ticks * TICK_NS if self._delays else _NO_DELAYS,
        }
        if stat.comm != known.comm:
            known.comm = stat.comm
            values[Thread.thread] = clean(stat.comm, 64)
            values[Thread.pid], values[Thread.tid] = known.process.pid, known.tid
        if known.is_hot:
            values.update(self._switches(known))
        elif known.was_hot or not known.values:
            values.update(_COLD)
        known.was_hot = known.is_hot
        known.values = Thread.row(known.key, t_ns, values, known.values).values

    def _switches(self, known: _Known) -> dict[Metric, Value]:
        path = known.stat_path.removesuffix("stat") + "status"
        try:
            raw = read_record(path, 8192)
        except OSError:
            return _COLD
        found: dict[Metric, Value] = {}
        for metric, name in (
            (Thread.voluntary_switches, b"voluntary_ctxt_switches"),
            (Thread.involuntary_switches, b"nonvoluntary_ctxt_switches"),
        ):
            count = status_field(raw, name) or b""
            found[metric] = int(count) if count.isdigit() else _BUSIEST_ONLY
        return found

    def _rank(self) -> None:
        """Tell the `hot_thread` collector which threads to watch closely."""
        busy = [
            known
            for threads in self._known.values()
            for known in threads.values()
            if known.share > HOT_SHARE
        ]
        busy.sort(key=lambda known: -known.share)
        for known in self._hot:
            known.is_hot = False
        self._hot = busy[:HOT_THREADS]
        for known in self._hot:
            known.is_hot = True
        self._context.exchange.hot_threads = tuple(
            (known.process, known.tid) for known in self._hot
        )

    def _accounts_delays(self) -> bool:
        """Whether block I/O delays are counted. Before Linux 5.14 there is no switch to read, and
        where accounting is not built in every value is 0: then unknown is the safe reading."""
        try:
            return read_record(f"{self._proc}/sys/kernel/task_delayacct").strip() == b"1"
        except OSError:
            return False


_COLD: dict[Metric, Value] = {
    Thread.voluntary_switches: _BUSIEST_ONLY,
    Thread.involuntary_switches: _BUSIEST_ONLY,
}


def _room_per_process(sizes: list[int]) -> int:
    """Most threads a process may have read so that all of them together stay within bounds."""
    left, room = MAX_THREADS, MAX_THREADS
    for index, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - index)
        if size > share:
            return max(1, share)
        left -= size
        room = max(room, size)
    return room
