"""Stages of real programs: found, followed through fork, exec and end, and counted once."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from hosttree import of_table, target_of
from hosttree.unprivileged import closed_process, unprivileged
from probelab import OWN, Program, identify, written

from bottletop.clock import SystemClock
from bottletop.collectors.base import Context
from bottletop.collectors.stage import MAX_STAGE_ROWS, StageCollector
from bottletop.model import Absent, ProcessId, State, Target
from bottletop.roots import Roots
from bottletop.tables import Stage, StageTime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bottletop.model import Value

MS = 1_000_000


class AheadClock(SystemClock):
    """The host's clock, which a test may put ahead."""

    def __init__(self) -> None:
        self.ahead_ns = 0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.ahead_ns

    def advance(self, seconds: float) -> None:
        self.ahead_ns += round(seconds * 1e9)


class Watch:
    """A collector, its clock, and a target that a test may change."""

    def __init__(self) -> None:
        self.clock = AheadClock()
        self.target: Target | None = None
        self.context = Context(self.clock, Roots(), target=lambda: self.target)
        self.collector = StageCollector(self.context)
        self.times: dict[str, dict[str, Value]] = {}

    def on(self, *processes: ProcessId) -> Watch:
        self.target = target_of(*processes)
        return self

    def read(self, *, after_s: float = 0.0) -> dict[str, dict[str, Value]]:
        """Rows of `stage` by key; those of `stage_time` stay in `times`."""
        self.clock.advance(after_s)
        samples = self.collector.read()
        self.times = of_table(samples, StageTime)
        return of_table(samples, Stage)


@pytest.fixture
def watch() -> Iterator[Watch]:
    made = Watch()
    yield made
    made.collector.close()


def number(value: object) -> int:
    assert isinstance(value, int)
    return value


def test_each_stage_of_each_process_has_a_row(watch: Watch, tmp_path: Path) -> None:
    source = """
with stage("request"):
    with stage("forward"):
        time.sleep(0.02)
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    for _ in range(3):
        with stage("load"):
            pass
    os.write(writing, b"x")
    with stage("hang"):
        time.sleep(60)
os.read(reading, 1)
say(child)
hold()
os.kill(child, 9)
"""
    with Program(OWN, source, tmp_path) as program:
        child = identify(int(program.until_ready()[-1]))
        root = identify(program.pid)
        watch.on(root, child)
        rows = watch.read()
        deadline_s = time.monotonic() + 30
        while f"{child.key}/hang" not in rows and time.monotonic() < deadline_s:
            rows = watch.read()
        assert list(rows) == [
            f"{root.key}/request",
            f"{root.key}/forward",
            f"{child.key}/load",
            f"{child.key}/hang",
        ]
        request, forward = rows[f"{root.key}/request"], rows[f"{root.key}/forward"]
        assert (request["stage"], request["source"]) == ("request", "probe")
        assert (request["pid"], request["calls"], request["in_flight"]) == (root.pid, 1, 0)
        assert request["self_ns"] == number(request["inclusive_ns"]) - number(
            forward["inclusive_ns"]
        )
        age = request["in_flight_ns"]
        assert isinstance(age, Absent)
        assert age.state is State.NOT_APPLICABLE
        assert rows[f"{child.key}/load"]["calls"] == 3
        hang = rows[f"{child.key}/hang"]
        assert (hang["calls"], hang["in_flight"], hang["gone"]) == (0, 1, 0)
        first_age = number(hang["in_flight_ns"])
        later = watch.read(after_s=1.0)[f"{child.key}/hang"]
        assert number(later["in_flight_ns"]) >= first_age + 1000 * MS
        assert number(later["occupied_ns"]) >= number(hang["occupied_ns"]) + 1000 * MS
        assert watch.context.exchange.probe == "probe in 2 of 2 processes"


def test_a_probe_that_appears_later_is_found_within_two_seconds(
    watch: Watch, tmp_path: Path
) -> None:
    source = """
hold()
sys.stdin = os.fdopen(os.dup(1))
with stage("late"):
    say("now")
    time.sleep(60)
"""
    with Program(OWN, source, tmp_path) as program:
        program.until_ready()
        watch.on(identify(program.pid))
        assert watch.read() == {}
        why = watch.context.exchange.probe
        assert isinstance(why, Absent)
        assert "bottletop run" in why.reason
        program.go_on()
        assert program.line() == "now"
        assert len(watch.read(after_s=2.0)) == 1


def test_an_ended_process_keeps_its_final_totals_and_is_marked(
    watch: Watch, tmp_path: Path
) -> None:
    source = """
with stage("step"):
    pass
hold()
for _ in range(41):
    with stage("step"):
        pass
"""
    with Program(OWN, source, tmp_path) as program:
        program.until_ready()
        process = identify(program.pid)
        watch.on(process)
        key = f"{process.key}/step"
        assert watch.read()[key]["calls"] == 1
        program.finish()
        # What it did after the last look is not lost.
        watch.target = Target(process, "program.py", (), gone=True)
        row = watch.read()[key]
        assert (row["calls"], row["gone"]) == (42, 1)
        assert isinstance(row["in_flight"], Absent)
        assert watch.read(after_s=200)[key] == row
        assert watch.read(after_s=200) == {}


def test_a_pass_cut_short_by_the_end_does_not_go_on(watch: Watch, tmp_path: Path) -> None:
    source = """
with stage("cut"):
    hold()
    os._exit(0)
"""
    with Program(OWN, source, tmp_path) as program:
        program.until_ready()
        process = identify(program.pid)
        watch.on(process)
        alive = watch.read(after_s=1.0)[f"{process.key}/cut"]
        program.finish()
        watch.target = Target(process, "program.py", (), gone=True)
        row = watch.read(after_s=5.0)[f"{process.key}/cut"]
        assert (row["calls"], row["occupied_ns"]) == (0, alive["occupied_ns"])


def test_after_an_exec_old_and_new_totals_add_up_and_nothing_hangs(
    watch: Watch, tmp_path: Path
) -> None:
    source = """
if "again" not in sys.argv:
    with stage("step"):
        pass
    with stage("until exec"):
        hold()
        os.execv(sys.executable, [sys.executable, __file__, "again"])
for _ in range(2):
    with stage("step"):
        pass
say("again")
time.sleep(60)
"""
    with Program(OWN, source, tmp_path) as program:
        program.until_ready()
        process = identify(program.pid)
        watch.on(process)
        assert watch.read()[f"{process.key}/until exec"]["in_flight"] == 1
        program.go_on()
        assert program.line() == "again"
        rows = watch.read(after_s=2.0)
        assert rows[f"{process.key}/step"]["calls"] == 3
        assert rows[f"{process.key}/until exec"]["in_flight"] == 0


def test_a_daemon_that_closed_its_descriptors_is_still_followed(
    watch: Watch, tmp_path: Path
) -> None:
    source = """
with stage("step"):
    pass
hold()
os.closerange(3, 256)
for _ in range(5):
    with stage("step"):
        pass
say("closed")
time.sleep(60)
"""
    with Program(OWN, source, tmp_path) as program:
        program.until_ready()
        process = identify(program.pid)
        watch.on(process)
        watch.read()
        program.go_on()
        assert program.line() == "closed"
        for _ in range(3):
            rows = watch.read(after_s=2.0)
            assert rows[f"{process.key}/step"]["calls"] == 6


def test_durations_since_the_first_look_are_kept_by_step(watch: Watch) -> None:
    with written() as (memory,):
        memory.name(0, b"forward")
        cell = memory.cell(0, 0)
        memory.passes(cell, 100, 1 * MS)
        watch.on(memory.process)
        watch.read()
        assert watch.times == {}
        memory.passes(cell, 30, 2 * MS)
        memory.passes(cell, 4, 1 * MS)
        watch.read(after_s=1.0)
        assert [(row["calls"], row["inclusive_ns"]) for row in watch.times.values()] == [
            (4, 4 * MS),
            (30, 60 * MS),
        ]
        for key, row in watch.times.items():
            assert key.startswith(f"{memory.process.key}/forward#")
            each = number(row["inclusive_ns"]) / number(row["calls"])
            assert number(row["from_ns"]) <= each < number(row["to_ns"])


def test_durations_of_all_processes_of_the_target_are_one(watch: Watch) -> None:
    with written() as (one,), written() as (other,):
        cells = []
        for memory in (one, other):
            memory.name(0, b"load")
            cells.append(memory.cell(0, 0))
            memory.passes(cells[-1], 5, MS)
        watch.on(one.process, other.process)
        watch.read()
        one.passes(cells[0], 2, MS)
        other.passes(cells[1], 3, MS)
        watch.read(after_s=1.0)
        # A process that leaves does not take its passes away.
        watch.on(one.process)
        watch.read(after_s=1.0)
        watch.read(after_s=400.0)
        ((key, row),) = watch.times.items()
        assert key.startswith(f"{one.process.key}/load#")
        assert (row["calls"], row["inclusive_ns"]) == (5, 5 * MS)


def test_another_target_begins_from_nothing(watch: Watch) -> None:
    with written() as (memory,):
        memory.passes(memory.cell(0, 0), 1, MS)
        watch.on(memory.process)
        assert len(watch.read()) == 1
        watch.on(identify(os.getppid()))
        assert watch.read() == {}
        watch.target = None
        assert watch.collector.read() == ()


def test_a_process_that_comes_back_into_the_tree_is_read_again(watch: Watch) -> None:
    with written() as (memory,):
        cell = memory.cell(0, 0)
        memory.passes(cell, 1, MS)
        root = identify(os.getppid())
        watch.on(root, memory.process)
        assert len(watch.read()) == 1
        watch.on(root)
        (row,) = watch.read().values()
        assert row["gone"] == 1
        memory.passes(cell, 1, MS)
        watch.on(root, memory.process)
        (row,) = watch.read(after_s=2.0).values()
        assert (row["calls"], row["gone"]) == (2, 0)


def test_impossible_readings_are_left_out_and_said(watch: Watch) -> None:
    with written() as (memory,):
        memory.passes(memory.cell(0, 0), 3, MS)
        memory.cell(1, 0)[5 + 8] = 2**63
        watch.on(memory.process)
        (row,) = watch.read().values()
        assert row["calls"] == 3
        said = watch.context.exchange.probe
        assert isinstance(said, str)
        assert "1 impossible" in said


def test_rows_are_bounded_however_many_stages_processes_have(watch: Watch) -> None:
    with written(8) as memories:
        for number_, memory in enumerate(memories):
            for index in range(32):
                memory.name(index, b"%d-%d" % (number_, index))
                memory.passes(memory.cell(index, index), 1, MS)
        watch.on(memories[0].process)
        assert len(watch.read()) == 256 <= MAX_STAGE_ROWS


def test_descriptors_closed_to_us_are_denied_with_the_unlocking_command() -> None:
    with closed_process() as pid:

        def work() -> list[str]:
            watch = Watch().on(identify(pid))
            watch.read()
            said = watch.context.exchange.probe
            assert isinstance(said, Absent)
            return [said.state.value, said.reason]

        state, reason = unprivileged(work)
    assert state == State.DENIED.value
    assert f"sudo bottletop attach {pid}" in reason
