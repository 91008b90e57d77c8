"""Stages of an unmodified Python program, estimated from stacks of its main threads.

The lowest rung that names stages: used where no probe speaks. Fills `stage`, with the source
"stack sampler". Times are shares of the samples, so nothing is named before there are enough, and
no single pass is ever seen. Asynchronous GPU work appears where the program waits for it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.files import FileCollector
from bottletop.collectors.stack_process import SampledProcess
from bottletop.collectors.stack_pyspy import find_pyspy
from bottletop.linux import procfs
from bottletop.linux.tracing import Tracing, tracing
from bottletop.model import NOT_READ, NS_PER_S, Absent, State
from bottletop.tables.process import NOT_PYTHON
from bottletop.tables.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.model import ProcessId, Row, Sample, Table, Target

MAX_SAMPLED = 4
"""Processes that are sampled at once: the busiest."""
CHOOSE_EVERY_S = 5
PATIENCE = 5
"""Reads after which somebody is sampled though nobody is known to be busy."""

BETTER = Absent(State.NOT_APPLICABLE, "not needed: its probe tells more")
TURNED_OFF = Absent(State.NOT_APPLICABLE, "left out: --no-sampler")
CAPTURED = Absent(State.NOT_APPLICABLE, "a captured host has no running process")


class StackCollector(FileCollector):
    """Samples the target's busiest Python processes, a second at a time."""

    name: ClassVar[str] = "stack"
    tables: ClassVar[tuple[type[Table], ...]] = (Stage,)
    period_s: ClassVar[float] = 0.5
    blocking: ClassVar[bool] = True
    of_target: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._program = find_pyspy()
        self._root: ProcessId | None = None
        self._sampled: dict[ProcessId, SampledProcess] = {}
        self._choose_ns = 0
        self._reads = 0

    def read(self) -> Sequence[Sample]:
        """Take what the last second gave and begin the next. Never raises, never waits."""
        target, exchange = self._context.target(), self._context.exchange
        if target is None or target.gone or target.root != self._root:
            self.close()
        if target is None or target.gone:
            exchange.stack = NOT_READ
            return ()
        self._root = target.root
        self._reads += 1
        began_ns = self._clock.monotonic_ns()
        reason = self._reason(target, began_ns)
        if reason is not None:
            self._stop()
            exchange.stack = reason
            return ()
        among = len(self._sampled)
        news = [one.step(among) for one in self._sampled.values() if not self._stopped(one.process)]
        exchange.stack = self._describe()
        if not any(news):
            return ()
        rows: list[Row] = []
        for one in self._sampled.values():
            rows += one.rows()
        return (self.sample(Stage, began_ns, rows),)

    def close(self) -> None:
        self._stop()
        self._root, self._reads = None, 0

    def _stop(self) -> None:
        for one in self._sampled.values():
            one.end()
        self._sampled.clear()
        self._choose_ns = 0

    # -- whether and whom ---------------------------------------------------------------------

    def _reason(self, target: Target, now_ns: int) -> Absent | None:
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
        if now_ns >= self._choose_ns:
            return self._choose(target, self._program, now_ns)
        return None

    def _choose(self, target: Target, program: str, now_ns: int) -> Absent | None:
        """Pick the busiest Python processes; what is sampled already keeps what it has."""
        living = [member.id for member in target.processes]
        hot = [process for process, _ in self._context.exchange.hot_threads if process in living]
        if not hot and self._reads < PATIENCE:
            return NOT_READ  # who is busy is known in a moment
        candidates = list(dict.fromkeys([*hot, *self._sampled, *living]))
        python = [one for one in candidates if one in living and self._is_python(one)]
        busy = [one for one in python if one in hot] or python[:1]
        if not busy:
            return NOT_PYTHON
        for process in busy[:MAX_SAMPLED]:
            allowed = tracing(self._roots, process.pid)
            if allowed is not Tracing.ALLOWED:
                return Absent.denied(allowed.text(process.pid))
        for process in [one for one in self._sampled if one not in busy[:MAX_SAMPLED]]:
            self._sampled.pop(process).end()
        for process in busy[:MAX_SAMPLED]:
            if process not in self._sampled:
                self._sampled[process] = SampledProcess(self._context, program, process)
        self._choose_ns = now_ns + CHOOSE_EVERY_S * NS_PER_S
        return None

    def _is_python(self, process: ProcessId) -> bool:
        return process in self._sampled or is_python(self._roots.proc, process.pid)

    def _stopped(self, process: ProcessId) -> bool:
        """A stopped process tells nothing and is not asked."""
        try:
            return procfs.read_stat(self._roots, process.pid).state in "Tt"
        except (OSError, ValueError):
            return False

    def _describe(self) -> str | Absent:
        failed = [one for one in self._sampled.values() if one.why]
        if failed and len(failed) == len(self._sampled):
            return Absent.error(f"py-spy: {failed[0].why}")
        said = ", ".join(one.text() for one in self._sampled.values() if not one.why)
        return f"py-spy, non-blocking: {said}"


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
