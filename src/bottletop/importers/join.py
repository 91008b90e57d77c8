"""Lays what several files say on one clock and under one name for each GPU.

Files with dates meet on the wall clock; files without begin at 0, each at its own first reading.
A GPU that one file calls by its index, another by its address and a third by its UUID is one GPU
as soon as any row, in any file, says two of the three. What hardly ever changes (limits, maximum
clocks, names) is carried from the file that has it into the rows of the others; what moves is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from bottletop.importers import stamps
from bottletop.importers.base import Fact, GpuId, NotImportable
from bottletop.model import NOT_READ, NS_PER_S, Absent, Kind, Row, Sample, State
from bottletop.tables import Gpu, GpuProcess
from bottletop.tables.gpu import LOST, NO_ACCESS, UNIFIED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bottletop.importers.base import Reading
    from bottletop.model import Metric, Table, Value

START_NS = NS_PER_S
"""Where the imported clock begins; 0 means "never" in many places."""
TOGETHER_S = 0.25
"""Rows of one table this close belong to one sample."""
LONGEST_RATE_PERIODS = 3.0
STATIC = frozenset(
    {
        Gpu.index,
        Gpu.model,
        Gpu.pci_bus_id,
        Gpu.driver,
        Gpu.mem_total_bytes,
        Gpu.power_limit_w,
        Gpu.power_limit_requested_w,
        Gpu.power_limit_default_w,
        Gpu.sm_clock_max_mhz,
        Gpu.sm_clock_boost_mhz,
        Gpu.mem_clock_max_mhz,
        Gpu.pcie_gen_max,
        Gpu.pcie_width_max,
        Gpu.mig,
        Gpu.compute_capability,
        Gpu.memory_kind,
        Gpu.virtualisation,
        Gpu.architecture,
    }
)


class Joined(NamedTuple):
    """What all files say together, ready to be judged."""

    samples: list[Sample]
    """In the order of their moments."""
    periods: dict[type[Table], float]
    """Seconds between two rows of an entity, by table."""
    wall_ns: int
    """Wall clock at `START_NS`; 0 where no file has dates."""
    end_ns: int
    notes: tuple[str, ...]


class Names:
    """Finds the one key of each GPU."""

    def __init__(self, ids: Sequence[GpuId]) -> None:
        self._uuid: dict[tuple[str, object], str] = {}
        self._pci: dict[int, str] = {}
        self._index: dict[str, int] = {}
        for gpu in ids:
            if gpu.uuid and gpu.pci:
                self._uuid["pci", gpu.pci] = gpu.uuid
            if gpu.uuid and gpu.index is not None:
                self._uuid["index", gpu.index] = gpu.uuid
            if gpu.pci and gpu.index is not None:
                self._pci[gpu.index] = gpu.pci
        for gpu in ids:
            if gpu.index is not None:
                self._index.setdefault(self._best(gpu), gpu.index)
        self._all = {self._best(gpu) for gpu in ids if self._best(gpu)}
        self._nameless = {gpu.place for gpu in ids if not self._best(gpu)}
        self._models: dict[str, set[int]] = {}
        for gpu in ids:
            if gpu.name and not self._best(gpu):
                self._models.setdefault(gpu.name, set()).add(gpu.place)

    def _best(self, gpu: GpuId) -> str:
        if gpu.uuid:
            return gpu.uuid
        pci = gpu.pci or (self._pci.get(gpu.index, "") if gpu.index is not None else "")
        known = self._uuid.get(("pci", pci)) or self._uuid.get(("index", gpu.index))
        if known or pci:
            return known or pci
        return f"GPU {gpu.index}" if gpu.index is not None else ""

    def key(self, gpu: GpuId) -> str:
        """Its key: UUID, else address, else "GPU 1", else model name, else "GPU"."""
        best = self._best(gpu)
        if best:
            return best
        if len(self._all) == 1:
            return next(iter(self._all))  # the only GPU that any file speaks of
        if gpu.name:
            many = len(self._models[gpu.name]) > 1
            return f"{gpu.name} #{gpu.place}" if many else gpu.name
        if len(self._models) == 1 and not self._all:
            return next(iter(self._models))
        return f"GPU #{gpu.place}" if len(self._nameless) > 1 else "GPU"

    def index(self, key: str) -> int | None:
        """The driver's index of a GPU, where any file tells it."""
        return self._index.get(key)


def join(readings: Sequence[Reading]) -> Joined:
    """Bring the readings of all files together. Raises `NotImportable` where there are none."""
    facts = [fact for reading in readings for fact in reading.facts]
    if not facts:
        raise NotImportable("no reading in any of the files")
    notes = _notes(readings, [r for r in readings if r.dated and r.facts])
    if not any(fact.table is Gpu for fact in facts):
        readings = [*readings, *map(_gpus_of_processes, readings)]
        notes = (*notes, "utilisation of a GPU is the sum over its processes")
    names = Names(list({fact.gpu for fact in facts if fact.gpu is not None}))
    dated = [reading for reading in readings if reading.dated and reading.facts]
    origin_s = min((fact.t_s for reading in dated for fact in reading.facts), default=0.0)
    timeline = _Timeline(names)
    for reading in readings:
        timeline.add(reading, origin_s if reading.dated else 0.0)
    samples = list(timeline.samples())
    return Joined(
        samples,
        timeline.periods(),
        round(origin_s * NS_PER_S) if dated else 0,
        max(sample.t_ns for sample in samples),
        notes,
    )


def _gpus_of_processes(reading: Reading) -> Reading:
    """GPUs that only their processes speak of (pmon): as busy as these together, at most fully."""
    busy: dict[tuple[float, GpuId], float] = {}
    for fact in reading.facts:
        share = fact.values.get(GpuProcess.sm_util_pct)
        if fact.table is GpuProcess and fact.gpu is not None and isinstance(share, (int, float)):
            at = (fact.t_s, fact.gpu)
            busy[at] = min(100.0, busy.get(at, 0.0) + share)
    facts = [Fact(Gpu, t_s, {Gpu.util_pct: util}, gpu) for (t_s, gpu), util in busy.items()]
    return replace(reading, facts=facts)


def _notes(readings: Sequence[Reading], dated: Sequence[Reading]) -> tuple[str, ...]:
    notes = []
    if dated and len(dated) < len(readings):
        notes.append(
            "some files have no dates: they are laid beside the others from the first reading on"
        )
    elif len(readings) > 1 and not dated:
        notes.append(
            "no file has dates: each is laid on a clock that begins with its first reading"
        )
    if dated:
        notes.append("dates are taken as UTC, since logs do not name their time zone")
    return tuple(notes)


@dataclass(slots=True)
class _Line:
    """All rows of one entity."""

    table: type[Table]
    key: str
    facts: list[tuple[int, int, Fact]] = field(default_factory=list)
    """(moment, number of the file, what it says)."""
    period_s: float | None = None
    totals: dict[Metric, float] = field(default_factory=dict)
    latest: dict[Metric, tuple[int, int, Value]] = field(default_factory=dict)
    """(moment, number of the file, value) of each column, where several files speak of it."""


class _Timeline:
    """Rows by entity, then as samples in order of time."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._lines: dict[tuple[type[Table], str], _Line] = {}
        self._static: dict[str, dict[Metric, Value]] = {}
        self._files = 0
        self._end_s = 0.0

    def add(self, reading: Reading, origin_s: float) -> None:
        """Take in one file, whose time 0 lies `origin_s` before the common beginning."""
        self._files += 1
        for fact in reading.facts:
            key = fact.key
            if fact.gpu is not None:
                key = self._names.key(fact.gpu) + fact.key
            line = self._lines.get((fact.table, key))
            if line is None:
                line = self._lines[fact.table, key] = _Line(fact.table, key)
            at_s = fact.t_s - origin_s
            self._end_s = max(self._end_s, at_s)
            line.facts.append((START_NS + round(at_s * NS_PER_S), self._files, fact))
            if fact.table is Gpu:
                known = self._static.setdefault(key, {})
                known.update((m, v) for m, v in fact.values.items() if _is_static(m, v))

    def periods(self) -> dict[type[Table], float]:
        """The coarsest entity's distance of rows, by table.

        What was read only once beside a longer log stays in force: there is nothing newer.
        """
        found: dict[type[Table], float] = {}
        for line in self._lines.values():
            own = self._period(line)
            if own is not None:
                found[line.table] = max(found.get(line.table, 0.0), own)
        for line in self._lines.values():
            if line.table not in found and not line.table.stream and self._end_s > 0:
                found[line.table] = self._end_s
        return found

    def _period(self, line: _Line) -> float | None:
        if line.period_s is None:
            line.period_s = stamps.period_s([t_ns / NS_PER_S for t_ns, _, _ in line.facts])
        return line.period_s

    def samples(self) -> Iterator[Sample]:
        """Samples of all tables in the order of their moments."""
        tables: dict[type[Table], list[_Line]] = {}
        for line in self._lines.values():
            line.facts.sort(key=lambda item: item[0])
            tables.setdefault(line.table, []).append(line)
        found = [sample for table, lines in tables.items() for sample in self._of(table, lines)]
        found.sort(key=lambda sample: sample.t_ns)
        yield from found

    def _of(self, table: type[Table], lines: Sequence[_Line]) -> Iterator[Sample]:
        moments = sorted(
            ((*item, line) for line in lines for item in line.facts),
            key=lambda item: item[0],
        )
        periods = [period for line in lines if (period := self._period(line))]
        together_ns = round(min([TOGETHER_S, *(p / 2 for p in periods)]) * NS_PER_S)
        kept: dict[str, Row] = {}
        batch: dict[str, Row] = {}
        began_ns = moments[0][0]
        for t_ns, file, fact, line in moments:
            if batch and (t_ns - began_ns > together_ns or line.key in batch):
                yield self._sample(table, lines, batch, kept)
                batch = {}
            if not batch:
                began_ns = t_ns
            row = self._row(line, t_ns, file, fact, kept.get(line.key))
            batch[line.key] = kept[line.key] = row
        yield self._sample(table, lines, batch, kept)

    def _sample(
        self,
        table: type[Table],
        lines: Sequence[_Line],
        batch: Mapping[str, Row],
        kept: Mapping[str, Row],
    ) -> Sample:
        """One sample. An entity whose next row is not due yet is in it with its last one: a file
        that is written less often does not end between its rows."""
        t_ns = max(row.t_ns for row in batch.values())
        rows = list(batch.values())
        for line in lines if not table.stream else ():
            last = kept.get(line.key)
            if last is None or line.key in batch:
                continue
            if table is Gpu and last.values[Gpu.health.index] in (LOST, NO_ACCESS):
                rows.append(last._replace(t_ns=t_ns))  # until the log shows it again
                continue
            period_s = self._period(line) or (self._end_s if len(line.facts) == 1 else 0.0)
            if t_ns - last.t_ns < max(1.5 * period_s, TOGETHER_S) * NS_PER_S:
                rows.append(last)
        return Sample("import", table, t_ns, 0, tuple(rows))

    def _row(self, line: _Line, t_ns: int, file: int, fact: Fact, before: Row | None) -> Row:
        values: dict[Metric, Value] = {}
        if line.table is Gpu:
            values.update(self._static.get(line.key, {}))
            index = self._names.index(line.key)
            values[Gpu.provenance] = "imported"
            values[Gpu.index] = NOT_READ if index is None else index
            if self._files > 1:
                values.update(self._beside(line, t_ns, file, fact))
        values.update(fact.values)
        if line.table is Gpu and _shares_memory(values):
            values[Gpu.memory_kind] = UNIFIED
        if before is not None and line.table is Gpu and before.t_ns == t_ns:
            t_ns += 1  # a second file says more of the same moment
        for metric, rate in fact.rates.items():
            values[metric] = self._grown(line, metric, rate, t_ns, before)
        if fact.gpu is not None:
            self._name_gpu(line, fact.gpu, values)
        return line.table.row(line.key, t_ns, values)

    def _grown(
        self, line: _Line, metric: Metric, rate: float, t_ns: int, before: Row | None
    ) -> float:
        """A counter from its growth: a rate holds for the time up to its row."""
        passed_s = (t_ns - before.t_ns) / NS_PER_S if before is not None else 0.0
        longest_s = LONGEST_RATE_PERIODS * (self._period(line) or passed_s)
        line.totals[metric] = line.totals.get(metric, 0.0) + rate * min(passed_s, longest_s)
        return line.totals[metric]

    def _beside(
        self, line: _Line, t_ns: int, file: int, fact: Fact
    ) -> Iterator[tuple[Metric, Value]]:
        """What other files said of the same GPU just before, in columns this row leaves out."""
        fresh_ns = max(1.5 * (self._period(line) or 0.0), TOGETHER_S) * NS_PER_S
        for metric, (said_ns, by, value) in line.latest.items():
            if by != file and t_ns - said_ns <= fresh_ns and metric not in fact.values:
                yield metric, value
        for metric, value in fact.values.items():
            line.latest[metric] = (t_ns, file, value)

    def _name_gpu(self, line: _Line, gpu: GpuId, values: dict[Metric, Value]) -> None:
        for metric in line.table.columns:
            if metric.name == "gpu" and metric.kind is Kind.TEXT:
                values.setdefault(metric, self._names.key(gpu))


def _shares_memory(values: Mapping[Metric, Value]) -> bool:
    """Whether a GPU that works has no memory of its own to speak of: GB10, Jetson, Thor."""
    for metric in (Gpu.mem_total_bytes, Gpu.mem_used_bytes):
        value = values.get(metric)
        if not isinstance(value, Absent) or value.state is not State.UNSUPPORTED:
            return False
    readings = (values.get(Gpu.util_pct), values.get(Gpu.power_w), values.get(Gpu.temp_c))
    return values.get(Gpu.memory_kind) is None and any(
        isinstance(value, (int, float)) for value in readings
    )


def _is_static(metric: Metric, value: Value) -> bool:
    if metric not in STATIC:
        return False
    return not isinstance(value, Absent) or value.state is not State.NOT_READ
