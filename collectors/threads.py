"""Threads of the target, for the `process` collector: all of them every pass, as cheaply as may be.

CPU time is schedstat's nanoseconds; ticks of stat only split it into user and system. The third
file, status, is the dearest (17 us) and only there are the context switches, so it is read for the
busiest threads alone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bottletop.linux.procfs import ProcStat, parse_stat, status_field
from bottletop.model import NS_PER_S, Absent, Metric, ProcessId, Row, State, Value
from bottletop.roots import read_record
from bottletop.tables.host import TICK_NS
from bottletop.tables.process import Thread, state_of
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.collectors.base import Context
    from bottletop.linux.kept import KeptFiles

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

    key: str
    stat_path: str
    schedstat_path: str
    schedstat: bytes = b""
    cpu_ns: int = 0
    t_ns: int = 0
    share: float = 0.0
    was_hot: bool = False
    values: tuple[Value, ...] = field(default=())


class ThreadReader:
    """Reads every thread of the given processes and ranks them by CPU."""

    def __init__(self, context: Context, files: KeptFiles) -> None:
        self._context = context
        self._clock = context.clock
        self._proc = context.roots.proc
        self._files = files
        self._known: dict[tuple[ProcessId, int], _Known] = {}
        self._hot: frozenset[tuple[ProcessId, int]] = frozenset()
        self._has_schedstat = True
        self._delays: bool | None = None

    def read(self, processes: Mapping[ProcessId, ProcStat]) -> list[Row]:
        """Rows of all threads; those that vanish meanwhile are left out. Never raises."""
        if self._delays is None:
            self._delays = self._accounts_delays()
        room = _room_per_process([stat.threads for stat in processes.values()])
        rows: list[Row] = []
        alive: set[tuple[ProcessId, int]] = set()
        left_out = 0
        for process in processes:
            tids = self._tids(process.pid)
            if len(tids) > room:
                left_out += len(tids) - room
                tids = sorted(tids, key=int)[:room]
            for tid in tids:
                identity = (process, int(tid))
                row = self._row(identity, tid)
                if row is not None:
                    alive.add(identity)
                    rows.append(row)
        for identity in self._known.keys() - alive:
            self._forget(identity)
        self._context.exchange.thread_note = (
            f"{len(rows) + left_out} threads; {len(rows)} are read" if left_out else ""
        )
        self._rank()
        return rows

    def forget_all(self) -> None:
        """Nothing is attached any more."""
        self._known.clear()
        self._hot = frozenset()
        self._context.exchange.hot_threads = ()

    def _tids(self, pid: int) -> list[str]:
        try:
            return os.listdir(f"{self._proc}/{pid}/task")
        except OSError:
            return []

    def _forget(self, identity: tuple[ProcessId, int]) -> None:
        known = self._known.pop(identity)
        self._files.drop(known.schedstat_path)

    # -- one thread ---------------------------------------------------------------------------

    def _row(self, identity: tuple[ProcessId, int], tid: str) -> Row | None:
        known = self._known.get(identity)
        if known is None:
            process = identity[0]
            folder = f"{self._proc}/{process.pid}/task/{tid}"
            known = _Known(process.thread_key(identity[1]), f"{folder}/stat", f"{folder}/schedstat")
            self._known[identity] = known
        try:
            schedstat = self._schedstat(known)
            t_ns = self._clock.monotonic_ns()
            is_hot = identity in self._hot
            if schedstat and schedstat == known.schedstat and is_hot == known.was_hot:
                known.share *= 1 - SMOOTHING
                known.t_ns = t_ns
                return Row(known.key, t_ns, known.values)
            stat = parse_stat(read_record(known.stat_path, 1024))
        except (OSError, ValueError):
            return None
        self._take(known, identity, stat, schedstat, t_ns, is_hot)
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

    def _take(
        self,
        known: _Known,
        identity: tuple[ProcessId, int],
        stat: ProcStat,
        schedstat: bytes,
        t_ns: int,
        is_hot: bool,
    ) -> None:
        times = schedstat.split()
        ticks_ns = (stat.user_ticks + stat.system_ticks) * TICK_NS
        cpu_ns = int(times[0]) if len(times) == 3 else ticks_ns
        wait_ns: Value = int(times[1]) if len(times) == 3 else _NO_SCHEDSTAT
        if known.t_ns:
            seconds = max((t_ns - known.t_ns) / NS_PER_S, 1e-3)
            newest = max(0, cpu_ns - known.cpu_ns) / NS_PER_S / seconds
            known.share += SMOOTHING * (newest - known.share)
        known.schedstat, known.cpu_ns, known.t_ns = schedstat, cpu_ns, t_ns
        known.was_hot = is_hot
        delays: Value = stat.block_io_ticks * TICK_NS if self._delays else _NO_DELAYS
        values: dict[Metric, Value] = {
            Thread.pid: identity[0].pid,
            Thread.tid: identity[1],
            Thread.thread: clean(stat.comm, 64),
            Thread.state: state_of(stat.state),
            Thread.cpu_ns: cpu_ns,
            Thread.wait_ns: wait_ns,
            Thread.user_ns: stat.user_ticks * TICK_NS,
            Thread.system_ns: stat.system_ticks * TICK_NS,
            Thread.major_faults: stat.major_faults,
            Thread.block_io_ns: delays,
        }
        values.update(self._switches(known) if is_hot else _COLD)
        known.values = Thread.row(known.key, t_ns, values).values

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
        busy = [(known.share, one) for one, known in self._known.items() if known.share > HOT_SHARE]
        busy.sort(key=lambda item: -item[0])
        hottest = tuple(one for _, one in busy[:HOT_THREADS])
        self._hot = frozenset(hottest)
        self._context.exchange.hot_threads = hottest

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
