"""Quotas, throttling and memory limits of the target's groups, in every version of cgroups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree, context_for, only, read_table, target_of

from bottletop.collectors.base import Unavailable
from bottletop.collectors.cgroup import MEMORY_STAT_EVERY, CgroupCollector
from bottletop.model import NO_LIMIT, Absent, State
from bottletop.tables.host import Cgroup

if TYPE_CHECKING:
    from pathlib import Path


def attached(tree: HostTree, cgroup: str) -> CgroupCollector:
    process = tree.process(5)
    tree.write("proc/5/cgroup", cgroup)
    return CgroupCollector(context_for(tree.live, target_of(process)))


def test_v2_quota_throttling_and_memory_are_read(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n")
    group = "sys/fs/cgroup/app"
    tree.write(f"{group}/cpu.max", "250000 100000\n")
    tree.write(
        f"{group}/cpu.stat",
        "usage_usec 900\nuser_usec 1\nnr_periods 183\nnr_throttled 2\nthrottled_usec 5198\n",
    )
    tree.write(f"{group}/cpuset.cpus.effective", "0-3,8\n")
    tree.write(f"{group}/memory.current", "410001408\n")
    tree.write(f"{group}/memory.max", "536870912\n")
    tree.write(f"{group}/memory.stat", "anon 5\nfile 8192\nfile_mapped 4096\n")
    tree.write(f"{group}/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 9\n")
    row = only(read_table(attached(tree, "0::/app\n"), Cgroup))
    assert (row["version"], row["depth"]) == ("v2", 0)
    assert (row["quota_cores"], row["cpuset_cores"]) == (2.5, 5)
    assert (row["periods"], row["throttled_periods"], row["throttled_us"]) == (183, 2, 5198)
    assert row["usage_us"] == 900
    assert (row["memory_bytes"], row["memory_max_bytes"]) == (410001408, 536870912)
    assert (row["memory_file_bytes"], row["oom_kills"]) == (8192, 2)


def test_the_limits_of_ancestors_are_listed_and_ancestors_without_any_are_not(
    tmp_path: Path,
) -> None:
    tree = HostTree(tmp_path)
    tree.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    tree.write("sys/fs/cgroup/kubepods/memory.max", "536870912\n")
    tree.write("sys/fs/cgroup/kubepods/pod1/memory.max", "max\n")
    tree.write("sys/fs/cgroup/kubepods/pod1/cpu.max", "max 100000\n")
    tree.write("sys/fs/cgroup/kubepods/pod1/box/cpu.max", "50000 100000\n")
    rows = read_table(attached(tree, "0::/kubepods/pod1/box\n"), Cgroup)
    assert [(key, row["depth"]) for key, row in rows.items()] == [
        ("/kubepods/pod1/box", 0),
        ("/kubepods", 2),
    ]
    assert rows["/kubepods/pod1/box"]["quota_cores"] == 0.5
    assert rows["/kubepods/pod1/box"]["memory_max_bytes"] == NO_LIMIT
    assert rows["/kubepods"]["memory_max_bytes"] == 536870912
    assert rows["/kubepods"]["quota_cores"] == NO_LIMIT


def test_v1_nanoseconds_become_microseconds(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    cpu = "sys/fs/cgroup/cpu,cpuacct/docker/x"
    tree.write(f"{cpu}/cpu.cfs_quota_us", "100000\n")
    tree.write(f"{cpu}/cpu.cfs_period_us", "100000\n")
    tree.write(f"{cpu}/cpu.stat", "nr_periods 183\nnr_throttled 2\nthrottled_time 5198271\n")
    tree.write(f"{cpu}/cpuacct.usage", "7000000\n")
    tree.write("sys/fs/cgroup/cpuset/docker/x/cpuset.effective_cpus", "0-13\n")
    memory = "sys/fs/cgroup/memory/docker/x"
    tree.write(f"{memory}/memory.usage_in_bytes", "8192\n")
    tree.write(f"{memory}/memory.limit_in_bytes", "1073741824\n")
    tree.write(f"{memory}/memory.stat", "cache 1\ntotal_cache 4096\n")
    tree.write(f"{memory}/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    cgroup = "5:cpuacct,cpu:/docker/x\n4:memory:/docker/x\n3:cpuset:/docker/x\n"
    row = read_table(attached(tree, cgroup), Cgroup)["/docker/x"]
    assert (row["version"], row["quota_cores"], row["cpuset_cores"]) == ("v1", 1, 14)
    assert (row["periods"], row["throttled_periods"], row["throttled_us"]) == (183, 2, 5198)
    assert row["usage_us"] == 7000
    assert (row["memory_bytes"], row["memory_max_bytes"]) == (8192, 1073741824)
    assert (row["memory_file_bytes"], row["oom_kills"]) == (4096, 1)


@pytest.mark.parametrize(
    "limit", ["9223372036854771712", "9223372036854710272", "9223372036854775807", "max"]
)
def test_the_largest_number_of_any_page_size_means_no_limit(tmp_path: Path, limit: str) -> None:
    tree = HostTree(tmp_path)
    tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", f"{limit}\n")
    tree.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n")
    row = only(read_table(attached(tree, "4:memory:/\n"), Cgroup))
    assert row["memory_max_bytes"] == NO_LIMIT
    assert row["memory_bytes"] == 4096


@pytest.mark.parametrize("quota", ["-1", "", "x"])
def test_no_v1_quota_is_no_limit(tmp_path: Path, quota: str) -> None:
    tree = HostTree(tmp_path)
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota)
    tree.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    assert only(read_table(attached(tree, "4:cpu:/\n"), Cgroup))["quota_cores"] == NO_LIMIT


def test_a_hybrid_host_gives_each_path_the_controllers_that_are_there(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("sys/fs/cgroup/cpu/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")
    tree.write("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "8192\n")
    tree.write("sys/fs/cgroup/memory/app/memory.usage_in_bytes", "4096\n")
    tree.write("sys/fs/cgroup/unified/cgroup.controllers", "")
    rows = read_table(attached(tree, "4:memory:/app\n1:cpu:/\n0::/\n"), Cgroup)
    assert {row["version"] for row in rows.values()} == {"hybrid"}
    assert rows["/app"]["memory_max_bytes"] == 8192
    assert rows["/"]["periods"] == 0
    elsewhere = rows["/app"]["periods"]
    assert isinstance(elsewhere, Absent)
    assert elsewhere.state is State.NOT_APPLICABLE


def test_groups_without_a_cpu_quota_have_no_periods_rather_than_zero(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("sys/fs/cgroup/cgroup.controllers", "")
    tree.write("sys/fs/cgroup/app/cpu.stat", "usage_usec 5\nuser_usec 3\nsystem_usec 2\n")
    row = only(read_table(attached(tree, "0::/app\n"), Cgroup))
    assert row["usage_us"] == 5
    for column in ("periods", "throttled_us", "memory_bytes", "oom_kills"):
        value = row[column]
        assert isinstance(value, Absent)
        assert value.state is State.NOT_APPLICABLE


def test_page_cache_is_read_rarely_and_kept_in_between(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("sys/fs/cgroup/cgroup.controllers", "")
    tree.write("sys/fs/cgroup/app/memory.stat", "file 4096\n")
    collector = attached(tree, "0::/app\n")
    assert only(read_table(collector, Cgroup))["memory_file_bytes"] == 4096
    tree.write("sys/fs/cgroup/app/memory.stat", "file 8192\n")
    seen = [
        only(read_table(collector, Cgroup))["memory_file_bytes"] for _ in range(MEMORY_STAT_EVERY)
    ]
    assert seen == [4096] * (MEMORY_STAT_EVERY - 1) + [8192]


def test_a_group_out_of_sight_makes_the_source_unavailable(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("sys/fs/cgroup/cgroup.controllers", "")
    with pytest.raises(Unavailable, match="namespace"):
        attached(tree, "0::/../x\n").read()


def test_without_a_target_there_is_nothing_to_read(tmp_path: Path) -> None:
    assert CgroupCollector(context_for(HostTree(tmp_path).live)).read() == ()
