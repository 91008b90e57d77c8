"""Host memory: KiB become bytes, and what an old kernel does not write is not zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hosttree import HostTree, context_for, only, read_table

from bottletop.collectors.memory import MemoryCollector
from bottletop.model import Absent, State
from bottletop.tables.host import Memory

if TYPE_CHECKING:
    from pathlib import Path


def test_meminfo_and_vmstat_become_one_row(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write(
        "proc/meminfo",
        "MemTotal:       24012345 kB\nMemFree:         1000 kB\nMemAvailable:    5000 kB\n"
        "Buffers:          10 kB\nCached:          200 kB\nSwapCached:       99 kB\n"
        "Dirty:             7 kB\nShmem:            30 kB\nSwapTotal:         0 kB\n"
        "SwapFree:          0 kB\nHugePages_Total:   3\n",
    )
    tree.write("proc/vmstat", "nr_free_pages 250\npgmajfault 17\npswpin 1\npswpout 2\n")
    row = only(read_table(MemoryCollector(context_for(tree.live)), Memory))
    assert row["total_bytes"] == 24012345 * 1024
    assert row["available_bytes"] == 5000 * 1024
    assert row["cached_bytes"] == 210 * 1024
    assert (row["swap_total_bytes"], row["swap_free_bytes"]) == (0, 0)
    assert (row["major_faults"], row["swap_in_pages"], row["swap_out_pages"]) == (17, 1, 2)


def test_lines_that_are_missing_are_unsupported_by_name(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/meminfo", "MemTotal: 10 kB\nCached: 5 kB\nMemFree: x kB\n")
    tree.write("proc/vmstat", "")
    row = only(read_table(MemoryCollector(context_for(tree.live)), Memory))
    assert row["total_bytes"] == 10 * 1024
    for column, name in (
        ("available_bytes", "MemAvailable"),
        ("cached_bytes", "Cached"),
        ("free_bytes", "MemFree"),
        ("major_faults", "pgmajfault"),
    ):
        value = row[column]
        assert isinstance(value, Absent)
        assert value.state is State.UNSUPPORTED
        assert name in value.reason
