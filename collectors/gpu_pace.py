"""How often a slow driver is read: rarer than asked, and back again, without going to and fro.

Driver calls serialise with those of the job that is watched. When they take more than a part of
the time, the process lists and slow readings become rarer first, then everything. What is not read
meanwhile is shown as late, with its age: a read that is left out must not look like a lost GPU.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NS_PER_S, Absent, Kind, Metric, Row, Sample, State, Table, Value
from bottletop.tables.gpu import Gpu, GpuProcess
from bottletop.tables.gpu_activity import GpuInstance

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST_SHARE = 0.10
"""Part of the time that may be spent in driver calls before they are made rarer."""
BACK_SHARE = 0.05
"""They are made more often again where that would cost less than this part of the time."""
READS = 6
"""Reads that a step is judged by; the costliest of them is left out, so that one stall is none."""
PATIENCE_S = 30
MOST_PATIENCE_S = 600
"""How long a pace is kept before a quicker one is tried; doubled each time that was too soon."""
LATE_PERIODS = 2
"""A value older than so many periods is told as late: just before the store calls it stale."""
SLACK_NS = NS_PER_S // 20
"""A little early is on time: the beat that reads run on is a hair's breadth uneven."""


class Step(NamedTuple):
    """Factors by which periods are longer than asked."""

    fast: int
    """Of what is read each second."""
    slow: int
    """Of process lists, and of what is asked every few seconds."""


STEPS = (Step(1, 1), Step(1, 4), Step(2, 4), Step(5, 4), Step(10, 4))


class Pace:
    """Decides when the driver is read. `period_s` is how often it is asked to be."""

    def __init__(self, period_s: float) -> None:
        self._period_ns = round(period_s * NS_PER_S)
        self._at = 0
        self._began_ns: int | None = None
        self._costs: deque[int] = deque(maxlen=READS)
        self._since_ns = 0
        self._patience_s = PATIENCE_S
        self._came_back = False

    @property
    def step(self) -> Step:
        return STEPS[self._at]

    def is_due(self, now_ns: int) -> bool:
        """Whether to read now that a read is asked for."""
        if self._began_ns is None or self.step.fast == 1:
            return True
        return now_ns - self._began_ns >= self._period_ns * self.step.fast - SLACK_NS

    def note(self, began_ns: int, spent_ns: int) -> None:
        """Take in a read: when it began, and its time inside driver calls."""
        self._began_ns = began_ns
        self._costs.append(spent_ns)
        if len(self._costs) < READS:
            return
        typical_ns = (sum(self._costs) - max(self._costs)) / (READS - 1)
        if typical_ns > MOST_SHARE * self._period_ns * self.step.fast:
            self._slower(began_ns)
        elif self._at and began_ns - self._since_ns >= self._patience_s * NS_PER_S:
            quicker = STEPS[self._at - 1]
            if typical_ns < BACK_SHARE * self._period_ns * quicker.fast:
                self._move(self._at - 1, began_ns)
                self._came_back = True

    def _slower(self, now_ns: int) -> None:
        if self._came_back:
            # Trying was too soon: the slow readings may be what costs, or the driver wavers.
            self._patience_s = min(2 * self._patience_s, MOST_PATIENCE_S)
            self._came_back = False
        if self._at + 1 < len(STEPS):
            self._move(self._at + 1, now_ns)

    def _move(self, at: int, now_ns: int) -> None:
        self._at, self._since_ns = at, now_ns
        self._costs.clear()


# -- what is late --------------------------------------------------------------------------------

LASTING = frozenset(
    {
        *(Gpu.index, Gpu.health, Gpu.driver_backoff, Gpu.mig, Gpu.mem_total_bytes, Gpu.mem_info),
        *(Gpu.sm_clock_max_mhz, Gpu.sm_clock_boost_mhz, Gpu.mem_clock_max_mhz),
        *(Gpu.pcie_gen_max, Gpu.pcie_width_max, Gpu.memory_kind, Gpu.virtualisation),
        *(GpuProcess.pid, GpuProcess.kind, GpuProcess.namespace_pid),
        *(GpuInstance.gpu_instance, GpuInstance.compute_instance, GpuInstance.sm_count),
        GpuInstance.mem_total_bytes,
    }
)
"""Numbers that do not go stale; nor do names and other text."""


def _lasts(metric: Metric) -> bool:
    return metric.kind is Kind.TEXT or metric in LASTING


def late_value(value: Value, age_s: float) -> Value:
    """A value that was read so long ago, in the way in which the store shows a stale one."""
    if isinstance(value, Absent):
        return value
    return Absent(State.STALE, f"last read {age_s:.0f} s ago, driver calls are slow", value)


def aged(values: dict[Metric, Value], age_ns: int, period_s: float) -> dict[Metric, Value]:
    """Values that were read so long ago and are due each `period_s`: late ones where too old."""
    age_s = age_ns / NS_PER_S
    if age_s <= LATE_PERIODS * period_s:
        return values
    return {
        metric: value if _lasts(metric) else late_value(value, age_s)
        for metric, value in values.items()
    }


class Held:
    """The newest sample of each table, told again as late while nothing newer comes.

    An entity lives in the store by its table's newest sample, and its values by their age. Stream
    tables need none of this: their rows come later, but with the driver's own stamps.
    """

    def __init__(self) -> None:
        self._read: dict[type[Table], Sample] = {}
        self._told_ns: dict[type[Table], int] = {}

    def keep(self, samples: Iterable[Sample]) -> None:
        """Take in what has just been read."""
        for sample in samples:
            self._read.pop(sample.table, None)
            if sample.rows and not sample.table.stream:
                self._read[sample.table] = sample
                self._told_ns[sample.table] = sample.t_ns

    def forget(self) -> None:
        """After the driver was opened anew: what was read before is another's."""
        self._read.clear()
        self._told_ns.clear()

    def late(self, now_ns: int) -> Sequence[Sample]:
        """A sample of each table of which the last one grows stale, every value with its age."""
        found = []
        for table, sample in self._read.items():
            silent_s = (now_ns - self._told_ns[table]) / NS_PER_S
            age_s = (now_ns - sample.t_ns) / NS_PER_S
            if age_s <= LATE_PERIODS * table.period_s or silent_s < table.period_s:
                continue
            self._told_ns[table] = now_ns
            rows = tuple(_late_row(table, row, age_s, now_ns) for row in sample.rows)
            found.append(Sample(sample.source, table, now_ns, 0, rows))
        return found


def _late_row(table: type[Table], row: Row, age_s: float, now_ns: int) -> Row:
    values = tuple(
        value if _lasts(metric) else late_value(value, age_s)
        for metric, value in zip(table.columns, row.values, strict=True)
    )
    return Row(row.key, now_ns, values)
