"""Stages of an unmodified Python program, estimated from stacks of its main thread.

The lowest rung that names stages: used where no probe speaks. Fills `stage`, with the source "stack
sampler". Times are shares of the samples, so nothing is named before there are `ENOUGH`, and no
single pass is ever seen. Asynchronous GPU work appears where the program waits for it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.files import FileCollector
from bottletop.collectors.stack_pyspy import PySpy, Window, find_pyspy
from bottletop.linux import procfs
from bottletop.linux.tracing import Tracing, tracing
from bottletop.model import NOT_READ, NS_PER_S, Absent, State
from bottletop.stacks.classify import classify
from bottletop.stacks.raw import Stack, stacks
from bottletop.tables.process import NOT_PYTHON
from bottletop.tables.stage import STACKS, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.model import Metric, ProcessId, Row, Sample, Table, Target, Value

LEAST_HZ, MOST_HZ = 5, 100
FIRST_THREAD_HZ = 1000
"""Thread stacks a second before it is known what one costs: about 100 us each."""
BUDGET = 0.03
"""CPU of the sampler, in cores."""
ENOUGH = 200
"""Samples without which nothing is named: at a third, 200 are good for 7 points."""
LONGEST_GAP_S = 3.0
"""A pause between windows that the next window still speaks for."""
MAX_STAGES = 20
REST = "(other)"
FAILURES = 3
"""Failed runs in a row after which the process is let alone for a minute."""
REST_S = 60

_NO_PASSES = Absent.unsupported("stacks do not show where a pass begins and ends")
_NOT_SEEN = Absent.unsupported("stacks do not show it")
BETTER = Absent(State.NOT_APPLICABLE, "not needed: its probe tells more")
TURNED_OFF = Absent(State.NOT_APPLICABLE, "left out: --no-sampler")
CAPTURED = Absent(State.NOT_APPLICABLE, "a captured host has no running process")


class StackCollector(FileCollector):
    """Samples the target's busiest Python process, a second at a time, and adds up its stages."""

    name: ClassVar[str] = "stack"
    tables: ClassVar[tuple[type[Table], ...]] = (Stage,)
    period_s: ClassVar[float] = 0.5
    blocking: ClassVar[bool] = True
    of_target: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._program = find_pyspy()
        self._root: ProcessId | None = None
        self._process: ProcessId | None = None
        self._run: PySpy | None = None
        self._hz = MOST_HZ
        self._totals: dict[str, tuple[float, int]] = {}
        """Seconds and samples by stage, of the process that is sampled."""
        self._fresh: list[str] = []
        """Stages that came up in the newest window."""
        self._samples = 0
        self._ended_ns = 0
        self._failed = 0
        self._rest_ns = 0
        self._why = ""

    def read(self) -> Sequence[Sample]:
        """Take what the last second gave and begin the next. Never raises, never waits."""
        target, exchange = self._context.target(), self._context.exchange
        if target is None or target.gone or target.root != self._root:
            self.close()
        if target is None or target.gone:
            exchange.stack = NOT_READ
            return ()
        self._root = target.root
        began_ns = self._clock.monotonic_ns()
        window = self._run.done() if self._run is not None else None
        if window is not None:
            self._run = None
            self._take(window)
        reason = self._reason(target)
        exchange.stack = reason or self._describe()
        if reason is None and self._run is None and began_ns >= self._rest_ns:
            self._begin()
        if window is None or not self._totals or self._why:
            return ()
        fresh, self._fresh = self._fresh, []
        rows = [self._row(stage, window.began_ns, 0.0, 0) for stage in fresh]
        rows += [self._row(stage, window.ended_ns, *total) for stage, total in self._totals.items()]
        return (self.sample(Stage, began_ns, rows),)

    def close(self) -> None:
        if self._run is not None:
            self._run.end()
        self._run = self._root = None
        self._forget(None)

    def _forget(self, process: ProcessId | None) -> None:
        self._process = process
        self._totals, self._samples, self._ended_ns = {}, 0, 0
        self._hz, self._failed, self._rest_ns, self._why = MOST_HZ, 0, 0, ""
        self._fresh = []

    # -- whether and whom ---------------------------------------------------------------------

    def _reason(self, target: Target) -> Absent | None:
        """Why nobody is sampled now; None where somebody is."""
        if not self._roots.live:
            return CAPTURED
        if not self._context.ways.stacks:
            return TURNED_OFF
        probe = self._context.exchange.probe
        if isinstance(probe, str):
            return BETTER
        if probe is NOT_READ:
            return NOT_READ  # whether there is a probe is known in a moment
        if self._program is None:
            return Absent.unsupported("py-spy is not installed: pip install py-spy")
        process = self._choose(target)
        if process is None:
            return NOT_PYTHON
        if process != self._process:
            if self._run is not None:
                self._run.end()
                self._run = None
            self._forget(process)
            self._hz = self._first_hz(process)
        if self._run is None and not self._samples:
            allowed = tracing(self._roots, process.pid)
            if allowed is not Tracing.ALLOWED:
                return Absent.denied(allowed.text(process.pid))
        if self._stopped(process):
            return Absent(State.NOT_APPLICABLE, "it is stopped")
        return None

    def _choose(self, target: Target) -> ProcessId | None:
        """The process sampled so far, else the busiest that runs Python."""
        living = [member.id for member in target.processes]
        if self._process in living:
            return self._process
        hot = [process for process, _ in self._context.exchange.hot_threads]
        for process in dict.fromkeys([*hot, *living]):
            if process in living and is_python(self._roots.proc, process.pid):
                return process
        return None

    def _first_hz(self, process: ProcessId) -> int:
        try:
            threads = procfs.read_stat(self._roots, process.pid).threads
        except (OSError, ValueError):
            threads = 1
        return max(LEAST_HZ, min(MOST_HZ, FIRST_THREAD_HZ // max(1, threads)))

    def _stopped(self, process: ProcessId) -> bool:
        try:
            return procfs.read_stat(self._roots, process.pid).state in "Tt"
        except (OSError, ValueError):
            return False

    def _begin(self) -> None:
        assert self._process is not None
        assert self._program is not None
        try:
            self._run = PySpy(self._clock, self._program, self._process.pid, self._hz)
        except OSError as error:
            self._fail(f"py-spy cannot be started: {error.strerror}")

    # -- what came of it ----------------------------------------------------------------------

    def _take(self, window: Window) -> None:
        self._context.stats.sampler_ns += round(window.cpu_s * NS_PER_S)
        if self._process is None or window.pid != self._process.pid:
            return
        found = stacks(window.printed)
        main = main_thread(found, window.pid)
        ticks = sum(stack.samples for stack in main)
        if not ticks:
            self._fail(window.error or "no stack could be read")
            return
        self._failed, self._why = 0, ""
        since_ns = self._ended_ns
        if not since_ns or window.began_ns - since_ns > LONGEST_GAP_S * NS_PER_S:
            since_ns = window.began_ns
        self._ended_ns = window.ended_ns
        covered_s = (window.ended_ns - since_ns) / NS_PER_S
        for stack in main:
            stage = classify(stack.frames).stage
            if stage not in self._totals and len(self._totals) >= MAX_STAGES:
                stage = REST
            if stage not in self._totals:
                self._fresh.append(stage)
            seconds, samples = self._totals.get(stage, (0.0, 0))
            part_s = covered_s * stack.samples / ticks
            self._totals[stage] = (seconds + part_s, samples + stack.samples)
        self._samples += ticks
        if self._samples >= ENOUGH:
            per_tick_s = max(window.cpu_s / ticks, 1e-6)
            self._hz = round(max(LEAST_HZ, min(MOST_HZ / 2, BUDGET / per_tick_s)))

    def _fail(self, why: str) -> None:
        self._failed += 1
        self._why = why
        if self._failed >= FAILURES:
            self._rest_ns = self._clock.monotonic_ns() + REST_S * NS_PER_S
            self._failed = 0

    def _describe(self) -> str | Absent:
        if self._why:
            return Absent.error(f"py-spy: {self._why}")
        assert self._process is not None
        if self._samples < ENOUGH:
            return f"py-spy reads pid {self._process.pid}: {self._samples} of {ENOUGH} samples"
        return f"py-spy, non-blocking, pid {self._process.pid}, {self._hz} Hz"

    def _row(self, stage: str, t_ns: int, seconds: float, samples: int) -> Row:
        assert self._process is not None
        spent_ns = round(seconds * NS_PER_S)
        values: dict[Metric, Value] = {
            Stage.stage: stage,
            Stage.source: STACKS,
            Stage.pid: self._process.pid,
            Stage.calls: _NO_PASSES,
            Stage.inclusive_ns: spent_ns,
            Stage.self_ns: spent_ns,
            Stage.occupied_ns: spent_ns,
            Stage.in_flight: _NOT_SEEN,
            Stage.in_flight_ns: _NOT_SEEN,
            Stage.longest_ns: _NOT_SEEN,
            Stage.gone: 0,
            Stage.samples: samples,
        }
        return Stage.row(f"{self._process.key}/{stage} (stacks)", t_ns, values)


def main_thread(found: Sequence[Stack], pid: int) -> list[Stack]:
    """Stacks of the thread whose id is the process's; of the busiest working one where none is.

    Servers that leave their main thread waiting do their work in another.
    """
    by_thread: dict[tuple[int, str], list[Stack]] = {}
    for stack in found:
        by_thread.setdefault((stack.tid, stack.thread), []).append(stack)
    if not by_thread:
        return []

    def working(of: list[Stack]) -> int:
        return sum(stack.samples for stack in of if not classify(stack.frames).waits)

    main = [of for (tid, name), of in by_thread.items() if tid == pid or name == "MainThread"]
    if main and working(main[0]):
        return main[0]
    busiest = max(by_thread.values(), key=working)
    return busiest if working(busiest) or not main else main[0]


def is_python(proc: str, pid: int) -> bool:
    """Whether a process runs CPython: by its program's name, else by a mapped libpython."""
    try:
        program = os.path.basename(os.readlink(f"{proc}/{pid}/exe"))
    except OSError:
        program = ""
    if program.startswith("python"):
        return True
    try:
        with open(f"{proc}/{pid}/maps", "rb") as maps:
            return b"libpython3" in maps.read(1024 * 1024)
    except OSError:
        return False
