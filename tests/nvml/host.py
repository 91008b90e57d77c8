"""A host with simulated GPUs: the real collectors and the real binding, in a child process.

The parent writes a scenario, steps the clock and asks the child to open, read and close; what the
child answers are the collector's own samples. Nothing in either process pretends to be pynvml.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bottletop.model import NS_PER_S, Absent, Metric, Row, Sample, Table, Value
from nvml.build import SCENARIOS, CallStats, read_stats
from nvml.clock import BOOT_NS, StepClock, create_clock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

ROOT = Path(__file__).parents[2]
_LENGTH = struct.Struct("<I")


def send(stream: IO[bytes], message: object) -> None:
    """Write one framed message."""
    data = pickle.dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one framed message. Raises EOFError when the other side has gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError("the other process has ended")
    return pickle.loads(stream.read(_LENGTH.unpack(head)[0]))


def environment(
    library: Path | None,
    scenario: Path,
    *,
    clock: Path | None = None,
    stats: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a process that is to see the simulated driver (or none: `library` None).

    Without `clock` the driver's time is the host's, which is what the bench and whole-program tests
    want.
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith("NVML_SIM_")}
    env |= {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])}
    env |= {"NVML_SIM_SCENARIO": str(scenario), **(variables or {})}
    if library is not None:
        env["LD_LIBRARY_PATH"] = str(library)
    if clock is not None:
        env["NVML_SIM_CLOCK"] = str(clock)
    if stats is not None:
        env["NVML_SIM_STATS"] = str(stats)
    return env


class Host:
    """A child process that holds the GPU collectors, and the clock that both go by.

    `sys_root` stands for /sys; without it the host has no PCI bus, so that nothing depends on the
    machine that runs the tests.
    """

    def __init__(
        self,
        folder: Path,
        library: Path | None,
        scenario: str | Path,
        *,
        start_s: float = 0.0,
        proc: Path | None = None,
        sys_root: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(scenario, str):
            path = folder / "scenario.scn"
            path.write_text(textwrap.dedent(scenario))
            scenario = path
        self._clock_path = create_clock(folder / "clock", start_s)
        self._stats_path = folder / "stats"
        self.clock = StepClock(self._clock_path)
        env = environment(
            library,
            scenario,
            clock=self._clock_path,
            stats=self._stats_path,
            variables=variables,
        )
        roots = (str(proc or ""), str(sys_root or folder / "no-sys"))
        command = [sys.executable, "-m", "nvml.child", str(self._clock_path), *roots]
        self._child = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Host:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> int:
        """Close the child's standard input and return its exit status."""
        child = self._child
        if child.stdin is not None and not child.stdin.closed:
            child.stdin.close()
        try:
            return child.wait(timeout=20)
        finally:
            child.kill()
            if child.stdout is not None:
                child.stdout.close()

    def ask(self, what: str, *args: object) -> Any:
        """Have the child do something; what it raises is raised here."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        send(self._child.stdin, (what, args))
        return self.answer()

    def answer(self) -> Any:
        """The child's next answer."""
        assert self._child.stdout is not None
        result, error = receive(self._child.stdout)
        if error is not None:
            raise error
        return result

    # -- the collectors, `gpu` unless another one is named ------------------------------------

    def open(self, source: str = "gpu") -> None:
        """Open a collector. Raises what it raises."""
        self.ask("open", source)

    def close(self, source: str = "gpu") -> None:
        """Close a collector."""
        self.ask("close", source)

    def read(self, source: str = "gpu") -> Reading:
        """Read once, at the present moment."""
        return Reading(self.ask("read", source))

    def tick(self, seconds: float = 1.0, source: str = "gpu") -> Reading:
        """Step the clock, then read."""
        self.clock.step(seconds)
        return self.read(source)

    def ticks(self, count: int, seconds: float = 1.0, source: str = "gpu") -> list[Reading]:
        """That many ticks."""
        return [self.tick(seconds, source) for _ in range(count)]

    # -- what happened ------------------------------------------------------------------------

    def calls(self) -> dict[str, CallStats]:
        """What the driver was asked so far, by function."""
        return read_stats(self._stats_path)

    def second(self, t_ns: int) -> float:
        """A row's stamp in scenario seconds."""
        return (t_ns - BOOT_NS) / NS_PER_S


class Reading:
    """The samples of one read, by table, with cells by metric."""

    def __init__(self, samples: list[Sample]) -> None:
        self.samples = samples

    def sample(self, table: type[Table]) -> Sample | None:
        """The sample of one table, None where this read brought none."""
        return next((sample for sample in self.samples if sample.table is table), None)

    def rows(self, table: type[Table], key: str | None = None) -> list[Row]:
        """Rows of one table, of one entity if `key` is given."""
        sample = self.sample(table)
        found = sample.rows if sample is not None else ()
        return [row for row in found if key is None or row.key == key]

    def value(self, metric: Metric, key: str) -> Value:
        """The one cell of an entity. Raises when the entity has not exactly one row."""
        (row,) = self.rows(metric.table, key)
        return row.values[metric.index]

    def absent(self, metric: Metric, key: str) -> Absent:
        """The same where no value is expected."""
        value = self.value(metric, key)
        assert isinstance(value, Absent), f"{metric.id} is {value!r}"
        return value

    def number(self, metric: Metric, key: str) -> float:
        """The same where a number is expected."""
        value = self.value(metric, key)
        assert isinstance(value, (int, float)), f"{metric.id} is {value!r}"
        return value

    def series(self, metric: Metric, key: str) -> list[tuple[int, Value]]:
        """(stamp, cell) of every row of an entity."""
        return [(row.t_ns, row.values[metric.index]) for row in self.rows(metric.table, key)]


def scenario_path(name: str) -> Path:
    """A scenario that is kept with the tests."""
    return SCENARIOS / f"{name}.scn"
