"""The programs do real work in stages with honest names, and end when nobody needs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bottletop.demo.disk import MEMORY_FILE_SYSTEMS, file_system_of
from bottletop.linux.procfs import read_stat
from bottletop.roots import Roots

from .conftest import Program, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from bottletop.linux.procfs import ProcStat


@pytest.mark.parametrize(
    ("arguments", "stages"),
    [
        (("inline",), {"decode", "resize", "tokenise", "forward"}),
        (("on-request",), {"decode", "tokenise", "forward", "reply"}),
        (("prefetching",), {"decode", "next-batch", "forward"}),
        (("prefetching", "--spin"), {"decode", "next-batch", "forward"}),
    ],
)
def test_each_program_shows_its_stages(
    start: Callable[..., Program], arguments: tuple[str, ...], stages: set[str]
) -> None:
    found = start(*arguments).wait_for_passes(2)
    assert set(found) == stages
    assert all(stage.inclusive_ns > 0 for stage in found.values())


def _stat(program: Program) -> ProcStat:
    return read_stat(Roots(), program.pid)


def test_preprocessing_burns_user_time_and_the_forward_pass_does_not(
    start: Callable[..., Program],
) -> None:
    program = start("inline")
    before, first = program.wait_for_passes(1), _stat(program)
    after, last = program.wait_for_passes(4), _stat(program)
    user_s = (last.user_ticks - first.user_ticks) / 100
    work_s = sum(
        (after[name].occupied_ns - before[name].occupied_ns) / 1e9
        for name in ("decode", "resize", "tokenise")
    )
    assert last.user_ticks - first.user_ticks > 3 * (last.system_ticks - first.system_ticks)
    assert 0 < user_s <= work_s + 0.1


def test_prefetching_keeps_the_device_busy(start: Callable[..., Program]) -> None:
    program = start("prefetching")
    before, began_ns = program.wait_for_passes(2), time.monotonic_ns()
    after, ended_ns = program.wait_for_passes(8), time.monotonic_ns()
    inside = after["forward"].occupied_ns - before["forward"].occupied_ns
    assert inside > 0.9 * (ended_ns - began_ns)


def test_a_shared_device_makes_passes_longer(tmp_path: Path, start: Callable[..., Program]) -> None:
    lock = str(tmp_path / "device.lock")
    shared = ("prefetching", "--pass-s", "0.2", "--share", lock)
    alone = start(*shared)
    alone_s = _mean_pass_s(alone, 3)
    start(*shared).wait_for_passes(1)
    assert _mean_pass_s(alone, 3) > 1.4 * alone_s


def _mean_pass_s(program: Program, passes: int) -> float:
    before = program.wait_for_passes(1)["forward"]
    after = program.wait_for_passes(before.calls + passes)["forward"]
    return (after.inclusive_ns - before.inclusive_ns) / (after.calls - before.calls) / 1e9


def test_a_terminated_program_ends_cleanly(start: Callable[..., Program]) -> None:
    program = start("inline")
    program.wait_for_passes(1)
    program.process.send_signal(signal.SIGTERM)
    assert program.process.wait(10) == 0
    assert "Traceback" not in program.log


def test_a_program_ends_after_its_time(start: Callable[..., Program]) -> None:
    program = start("prefetching", "--seconds", "0.5")
    assert program.process.wait(30) == 0


ORPHAN = """
import os, subprocess, sys, time
command = [sys.executable, "-P", "-m", "bottletop.demo.child", "prefetching",
           "--parent", str(os.getpid()), "--workspace", sys.argv[1]]
child = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_program_whose_parent_was_killed_ends_and_tidies_up(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "target.log").write_text("left behind")
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(workspace)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not workspace.exists(), "tidying up")
    wait_for(lambda: not _runs(child), "the end of the orphan")


def _runs(pid: int) -> bool:
    try:
        return read_stat(Roots(), pid).state not in "ZX"
    except OSError:
        return False


def test_the_disk_program_reads_past_the_page_cache_or_says_why_not(
    tmp_path: Path, start: Callable[..., Program]
) -> None:
    program = start("from-disk")
    if file_system_of(str(tmp_path)) in MEMORY_FILE_SYSTEMS:
        assert program.process.wait(30) == 3
        return
    wait_for(lambda: "forward" in program.stages() or program.process.poll() is not None, "a start")
    if program.process.poll() is not None:
        assert program.process.returncode == 3
        assert "Traceback" not in program.log
        return
    before, read_before = program.wait_for_passes(1), _read_bytes(program.pid)
    after, read_after = program.wait_for_passes(3), _read_bytes(program.pid)
    assert after["read"].calls > before["read"].calls
    assert read_after - read_before > 1 << 20
    program.process.terminate()
    assert program.process.wait(10) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.log"]


def _read_bytes(pid: int) -> int:
    """Bytes that the process really fetched from storage."""
    fields = dict(
        line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().strip().splitlines()
    )
    return int(fields["read_bytes"])


def test_torch_runs_on_a_real_gpu_or_its_absence_is_said(start: Callable[..., Program]) -> None:
    program = start("inline", "--torch")
    wait_for(
        lambda: "forward" in program.stages() or program.process.poll() is not None,
        "a start or a refusal",
        within_s=100,
    )
    if program.process.poll() is not None:
        assert program.process.returncode == 3
        assert "torch" in program.log.splitlines()[-1]
        assert "Traceback" not in program.log
