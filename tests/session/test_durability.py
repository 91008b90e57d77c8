"""What is left when a recorder is killed, the disk is full or slow, or time is short."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from bottletop.clock import ManualClock
from bottletop.model import NS_PER_S
from bottletop.session import container
from bottletop.session.events import Arrived, Evaluated, Event
from bottletop.session.reader import open_recording
from session.recording import recorder, tick, ticks
from session.scripted import ScriptedHost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TESTS = Path(__file__).resolve().parent.parent


def child(path: Path, *options: str) -> subprocess.Popen[str]:
    """A recorder in a process of its own, on the scripted host of seed 1."""
    folders = os.pathsep.join((str(TESTS.parent / "src"), str(TESTS)))
    return subprocess.Popen(
        [sys.executable, "-m", "session.child", str(path), *options],
        # Without bytecode: a limit on file sizes would cut what imports leave behind for everyone.
        env={**os.environ, "PYTHONPATH": folders, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )


def expected(count: int) -> list[list[Event]]:
    """What the child hands over, tick by tick."""

    class Kept(list[Event]):
        def sample(self, arrival: int, sample: object) -> None: ...
        def evaluated(self, arrival: int, judgement: object) -> None: ...

    host, arrival, out = ScriptedHost(), 0, []
    for _ in range(count):
        out.append(tick(host, Kept(), arrival))  # type: ignore[arg-type]
        arrival = out[-1][-1].arrival
    return out


def test_kill_9_at_any_moment_takes_at_most_the_tick_under_way(tmp_path: Path) -> None:
    random = Random(9)
    all_ticks = expected(400)
    for number in range(10):
        path = tmp_path / f"{number}.btrec"
        with child(path) as process:
            assert process.stdout is not None
            handed = 0
            for _ in range(random.randrange(1, 140)):
                handed = int(process.stdout.readline())
            for _ in range(random.randrange(20_000)):
                pass  # somewhere within the next tick
            process.kill()
            handed = max([handed, *map(int, process.stdout.read().split()[:400])])
        before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if "-shm" not in p.name}
        with open_recording(path) as recording:
            events = list(recording.events())
            assert not recording.ended_cleanly
            assert recording.info().damaged == 0
            judged = len(recording.evaluation_times)
        assert judged == sum(isinstance(event, Evaluated) for event in events)
        assert handed - 1 <= judged <= handed + 1
        wanted = [event for one in all_ticks[:judged] for event in one]
        assert events[: len(wanted)] == wanted
        # Looking at it changed neither the recording nor what the killed one had left beside it.
        after = {p.name: p.read_bytes() for p in tmp_path.iterdir() if "-shm" not in p.name}
        assert after == before


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can look into; pytest's own are closed to them."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@pytest.mark.parametrize("beside", [{"-wal", "-shm"}, {"-wal"}, set()], ids=["both", "log", "none"])
def test_a_killed_recording_opens_where_nothing_may_be_written(
    open_folder: Path, beside: set[str]
) -> None:
    """With the log where it can be read along, else the main file alone, and that is said."""
    path = open_folder / "a.btrec"
    with child(path) as process:
        assert process.stdout is not None
        for _ in range(100):
            process.stdout.readline()
        process.kill()
    for item in open_folder.iterdir():
        if item.name != path.name and item.name.removeprefix(path.name) not in beside:
            item.unlink()
        else:
            item.chmod(0o444)
    open_folder.chmod(0o555)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)  # root is stopped by no mode
            with open_recording(path) as recording:
                count = sum(1 for _ in recording.evaluations())
                said = bool(recording.info().notes)
            # Without the log nobody can know that there was one.
            whole = count >= 99 or said or not beside
            code = 0 if whole and count > 30 and (count >= 99) == (len(beside) == 2) else 2
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    open_folder.chmod(0o755)
    assert code == 0


def test_a_copy_of_the_main_file_alone_is_readable(tmp_path: Path) -> None:
    host, path = ScriptedHost(), tmp_path / "a.btrec"
    to = recorder(path, host)
    handed = ticks(host, to, 150)
    assert to.flush()
    shutil.copy(path, tmp_path / "copy.btrec")
    to.close(10)
    with open_recording(tmp_path / "copy.btrec") as recording:
        events = list(recording.events())
        assert recording.info().damaged == 0
    kept = [e for e in events if isinstance(e, Arrived)]
    all_of = [e for e in handed if isinstance(e, Arrived)]
    # Only what was sealed long enough ago is certain to be in the main file.
    assert len(kept) > len(all_of) / 2
    assert all(event in all_of for event in kept[::50])
    assert not (tmp_path / "copy.btrec-wal").exists()


def test_close_seals_what_is_open_and_leaves_one_file(tmp_path: Path) -> None:
    host = ScriptedHost(gpus=8, cores=64, disks=8, processes=20, threads_each=3, stages=8)
    to = recorder(tmp_path / "a.btrec", host)
    handed = ticks(host, to, 65)
    to.close(30)
    assert to.status().error == ""
    assert [p.name for p in tmp_path.iterdir()] == ["a.btrec"]
    with open_recording(tmp_path / "a.btrec") as recording:
        assert recording.ended_cleanly
        assert sum(1 for _ in recording.events()) == len(handed)


def test_close_from_a_signal_handler_that_interrupts_a_hand_over(tmp_path: Path) -> None:
    host, path = ScriptedHost(), tmp_path / "a.btrec"
    to = recorder(path, host)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: to.close(10))
    try:
        handed = ticks(host, to, 3)
        timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGUSR1])
        timer.start()
        while timer.is_alive():
            handed += tick(host, to, handed[-1].arrival)
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    to.close(10)
    assert to.status().error == ""
    with open_recording(path) as recording:
        events = list(recording.events())
        assert recording.ended_cleanly
    assert events == handed[: len(events)]
    assert len(events) > 30


def test_close_does_not_wait_for_a_hung_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    write = container.Container.write

    def hang(self: container.Container, events: Iterable[Event]) -> None:
        release.wait()
        write(self, events)

    monkeypatch.setattr(container.Container, "write", hang)
    host = ScriptedHost()
    to = recorder(tmp_path / "a.btrec", host)
    tick(host, to, 0)
    began_s = time.monotonic()
    to.close(0.2)
    assert time.monotonic() - began_s < 5
    assert "slow" in to.status().error
    release.set()
    to.close(10)


@pytest.mark.parametrize("limit", [50_000, 200_000, 700_000])
def test_a_full_disk_ends_the_recording_with_a_reason_and_loses_nothing(
    tmp_path: Path, limit: int
) -> None:
    path = tmp_path / "a.btrec"
    with child(path, "--limit", str(limit), "--ticks", "2000") as process:
        out, _ = process.communicate(timeout=100)
    *numbers, status = out.splitlines()
    assert process.returncode == 0
    assert "recording stopped" in status
    handed = int(numbers[-1]) if numbers else 0
    assert path.exists() or limit < 100_000
    if not path.exists():
        return  # not even an empty recording fits: nothing is left lying about
    with open_recording(path) as recording:
        events = list(recording.events())
        assert recording.info().damaged == 0
        assert not recording.ended_cleanly
    judged = sum(isinstance(event, Evaluated) for event in events)
    assert handed - 1 <= judged <= handed
    assert events == [event for one in expected(judged) for event in one]


def test_a_file_that_cannot_grow_at_all_is_said_at_once(tmp_path: Path) -> None:
    with child(tmp_path / "a.btrec", "--limit", "1000", "--ticks", "5") as process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "recording stopped" in out.splitlines()[-1]


def test_an_error_nobody_foresaw_ends_the_recording_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: container.Container, events: Iterable[Event]) -> None:
        raise RuntimeError("cosmic ray")

    monkeypatch.setattr(container.Container, "write", fail)
    host = ScriptedHost()
    to = recorder(tmp_path / "a.btrec", host)
    tick(host, to, 0)
    assert not to.flush()
    assert to.status().error == "recording stopped: RuntimeError: cosmic ray"
    tick(host, to, 100)
    to.close()


class SlowClock(ManualClock):
    """Each look at it takes a while, as commits do on a slow disk."""

    def monotonic_ns(self) -> int:
        self.advance(0.06)
        return super().monotonic_ns()


def test_a_slow_disk_is_no_longer_waited_for_and_that_is_said(tmp_path: Path) -> None:
    host = ScriptedHost()
    to = recorder(tmp_path / "a.btrec", host, clock=SlowClock())
    handed = 0
    for _ in range(65):
        handed = tick(host, to, handed)[-1].arrival
        assert to.flush()
    assert "power cut" in to.status().error
    to.close(10)
    with open_recording(tmp_path / "a.btrec") as recording:
        assert recording.info().synchronous == "NORMAL"
        assert [mark.kind for mark in recording.marks()] == ["durability"]
        assert recording.ended_cleanly


@pytest.mark.parametrize("seconds", [15, 60])
def test_when_the_disk_hangs_threads_and_processes_go_first_and_a_mark_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    gate, held = threading.Event(), threading.Event()
    write = container.Container.write

    def hang(self: container.Container, events: Iterable[Event]) -> None:
        held.set()
        gate.wait()
        write(self, events)

    monkeypatch.setattr(container.Container, "write", hang)
    clock, host = ManualClock(), ScriptedHost()
    to = recorder(tmp_path / "a.btrec", host, clock=clock)
    handed = tick(host, to, 0)
    assert held.wait(10)
    for _ in range(seconds):
        clock.advance(1)
        handed += tick(host, to, handed[-1].arrival)
    gate.set()
    to.close(10)
    dropped = to.status().dropped_rows
    assert dropped > 0
    with open_recording(tmp_path / "a.btrec") as recording:
        events = list(recording.events())
        (mark,) = recording.marks()
    assert mark.kind == "drop"
    kept = [e for e in events if isinstance(e, Arrived)]
    missing = [e for e in handed if isinstance(e, Arrived) and e not in kept]
    assert sum(len(e.sample.rows) for e in missing) == dropped
    first = {"thread", "hot_thread", "process", "gpu_process"}
    others = [e for e in missing if e.sample.table.name not in first]
    assert bool(others) == (seconds > 20)  # the rest goes only when that did not help
    # Of the last ten seconds everything else is there, of the last few all.
    newest_ns = handed[-1].judgement.t_ns if isinstance(handed[-1], Evaluated) else 0
    assert all(e.sample.t_ns < newest_ns - 10 * NS_PER_S for e in others)
    assert all(e.sample.t_ns < newest_ns - 2 * NS_PER_S for e in missing)
