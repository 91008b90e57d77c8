"""Whole disks with their counters, whatever the kernel's format; partitions never among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree, context_for, only, read_table, target_of

from bottletop.collectors.base import Unavailable
from bottletop.collectors.disk import DiskCollector, parse_diskstats
from bottletop.model import NOT_READ, Absent, ProcessId, State
from bottletop.tables.host import Disk

if TYPE_CHECKING:
    from pathlib import Path

OLD = "   8       0 sda 10 1 80 30 4 2 16 40 1 50 70\n"
DISCARDS = "   8       0 sda 10 1 80 30 4 2 16 40 1 50 70 9 9 9 9\n"
FLUSHES = "   8       0 sda 10 1 80 30 4 2 16 40 1 50 70 9 9 9 9 8 8\n"


def disk(tree: HostTree, name: str, **files: str) -> None:
    folder = f"sys/devices/pci0/ata1/host0/block/{name}"
    tree.write(f"{folder}/size", "1000\n")
    for file, content in files.items():
        tree.write(f"{folder}/{file.replace('__', '/')}", content)
    tree.link(f"sys/block/{name}", f"../../{folder}")


@pytest.mark.parametrize("line", [OLD, DISCARDS, FLUSHES])
def test_every_kernels_format_gives_the_same_counters(tmp_path: Path, line: str) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/diskstats", line)
    disk(tree, "sda", queue__rotational="1\n", device__model="ST4000\n")
    row = only(read_table(DiskCollector(context_for(tree.live)), Disk))
    assert (row["reads"], row["writes"]) == (10, 4)
    assert (row["read_bytes"], row["write_bytes"]) == (80 * 512, 16 * 512)
    assert (row["read_ms"], row["write_ms"]) == (30, 40)
    assert (row["in_flight"], row["busy_ms"], row["queue_ms"]) == (1, 50, 70)
    assert (row["rotational"], row["transport"], row["model"]) == (1, "sata", "ST4000")
    assert row["size_bytes"] == 512_000


def test_partitions_and_unused_loop_and_memory_devices_are_left_out(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    idle, used = "0 0 0 0 0 0 0 0 0 0 0", "5 0 40 1 0 0 0 0 0 1 1"
    names = ["sda", "sda1", "loop0", "loop1", "ram0", "zram0", "zram1"]
    busy = {"sda", "sda1", "loop1", "zram1"}
    tree.write(
        "proc/diskstats",
        "".join(
            f" 8 {i} {name} {used if name in busy else idle}\n" for i, name in enumerate(names)
        ),
    )
    for name in names:
        if name != "sda1":
            disk(tree, name)
    assert set(read_table(DiskCollector(context_for(tree.live)), Disk)) == {"sda", "loop1", "zram1"}


def test_a_hot_plugged_disk_is_described_anew(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/diskstats", OLD)
    disk(tree, "sda", device__model="FIRST\n")
    collector = DiskCollector(context_for(tree.live))
    assert only(read_table(collector, Disk))["model"] == "FIRST"
    tree.write("proc/diskstats", "")
    assert read_table(collector, Disk) == {}
    tree.write("proc/diskstats", OLD)
    tree.write("sys/block/sda/device/model", "SECOND\n")
    assert only(read_table(collector, Disk))["model"] == "SECOND"


def test_static_facts_are_read_once_a_device(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/diskstats", OLD)
    disk(tree, "sda", device__model="FIRST\n")
    collector = DiskCollector(context_for(tree.live))
    read_table(collector, Disk)
    tree.write("sys/block/sda/device/model", "CHANGED\n")
    assert only(read_table(collector, Disk))["model"] == "FIRST"


def test_requests_in_flight_below_zero_are_implausible(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    for lost in ("-3", "4294967293"):
        tree.write("proc/diskstats", f"8 0 sda 1 1 1 1 1 1 1 1 {lost} 5 5\n")
        value = only(read_table(DiskCollector(context_for(tree.live)), Disk))["in_flight"]
        assert isinstance(value, Absent)
        assert (value.state, value.raw) == (State.IMPLAUSIBLE, int(lost))


def test_what_the_kernel_does_not_say_is_not_guessed(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/diskstats", "8 0 whatever 1 1 1 1 1 1 1 1 0 5 5\n")
    row = only(read_table(DiskCollector(context_for(tree.live)), Disk))
    for column in ("rotational", "transport", "model", "size_bytes"):
        value = row[column]
        assert isinstance(value, Absent)
        assert value.state is State.UNSUPPORTED


def test_the_disks_of_the_target_are_marked_once_they_are_known(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/diskstats", OLD + OLD.replace("sda", "sdb").replace(" 0 ", " 16 ", 1))
    alone = read_table(DiskCollector(context_for(tree.live)), Disk)["sda"]["holds_target"]
    assert isinstance(alone, Absent)
    assert alone.state is State.NOT_APPLICABLE
    context = context_for(tree.live, target_of(ProcessId(5, 1)))
    collector = DiskCollector(context)
    assert read_table(collector, Disk)["sda"]["holds_target"] == NOT_READ
    context.exchange.target_disks = frozenset({"sdb"})
    rows = read_table(collector, Disk)
    assert (rows["sda"]["holds_target"], rows["sdb"]["holds_target"]) == (0, 1)


def test_a_kernel_without_block_statistics_is_unavailable_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="diskstats"):
        DiskCollector(context_for(HostTree(tmp_path).live)).open()


def test_torn_lines_and_the_short_lines_of_old_partitions_are_left_out() -> None:
    raw = b"8 1 sda1 1 2 3 4\n8 0 sda\n\n8 0 sdb 1 1 1 1 1 1 x 1 1 5 5\n" + OLD.encode()
    assert list(parse_diskstats(raw)) == ["sda"]
