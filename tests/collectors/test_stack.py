"""The stack sampler: whom it samples, what it makes of it, and that it never disturbs anybody."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hosttree import of_table, target_of

from bottletop.attach import identify
from bottletop.clock import SystemClock
from bottletop.collectors import stack as stack_module
from bottletop.collectors.base import Context, Ways
from bottletop.collectors.stack import StackCollector
from bottletop.collectors.stack_process import FAILURES, main_thread
from bottletop.linux.tracing import Tracing, tracing
from bottletop.model import Absent, State
from bottletop.roots import Roots
from bottletop.stacks.raw import stacks
from bottletop.tables import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bottletop.model import ProcessId, Value

NO_PROBE = Absent(State.NOT_APPLICABLE, "no stage has run")


@pytest.fixture
def sleeper() -> Iterator[ProcessId]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        yield identify(Roots(), child.pid)
    finally:
        child.kill()
        child.wait()


@pytest.fixture
def sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a program in the place of py-spy; it is given the output file as $OUT."""

    def put(script: str) -> None:
        program = tmp_path / "py-spy"
        program.write_text(
            "#!/bin/sh\n"
            'echo "$@" >> ' + str(tmp_path / "asked") + "\n"
            'while [ $# -gt 1 ]; do [ "$1" = --output ] && OUT=$2; [ "$1" = --pid ] && PID=$2; '
            "shift; done\n" + script
        )
        program.chmod(0o755)
        monkeypatch.setattr(stack_module, "find_pyspy", lambda: str(program))

    return put


def collector(process: ProcessId, ways: Ways | None = None) -> tuple[StackCollector, Context]:
    target = target_of(process)
    context = Context(SystemClock(), Roots(), target=lambda: target, ways=ways or Ways())
    context.exchange.probe = NO_PROBE
    context.exchange.hot_threads = ((process, process.pid),)
    return StackCollector(context), context


def read_until(
    sampled: StackCollector, enough: Callable[[dict[str, dict[str, Value]]], bool]
) -> dict[str, dict[str, Value]]:
    """Read as the runtime does until the newest rows are enough; 30 s at most."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        rows = of_table(sampled.read(), Stage)
        if rows and enough(rows):
            return rows
        time.sleep(0.05)
    raise AssertionError("no such rows")


WINDOW = (
    'printf "thread ($PID): MainThread;<module> (x.py:1);dumps (json/__init__.py:1) 30\\n'
    "thread ($PID): MainThread;<module> (x.py:1);crunch (x.py:9) 10\\n"
    'thread (1): idle;get (queue.py:1);wait (threading.py:1) 40\\n" > $OUT\n'
)


def test_shares_of_the_samples_become_times(
    sleeper: ProcessId, sampler: Callable[[str], None], tmp_path: Path
) -> None:
    sampler(WINDOW)
    sampled, _ = collector(sleeper)
    key = f"{sleeper.key}/serialize (stacks)"
    rows = read_until(sampled, lambda rows: int(rows[key]["samples"]) >= 60)
    other = rows[f"{sleeper.key}/other: x.crunch (stacks)"]
    assert rows[key]["samples"] == 3 * other["samples"]
    assert rows[key]["inclusive_ns"] == pytest.approx(3 * other["inclusive_ns"], rel=0.01)
    assert rows[key]["source"] == "stack sampler"
    assert isinstance(rows[key]["calls"], Absent), "no pass is ever seen"
    assert len(rows) == 2, "a thread that waits beside the main thread is no stage"
    assert "--nonblocking" in (tmp_path / "asked").read_text()
    sampled.close()


def test_what_the_sampler_says_went_wrong_is_said_and_it_rests(
    sleeper: ProcessId, sampler: Callable[[str], None], tmp_path: Path
) -> None:
    sampler('echo "Error: Permission Denied: try again" >&2; exit 1\n')
    sampled, context = collector(sleeper)
    deadline = time.monotonic() + 30
    log = tmp_path / "asked"
    while time.monotonic() < deadline:
        sampled.read()
        if log.exists() and log.read_text().count("--pid") == FAILURES:
            break
        time.sleep(0.02)
    for _ in range(20):  # the last of them fails, and nobody is asked again
        sampled.read()
        time.sleep(0.02)
    said = context.exchange.stack
    assert isinstance(said, Absent)
    assert "Permission Denied: try again" in said.reason
    assert log.read_text().count("--pid") == FAILURES


def test_a_sampler_that_hangs_is_given_up_and_nothing_waits(
    sleeper: ProcessId, sampler: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bottletop.collectors.stack_pyspy.LATE_S", 0.2)
    sampler("exec sleep 60\n")
    sampled, context = collector(sleeper)
    began = time.monotonic()
    deadline = began + 30
    while time.monotonic() < deadline and "no stack" not in str(context.exchange.stack):
        sampled.read()
        time.sleep(0.05)
    assert isinstance(context.exchange.stack, Absent)
    sampled.close()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("probe", "its probe tells more"),
        ("off", "--no-sampler"),
        ("missing", "pip install py-spy"),
        ("yama", "sudo bottletop attach"),
    ],
)
def test_where_it_does_not_sample_it_says_why(
    sleeper: ProcessId,
    sampler: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    change: str,
    why: str,
) -> None:
    sampler(WINDOW)
    if change == "missing":
        monkeypatch.setattr(stack_module, "find_pyspy", lambda: None)
    if change == "yama":
        monkeypatch.setattr(stack_module, "tracing", lambda roots, pid: Tracing.YAMA_DESCENDANTS)
    sampled, context = collector(sleeper, Ways(stacks=change != "off"))
    if change == "probe":
        context.exchange.probe = "probe in 1 of 1 processes"
    for _ in range(3):
        assert list(sampled.read()) == []
    said = context.exchange.stack
    assert isinstance(said, Absent)
    assert why in said.reason
    assert not (tmp_path / "asked").exists()


def test_a_program_that_is_not_python_is_left_alone(
    sampler: Callable[[str], None], tmp_path: Path
) -> None:
    sampler(WINDOW)
    child = subprocess.Popen(["sleep", "60"])
    try:
        sampled, context = collector(identify(Roots(), child.pid))
        sampled.read()
        assert str(context.exchange.stack).endswith("not a Python program")
        assert not (tmp_path / "asked").exists()
    finally:
        child.kill()
        child.wait()


def test_the_busy_workers_are_sampled_and_not_their_idle_parent(
    sleeper: ProcessId, sampler: Callable[[str], None], tmp_path: Path
) -> None:
    sampler(WINDOW)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        worker = identify(Roots(), child.pid)
        target = target_of(sleeper, worker)
        context = Context(SystemClock(), Roots(), target=lambda: target)
        context.exchange.probe = NO_PROBE
        sampled = StackCollector(context)
        sampled.read()
        assert not (tmp_path / "asked").exists(), "who is busy is not known yet"
        context.exchange.hot_threads = ((worker, worker.pid),)
        rows = read_until(sampled, lambda rows: True)
        assert {row["pid"] for row in rows.values()} == {worker.pid}
        sampled.close()
    finally:
        child.kill()
        child.wait()


def test_a_working_thread_speaks_for_a_main_thread_that_only_waits() -> None:
    found = stacks(
        "thread (7): MainThread;<module> (x.py:1);join (threading.py:1) 50\n"
        "thread (8): engine;run (threading.py:1);forward (x.py:1) 50\n"
        "thread (9): pool;run (threading.py:1);get (queue.py:1) 50\n"
    )
    assert [stack.thread for stack in main_thread(found, 7)] == ["engine"]
    assert [stack.thread for stack in main_thread(found[:1] + found[2:], 7)] == ["MainThread"]


PROGRAM = """
import json, time

def preprocess():
    end = time.perf_counter() + 0.02
    while time.perf_counter() < end:
        pass

def wait_for_input():
    time.sleep(0.02)

while True:
    preprocess()
    wait_for_input()
"""


def test_a_real_program_is_read_by_the_real_sampler(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    child = subprocess.Popen([sys.executable, str(script)])
    try:
        process = identify(Roots(), child.pid)
        sampled, context = collector(process)
        if tracing(Roots(), process.pid) is not Tracing.ALLOWED:
            sampled.read()
            assert "sudo bottletop attach" in str(context.exchange.stack)
            return
        preprocess = f"{process.key}/preprocess (stacks)"
        rows = read_until(sampled, lambda rows: preprocess in rows)
        assert f"{process.key}/wait-requests (stacks)" in rows
        assert rows[preprocess]["samples"] > 0
        sampled.close()
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
