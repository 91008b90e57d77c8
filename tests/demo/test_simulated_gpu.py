"""The simulated GPU reports what the watched stages did, and always that it is simulated."""

from __future__ import annotations

import os

import pytest

from bottletop.clock import ManualClock
from bottletop.collectors.base import Context
from bottletop.demo.busy import Glance
from bottletop.demo.gpu_model import Card
from bottletop.demo.simulated_gpu import GPU_KEY, SimulatedGpu, Tenant
from bottletop.model import NS_PER_S, Absent, Row, Sample, State, Table
from bottletop.roots import Roots
from bottletop.store import Store
from bottletop.tables import Gpu, GpuClockSample, GpuPowerSample, GpuProcess, GpuUtilSample

GIB = 1024**3


class SquareWave:
    """A process whose `forward` stage is entered every `period_s` for `busy_s`."""

    def __init__(
        self, clock: ManualClock, period_s: float, busy_s: float, pid: int = os.getpid()
    ) -> None:
        self.pid = pid
        self.gone = False
        self._start_ns = clock.monotonic_ns()
        self._period_ns, self._busy_ns = round(period_s * 1e9), round(busy_s * 1e9)

    def glance(self, now_ns: int) -> Glance | None:
        if self.gone:
            return None
        passes, inside_ns = divmod(now_ns - self._start_ns, self._period_ns)
        completed_ns = passes * self._busy_ns
        if inside_ns < self._busy_ns:
            return Glance(completed_ns, now_ns - inside_ns)
        return Glance(completed_ns + self._busy_ns, None)

    def close(self) -> None:
        self.gone = True


class Bench:
    """A collector on a stepped clock, and the store it fills."""

    def __init__(self, *waves: tuple[float, float], card: Card | None = None) -> None:
        self.clock = ManualClock()
        self.waves = [
            SquareWave(self.clock, *wave, pid=os.getpid() + number)
            for number, wave in enumerate(waves)
        ]
        context = Context(clock=self.clock, roots=Roots())
        tenants = [Tenant(wave, (number + 1) * GIB) for number, wave in enumerate(self.waves)]
        self.gpu = SimulatedGpu(context, card or Card(), tenants)
        self.store = Store()
        self.samples: dict[type[Table], Sample] = {}

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            for _ in range(50):
                self.clock.advance(0.02)
                self.gpu.advance()
            for sample in self.gpu.read():
                self.samples[sample.table] = sample
                self.store.ingest(sample)

    def value(self, metric: object) -> object:
        return self.row(Gpu).values[metric.index]  # type: ignore[attr-defined]

    def row(self, table: type[Table]) -> Row:
        return self.samples[table].rows[0]


def test_every_row_says_that_it_is_simulated() -> None:
    bench = Bench((1.0, 0.5))
    bench.run(1)
    assert bench.value(Gpu.model) == "simulated GPU"
    assert bench.value(Gpu.provenance) == "simulated"
    assert SimulatedGpu.simulated == "simulated GPU"
    assert GPU_KEY == bench.row(Gpu).key == bench.row(GpuUtilSample).key


def test_the_sawtooth_of_the_stage_is_in_the_utilisation_samples() -> None:
    bench = Bench((1.2, 0.5))
    bench.run(24)
    view = bench.store.view(bench.clock.monotonic_ns())
    series = view.series(GpuUtilSample.util_pct, GPU_KEY, 24)
    edges = sum(
        1
        for before, after in zip(series.values, series.values[1:], strict=False)
        if before < 30 <= after
    )
    assert max(series.values) == 100
    assert min(series.values) == 0
    assert 18 <= edges <= 20
    assert sum(series.values) / len(series.values) == pytest.approx(100 * 0.5 / 1.2, abs=1.5)


def test_power_samples_energy_and_reported_power_tell_the_same_story() -> None:
    bench = Bench((1.0, 0.6))
    bench.run(20)
    view = bench.store.view(bench.clock.monotonic_ns())
    samples = view.series(GpuPowerSample.power_w, GPU_KEY, 10).values
    energy = view.growth(Gpu.energy_mj, GPU_KEY, 10)
    assert energy.per_s / 1000 == pytest.approx(sum(samples) / len(samples), rel=0.02)
    assert energy.per_s / 1000 == pytest.approx(view.mean(Gpu.power_w, GPU_KEY, 10), rel=0.02)


def test_samples_are_stamped_in_order_within_the_time_that_passed() -> None:
    bench = Bench((1.0, 0.6))
    bench.run(1)
    for table in (GpuUtilSample, GpuPowerSample, GpuClockSample):
        stamps = [row.t_ns for row in bench.samples[table].rows]
        assert stamps == sorted(set(stamps))
        assert bench.clock.monotonic_ns() - NS_PER_S <= stamps[0]
        assert stamps[-1] <= bench.clock.monotonic_ns()


def test_a_limited_card_shows_limit_bit_and_counter_together() -> None:
    bench = Bench((1.0, 1.0), card=Card(power_limit_w=175.0))
    bench.run(20)
    view = bench.store.view(bench.clock.monotonic_ns())
    assert bench.value(Gpu.power_limit_w) == bench.value(Gpu.power_limit_requested_w) == 175.0
    assert bench.value(Gpu.power_limit_default_w) == 350.0
    assert bench.value(Gpu.clock_event_reasons) == 0x4
    assert view.growth(Gpu.throttle_sw_power_ns, GPU_KEY, 10).per_s == pytest.approx(1e9)
    assert view.growth(Gpu.throttle_sw_thermal_ns, GPU_KEY, 10).amount == 0
    assert view.mean(Gpu.sm_clock_mhz, GPU_KEY, 10) < 0.85 * 1980


def test_two_processes_are_listed_with_their_shares() -> None:
    bench = Bench((1.0, 1.0), (1.0, 1.0))
    bench.run(3)
    rows = bench.samples[GpuProcess].rows
    assert [row.key for row in rows] == [f"{GPU_KEY}/{wave.pid}" for wave in bench.waves]
    assert [row.values[GpuProcess.sm_util_pct.index] for row in rows] == [50, 50]
    assert bench.value(Gpu.util_pct) == 100
    assert bench.value(Gpu.mem_used_bytes) == 3 * GIB


def test_a_process_that_went_away_leaves_the_gpu() -> None:
    bench = Bench((1.0, 1.0))
    bench.run(2)
    bench.waves[0].gone = True
    bench.run(3)
    assert bench.samples[GpuProcess].rows == ()
    assert bench.value(Gpu.util_pct) == 0
    assert bench.value(Gpu.mem_used_bytes) == 0


def test_what_is_not_modelled_is_absent_never_zero() -> None:
    bench = Bench((1.0, 1.0))
    bench.run(1)
    for metric in (Gpu.fan_pct, Gpu.temp_mem_c, Gpu.driver, Gpu.pci_bus_id):
        value = bench.value(metric)
        assert isinstance(value, Absent)
        assert value.state is State.NOT_APPLICABLE
    assert not [
        metric.id
        for metric in Gpu.columns
        if isinstance(bench.value(metric), Absent) and bench.value(metric).state is State.NOT_READ  # type: ignore[attr-defined]
    ]


def test_a_monitor_that_was_held_up_catches_up_without_losing_time() -> None:
    bench = Bench((1.0, 0.5))
    bench.run(2)
    bench.clock.advance(3.0)
    bench.run(2)
    view = bench.store.view(bench.clock.monotonic_ns())
    stamps = view.series(GpuUtilSample.util_pct, GPU_KEY, 7).t_ns
    assert len(stamps) == 7 * 6
    assert sum(view.series(GpuUtilSample.util_pct, GPU_KEY, 7).values) / len(
        stamps
    ) == pytest.approx(50, abs=3)


def test_open_follows_by_itself_and_close_ends_it() -> None:
    bench = Bench((1.0, 1.0))
    bench.gpu.open()
    bench.gpu.open()
    bench.gpu.close()
    bench.gpu.close()
    assert bench.waves[0].gone
