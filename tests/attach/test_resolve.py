"""What a person types leads to the process that is meant, or to one clear line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree

from bottletop.attach import (
    NoSuchProcess,
    NotAttachable,
    NotPermitted,
    identify,
    list_processes,
    resolve,
)
from bottletop.linux import procfs
from bottletop.model import ProcessId
from bottletop.roots import Roots

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def host(tmp_path: Path) -> HostTree:
    host = HostTree(tmp_path)
    host.write("proc/uptime", "1000.00 4000.00\n")
    host.process(1, parent=0, comm=b"systemd", argv=(b"/sbin/init",), start=1)
    host.process(2, parent=0, comm=b"kthreadd", argv=(), start=1)
    host.process(30, parent=2, comm=b"kworker/0:1", argv=(), start=2)
    host.process(40, comm=b"vllm", argv=(b"python3", b"/usr/bin/vllm", b"serve", b"m"), user=900)
    host.process(41, parent=40, comm=b"VLLM::EngineCor", argv=(b"VLLM::EngineCore",), user=5000)
    host.process(42, parent=41, comm=b"VLLM::Worker_TP", argv=(b"VLLM::Worker_TP0",))
    host.process(50, argv=(b"python3", b"/srv/serve.py"), user=10, uid=1000)
    host.process(51, parent=50, argv=(b"python3", b"/srv/serve.py"))
    host.process(60, argv=(b"python3.11", b"/opt/serve.py"), comm=b"python3.11", user=700)
    host.process(70, comm=b"old", argv=(), state="Z")
    return host


def found(host: HostTree, query: str) -> list[int]:
    return [item.pid for item in resolve(host.captured, query)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("vllm", [40]),
        ("VLLM::EngineCore", [41]),
        ("enginecore", [41]),
        ("Worker_TP0", [42]),
        ("serve.py", [60, 50]),
        ("SERVE.PY", [60, 50]),
        ("serve", [60, 50]),
        ("python3.11", [60]),
        ("python3", [40, 50]),
        ("50", [50]),
        (" 50 ", [50]),
        ("nothing-like-it", []),
        ("kworker/0:1", []),
        ("old", []),
        ("m", [1]),
        ("", []),
        ("*", []),
    ],
)
def test_names_and_pids_lead_to_the_topmost_match_busiest_first(
    host: HostTree, query: str, expected: list[int]
) -> None:
    assert found(host, query) == expected


def test_an_argument_that_looks_like_the_name_does_not_match(host: HostTree) -> None:
    host.process(90, comm=b"bottletop", argv=(b"bottletop", b"attach", b"trainer"))
    host.process(91, comm=b"vim", argv=(b"vim", b"trainer.py"))
    assert found(host, "trainer") == []


def test_bottletop_never_matches_itself() -> None:
    own = os.getpid()
    assert own not in [item.pid for item in list_processes(Roots())]
    with pytest.raises(NoSuchProcess, match="bottletop itself"):
        identify(Roots(), own)


def test_a_candidate_says_whose_it_is_and_what_it_used(host: HostTree) -> None:
    (item,) = resolve(host.captured, "50")
    assert item.id == ProcessId(50, 500)
    assert (item.name, item.command) == ("serve.py", "python3 serve.py")
    assert (item.user, item.cpu_s, item.age_s) == ("uid 1000", 0.1, 995.0)
    assert (item.parent_pid, item.threads) == (1, 1)


def test_age_is_unknown_where_the_uptime_is(host: HostTree) -> None:
    host.remove("proc/uptime")
    (item,) = resolve(host.captured, "50")
    assert item.age_s is None


def test_the_picker_lists_what_one_could_attach_to_busiest_first(host: HostTree) -> None:
    assert [item.pid for item in list_processes(host.captured)] == [41, 40, 60, 50, 1, 42, 51]


def test_a_thread_id_leads_to_its_process(host: HostTree) -> None:
    host.process(52, parent=1)
    host.write("proc/52/status", "Name:\tx\nTgid:\t50\nPid:\t52\nUid:\t0\t0\t0\t0\n")
    assert identify(host.captured, 52) == ProcessId(50, 500)


@pytest.mark.parametrize(
    ("pid", "line"),
    [
        (999, "no process 999"),
        (0, "no process 0"),
        (70, "pid 70 has ended"),
        (30, "pid 30 is a kernel thread (kworker/0:1)"),
        (2, "pid 2 is a kernel thread"),
        (80, "pid 80 cannot be read"),
    ],
)
def test_what_cannot_be_attached_to_is_one_line_with_the_reason(
    host: HostTree, pid: int, line: str
) -> None:
    host.write("proc/80/stat", b"garbage")
    with pytest.raises(NoSuchProcess) as caught:
        identify(host.captured, pid)
    message = str(caught.value)
    assert message.startswith(line)
    assert "\n" not in message
    with pytest.raises(NotAttachable):
        resolve(host.captured, str(pid))


@pytest.mark.parametrize("number", [2**31, 2**62, 10**19])
def test_numbers_beyond_any_pid_are_no_process(number: int) -> None:
    with pytest.raises(NoSuchProcess, match="no process"):
        identify(Roots(), number)


def test_a_process_that_proc_hides_is_named_with_the_unlocking_command(
    host: HostTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    # hidepid=2: our parent exists for the kernel, and the mounted /proc does not list it.
    parent = os.getppid()
    with pytest.raises(NotPermitted, match=f"sudo bottletop attach {parent}"):
        identify(host.live, parent)

    # hidepid=1: the folder is listed and every read refused.
    def refuse(roots: Roots, pid: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(procfs, "read_stat", refuse)
    with pytest.raises(NotPermitted, match="sudo bottletop attach 50"):
        identify(host.captured, 50)


def test_listing_survives_processes_that_cannot_be_read(host: HostTree) -> None:
    host.write("proc/81/stat", b"81 (x")
    host.remove("proc/60/cmdline")
    assert 60 not in [item.pid for item in list_processes(host.captured)]
    host.remove("proc")
    assert list_processes(host.captured) == []
    assert resolve(host.captured, "vllm") == []
