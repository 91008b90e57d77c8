"""What the collector asks of the driver. Every call takes a lock that the watched job needs too."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bottletop.model import Absent, State
from bottletop.store import Store
from bottletop.tables.gpu import OK, Gpu, GpuProcess
from nvml.build import build
from nvml.host import Host, scenario_path

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from bottletop.model import Value
    from nvml.build import CallStats

    from .conftest import MakeHost

ONE = "GPU-00000000-0000-0000-0000-000000000000"
TICKS = 20
GPUS = 8


def asked(host: Host, ticks: int) -> dict[str, int]:
    """Calls by function over so many ticks."""
    before: dict[str, CallStats] = host.calls()
    host.ticks(ticks)
    return {
        name: stat.calls - (before[name].calls if name in before else 0)
        for name, stat in host.calls().items()
    }


def big_host(tmp_path: Path, library: Path) -> Host:
    """The bench's host; its PIDs are ours, so that they are real."""
    variables = {f"PID{number}": str(os.getpid() + number) for number in range(20)}
    return Host(
        tmp_path / "host", library, scenario_path("eight-gpus"), start_s=30, variables=variables
    )


def test_eight_gpus_cost_few_calls_and_none_that_block(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    library = build(tmp_path_factory.getbasetemp())
    with big_host(tmp_path, library) as host:
        host.open()
        first = host.tick()
        assert len(first.rows(Gpu)) == GPUS
        assert len(first.rows(GpuProcess)) == 20
        calls = asked(host, TICKS)
        a_second = {name: count / TICKS / GPUS for name, count in calls.items()}
        assert sum(a_second.values()) <= 14.0
        assert a_second["nvmlDeviceGetSamples"] == 3  # utilisation, power, clock: one call each
        # A batch a second, limits every 5 s, health and links together every 10 s.
        assert a_second["nvmlDeviceGetFieldValues"] <= 1.31
        assert a_second["nvmlDeviceGetProcessUtilization"] <= 1.1
        assert a_second["nvmlDeviceGetComputeRunningProcesses_v3"] <= 0.21
        for rare in ("FanSpeed", "EncoderUtilization", "OfaUtilization", "BAR1MemoryInfo"):
            assert a_second[f"nvmlDeviceGet{rare}"] <= 0.11
        assert a_second["nvmlDeviceGetClockInfo"] == 1  # memory; the SM clock is in its buffer
        for slow in ("PerformanceState", "CurrPcieLinkGeneration", "MigMode", "TemperatureV"):
            assert a_second[f"nvmlDeviceGet{slow}"] <= 0.21
        for once in ("nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetMaxClockInfo"):
            assert calls[once] == 0
        for never in ("PcieThroughput", "TotalEccErrors", "RemappedRows", "NvLinkState"):
            assert calls.get(f"nvmlDeviceGet{never}", 0) == 0


def test_slow_readings_of_many_gpus_are_spread_over_the_seconds(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    library = build(tmp_path_factory.getbasetemp())
    with big_host(tmp_path, library) as host:
        host.open()
        host.ticks(6)
        per_tick = [asked(host, 1) for _ in range(10)]
    slow = [calls["nvmlDeviceGetPerformanceState"] for calls in per_tick]
    assert sum(slow) == 2 * GPUS
    assert max(slow) == 2
    rare = [calls["nvmlDeviceGetBAR1MemoryInfo"] for calls in per_tick]
    assert sum(rare) == GPUS
    assert max(rare) == 2


# -- a driver that is slow ---------------------------------------------------------------------


SLOW_CALLS = "slow nvmlDeviceGetSamples 60 {since} {until}\n"


def test_a_slow_driver_is_read_more_rarely_and_its_values_are_late_not_lost(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(SLOW_CALLS.format(since=20, until=1000) + "gpu\n  busy 40\n  process 7 10 1")
    host.open()
    store = Store()
    backoff: list[Value] = []
    for _ in range(120):
        read = host.tick(max(0.0, 1.0 - host.clock.t_ns / 1e9 % 1.0))
        for sample in read.samples:
            store.ingest(sample)
        view = store.view(host.clock.monotonic_ns())
        assert view.keys(Gpu) == [ONE]
        assert view.last(Gpu.health, ONE) == OK
        assert view.text(Gpu.model, ONE)
        assert view.keys(GpuProcess) == [f"{ONE}/7"]
        backoff.append(view.last(Gpu.driver_backoff, ONE))
    assert backoff[:20] == [1] * 20
    assert backoff[-1] == 2
    assert set(backoff) == {1, 2}
    assert view.mean(Gpu.util_pct, ONE, 30) == 40
    own = host.ask("own")
    before = own.nvml_ns
    host.ticks(20)
    assert (host.ask("own").nvml_ns - before) / 20e9 < 0.10
    # Reads that are left out do not make the account of a read look cheaper.
    assert host.ask("own").nvml_p95_s > 0.15


def test_a_very_slow_driver_is_read_every_ten_seconds_and_the_last_values_have_their_age(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(SLOW_CALLS.replace("60", "500").format(since=0, until=1000) + "gpu\n  busy 40")
    host.open()
    reads = [host.tick() for _ in range(150)]
    gpu_rows = [read for read in reads[-20:] if read.rows(Gpu)]
    late = [read for read in gpu_rows if isinstance(read.value(Gpu.util_pct, ONE), Absent)]
    assert 2 <= len(gpu_rows) - len(late) <= 3
    stale = late[-1].absent(Gpu.util_pct, ONE)
    assert stale.state is State.STALE
    assert stale.raw == 40
    assert "driver calls are slow" in stale.reason
    assert late[-1].value(Gpu.driver_backoff, ONE) == 10
    assert late[-1].value(Gpu.health, ONE) == OK


def test_a_driver_that_is_quick_again_is_read_as_asked_again(gpu_host: MakeHost) -> None:
    host = gpu_host(SLOW_CALLS.format(since=5, until=60) + "gpu\n  busy 40")
    host.open()
    reads = [host.tick() for _ in range(300)]
    seen = [read.value(Gpu.driver_backoff, ONE) for read in reads if read.rows(Gpu)]
    changes = [value for at, value in enumerate(seen) if at == 0 or value != seen[at - 1]]
    assert changes == [1, 2, 1]
    calls = host.calls()["nvmlDeviceGetUtilizationRates"].calls
    host.ticks(10)
    assert host.calls()["nvmlDeviceGetUtilizationRates"].calls - calls == 10


def test_slow_lists_alone_are_read_more_rarely_and_shown_late(gpu_host: MakeHost) -> None:
    host = gpu_host("slow nvmlDeviceGet*RunningProcesses* 400\ngpu\n  busy 40\n  process 7 10 1\n")
    host.open()
    host.ask("tell", "on_screen", frozenset({GpuProcess}))
    reads = [host.tick() for _ in range(90)]
    assert {read.value(Gpu.driver_backoff, ONE) for read in reads} == {1}
    assert not any(isinstance(read.value(Gpu.util_pct, ONE), Absent) for read in reads)
    listed = host.calls()["nvmlDeviceGetComputeRunningProcesses_v3"].calls
    assert listed < 30
