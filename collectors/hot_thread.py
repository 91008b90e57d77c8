"""The busiest threads of the target, five times a second. Fills `hot_thread`.

Fast enough to see what ran while a GPU had nothing to do, and cheap: at most 16 threads, through
descriptors that stay open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.files import FileCollector
from bottletop.linux.kept import KeptFiles
from bottletop.linux.procfs import parse_state
from bottletop.model import Row
from bottletop.tables.process import HotThread, state_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.model import Metric, ProcessId, Sample, Table, Value


class HotThreadCollector(FileCollector):
    """Reads the threads that the `process` collector found busiest; nothing until it has."""

    name: ClassVar[str] = "hot_thread"
    tables: ClassVar[tuple[type[Table], ...]] = (HotThread,)
    period_s: ClassVar[float] = 0.2

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._files = KeptFiles(64)
        self._watched: frozenset[tuple[ProcessId, int]] = frozenset()
        self._before_of: dict[str, tuple[bytes, tuple[Value, ...]]] = {}
        """Thread key to its schedstat line and the values read with it."""

    def read(self) -> Sequence[Sample]:
        """Read them once. Threads that vanish meanwhile are left out; nothing is raised."""
        began_ns = self._clock.monotonic_ns()
        hot = self._context.exchange.hot_threads
        if not hot and not self._watched:
            return ()
        for process, tid in self._watched - frozenset(hot):
            self._before_of.pop(process.thread_key(tid), None)
            for path in self._paths(process, tid):
                self._files.drop(path)
        self._watched = frozenset(hot)
        rows = [row for process, tid in hot if (row := self._row(process, tid)) is not None]
        return (self.sample(HotThread, began_ns, rows),)

    def close(self) -> None:
        self._files.close()
        self._before_of.clear()
        self._watched = frozenset()

    def _paths(self, process: ProcessId, tid: int) -> tuple[str, str]:
        folder = f"{self._roots.proc}/{process.pid}/task/{tid}"
        return f"{folder}/schedstat", f"{folder}/stat"

    def _row(self, process: ProcessId, tid: int) -> Row | None:
        schedstat_path, stat_path = self._paths(process, tid)
        try:
            schedstat = self._files.read(schedstat_path, 128)
            t_ns = self._clock.monotonic_ns()
            key = process.thread_key(tid)
            before = self._before_of.get(key)
            if before is not None and before[0] == schedstat:
                # It has not run since, so its state is what it was.
                return Row(key, t_ns, before[1])
            state = parse_state(self._files.read(stat_path, 1024))
            cpu_ns, wait_ns = (int(field) for field in schedstat.split()[:2])
        except (OSError, ValueError):
            return None
        values: dict[Metric, Value] = {
            HotThread.cpu_ns: cpu_ns,
            HotThread.wait_ns: wait_ns,
            HotThread.state: state_of(state),
        }
        row = HotThread.row(key, t_ns, values)
        self._before_of[key] = (schedstat, row.values)
        return row
