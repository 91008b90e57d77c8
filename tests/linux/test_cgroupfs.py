"""The groups of a process are found on v1, v2 and hybrid hosts, in containers and outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree

from bottletop.linux import cgroupfs
from bottletop.linux.cgroupfs import UNIFIED

if TYPE_CHECKING:
    from pathlib import Path

ID = "0" * 64


def groups(tree: HostTree, pid: int = 5) -> list[tuple[str, int, list[str]]]:
    membership = cgroupfs.locate(tree.captured, pid)
    return [(group.path, group.depth, sorted(group.folders)) for group in membership.groups]


def test_v2_goes_from_the_process_up_to_the_root(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/5/cgroup", "0::/system.slice/docker-0000.scope\n")
    tree.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    tree.write("sys/fs/cgroup/system.slice/docker-0000.scope/memory.max", "536870912\n")
    membership = cgroupfs.locate(tree.captured, 5)
    assert membership.version == "v2"
    assert [group.path for group in membership.groups] == [
        "/system.slice/docker-0000.scope",
        "/system.slice",
        "/",
    ]
    assert membership.own[UNIFIED].endswith("/sys/fs/cgroup/system.slice/docker-0000.scope")


@pytest.mark.parametrize("pair", ["cpu,cpuacct", "cpuacct,cpu"])
def test_v1_controllers_that_share_a_folder_are_found_in_either_order(
    tmp_path: Path, pair: str
) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/5/cgroup", "12:pids:/a\n5:cpuacct,cpu:/a/b\n1:name=systemd:/a\n")
    tree.write(f"sys/fs/cgroup/{pair}/a/b/cpu.stat", "")
    assert groups(tree) == [
        ("/a/b", 0, ["cpu", "cpuacct"]),
        ("/a", 1, ["cpu", "cpuacct"]),
        ("/", 2, ["cpu", "cpuacct"]),
    ]


def test_inside_a_container_the_root_of_the_mount_is_the_containers_group(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/5/cgroup", f"5:cpuacct,cpu:/docker/{ID}\n")
    tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n")
    assert groups(tree) == [("/", 0, ["cpu", "cpuacct"])]


def test_below_a_mount_that_shows_a_part_the_rest_of_the_path_is_used(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/5/cgroup", f"5:cpu:/docker/{ID}/worker\n")
    tree.write(
        "proc/1/mountinfo",
        f"36 30 0:33 /docker/{ID} /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n",
    )
    tree.write("sys/fs/cgroup/cpu/worker/cpu.stat", "")
    assert groups(tree) == [("/worker", 0, ["cpu"]), ("/", 1, ["cpu"])]


def test_a_hybrid_host_keeps_the_hierarchies_apart(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/5/cgroup", "4:memory:/app\n1:cpu:/\n0::/user.slice\n")
    tree.write("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "1\n")
    tree.write("sys/fs/cgroup/cpu/cpu.stat", "")
    tree.write("sys/fs/cgroup/unified/user.slice/cgroup.events", "")
    membership = cgroupfs.locate(tree.captured, 5)
    assert membership.version == "hybrid"
    assert membership.own[UNIFIED].endswith("/unified/user.slice")
    assert groups(tree) == [
        ("/", 0, ["", "cpu", "memory"]),
        ("/app", 0, ["memory"]),
        ("/user.slice", 0, [""]),
    ]


def test_a_group_outside_our_namespace_is_said_to_be_so(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/5/cgroup", "0::/../../other\n")
    tree.write("sys/fs/cgroup/cgroup.controllers", "")
    with pytest.raises(cgroupfs.NotLocated, match="run bottletop on the host"):
        cgroupfs.locate(tree.captured, 5)


def test_without_a_mounted_hierarchy_the_reason_is_given(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/5/cgroup", "3:cpu:/\n")
    with pytest.raises(cgroupfs.NotLocated, match="no cgroup file system"):
        cgroupfs.locate(tree.captured, 5)
    tree.write("proc/6/cgroup", "")
    with pytest.raises(cgroupfs.NotLocated, match="lists no cgroup"):
        cgroupfs.locate(tree.captured, 6)
