"""The real machine: every host collector gives plausible numbers about a real process tree."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hosttree import of_table

from bottletop.attach import TargetFinder, find_target, identify, resolve
from bottletop.clock import SystemClock
from bottletop.collectors.base import Context, Unavailable
from bottletop.collectors.cgroup import CgroupCollector
from bottletop.collectors.core import CoreCollector
from bottletop.collectors.disk import DiskCollector
from bottletop.collectors.hot_thread import HotThreadCollector
from bottletop.collectors.memory import MemoryCollector
from bottletop.collectors.process import ProcessCollector
from bottletop.collectors.psi import PsiCollector
from bottletop.collectors.target import TargetCollector
from bottletop.roots import Roots
from bottletop.tables.host import Core, Disk, Memory, Psi
from bottletop.tables.process import HotThread, Process, TargetFile, TargetInfo, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bottletop.model import ProcessId, Target

_PROGRAM = """
import mmap, os, socket, subprocess, sys, threading
file = open(sys.argv[1], "rb")
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
file.close()
server = socket.create_server(("127.0.0.1", 0))
sleeper = threading.Event()
for _ in range(3):
    threading.Thread(target=sleeper.wait, daemon=True).start()
def spin():
    while True:
        sum(range(1000))
threading.Thread(target=spin, daemon=True, name="spin").start()
wait = [sys.executable, "-c", "import sys; sys.stdin.read()"]
child = subprocess.Popen(wait, stdin=subprocess.PIPE)
print(server.getsockname()[1], child.pid, flush=True)
sys.stdin.read()
child.communicate()
"""


class Busy:
    """A real process: a spinning and some sleeping threads, a child, a socket, a mapped file."""

    def __init__(self, pid: int, port: int, child: int, data: str, name: str) -> None:
        self.pid, self.port, self.child, self.data, self.name = pid, port, child, data, name


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Busy]:
    # Workers of one test run see one another's children: the name must be our own.
    script = tmp_path / f"busy_child_{os.getpid()}.py"
    data = tmp_path / "weights.safetensors"
    script.write_text(_PROGRAM)
    data.write_bytes(b"\0" * (2 << 20))
    child = subprocess.Popen(
        [sys.executable, str(script), str(data), "--api-key", "hunter2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        port, grandchild = child.stdout.readline().split()
        yield Busy(child.pid, int(port), int(grandchild), str(data), script.name)
    finally:
        child.communicate()


def soon(check: Callable[[], bool], at_most_s: float = 20) -> None:
    """Wait for a real process to get somewhere."""
    end = time.monotonic() + at_most_s
    while not check():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def watching(root: ProcessId) -> Context:
    roots, find = Roots(), TargetFinder()
    return Context(SystemClock(), roots, target=lambda: find(roots, root))


def test_a_real_tree_is_found_by_name_and_followed(busy: Busy) -> None:
    (candidate,) = resolve(Roots(), busy.name)
    assert candidate.pid == busy.pid
    assert "hunter2" not in candidate.command
    assert candidate.age_s is not None
    target: Target = find_target(Roots(), candidate.id)
    assert {member.id.pid for member in target.processes} == {busy.pid, busy.child}
    assert target.name == busy.name


def test_a_real_spinning_thread_is_found_hot_and_its_time_grows(busy: Busy) -> None:
    context = watching(identify(Roots(), busy.pid))
    collector, hot = ProcessCollector(context), HotThreadCollector(context)
    first = of_table(collector.read(), Thread)
    assert len([key for key in first if key.startswith(f"{busy.pid}@")]) == 5

    def spinning() -> list[tuple[ProcessId, int]]:
        hottest = context.exchange.hot_threads
        return [one for one in hottest if one[0].pid == busy.pid and one[1] != busy.pid]

    def read_until_hot() -> bool:
        collector.read()
        return bool(spinning())

    soon(read_until_hot)
    ((process, tid),) = spinning()
    later = of_table(collector.read(), Thread)
    key = process.thread_key(tid)
    assert later[key]["cpu_ns"] > first[key]["cpu_ns"]  # type: ignore[operator]
    assert isinstance(later[key]["involuntary_switches"], int)
    assert set(of_table(hot.read(), HotThread)) >= {key}
    collector.close()
    hot.close()


def test_a_real_process_has_memory_io_and_a_safe_command(busy: Busy) -> None:
    context = watching(identify(Roots(), busy.pid))
    collector = ProcessCollector(context)
    rows = of_table(collector.read(), Process)
    collector.close()
    row = next(row for key, row in rows.items() if key.startswith(f"{busy.pid}@"))
    assert row["threads"] == 5
    assert row["rss_bytes"] > 1 << 20  # type: ignore[operator]
    assert row["read_chars"] > 0  # type: ignore[operator]
    assert "hunter2" not in str(row)
    assert row["parent_pid"] == os.getpid()


def test_real_files_sockets_and_disks_are_found(busy: Busy) -> None:
    context = watching(identify(Roots(), busy.pid))
    samples = TargetCollector(context).read()
    (info,) = of_table(samples, TargetInfo).values()
    assert info["sockets"] == f"127.0.0.1:{busy.port}"
    files = of_table(samples, TargetFile)
    assert files[busy.data]["mapped"] == 1
    assert files[busy.data]["size_bytes"] == 2 << 20
    assert isinstance(files[busy.data]["filesystem"], str)


def test_an_ended_process_is_gone_and_its_rows_end(busy: Busy) -> None:
    root = identify(Roots(), busy.pid)
    context = watching(root)
    collector = ProcessCollector(context)
    assert collector.read()[0].rows
    os.kill(busy.pid, 9)

    def is_gone() -> bool:
        target = context.target()
        return target is not None and target.gone

    soon(is_gone)
    assert [sample.rows for sample in collector.read()] == [(), ()]
    collector.close()


def test_the_real_host_gives_plausible_numbers() -> None:
    context = Context(SystemClock(), Roots())
    cores = of_table(CoreCollector(context).read(), Core)
    assert len(cores) == os.sysconf("SC_NPROCESSORS_ONLN")
    assert all(core["busy_ns"] > 0 for core in cores.values())  # type: ignore[operator]
    (memory,) = of_table(MemoryCollector(context).read(), Memory).values()
    assert 0 < memory["available_bytes"] <= memory["total_bytes"]  # type: ignore[operator]
    for name, disk in of_table(DiskCollector(context).read(), Disk).items():
        assert os.path.isdir(f"/sys/block/{name.replace('/', '!')}")
        assert disk["reads"] >= 0  # type: ignore[operator]


def test_real_pressure_is_read_or_its_absence_is_explained() -> None:
    collector = PsiCollector(Context(SystemClock(), Roots()))
    try:
        with open("/proc/pressure/cpu") as file:
            file.read()
    except OSError:
        with pytest.raises(Unavailable, match=r"CONFIG_PSI|psi=1|pressure"):
            collector.open()
        return
    collector.open()
    rows = of_table(collector.read(), Psi)
    assert {"host/cpu", "host/io", "host/memory"} <= set(rows)


def test_the_real_cgroups_of_a_process_are_read_or_their_absence_is_explained(
    busy: Busy,
) -> None:
    context = watching(identify(Roots(), busy.pid))
    with contextlib.suppress(Unavailable):
        (sample,) = CgroupCollector(context).read()
        assert {row.values[1] for row in sample.rows} >= {0}
