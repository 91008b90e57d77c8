"""A slow driver is read more rarely, comes back to its pace, and does not go to and fro."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bottletop.collectors.gpu_pace import STEPS, Held, Pace
from bottletop.model import NS_PER_S, Absent, Sample, State
from bottletop.store import Missing, Store
from bottletop.tables.gpu import OK, Gpu, GpuProcess, GpuUtilSample

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "GPU-a"


def drive(
    pace: Pace, cost_s: Callable[[float, Pace], float], seconds: int, start_s: int = 0
) -> list[int]:
    """Run a pace second by second; returns the fast factor of each second, 0 where not read."""
    found = []
    for second in range(start_s, start_s + seconds):
        now_ns = second * NS_PER_S
        if pace.is_due(now_ns):
            pace.note(now_ns, round(cost_s(second, pace) * NS_PER_S))
            found.append(pace.step.fast)
        else:
            found.append(0)
    return found


def steps_taken(pace: Pace, cost_s: Callable[[float, Pace], float], seconds: int) -> list[int]:
    """Places in `STEPS`, one for each change."""
    taken = [STEPS.index(pace.step)]
    for second in range(seconds):
        now_ns = second * NS_PER_S
        if pace.is_due(now_ns):
            pace.note(now_ns, round(cost_s(second, pace) * NS_PER_S))
        if STEPS.index(pace.step) != taken[-1]:
            taken.append(STEPS.index(pace.step))
    return taken


def test_a_quick_driver_is_read_as_asked() -> None:
    assert set(drive(Pace(1), lambda *_: 0.09, 300)) == {1}


def test_one_stall_changes_nothing() -> None:
    assert set(drive(Pace(1), lambda second, _: 3.0 if second == 20 else 0.02, 60)) == {1}


def test_lists_become_rarer_first_then_everything() -> None:
    pace = Pace(1)
    assert steps_taken(pace, lambda *_: 5.0, 400) == [0, 1, 2, 3, 4]
    assert STEPS[1].fast == 1
    assert STEPS[1].slow > 1


def test_the_share_of_time_in_driver_calls_comes_down_to_what_is_allowed() -> None:
    pace = Pace(1)
    drive(pace, lambda *_: 0.4, 100)
    assert pace.step.fast == 5
    assert 0.4 / pace.step.fast <= 0.10


def test_where_the_lists_were_what_cost_the_rest_is_read_as_asked() -> None:
    pace = Pace(1)
    factors = drive(pace, lambda _, pace: 0.5 / pace.step.slow if pace.step.slow == 1 else 0.06, 60)
    assert set(factors) == {1}
    assert pace.step.slow == 4


def test_a_driver_that_recovers_is_read_as_asked_again() -> None:
    pace = Pace(1)
    drive(pace, lambda *_: 5.0, 200)
    assert pace.step.fast == 10
    drive(pace, lambda *_: 0.01, 600, 200)
    assert pace.step == STEPS[0]
    assert set(drive(pace, lambda *_: 0.01, 20, 800)) == {1}


@pytest.mark.parametrize("cost_s", [0.11, 0.15, 0.19, 0.3, 0.45, 0.9])
def test_a_steady_cost_leads_to_one_pace(cost_s: float) -> None:
    taken = steps_taken(Pace(1), lambda *_: cost_s, 3600)
    assert taken == sorted(set(taken))


def test_lists_that_cost_too_much_are_tried_again_ever_more_rarely() -> None:
    # At the slow pace nothing shows what the lists would cost at the quick one: only trying does.
    taken = steps_taken(Pace(1), lambda _, pace: 0.3 if pace.step.slow == 1 else 0.01, 3600)
    assert set(taken) == {0, 1}
    assert len(taken) <= 2 * 10


# -- what is late --------------------------------------------------------------------------------


def gpu_sample(t_s: float) -> Sample:
    t_ns = round(t_s * NS_PER_S)
    values = {
        Gpu.index: 0,
        Gpu.model: "H100",
        Gpu.health: OK,
        Gpu.util_pct: 80,
        Gpu.fan_pct: Absent.unsupported("no fan"),
        Gpu.energy_mj: round(t_s * 300_000),
    }
    return Sample("gpu", Gpu, t_ns, 0, (Gpu.row(KEY, t_ns, values),))


def process_sample(t_s: float) -> Sample:
    t_ns = round(t_s * NS_PER_S)
    values = {GpuProcess.gpu: KEY, GpuProcess.pid: 7, GpuProcess.mem_bytes: 4096}
    return Sample("gpu", GpuProcess, t_ns, 0, (GpuProcess.row(f"{KEY}/7", t_ns, values),))


def test_a_gpu_that_is_read_rarely_stays_alive_and_its_values_are_late() -> None:
    held, store = Held(), Store()
    for second in range(60):
        now_ns = second * NS_PER_S
        if second % 10 == 0:
            samples = [gpu_sample(second)]
            held.keep(samples)
        for sample in [*(samples if second % 10 == 0 else []), *held.late(now_ns)]:
            store.ingest(sample)
        view = store.view(now_ns)
        assert view.keys(Gpu) == [KEY]
        assert view.text(Gpu.model, KEY) == "H100"
        assert view.last(Gpu.health, KEY) == OK
        value = view.last(Gpu.util_pct, KEY)
        if second % 10 <= 2:
            assert value == 80
        else:
            assert isinstance(value, Absent)
            assert value.state is State.STALE
            assert value.raw == 80
            assert f"{second % 10} s ago" in value.reason
            with pytest.raises(Missing):
                view.number(Gpu.util_pct, KEY)
        fan = view.last(Gpu.fan_pct, KEY)
        assert isinstance(fan, Absent)
        assert fan.state is State.UNSUPPORTED
    # What was really read is all there, and nothing else is taken for a reading.
    assert view.mean(Gpu.util_pct, KEY, 60) == 80
    assert view.growth(Gpu.energy_mj, KEY, 60).per_s == pytest.approx(300_000)
    assert len([v for v in view.series(Gpu.util_pct, KEY, 60).values if v == v]) == 6


def test_late_processes_keep_their_names_and_are_not_told_each_second() -> None:
    held = Held()
    held.keep([process_sample(0)])
    told = [second for second in range(31) if held.late(second * NS_PER_S)]
    assert told == [11, 16, 21, 26]
    (sample,) = held.late(31 * NS_PER_S)
    assert sample.rows[0].values[GpuProcess.pid.index] == 7
    late = sample.rows[0].values[GpuProcess.mem_bytes.index]
    assert isinstance(late, Absent)
    assert late.raw == 4096


def test_what_is_read_on_time_is_never_told_again() -> None:
    held = Held()
    for second in range(30):
        held.keep([gpu_sample(second)])
        assert held.late(second * NS_PER_S) == []


def test_an_empty_sample_ends_it() -> None:
    held = Held()
    held.keep([process_sample(0)])
    held.keep([Sample("gpu", GpuProcess, NS_PER_S, 0, ())])
    assert held.late(100 * NS_PER_S) == []


def test_streams_are_not_told_again() -> None:
    held = Held()
    row = GpuUtilSample.row(KEY, 0, {GpuUtilSample.util_pct: 5})
    held.keep([Sample("gpu", GpuUtilSample, 0, 0, (row,))])
    assert held.late(100 * NS_PER_S) == []
