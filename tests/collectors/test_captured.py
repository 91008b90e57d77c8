"""A captured tree does not move: its counters must not turn into rates of zero."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree, context_for, read_table, target_of

from bottletop.collectors import COLLECTORS
from bottletop.collectors.base import Unavailable
from bottletop.collectors.core import CoreCollector
from bottletop.collectors.files import CAPTURED_ONCE, FileCollector
from bottletop.collectors.memory import MemoryCollector
from bottletop.model import NS_PER_S
from bottletop.store import Missing, Store
from bottletop.tables.host import Core, Memory

if TYPE_CHECKING:
    from pathlib import Path

STAT = "cpu0 {0} 0 200 1900 5 0 3 0 0 0\nintr 0\n"


def test_counters_of_a_capture_are_absent_once_they_are_seen_not_to_move(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/stat", STAT.format(400))
    context = context_for(tree.captured)
    collector, store = CoreCollector(context), Store()
    for _ in range(4):
        for sample in collector.read():
            store.ingest(sample)
        context.clock.advance(1)  # type: ignore[attr-defined]
    view = store.view(context.clock.monotonic_ns())
    assert view.last(Core.busy_ns, "cpu0") == CAPTURED_ONCE
    with pytest.raises(Missing, match="captured at one moment"):
        view.growth(Core.busy_ns, "cpu0", 10)


def test_gauges_of_a_capture_stay(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/meminfo", "MemTotal: 100 kB\n")
    tree.write("proc/vmstat", "pgmajfault 5\n")
    collector = MemoryCollector(context_for(tree.captured))
    for _ in range(3):
        row = read_table(collector, Memory)["host"]
    assert row["total_bytes"] == 102_400
    assert row["major_faults"] == CAPTURED_ONCE


def test_a_tree_that_something_rewrites_keeps_its_counters(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    context = context_for(tree.captured)
    collector, store = CoreCollector(context), Store()
    for step in range(5):
        tree.write("proc/stat", STAT.format(400 + 50 * step))
        for sample in collector.read():
            store.ingest(sample)
        context.clock.advance(1)  # type: ignore[attr-defined]
    view = store.view(context.clock.monotonic_ns())
    assert view.growth(Core.busy_ns, "cpu0", 10).per_s == pytest.approx(0.5 * NS_PER_S)


@pytest.mark.parametrize(
    "make", [one for one in COLLECTORS if isinstance(one, type) and issubclass(one, FileCollector)]
)
def test_an_empty_capture_ends_in_a_reason_never_in_another_exception(
    tmp_path: Path, make: type[FileCollector]
) -> None:
    tree = HostTree(tmp_path)
    process = tree.process(5)
    tree.remove("proc/5")
    collector = make(context_for(tree.captured, target_of(process)))
    with contextlib.suppress(Unavailable, OSError):
        collector.open()
        assert all(sample.source == make.name for sample in collector.read())
    collector.close()
    collector.close()
