"""Fork, spawn, exec, subinterpreters and programs that close what is not theirs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hosttree.unprivileged import unprivileged

from bottletop.linux.probe_memory import LINK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from probelab import Interpreter, Program

    Start = Callable[..., Program]


def test_a_forked_child_counts_in_its_own_memory(start: Start) -> None:
    program = start("""
for _ in range(3):
    with stage("both"):
        pass
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    for _ in range(10):
        with stage("both"):
            with stage("child"):
                pass
    os.write(writing, b"x")
    time.sleep(60)
    os._exit(0)
os.read(reading, 1)
say(child)
hold()
os.kill(child, 9)
""")
    (child,) = (int(pid) for pid in program.until_ready()[-1].split())
    assert {n: s.calls for n, s in program.stages().items()} == {"both": 3}
    assert {n: s.calls for n, s in program.stages(child).items()} == {"both": 10, "child": 10}
    # The parent's memory is not among the child's descriptors any more.
    assert len(program.readings(child)) == 1
    links = [os.readlink(f"/proc/{child}/fd/{fd}") for fd in os.listdir(f"/proc/{child}/fd")]
    assert sum(link.startswith(LINK) for link in links) == 1
    program.finish()


def test_a_pass_that_spans_a_fork_belongs_to_the_parent_alone(start: Start) -> None:
    program = start("""
reading, writing = os.pipe()
with stage("spanning"):
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
if pid == 0:
    with stage("child"):
        pass
    os._exit(0)
hold()
""")
    program.until_ready()
    stages = program.stages()
    assert {name: one.calls for name, one in stages.items()} == {"spanning": 1}
    assert stages["spanning"].in_flight == 0
    program.finish()


def test_a_child_that_leaves_its_parents_pass_owes_nothing(start: Start) -> None:
    program = start("""
import asyncio
async def inside():
    with stage("task"):
        return os.fork()
with stage("spanning"):
    pid = asyncio.run(inside())
if pid:
    say(pid)
    hold()
    os.kill(pid, 9)
else:
    with stage("child"):
        time.sleep(60)
""")
    (child,) = (int(word) for word in program.until_ready()[-1].split())
    deadline_s = time.monotonic() + 30
    while not any(reading.stages for reading in program.readings(child)):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    stages = program.stages(child)
    assert {n: (s.calls, s.in_flight) for n, s in stages.items()} == {"child": (0, 1)}
    program.finish()


def test_a_child_that_leaves_a_kept_object_of_its_parent_owes_nothing(start: Start) -> None:
    program = start("""
kept = stage("kept")
with kept:
    with kept:
        pid = os.fork()
if pid:
    say(pid)
    hold()
    os.kill(pid, 9)
else:
    with kept:
        time.sleep(60)
""")
    (child,) = (int(word) for word in program.until_ready()[-1].split())
    assert program.stages()["kept"].calls == 2
    deadline_s = time.monotonic() + 30
    while not any(reading.stages for reading in program.readings(child)):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    kept = program.stages(child)["kept"]
    assert (kept.calls, kept.in_flight) == (0, 1)
    program.finish()


def test_forks_while_threads_are_busy_end_well(start: Start) -> None:
    program = start("""
stop = False
def work(name):
    while not stop:
        with stage(name):
            pass
        threading.Thread(target=lambda: stage("short").__enter__()).start()
threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
for thread in threads: thread.start()
codes = []
for _ in range(15):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            from bottletop.probe import status
            with stage("child"):
                pass
            code = 0 if status() == "on" else 2
        finally:
            os._exit(code)
    codes.append(os.waitpid(pid, 0)[1])
stop = True
for thread in threads: thread.join()
say(codes)
hold()
""")
    assert program.until_ready()[-1] == str([0] * 15)


def test_spawned_workers_carry_the_probe(python: Interpreter, start: Start) -> None:
    program = start("""
import multiprocessing
def work(number):
    with stage("work"):
        pass
    return os.getpid()
def wait(ready, end):
    with stage("work"):
        pass
    ready.set()
    end.wait()
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ready, end = context.Event(), context.Event()
    child = context.Process(target=wait, args=(ready, end))
    child.start()
    ready.wait()
    say(child.pid)
    hold()
    end.set()
    child.join()
""")
    (child,) = (int(word) for word in program.until_ready()[-1].split())
    assert program.stages(child)["work"].calls == 1
    assert program.readings() == []  # the parent named no stage
    program.finish()


def test_a_child_python_finds_the_probe_by_itself(start: Start) -> None:
    program = start("""
import subprocess
code = "from bottletop.probe import stage, status; stage('x'); print(status())"
say(subprocess.check_output([sys.executable, "-c", code]).decode().strip())
hold()
""")
    assert program.until_ready() == ["on"]
    program.finish()


def test_a_program_that_closes_all_descriptors_keeps_its_files(
    start: Start, tmp_path: Path
) -> None:
    program = start("""
with stage("before"):
    pass
os.closerange(3, 256)
files = [open("kept %d" % number, "w") for number in range(4)]
pid = os.fork()
if pid == 0:
    with stage("child"):
        pass
    for file in files:
        file.write("child ")
        file.flush()
    os._exit(0)
os.waitpid(pid, 0)
with stage("after"):
    pass
for file in files:
    file.write("parent")
say("done")
""")
    assert program.line() == "done"
    program.finish()
    assert [path.read_text() for path in sorted(tmp_path.glob("kept *"))] == ["child parent"] * 4


def test_an_exec_begins_anew(start: Start) -> None:
    program = start("""
if "again" not in sys.argv:
    with stage("first"):
        pass
    os.execv(sys.executable, [sys.executable, __file__, "again"])
with stage("second"):
    pass
hold()
""")
    program.until_ready()
    assert set(program.stages()) == {"second"}
    program.finish()


def test_a_subinterpreter_has_a_probe_of_its_own(python: Interpreter, start: Start) -> None:
    program = start("""
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
with stage("main"):
    pass
one = interpreters.create()
interpreters.run_string(one, "from bottletop.probe import stage\\nwith stage('sub'): pass")
hold()
""")
    program.until_ready()
    stages = program.stages()
    assert {name: one.calls for name, one in stages.items()} == {"main": 1, "sub": 1}
    program.finish()


def test_a_reader_that_is_killed_does_not_matter(start: Start) -> None:
    program = start("""
with stage("step"):
    say("go")
while True:
    with stage("step"):
        time.sleep(0.0005)
""")
    program.line()
    path = program.memfd()
    reader = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import mmap, os, sys\n"
            "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
            "seen = mmap.mmap(fd, 0, prot=mmap.PROT_READ)\n"
            "print('reading', flush=True)\n"
            "while True: bytes(seen)\n",
            str(path),
        ],
        stdout=subprocess.PIPE,
    )
    assert reader.stdout is not None
    with reader, reader.stdout:
        assert reader.stdout.readline() == b"reading\n"
        before = program.stages()["step"].calls
        reader.send_signal(signal.SIGKILL)
        reader.wait()
    deadline_s = time.monotonic() + 30
    while program.stages()["step"].calls < before + 20:
        assert time.monotonic() < deadline_s


def test_nobody_can_cut_or_grow_the_memory_under_the_program(start: Start) -> None:
    program = start("""
with stage("x"):
    pass
hold()
""")
    program.until_ready()
    path = program.memfd()
    for size in (0, 4096, 1 << 22):
        with pytest.raises(PermissionError):
            os.truncate(path, size)
    assert program.stages()["x"].calls == 1
    program.finish()


def test_another_user_cannot_read_it(start: Start) -> None:
    # Without root there is no other user to be: then the kernel is told to treat us as one.
    close = "" if os.geteuid() == 0 else "__import__('ctypes').CDLL(None).prctl(4, 0)"
    program = start(f"""
with stage("secret"):
    pass
{close}
hold()
""")
    program.until_ready()
    path = f"/proc/{program.pid}/fd"

    def refused() -> list[str]:
        found = []
        for attempt in (lambda: os.listdir(path), lambda: os.open(f"{path}/3", os.O_RDONLY)):
            try:
                found.append(f"allowed: {attempt()}")
            except PermissionError:
                found.append("refused")
        return found

    assert unprivileged(refused) == ["refused", "refused"]
    program.finish()
