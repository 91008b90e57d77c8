"""One process whose stacks are sampled: its runs of py-spy, and the stages that came of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.collectors.stack_pyspy import PySpy, Window
from bottletop.linux import procfs
from bottletop.model import NS_PER_S, Absent
from bottletop.stacks.classify import classify
from bottletop.stacks.raw import Stack, stacks
from bottletop.tables.stage import STACKS, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.model import Metric, ProcessId, Row, Value

LEAST_HZ, MOST_HZ = 5, 100
FIRST_THREAD_HZ = 1000
"""Thread stacks a second before it is known what one costs: about 100 us each."""
BUDGET = 0.03
"""CPU of all samplers together, in cores."""
ENOUGH = 200
"""Samples after which the rate goes by what they cost; fewer name no stage."""
LONGEST_GAP_S = 3.0
"""A pause between windows that the next window still speaks for."""
MAX_STAGES = 20
REST = "(other)"
FAILURES = 3
"""Failed runs in a row after which the process is let alone for a minute."""
REST_S = 60

_NO_PASSES = Absent.unsupported("stacks do not show where a pass begins and ends")
_NOT_SEEN = Absent.unsupported("stacks do not show it")


class SampledProcess:
    """Adds up the stages of one process, a window of a second at a time."""

    def __init__(self, context: Context, program: str, process: ProcessId) -> None:
        self._context = context
        self._clock = context.clock
        self._program = program
        self._run: PySpy | None = None
        self._totals: dict[str, tuple[float, int]] = {}
        """Seconds and samples by stage."""
        self._fresh: list[str] = []
        """Stages that came up in the newest window, which began at `_began_ns`."""
        self._began_ns = self._ended_ns = self._rest_ns = 0
        self._failed = 0
        self._hz = self._first_hz(process)
        self.process = process
        self.samples = 0
        self.why = ""
        """Why the newest run failed; empty while they go well."""

    def step(self, among: int) -> bool:
        """Take a window that is over and begin the next; True when there is news.

        `among` is how many processes share the budget. Never waits, never raises.
        """
        window = self._run.done() if self._run is not None else None
        if window is not None:
            self._run = None
            self._take(window, among)
        if self._run is None and self._clock.monotonic_ns() >= self._rest_ns:
            self._begin()
        return window is not None and not self.why

    def end(self) -> None:
        """End a run under way."""
        if self._run is not None:
            self._run.end()
            self._run = None

    def text(self) -> str:
        """How it is sampled."""
        if self.samples < ENOUGH:
            return f"pid {self.process.pid}: {self.samples} of {ENOUGH} samples"
        return f"pid {self.process.pid} at {self._hz} Hz"

    def rows(self) -> list[Row]:
        """Rows of `stage`; a stage that is new begins at zero, where its first window began."""
        fresh, self._fresh = self._fresh, []
        rows = [self._row(stage, self._began_ns, 0.0, 0) for stage in fresh]
        return rows + [
            self._row(stage, self._ended_ns, *total) for stage, total in self._totals.items()
        ]

    def _first_hz(self, process: ProcessId) -> int:
        try:
            threads = procfs.read_stat(self._context.roots, process.pid).threads
        except (OSError, ValueError):
            threads = 1
        return max(LEAST_HZ, min(MOST_HZ, FIRST_THREAD_HZ // max(1, threads)))

    def _begin(self) -> None:
        try:
            self._run = PySpy(self._clock, self._program, self.process.pid, self._hz)
        except OSError as error:
            self._fail(f"py-spy cannot be started: {error.strerror}")

    def _take(self, window: Window, among: int) -> None:
        self._context.stats.sampler_ns += round(window.cpu_s * NS_PER_S)
        main = main_thread(stacks(window.printed), window.pid)
        ticks = sum(stack.samples for stack in main)
        if not ticks:
            self._fail(window.error or "no stack could be read")
            return
        self._failed, self.why = 0, ""
        since_ns = self._ended_ns
        if not since_ns or window.began_ns - since_ns > LONGEST_GAP_S * NS_PER_S:
            since_ns = window.began_ns
        self._began_ns, self._ended_ns = window.began_ns, window.ended_ns
        covered_s = (window.ended_ns - since_ns) / NS_PER_S
        for stack in main:
            self._add(classify(stack.frames).stage, covered_s / ticks, stack.samples)
        self.samples += ticks
        if self.samples >= ENOUGH:
            per_tick_s = max(window.cpu_s / ticks, 1e-6)
            self._hz = round(max(LEAST_HZ, min(MOST_HZ / 2, BUDGET / among / per_tick_s)))

    def _add(self, stage: str, each_s: float, samples: int) -> None:
        if stage not in self._totals and len(self._totals) >= MAX_STAGES:
            stage = REST
        if stage not in self._totals:
            self._fresh.append(stage)
        seconds, before = self._totals.get(stage, (0.0, 0))
        self._totals[stage] = (seconds + each_s * samples, before + samples)

    def _fail(self, why: str) -> None:
        self._failed += 1
        self.why = why
        if self._failed >= FAILURES:
            self._rest_ns = self._clock.monotonic_ns() + REST_S * NS_PER_S
            self._failed = 0

    def _row(self, stage: str, t_ns: int, seconds: float, samples: int) -> Row:
        spent_ns = round(seconds * NS_PER_S)
        values: dict[Metric, Value] = {
            Stage.stage: stage,
            Stage.source: STACKS,
            Stage.pid: self.process.pid,
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
        return Stage.row(f"{self.process.key}/{stage} (stacks)", t_ns, values)


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
