"""CPU times and frequencies: each CPU under its own number, guests once, no frequency invented."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree, context_for, only, read_table

from bottletop.collectors.core import FREQUENCIES_PER_READ, CoreCollector, parse_cpu_times
from bottletop.model import Absent, State
from bottletop.tables.host import Core

if TYPE_CHECKING:
    from pathlib import Path

TICK = 10_000_000


def with_frequency(tree: HostTree, number: int, khz: int) -> None:
    tree.write(f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_cur_freq", f"{khz}\n")


def test_guest_time_is_part_of_user_time_and_counted_once(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/stat", "cpu  0\ncpu0 400 20 200 1900 5 7 3 11 150 10\nintr 9021833 0\n")
    core = only(read_table(CoreCollector(context_for(tree.live)), Core))
    assert core["user_ns"] == 420 * TICK
    assert core["system_ns"] == 210 * TICK
    assert core["steal_ns"] == 11 * TICK
    assert core["busy_ns"] == (420 + 210 + 11) * TICK
    assert core["iowait_ns"] == 5 * TICK


def test_unplugged_cpus_are_absent_and_the_others_keep_their_numbers(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write(
        "proc/stat",
        "cpu  600 0 300 4000 10 0 5 0 0 0\n"
        "cpu0 400 0 200 1900 5 0 3 0 0 0\n"
        "cpu2 200 0 100 2100 5 0 2 0 0 0\n"
        "intr 9021833 0\n",
    )
    with_frequency(tree, 0, 2_400_000)
    with_frequency(tree, 1, 800_000)
    with_frequency(tree, 2, 3_100_000)
    cores = read_table(CoreCollector(context_for(tree.live)), Core)
    assert {key: core["freq_mhz"] for key, core in cores.items()} == {"cpu0": 2400, "cpu2": 3100}


def test_a_cpu_that_comes_back_is_asked_for_its_frequency_again(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    both = "cpu0 1 0 1 1 0 0 0 0\ncpu1 1 0 1 1 0 0 0 0\nintr 0\n"
    tree.write("proc/stat", both)
    with_frequency(tree, 0, 2_000_000)
    collector = CoreCollector(context_for(tree.live))
    first = read_table(collector, Core)
    missing = first["cpu1"]["freq_mhz"]
    assert isinstance(missing, Absent)
    assert missing.state is State.UNSUPPORTED
    tree.write("proc/stat", "cpu0 1 0 1 1 0 0 0 0\nintr 0\n")
    assert list(read_table(collector, Core)) == ["cpu0"]
    tree.write("proc/stat", both)
    with_frequency(tree, 1, 3_000_000)
    assert read_table(collector, Core)["cpu1"]["freq_mhz"] == 3000


def test_a_host_without_cpufreq_is_not_asked_twice(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/stat", "cpu0 1 0 1 1 0 0 0 0\nintr 0\n")
    collector = CoreCollector(context_for(tree.live))
    read_table(collector, Core)
    with_frequency(tree, 0, 2_000_000)
    again = only(read_table(collector, Core))["freq_mhz"]
    assert isinstance(again, Absent)
    assert again.state is State.UNSUPPORTED


def test_on_a_big_host_frequencies_are_read_in_turn_until_all_are_known(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    count = FREQUENCIES_PER_READ * 4
    lines = [f"cpu{number} 1 0 1 1 0 0 0 0" for number in range(count)]
    tree.write("proc/stat", "\n".join([*lines, "intr 0\n"]))
    for number in range(count):
        with_frequency(tree, number, 1_000_000 + number * 25_000)
    collector = CoreCollector(context_for(tree.live))
    known = []
    for _ in range(4):
        cores = read_table(collector, Core)
        known.append(sum(isinstance(core["freq_mhz"], float | int) for core in cores.values()))
    assert known == [16, 32, 48, 64]
    assert cores["cpu63"]["freq_mhz"] == 1000 + 63 * 25


def test_an_unreadable_frequency_is_an_error_with_its_reason(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/stat", "cpu0 1 0 1 1 0 0 0 0\nintr 0\n")
    tree.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "<unknown>\n")
    value = only(read_table(CoreCollector(context_for(tree.live)), Core))["freq_mhz"]
    assert isinstance(value, Absent)
    assert value.state is State.ERROR


@pytest.mark.parametrize(
    "line", [b"", b"cpu 1 2 3 4 5", b"cpu0", b"cpu0 1 2 3", b"cpu0 a b c d", b"cpux 1 2 3 4 5"]
)
def test_torn_lines_give_no_cpu_and_spoil_no_other(line: bytes) -> None:
    raw = line + b"\ncpu7 1 2 3 4 5 6 7 8\nintr 1\ncpu9 1 2 3 4\n"
    assert parse_cpu_times(raw) == {"cpu7": (3, 16, 5, 8)}


def test_old_kernels_with_four_times_are_read() -> None:
    assert parse_cpu_times(b"cpu0 5 1 2 100\n") == {"cpu0": (6, 2, 0, 0)}
