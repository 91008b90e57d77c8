"""What the collector asks of the driver. Every call takes a lock that the watched job needs too."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bottletop.tables.gpu import Gpu, GpuProcess
from nvml.build import build
from nvml.host import Host, scenario_path

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from nvml.build import CallStats

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
        assert sum(a_second.values()) <= 15.6
        assert a_second["nvmlDeviceGetSamples"] == 3  # utilisation, power, clock: one call each
        # A batch a second, limits every 5 s, health and links together every 10 s.
        assert a_second["nvmlDeviceGetFieldValues"] <= 1.31
        assert a_second["nvmlDeviceGetProcessUtilization"] <= 1.1
        assert a_second["nvmlDeviceGetComputeRunningProcesses_v3"] <= 0.21
        for rare in ("FanSpeed", "EncoderUtilization", "OfaUtilization", "BAR1MemoryInfo"):
            assert a_second[f"nvmlDeviceGet{rare}"] <= 0.11
        for slow in ("PerformanceState", "CurrPcieLinkGeneration", "MigMode"):
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
