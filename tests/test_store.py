"""The store gives back what went in, and says unknown where it must."""

from __future__ import annotations

from random import Random

import pytest

from bottletop.model import NS_PER_S, Absent, Sample, State, Value
from bottletop.store import Missing, Store
from bottletop.tables import Disk, Gpu, GpuUtilSample


def gpu_sample(t_s: float, **columns: Value) -> Sample:
    t_ns = round(t_s * NS_PER_S)
    values = {getattr(Gpu, name): value for name, value in columns.items()}
    return Sample("gpu", Gpu, t_ns, 1000, (Gpu.row("GPU-a", t_ns, values),))


def test_an_absent_value_is_missing_and_never_zero() -> None:
    store = Store()
    store.ingest(gpu_sample(1, util_pct=Absent.unsupported("MIG is on"), power_w=71.26))
    view = store.view(round(1.2 * NS_PER_S))
    with pytest.raises(Missing, match="unsupported: MIG is on"):
        view.number(Gpu.util_pct, "GPU-a")
    with pytest.raises(Missing):
        view.mean(Gpu.util_pct, "GPU-a", 10)
    assert view.number(Gpu.power_w, "GPU-a") == pytest.approx(71.3)


def test_a_value_older_than_two_periods_is_stale() -> None:
    store = Store()
    store.ingest(gpu_sample(1, util_pct=80))
    fresh, late = store.view(3 * NS_PER_S), store.view(5 * NS_PER_S)
    assert fresh.last(Gpu.util_pct, "GPU-a") == 80
    stale = late.last(Gpu.util_pct, "GPU-a")
    assert isinstance(stale, Absent)
    assert stale.state is State.STALE
    assert stale.raw == 80
    assert late.keys(Gpu) == []
    with pytest.raises(Missing, match="stale"):
        late.mean(Gpu.util_pct, "GPU-a", 10)


def test_a_table_that_is_filled_slowly_is_fresh_and_looked_back_on_at_its_own_pace() -> None:
    store = Store({Gpu: 60.0})
    for minute in range(20):
        store.ingest(gpu_sample(1 + 60 * minute, util_pct=minute, energy_mj=minute * 60_000))
    view = store.view((1 + 60 * 19 + 110) * NS_PER_S)
    assert view.last(Gpu.util_pct, "GPU-a") == 19
    assert view.keys(Gpu) == ["GPU-a"]
    assert (view.period_s(Gpu), view.reach_s(Gpu, 5)) == (60, 300)
    assert list(view.series(Gpu.util_pct, "GPU-a", 5).values) == [16, 17, 18, 19]
    assert view.growth(Gpu.energy_mj, "GPU-a", 10).per_s == pytest.approx(1000)
    assert len(view.series(Gpu.util_pct, "GPU-a", 300).values) == 20
    assert isinstance(store.view((1 + 60 * 22) * NS_PER_S).last(Gpu.util_pct, "GPU-a"), Absent)


def test_a_table_that_is_filled_faster_than_declared_keeps_its_windows() -> None:
    store = Store({Gpu: 0.1})
    assert store.view(0).reach_s(Gpu, 30) == 30


def test_an_entity_that_left_the_newest_sample_is_gone() -> None:
    store = Store()
    for t_s, names in ((1, ("sda", "sdb")), (2, ("sdb",))):
        t_ns = t_s * NS_PER_S
        rows = tuple(Disk.row(name, t_ns, {Disk.reads: 1}) for name in names)
        store.ingest(Sample("disk", Disk, t_ns, 1000, rows))
    assert store.view(2 * NS_PER_S).keys(Disk) == ["sdb"]


def test_a_counter_reset_loses_its_step_and_not_the_window() -> None:
    store = Store()
    for t_s, value in enumerate((100, 200, 5, 105), start=1):
        store.ingest(gpu_sample(t_s, energy_mj=value))
    view = store.view(4 * NS_PER_S)
    growth = view.growth(Gpu.energy_mj, "GPU-a", 60)
    assert (growth.amount, growth.span_s) == (200, 3)
    rates = list(view.rates(Gpu.energy_mj, "GPU-a", 60).values)
    assert rates[0] == 100
    assert rates[1] != rates[1]
    assert rates[2] == 100


def test_growth_needs_two_readings() -> None:
    store = Store()
    store.ingest(gpu_sample(1, energy_mj=100))
    with pytest.raises(Missing, match="two readings"):
        store.view(NS_PER_S).growth(Gpu.energy_mj, "GPU-a", 60)


def test_growth_of_a_gauge_is_a_programming_error() -> None:
    with pytest.raises(TypeError):
        Store().view(0).growth(Gpu.util_pct, "GPU-a", 60)


def test_a_row_that_goes_back_in_time_is_refused() -> None:
    store = Store()
    store.ingest(gpu_sample(2, util_pct=50))
    store.ingest(gpu_sample(1, util_pct=10))
    view = store.view(2 * NS_PER_S)
    assert list(view.series(Gpu.util_pct, "GPU-a", 60).values) == [50]


def test_recent_samples_come_back_exactly_and_in_arrival_order() -> None:
    store = Store()
    sent: list[Sample] = []
    for second in range(1, 700):
        util: Value = second % 101 if second % 7 else Absent.error(f"try {second // 70}")
        sent.append(
            gpu_sample(second, util_pct=util, power_w=second * 0.3, model=f"m{second // 99}")
        )
        t_ns = second * NS_PER_S
        rows = tuple(
            GpuUtilSample.row("GPU-a", t_ns - step * 10**8, {GpuUtilSample.util_pct: second % 100})
            for step in (5, 3, 1)
        )
        sent.append(Sample("gpu", GpuUtilSample, t_ns, 5, rows))
    numbers = [store.ingest(sample) for sample in sent]
    since_ns = 500 * NS_PER_S
    expected = [
        (number, sample)
        for number, sample in zip(numbers, sent, strict=True)
        if sample.t_ns > since_ns
    ]
    assert store.recent(since_ns) == expected


def test_a_stream_entity_lives_while_its_newest_row_is_fresh() -> None:
    store = Store()
    t_ns = 10 * NS_PER_S
    row = GpuUtilSample.row("GPU-a", t_ns, {GpuUtilSample.util_pct: 1})
    store.ingest(Sample("gpu", GpuUtilSample, t_ns, 5, (row,)))
    store.ingest(Sample("gpu", GpuUtilSample, t_ns + NS_PER_S, 5, ()))
    assert store.view(t_ns + NS_PER_S).keys(GpuUtilSample) == ["GPU-a"]
    assert store.view(t_ns + 9 * NS_PER_S).keys(GpuUtilSample) == []


def test_trends_keep_a_mean_per_second_and_per_minute() -> None:
    store = Store()
    for tick in range(4 * 300):
        store.ingest(gpu_sample(1 + tick / 4, util_pct=tick % 4 * 10))
    view = store.view(round(300.9 * NS_PER_S))
    second = view.trend(Gpu.util_pct, "GPU-a", 600)
    minute = view.trend(Gpu.util_pct, "GPU-a", 7200)
    assert set(second.values) == {15.0}
    assert len(minute.values) == 5
    assert minute.values[1] == pytest.approx(15)


def test_two_sources_of_one_table_do_not_end_each_others_entities() -> None:
    store = Store()
    for t_s, source, names in (
        (1, "disk", ("sda", "sdb")),
        (1.5, "other", ("nbd0",)),
        (2, "disk", ("sda",)),
    ):
        t_ns = round(t_s * NS_PER_S)
        rows = tuple(Disk.row(name, t_ns, {Disk.reads: 1}) for name in names)
        store.ingest(Sample(source, Disk, t_ns, 1000, rows))
    assert store.view(2 * NS_PER_S).keys(Disk) == ["sda", "nbd0"]
    store.ingest(Sample("disk", Disk, 5 * NS_PER_S, 1000, (Disk.row("sda", 5 * NS_PER_S, {}),)))
    assert store.view(5 * NS_PER_S).keys(Disk) == ["sda"]


def test_growth_is_the_same_however_often_it_was_asked_for_before() -> None:
    """What a look keeps for the next one never changes an answer."""
    rng = Random(5)
    asked = Store()
    samples = []
    total = 0
    for t_s in range(1, 700):
        total += rng.choice((0, 3, 40))
        if rng.random() < 0.01:
            total = rng.randrange(20)
        gap = Absent.error("no answer") if rng.random() < 0.01 else total
        samples.append(gpu_sample(t_s, energy_mj=gap))
        asked.ingest(samples[-1])
        view = asked.view(t_s * NS_PER_S)
        if t_s % 83 == 0:
            once = Store()
            once.ingest_many(samples)
            first = once.view(t_s * NS_PER_S)
            for span_s in (5, 30, 120, 280):
                wanted = first.growth(Gpu.energy_mj, "GPU-a", span_s)
                assert view.growth(Gpu.energy_mj, "GPU-a", span_s) == wanted
        elif t_s > 3 and not isinstance(gap, Absent):
            for span_s in rng.sample((5, 30, 120), 2):
                view.growth(Gpu.energy_mj, "GPU-a", span_s)


def test_the_ends_of_a_window_tell_all_counters_of_an_entity() -> None:
    store = Store()
    for t_s, (energy, received) in enumerate(((100, 7), (150, 9), (175, 2)), start=1):
        store.ingest(gpu_sample(t_s, energy_mj=energy, pcie_rx_bytes=received))
    view = store.view(3 * NS_PER_S)
    ends = view.ends(Gpu, "GPU-a", 60)
    assert ends is not None
    assert (ends.rows, ends.first_ns, ends.last_ns) == (3, NS_PER_S, 3 * NS_PER_S)
    assert ends.grown(Gpu.energy_mj) == 75
    assert ends.grown(Gpu.pcie_rx_bytes) is None, "it went back"
    assert ends.grown(Gpu.throttle_sw_power_ns) is None, "it was never read"
    assert view.ends(Gpu, "GPU-a", 1) is None, "one row has no growth"
    assert view.ends(Gpu, "GPU-b", 60) is None


def test_a_number_was_seen_only_within_the_window() -> None:
    store = Store()
    for t_s, state in enumerate((0, 8, 0, 0), start=1):
        store.ingest(gpu_sample(t_s, pstate=state))
    view = store.view(4 * NS_PER_S)
    assert view.saw(Gpu.pstate, "GPU-a", 8, 3)
    assert not view.saw(Gpu.pstate, "GPU-a", 8, 2)
    assert not view.saw(Gpu.pstate, "GPU-b", 0, 60)
