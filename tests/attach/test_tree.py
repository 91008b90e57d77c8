"""From a process to its tree: children followed, reuse noticed, what is missing said."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree

from bottletop.attach import TargetFinder, find_target
from bottletop.attach import tree as tree_module
from bottletop.linux import procfs
from bottletop.model import ProcessId

if TYPE_CHECKING:
    from pathlib import Path

    from bottletop.model import Target
    from bottletop.roots import Roots


@pytest.fixture
def host(tmp_path: Path) -> HostTree:
    """Init, an unrelated process, and a server with two workers and a grandchild."""
    host = HostTree(tmp_path)
    host.process(1, parent=0, comm=b"init", argv=(b"/sbin/init",))
    host.process(9, comm=b"cron", argv=(b"/usr/sbin/cron",))
    host.process(50, argv=(b"python3", b"serve.py"))
    host.process(60, parent=50)
    host.process(55, parent=50)
    host.process(70, parent=60, comm=b"ffmpeg", argv=(b"ffmpeg", b"-i", b"x"))
    return host


def pids(target: Target) -> list[int]:
    return [member.id.pid for member in target.processes]


def test_the_root_comes_first_then_its_children_by_depth(host: HostTree) -> None:
    target = find_target(host.captured, ProcessId(50, 500))
    assert pids(target) == [50, 55, 60, 70]
    assert target.root == ProcessId(50, 500)
    assert (target.name, target.gone) == ("serve.py", False)
    assert [member.parent_pid for member in target.processes] == [1, 50, 50, 60]


def test_a_reused_pid_is_gone_not_the_new_process(host: HostTree) -> None:
    host.process(50, start=99_999, argv=(b"unrelated",))
    target = find_target(host.captured, ProcessId(50, 500))
    assert target.gone
    assert target.processes == ()


def test_a_reused_pid_of_a_child_is_noticed_between_sweeps(host: HostTree) -> None:
    find = TargetFinder()
    assert pids(find(host.captured, ProcessId(50, 500))) == [50, 55, 60, 70]
    host.process(60, parent=1, start=99_999, argv=(b"unrelated",))
    # ffmpeg was in the tree and still lives: it stays, as what was handed to another parent.
    assert pids(find(host.captured, ProcessId(50, 500))) == [50, 55, 70]


def test_children_that_start_later_join_at_the_next_pass(host: HostTree) -> None:
    find = TargetFinder()
    find(host.captured, ProcessId(50, 500))
    host.process(80, parent=70)
    assert pids(find(host.captured, ProcessId(50, 500))) == [50, 55, 60, 70, 80]


def test_a_child_handed_to_init_stays_in_the_tree(host: HostTree) -> None:
    find = TargetFinder()
    find(host.captured, ProcessId(50, 500))
    shutil.rmtree(host.folder / "proc/60")
    host.process(70, parent=1, comm=b"ffmpeg", argv=(b"ffmpeg", b"-i", b"x"))
    assert pids(find(host.captured, ProcessId(50, 500))) == [50, 55, 70]
    # Resolved anew, nobody can know that it belonged here.
    assert pids(find_target(host.captured, ProcessId(50, 500))) == [50, 55]


def test_when_the_root_ends_what_outlives_it_is_named(host: HostTree) -> None:
    find = TargetFinder()
    find(host.captured, ProcessId(50, 500))
    shutil.rmtree(host.folder / "proc/50")
    for pid in (55, 60):
        host.process(pid, parent=1)
    target = find(host.captured, ProcessId(50, 500))
    assert target.gone
    assert target.name == "serve.py"
    assert target.notes == ("started by it and still running: pid 55, 60, 70",)


def test_a_zombie_root_is_gone_unless_its_threads_live_on(host: HostTree) -> None:
    host.process(50, state="Z", argv=())
    assert find_target(host.captured, ProcessId(50, 500)).gone
    host.process(50, state="Z", argv=(), threads=(51,))
    assert not find_target(host.captured, ProcessId(50, 500)).gone


def test_a_root_that_ended_before_the_first_look_keeps_the_kernels_name(host: HostTree) -> None:
    host.process(50, comm=b"serve.py", state="Z", argv=())
    assert find_target(host.captured, ProcessId(50, 500)).name == "serve.py"
    assert find_target(host.captured, ProcessId(50, 499)).name == ""  # the pid of another now


def test_processes_hidden_from_us_are_left_out(host: HostTree) -> None:
    # As with hidepid: the folder is listed, its files are not there for us.
    for name in ("stat", "cmdline", "status"):
        (host.folder / "proc/60" / name).unlink()
    assert pids(find_target(host.captured, ProcessId(50, 500))) == [50, 55]


def test_torn_and_hostile_entries_do_not_end_the_pass(host: HostTree) -> None:
    host.write("proc/61/stat", b"61 (x")
    host.write("proc/62/stat", b"")
    host.process(63, parent=50, comm=b") R 50 (\n\x1b[2J", argv=(b"\xff\xc3",))
    target = find_target(host.captured, ProcessId(50, 500))
    assert pids(target) == [50, 55, 60, 63, 70]
    assert all(member.name.isprintable() for member in target.processes)


def test_parents_that_form_a_circle_end(host: HostTree) -> None:
    host.process(50, parent=70)
    assert pids(find_target(host.captured, ProcessId(50, 500))) == [50, 55, 60, 70]


def test_a_very_large_tree_is_bounded_and_says_so(
    host: HostTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_module, "MAX_PROCESSES", 3)
    target = find_target(host.captured, ProcessId(50, 500))
    assert pids(target) == [50, 55, 60]
    assert target.notes == ("4 processes in the tree; the first 3 are read",)


def test_attaching_to_a_part_of_a_server_names_the_whole(host: HostTree) -> None:
    host.process(100, comm=b"vllm", argv=(b"python3", b"/usr/bin/vllm", b"serve", b"m"))
    host.process(101, parent=100, comm=b"VLLM::EngineCor", argv=(b"VLLM::EngineCore",))
    target = find_target(host.captured, ProcessId(101, 1010))
    assert [(member.name, member.role) for member in target.processes] == [
        ("VLLM::EngineCore", "engine")
    ]
    assert target.notes == ("part of vllm (api-server); the whole server: bottletop attach 100",)


def test_the_front_of_a_server_is_found_above_its_engine(host: HostTree) -> None:
    host.process(99, comm=b"bash", argv=(b"bash",))
    host.process(100, parent=99, comm=b"vllm", argv=(b"python3", b"/usr/bin/vllm", b"serve", b"m"))
    host.process(101, parent=100, comm=b"VLLM::EngineCor", argv=(b"VLLM::EngineCore",))
    host.process(102, parent=101, comm=b"VLLM::Worker_TP", argv=(b"VLLM::Worker_TP0",))
    assert find_target(host.captured, ProcessId(102, 1020)).front == ProcessId(100, 1000)
    assert find_target(host.captured, ProcessId(100, 1000)).front is None


def test_a_title_taken_after_the_fork_changes_the_role(host: HostTree) -> None:
    find = TargetFinder()
    assert find(host.captured, ProcessId(50, 500)).processes[1].role == "worker"
    host.process(55, parent=50, comm=b"VLLM::EngineCor", argv=(b"VLLM::EngineCore",))
    assert find(host.captured, ProcessId(50, 500)).processes[1].role == "engine"


def test_a_new_root_starts_afresh(host: HostTree) -> None:
    find = TargetFinder()
    find(host.captured, ProcessId(50, 500))
    assert pids(find(host.captured, ProcessId(60, 600))) == [60, 70]
    assert pids(find(host.captured, ProcessId(50, 500))) == [50, 55, 60, 70]


def test_only_new_pids_and_members_are_read_between_sweeps(
    host: HostTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    real = procfs.read_stat

    def noted(roots: Roots, pid: int) -> procfs.ProcStat:
        read.append(pid)
        return real(roots, pid)

    monkeypatch.setattr(procfs, "read_stat", noted)
    find = TargetFinder()
    find(host.captured, ProcessId(50, 500))
    assert {1, 9} <= set(read)
    read.clear()
    find(host.captured, ProcessId(50, 500))
    assert sorted(read) == [50, 55, 60, 70]
