"""bottletop's own cost is a row like any other, and no row of a captured host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree, context_for, only, read_table

from bottletop.collectors.base import DriverTime, Unavailable
from bottletop.collectors.own import OwnCollector
from bottletop.model import NOT_READ
from bottletop.roots import Roots
from bottletop.tables.own import Own

if TYPE_CHECKING:
    from pathlib import Path


def test_our_own_cost_is_measured_and_the_runtimes_figures_are_added() -> None:
    context = context_for(Roots())
    context.stats.late_ticks = 3
    context.stats.engine_s = 0.00123
    context.stats.driver |= {"one": DriverTime(4_000_000, 5), "two": DriverTime(1_000_000, 2)}
    collector = OwnCollector(context)
    collector.open()
    row = only(read_table(collector, Own))
    for column, least in (("cpu_ns", 1e6), ("rss_bytes", 5e6), ("threads", 1)):
        value = row[column]
        assert isinstance(value, int)
        assert value >= least
    assert row["late_ticks"] == 3
    assert row["engine_s"] == pytest.approx(0.00123)
    assert (row["nvml_ns"], row["nvml_calls"], row["nvml_p95_s"]) == (5_000_000, 7, NOT_READ)


def test_our_cpu_time_grows_with_our_work() -> None:
    collector = OwnCollector(context_for(Roots()))
    first = only(read_table(collector, Own))["cpu_ns"]
    sum(range(3_000_000))
    second = only(read_table(collector, Own))["cpu_ns"]
    assert isinstance(first, int)
    assert isinstance(second, int)
    assert second > first


def test_on_a_captured_host_we_are_no_process(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="captured host"):
        OwnCollector(context_for(HostTree(tmp_path).captured)).open()
