"""The driver's sample buffers: whole, in order, on our clock, and honest when they run dry."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from bottletop.collectors.gpu_samples import newest_run
from bottletop.model import NS_PER_S, Absent, State
from bottletop.tables.gpu import Gpu, GpuClockSample, GpuPowerSample, GpuUtilSample

if TYPE_CHECKING:
    from bottletop.model import Metric, Value
    from nvml.host import Host

    from .conftest import MakeHost

ONE = "GPU-00000000-0000-0000-0000-000000000000"
WINDOW_S = 1 / 6


def drain(
    host: Host, metric: Metric, ticks: int, seconds: float = 1.0
) -> list[tuple[float, Value]]:
    """(scenario second, cell) of every row of that many ticks."""
    return [
        (host.second(t_ns), cell)
        for read in host.ticks(ticks, seconds)
        for t_ns, cell in read.series(metric, ONE)
    ]


def test_every_sample_arrives_once_however_uneven_the_ticks_are(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  busy square 1 0.5 100 0")
    host.open()
    seen: list[tuple[float, Value]] = []
    for seconds in (0.9, 1.1, 0.3, 2.4, 0.05, 1.25):
        seen += drain(host, GpuUtilSample.util_pct, 1, seconds)
    assert [second for second, _ in seen] == pytest.approx(
        [n * WINDOW_S for n in range(1, 37)], abs=2e-6
    )
    assert [value for _, value in seen] == [100, 100, 100, 0, 0, 0] * 6


def test_samples_show_what_the_snapshot_aliases(gpu_host: MakeHost) -> None:
    # Busy for 0.3 s of every second: the snapshot looks at the idle end of each.
    host = gpu_host("gpu\n  busy square 1 0.3 100 0")
    host.open()
    reads = host.ticks(20)
    assert {read.number(Gpu.util_pct, ONE) for read in reads} == {0}
    values = [value for read in reads for _, value in read.series(GpuUtilSample.util_pct, ONE)]
    assert sum(v for v in values if not isinstance(v, (Absent, str))) / len(
        values
    ) == pytest.approx(30, abs=0.5)


@pytest.mark.parametrize("epoch", [0, 1])
def test_stamps_of_either_clock_land_on_ours(gpu_host: MakeHost, epoch: int) -> None:
    host = gpu_host(f"gpu\n  busy 50\n  stamp_epoch {epoch}")
    host.open()
    seen = drain(host, GpuUtilSample.util_pct, 3)
    assert [second for second, _ in seen] == pytest.approx(
        [n * WINDOW_S for n in range(1, 19)], abs=2e-6
    )
    read = host.tick()
    assert read.value(Gpu.stamp_domain, ONE) == ("epoch" if epoch else "boot")
    assert read.value(Gpu.stamp_correction_s, ONE) == 0


@pytest.mark.parametrize("period_ms", [100, 166.667, 200, 1000])
def test_the_interval_is_calibrated_from_the_stamps(gpu_host: MakeHost, period_ms: float) -> None:
    host = gpu_host(f"gpu\n  busy 50\n  buffer util {period_ms} 120")
    host.open()
    interval = host.ticks(8)[-1].number(Gpu.sample_interval_s, ONE)
    assert interval == pytest.approx(period_ms / 1000, abs=0.001)


def test_a_dry_buffer_is_idle_only_because_the_snapshot_says_so(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        gpu
          busy step 0 50 4 0
          buffer util 200 120 dry
          fail nvmlDeviceGetUtilizationRates timeout 8.5 12.5
        """
    )
    host.open()
    busy = drain(host, GpuUtilSample.util_pct, 4)
    assert {value for _, value in busy} == {50}
    idle = drain(host, GpuUtilSample.util_pct, 4)
    assert len(idle) >= 3
    assert {value for _, value in idle} == {0}
    unread = drain(host, GpuUtilSample.util_pct, 4)
    assert unread == []
    assert {value for _, value in drain(host, GpuUtilSample.util_pct, 3)} == {0}


def test_nothing_new_since_a_moment_ago_is_not_idleness(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  busy 70")
    host.open()
    host.ticks(3)
    assert {value for _, value in drain(host, GpuUtilSample.util_pct, 30, 0.05)} == {70}


def test_work_after_a_dry_spell_follows_in_order(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  busy step 0 50 4 0 9.4 80\n  buffer util 166.667 120 dry")
    host.open()
    seen = drain(host, GpuUtilSample.util_pct, 14)
    seconds = [second for second, _ in seen]
    assert seconds == sorted(seconds)
    assert [value for second, value in seen if second > 9.7] == [80] * len(
        [second for second in seconds if second > 9.7]
    )
    assert {value for second, value in seen if 5 < second < 9.3} == {0}


def test_without_buffers_the_snapshot_is_polled_and_the_interval_says_so(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host("gpu\n  busy 33\n  fail sample:* not-supported")
    host.open()
    reads = host.ticks(8)
    assert [len(read.rows(GpuUtilSample)) for read in reads] == [1] * 8
    assert reads[-1].value(Gpu.stamp_domain, ONE) == "polled"
    assert reads[-1].number(Gpu.sample_interval_s, ONE) == 1.0
    assert host.calls()["nvmlDeviceGetSamples"].calls == 3  # one a kind, at the first read


def test_a_buffer_that_fails_for_a_while_is_asked_again(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  busy 33\n  fail sample:1 timeout 2.5 4.5")
    host.open()
    seen = drain(host, GpuUtilSample.util_pct, 8)
    # The driver has kept what was not fetched.
    assert [second for second, _ in seen] == pytest.approx(
        [n * WINDOW_S for n in range(1, 49)], abs=2e-6
    )


@pytest.mark.parametrize("change", ["step 0 0 10 1", "step 0 1 10 0"])
def test_a_change_of_the_stamping_clock_is_survived(gpu_host: MakeHost, change: str) -> None:
    host = gpu_host(f"gpu\n  busy 45\n  stamp_epoch {change}")
    host.open()
    reads = host.ticks(25)
    _never_far_from_now(host, [row.t_ns for read in reads for row in read.rows(GpuUtilSample)])
    assert len(reads[-1].rows(GpuUtilSample)) == 6


def _never_far_from_now(host: Host, stamps: list[int]) -> None:
    assert stamps == sorted(set(stamps))
    seconds = [host.second(t_ns) for t_ns in stamps]
    gaps = [after - before for before, after in pairwise(seconds)]
    assert max(gaps) < 1.5
    assert 24 < seconds[-1] < 25.1


def test_stamps_that_go_back_do_not_stop_the_series(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  busy 45\n  stamp_shift step 0 0 10 -100")
    host.open()
    reads = host.ticks(25)
    _never_far_from_now(host, [row.t_ns for read in reads for row in read.rows(GpuUtilSample)])
    assert reads[-1].number(Gpu.stamp_correction_s, ONE) == pytest.approx(100, abs=0.5)


@pytest.mark.parametrize("wall_step_s", [-3600.0, 3600.0])
def test_a_wall_clock_step_moves_no_sample(gpu_host: MakeHost, wall_step_s: float) -> None:
    # The driver goes on stamping by the old wall time.
    host = gpu_host("gpu\n  busy 45\n  stamp_epoch 1")
    host.open()
    reads = host.ticks(10)
    host.ask("skew", 0.0, wall_step_s)
    reads += host.ticks(15)
    _never_far_from_now(host, [row.t_ns for read in reads for row in read.rows(GpuUtilSample)])


def test_a_driver_clock_that_has_drifted_is_put_back(gpu_host: MakeHost) -> None:
    # As CLOCK_MONOTONIC_RAW does from CLOCK_MONOTONIC over weeks.
    host = gpu_host("gpu\n  busy 45")
    host.ask("skew", 9.0, 0.0)
    host.open()
    host.ticks(4)
    read = host.tick()
    now_ns = host.clock.monotonic_ns() + 9 * NS_PER_S
    assert 0 <= now_ns - read.rows(GpuUtilSample)[-1].t_ns < 0.2 * NS_PER_S
    assert read.number(Gpu.stamp_correction_s, ONE) == pytest.approx(9, abs=0.2)


def test_an_absurd_sample_is_kept_as_such_and_spoils_no_other(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  busy step 0 40 2 1100 2.1666667 40")
    host.open()
    seen = drain(host, GpuUtilSample.util_pct, 4)
    odd = [value for _, value in seen if isinstance(value, Absent)]
    assert [(value.state, value.raw) for value in odd] == [(State.IMPLAUSIBLE, 1100)]
    assert {value for _, value in seen if not isinstance(value, Absent)} == {40}


@pytest.mark.parametrize("kind", ["", "double", "ull"])
def test_the_value_type_that_the_driver_names_is_used(gpu_host: MakeHost, kind: str) -> None:
    host = gpu_host(f"gpu\n  power 123.4\n  buffer power 20 120 {kind}")
    host.open()
    seen = drain(host, GpuPowerSample.power_w, 2)
    assert len(seen) == 100
    assert [value for _, value in seen] == pytest.approx([123.4] * 100)


def test_one_gpu_keeps_every_power_and_clock_sample(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  power square 0.4 0.5 300 100\n  sm_clock square 0.4 0.5 1980 1200")
    host.open()
    host.ticks(2)
    read = host.tick()
    assert len(read.rows(GpuPowerSample)) == 50
    assert {row.values[0] for row in read.rows(GpuPowerSample)} == {100.0, 300.0}
    assert {row.values[0] for row in read.rows(GpuClockSample)} == {1200, 1980}
    assert read.number(Gpu.power_interval_s, ONE) == 0.02


def test_many_gpus_are_averaged_to_fewer_rows_of_the_same_mean(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  power square 0.4 0.3 300 100\n" + "gpu\n" * 7)
    host.open()
    reads = host.ticks(20)[2:]
    values = [cell for read in reads for _, cell in read.series(GpuPowerSample.power_w, ONE)]
    assert len(values) / len(reads) == pytest.approx(12.5, abs=0.6)
    assert sum(values) / len(values) == pytest.approx(160, abs=1)
    assert reads[-1].number(Gpu.power_interval_s, ONE) == pytest.approx(0.08)
    assert len(reads[-1].rows(GpuUtilSample, ONE)) == 6


def test_the_newest_run_ends_where_time_went_back_or_leapt() -> None:
    day_us = 86_400 * 10**6
    assert newest_run([1, 2, 3]) == 0
    assert newest_run([5, 6, 1, 2]) == 2
    assert newest_run([1, 2, 2, 3]) == 2
    assert newest_run([1, 2, 3 + day_us, 4 + day_us]) == 2
    assert newest_run([7]) == 0


def test_the_clock_of_the_tick_is_the_buffers_newest_or_else_the_plain_calls(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        "gpu\n  sm_clock step 0 1980 5.5 1200\n  busy step 0 50 8 0\n  buffer sm_clock 20 120 dry"
    )
    host.open()
    reads = host.ticks(12)
    clocks = [read.number(Gpu.sm_clock_mhz, ONE) for read in reads]
    assert clocks == [1980] * 5 + [1200] * 7
    # While it idles the buffer is dry, and the plain call is asked: for SM and memory.
    before = host.calls()["nvmlDeviceGetClockInfo"].calls
    host.ticks(5)
    assert host.calls()["nvmlDeviceGetClockInfo"].calls - before == 10


def test_an_absurd_clock_in_the_buffer_is_no_clock_of_the_tick(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  sm_clock 1980\n  garbage sample:5")
    host.open()
    assert host.ticks(3)[-1].number(Gpu.sm_clock_mhz, ONE) == 1980
