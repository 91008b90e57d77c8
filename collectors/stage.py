"""Stages of the target, from the probes in its processes. Fills `stage` and `stage_time`.

Probes are found among the open descriptors of the target's tree and read without touching the
target; `bottletop.probe` documents their memory. Totals of a process are the sums over its probes,
those included that an exec left behind, so that a pass is counted once however the process changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.files import FileCollector
from bottletop.linux.probe_finder import ProbeFinder
from bottletop.linux.probe_memory import (
    MAX_PROBES,
    NotAProbe,
    ProbeReading,
    StageTotals,
    bucket_edges_ns,
    combined,
)
from bottletop.model import NS_PER_S, Absent, Row, State
from bottletop.tables.stage import PROBE, Stage, StageTime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.linux.probe_memory import ProbeMemory
    from bottletop.model import Metric, ProcessId, Sample, Table, Target, Value

GONE_KEPT_S = 300
"""How long totals of an ended process stay: what the store looks back."""
MAX_GONE = 64
LOOK_EVERY_NS = 2 * NS_PER_S
"""Between two looks whether a probe is still its process's."""
MAX_STAGE_ROWS = 512
MAX_TIME_ROWS = 2048
NONE_UNDER_WAY = Absent(State.NOT_APPLICABLE, "no pass is under way")
ENDED = Absent(State.LOST, "its process has ended")
NO_END = Absent(State.NOT_APPLICABLE, "the last step has no upper end")
NO_PROBE = Absent(
    State.NOT_APPLICABLE,
    'no stage has run: mark them with `with stage("preprocess"):` of bottletop.probe, and start '
    "the program with `bottletop run -- CMD` where bottletop is not installed for it",
)


class _Watched:
    """One process: its probes, and what its stages last said."""

    def __init__(self, process: ProcessId) -> None:
        self.process = process
        self.readings: dict[tuple[int, int], ProbeReading] = {}
        self.gone_since_ns: int | None = None
        self._probes: dict[tuple[int, int], ProbeMemory] = {}
        self._look_ns = 0
        self._occupied_ns: dict[str, int] = {}
        self._counted: dict[str, StageTotals] = {}

    def add(self, probe: ProbeMemory) -> None:
        """Take a probe in, or close it: one that is here already, or one too many."""
        known = probe.identity in self.readings
        if probe.identity in self._probes or (not known and len(self.readings) >= MAX_PROBES):
            probe.close()
            return
        self._probes[probe.identity] = probe
        self.readings.setdefault(probe.identity, ProbeReading((), True, 0, 0))

    def read(self, now_ns: int) -> None:
        """Read its probes; one that cannot be read any more stays at what it said last."""
        look_ns = 0 if now_ns < self._look_ns else now_ns + LOOK_EVERY_NS
        for identity, probe in list(self._probes.items()):
            try:
                self.readings[identity] = probe.read(now_ns)
                if look_ns and not probe.is_held():  # by an exec, most likely
                    self._let_go(identity)
            except (OSError, NotAProbe):
                self._let_go(identity)
        self._look_ns = look_ns or self._look_ns

    def end(self, now_ns: int) -> None:
        """Its process has ended: read the final totals and let go."""
        self.gone_since_ns = now_ns
        self._look_ns = now_ns + LOOK_EVERY_NS
        self.read(now_ns)
        for identity in list(self._probes):
            self._let_go(identity)

    def _let_go(self, identity: tuple[int, int]) -> None:
        """Close a probe that nobody writes to any more. What was under way in it never ended."""
        self._probes.pop(identity).close()
        said = self.readings[identity]
        self.readings[identity] = said._replace(
            stages=tuple(
                one._replace(in_flight=0, oldest_start_ns=None, occupied_ns=one.inclusive_ns)
                for one in said.stages
            )
        )

    def close(self) -> None:
        """Close its probes; what they said stays."""
        for probe in self._probes.values():
            probe.close()
        self._probes.clear()

    @property
    def is_gone(self) -> bool:
        return self.gone_since_ns is not None

    def rows(self, now_ns: int, durations: _Durations) -> list[Row]:
        """Rows of `stage`; what its passes took since it was first seen goes to `durations`."""
        rows = []
        for totals in combined(self.readings.values()):
            key = f"{self.process.key}/{totals.name}"
            rows.append(Stage.row(key, now_ns, self._values(totals, now_ns)))
            durations.add(totals, self._counted.get(totals.name))
            self._counted[totals.name] = totals
        return rows

    def _values(self, totals: StageTotals, now_ns: int) -> dict[Metric, Value]:
        in_flight: Value = totals.in_flight
        age_ns: Value = NONE_UNDER_WAY
        if self.is_gone:
            in_flight = age_ns = ENDED
        elif totals.oldest_start_ns is not None:
            age_ns = max(0, now_ns - totals.oldest_start_ns)
        # A pass may have left and not yet be counted, or was cut short: the integral never shrinks.
        occupied_ns = max(totals.occupied_ns, self._occupied_ns.get(totals.name, 0))
        self._occupied_ns[totals.name] = occupied_ns
        return {
            Stage.stage: totals.name,
            Stage.source: PROBE,
            Stage.pid: self.process.pid,
            Stage.calls: totals.calls,
            Stage.inclusive_ns: totals.inclusive_ns,
            Stage.self_ns: totals.self_ns,
            Stage.in_flight: in_flight,
            Stage.in_flight_ns: age_ns,
            Stage.longest_ns: totals.longest_ns,
            Stage.occupied_ns: occupied_ns,
            Stage.gone: int(self.is_gone),
        }


class _Durations:
    """How long the passes of each stage took, over all processes, since each was first seen."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], list[int]] = {}

    def add(self, totals: StageTotals, before: StageTotals | None) -> None:
        """Take in what a stage of a process completed since `before`."""
        if before is None or totals.counts == before.counts:
            return
        for bucket, (calls, were) in enumerate(zip(totals.counts, before.counts, strict=True)):
            if calls > were:
                step = self._steps.setdefault((totals.name, bucket), [0, 0])
                step[0] += calls - were
                step[1] += totals.sums_ns[bucket] - before.sums_ns[bucket]

    def rows(self, target: ProcessId, now_ns: int) -> list[Row]:
        """Rows of `stage_time`."""
        rows = []
        for (name, bucket), (calls, inclusive_ns) in self._steps.items():
            low, high = bucket_edges_ns(bucket)
            values: dict[Metric, Value] = {
                StageTime.calls: calls,
                StageTime.inclusive_ns: inclusive_ns,
                StageTime.from_ns: low,
                StageTime.to_ns: NO_END if high == float("inf") else high,
                StageTime.source: PROBE,
            }
            rows.append(StageTime.row(f"{target.key}/{name}#{bucket}", now_ns, values))
        return rows


class StageCollector(FileCollector):
    """Rows for each stage of each process of the tree that carries a probe."""

    name: ClassVar[str] = "stage"
    tables: ClassVar[tuple[type[Table], ...]] = (Stage, StageTime)
    period_s: ClassVar[float] = Stage.period_s

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._finder = ProbeFinder(context.roots)
        self._watched: dict[ProcessId, _Watched] = {}
        self._durations = _Durations()
        self._root: ProcessId | None = None

    def read(self) -> Sequence[Sample]:
        """Read all probes. Processes that vanish keep their last totals; nothing is raised."""
        target = self._context.target()
        if target is None or target.root != self._root:
            self.close()
        if target is None:
            return ()
        self._root = target.root
        began_ns = self._clock.monotonic_ns()
        self._find(target, began_ns)
        stages: list[Row] = []
        for watched in self._watched.values():
            # Taken afresh for each process: ages are measured against it.
            now_ns = self._clock.monotonic_ns()
            if not watched.is_gone:
                watched.read(now_ns)
            stages += watched.rows(now_ns, self._durations)
        times = self._durations.rows(target.root, self._clock.monotonic_ns())
        self._context.exchange.probe = self._describe(target)
        return (
            self.sample(Stage, began_ns, stages[:MAX_STAGE_ROWS]),
            self.sample(StageTime, began_ns, times[:MAX_TIME_ROWS]),
        )

    def close(self) -> None:
        for watched in self._watched.values():
            watched.close()
        self._watched.clear()
        self._durations = _Durations()
        self._finder = ProbeFinder(self._roots)
        self._root = None

    def _find(self, target: Target, now_ns: int) -> None:
        """Take new probes in, and notice which processes have ended."""
        alive = [] if target.gone else [member.id for member in target.processes]
        for process, probe in self._finder.look(alive, now_ns):
            self._watched.setdefault(process, _Watched(process)).add(probe)
        living = set(alive)
        for process, watched in self._watched.items():
            if process in living:
                watched.gone_since_ns = None
            elif not watched.is_gone:
                watched.end(now_ns)
        self._forget_long_gone(now_ns)

    def _forget_long_gone(self, now_ns: int) -> None:
        gone = [one for one in self._watched.values() if one.gone_since_ns is not None]
        gone.sort(key=lambda one: one.gone_since_ns or 0)
        horizon_ns = now_ns - GONE_KEPT_S * NS_PER_S
        for index, one in enumerate(gone):
            if len(gone) - index > MAX_GONE or (one.gone_since_ns or 0) < horizon_ns:
                del self._watched[one.process]

    def _describe(self, target: Target) -> str | Absent:
        """How the stages are read, or why they are not."""
        living = [one for one in self._watched.values() if not one.is_gone]
        if not living:
            if self._finder.denied:
                return Absent.denied(
                    f"its probe is closed to us: sudo bottletop attach {target.root.pid}"
                )
            return NO_PROBE
        parts = [f"probe in {len(living)} of {len(target.processes)} processes"]
        readings = [reading for one in living for reading in one.readings.values()]
        if any(not reading.on for reading in readings):
            parts.append("one turned itself off after errors of its own")
        if any(reading.too_many for reading in readings):
            parts.append("more than 31 stages: the last ones count as (other)")
        rejected = sum(reading.rejected for reading in readings)
        if rejected:
            parts.append(f"{rejected} impossible readings left out")
        return "; ".join(parts)
