"""A process's `forward` stage is seen through its real probe, and only while that process lives."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from bottletop.demo.busy import BusyLine
from bottletop.demo.forward import ForwardStage
from bottletop.linux.procfs import read_stat
from bottletop.model import ProcessId
from bottletop.roots import Roots

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Program


def test_glances_add_up_to_what_the_probe_counted(start: Callable[..., Program]) -> None:
    program = start("inline")
    stage, line = ForwardStage(Roots(), program.id), BusyLine()
    program.wait_for_passes(1)
    first_ns = time.monotonic_ns()
    before = stage.glance(first_ns)
    assert before is not None
    line.see(first_ns, before)
    line.take(first_ns)
    calls = program.stages()["forward"].calls
    while program.stages()["forward"].calls < calls + 2:
        line.see(now_ns := time.monotonic_ns(), stage.glance(now_ns))
        time.sleep(0.02)
    last_ns = time.monotonic_ns()
    after = stage.glance(last_ns)
    assert after is not None
    line.see(last_ns, after)
    under_way = [
        now_ns - glance.in_flight_since_ns if glance.in_flight_since_ns else 0
        for now_ns, glance in ((first_ns, before), (last_ns, after))
    ]
    counted_ns = after.completed_ns - before.completed_ns + under_way[1] - under_way[0]
    assert abs(line.take(last_ns) - counted_ns) < 2_000_000
    stage.close()


def test_a_process_that_ended_shows_nothing(start: Callable[..., Program]) -> None:
    program = start("prefetching")
    program.wait_for_passes(1)
    stage = ForwardStage(Roots(), program.id)
    assert stage.glance(time.monotonic_ns()) is not None
    program.process.kill()
    program.process.wait()
    assert stage.glance(time.monotonic_ns()) is None
    stage.close()
    stage.close()


def test_a_reused_pid_is_not_taken_for_the_process(start: Callable[..., Program]) -> None:
    program = start("prefetching")
    program.wait_for_passes(1)
    other = ForwardStage(Roots(), ProcessId(program.pid, program.id.start_ticks - 1))
    assert other.glance(time.monotonic_ns()) is None


def test_a_process_without_a_probe_shows_nothing() -> None:
    own = ProcessId(os.getppid(), read_stat(Roots(), os.getppid()).start_ticks)
    assert ForwardStage(Roots(), own).glance(time.monotonic_ns()) is None
