"""The probe alters nothing in the program, turns itself off when it must, and says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import bottletop.probe
from bottletop.launch import BOOT_DIR
from bottletop.linux import probe_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from probelab import Interpreter, Program

    Start = Callable[..., Program]


def test_decorated_functions_keep_their_identity_and_their_results(start: Start) -> None:
    program = start("""
import asyncio, inspect
def plain(a, b=2, *rest, c: int = 3, **more):
    "What it does."
    return a, b, rest, c, more
plain.mark = "kept"
same = stage("plain")(plain)
assert same(1, 5, 6, c=7, d=8) == (1, 5, (6,), 7, {"d": 8})
assert (same.__name__, same.__qualname__, same.__doc__) == ("plain", "plain", "What it does.")
assert same.__wrapped__ is plain and same.mark == "kept" and same.__module__ == "__main__"
assert inspect.signature(same) == inspect.signature(plain)

class Model:
    @stage("method")
    def forward(self, x):
        return self, x
    @stage("class")
    @classmethod
    def make(cls):
        return cls
    @classmethod
    @stage("class")
    def make_too(cls):
        return cls
    @stage("static")
    @staticmethod
    def add(a, b):
        return a + b
    @property
    @stage("property")
    def size(self):
        return 7
model = Model()
assert model.forward(1) == (model, 1) and Model.forward(model, 2) == (model, 2)
assert Model.make() is Model and model.make_too() is Model
assert Model.add(1, 2) == 3 == model.add(1, 2) and model.size == 7

@stage("async")
async def answer(x):
    await asyncio.sleep(0)
    return x + 1
assert inspect.iscoroutinefunction(answer) and asyncio.run(answer(41)) == 42

@stage("on a class")
class Kept:
    pass
assert isinstance(Kept(), Kept) and type(Kept) is type

@stage
def bare():
    return "bare"
assert bare() == "bare"
hold()
""")
    program.until_ready()
    calls = {name: one.calls for name, one in program.stages().items()}
    del calls["on a class"]
    assert calls == {
        "plain": 1,
        "method": 2,
        "class": 2,
        "static": 2,
        "property": 1,
        "async": 1,
        "bare": 1,
    }
    program.finish()


def test_exceptions_of_the_body_go_through_untouched(start: Start) -> None:
    program = start("""
import asyncio
class Mine(BaseException):
    pass
def raises(error):
    with stage("body"):
        raise error
error = Mine("x")
try:
    raises(error)
except Mine as caught:
    assert caught is error and caught.__context__ is None and caught.__cause__ is None
for kind in (KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration):
    try:
        raises(kind())
    except kind:
        pass
@stage("call")
def call():
    return 1 / 0
@stage("coroutine")
async def coroutine():
    raise LookupError
for function, kind in ((call, ZeroDivisionError), (lambda: asyncio.run(coroutine()), LookupError)):
    try:
        function()
    except kind:
        continue
    raise AssertionError
hold()
""")
    program.until_ready()
    stages = program.stages()
    assert {n: (s.calls, s.in_flight) for n, s in stages.items()} == {
        "body": (5, 0),
        "call": (1, 0),
        "coroutine": (1, 0),
    }
    program.finish()


def test_a_generator_passes_everything_through_and_times_its_own_part(start: Start) -> None:
    program = start("""
import asyncio, inspect
log = []
@stage("tokens")
def tokens():
    try:
        got = yield "a"
        log.append(got)
        try:
            yield "b"
        except LookupError:
            yield "thrown"
        return "end"
    finally:
        log.append("closed")
def outer():
    log.append((yield from tokens()))
assert inspect.isgeneratorfunction(tokens)
run = outer()
assert next(run) == "a" and run.send("sent") == "b"
time.sleep(0.05)
assert run.throw(LookupError()) == "thrown"
assert next(run, "over") == "over" and log == ["sent", "closed", "end"]
del log[:]
run = tokens()
next(run)
run.close()
assert log == ["closed"]

@stage("stream")
async def stream():
    try:
        got = yield 1
        try:
            yield got
        except LookupError:
            yield "thrown"
    finally:
        log.append("stream closed")
async def consume():
    source = stream()
    assert await source.asend(None) == 1 and await source.asend(5) == 5
    time.sleep(0.05)
    assert await source.athrow(LookupError()) == "thrown"
    assert [item async for item in source] == []
    source = stream()
    await source.asend(None)
    await source.aclose()
    assert [item async for item in stream()] == [1, None]
asyncio.run(consume())
assert log.count("stream closed") == 3 and inspect.isasyncgenfunction(stream)
hold()
""")
    program.until_ready()
    stages = program.stages()
    assert stages["tokens"].calls == 5
    # What the consumer does between two items is not the stage's time.
    assert stages["tokens"].inclusive_ns < 50_000_000
    assert stages["stream"].inclusive_ns < 50_000_000
    assert (stages["tokens"].in_flight, stages["stream"].in_flight) == (0, 0)
    program.finish()


def test_three_errors_of_its_own_turn_it_off_for_good(start: Start) -> None:
    program = start("""
import bottletop.probe as probe
real = probe.monotonic_ns
calls = []
def broken():
    calls.append(1)
    if len(calls) > 10:
        raise RuntimeError("the clock broke")
    return real()
probe.monotonic_ns = broken
ran = 0
for _ in range(20):
    with stage("x"):
        ran += 1
@stage("y")
def y():
    return "y"
assert ran == 20 and y() == "y" and probe.status().startswith("off: 3 errors"), probe.status()
assert stage("new")(y) is y and stage(y) is y
with stage("new"), stage(7), stage(["x"]):
    pass
hold()
""")
    program.until_ready()
    (reading,) = program.readings()
    assert (reading.on, reading.errors) == (False, 3)
    assert 0 < reading.stages[0].calls < 20
    program.finish()


def test_one_error_costs_one_pass_and_no_more(start: Start) -> None:
    program = start("""
import bottletop.probe as probe
real, fail = probe.monotonic_ns, False
def clock():
    global fail
    if fail:
        fail = False
        raise RuntimeError
    return real()
probe.monotonic_ns = clock
for number in range(10):
    fail = number == 5
    with stage("x"):
        pass
hold()
""")
    program.until_ready()
    (reading,) = program.readings()
    assert (reading.on, reading.errors, reading.stages[0].in_flight) == (True, 1, 0)
    assert reading.stages[0].calls == 9
    program.finish()


def test_leaving_what_was_never_entered_is_no_pass_and_no_error(start: Start) -> None:
    program = start("""
from contextlib import ExitStack
for _ in range(5):
    with ExitStack() as stack:
        stack.push(stage("pushed"))
with stage("pushed"):
    pass
hold()
""")
    program.until_ready()
    assert program.stages()["pushed"].calls == 1
    program.finish()


def test_a_program_at_its_recursion_limit_gets_its_own_error_and_the_probe_stays_on(
    start: Start,
) -> None:
    program = start("""
from bottletop.probe import status
def down():
    with stage("down"):
        down()
for _ in range(3):
    try:
        down()
    except RecursionError:
        pass
assert status() == "on", status()
with stage("after"):
    pass
hold()
""")
    program.until_ready()
    (reading,) = program.readings()
    assert (reading.on, reading.errors) == (True, 0)
    assert {one.name: one.calls for one in reading.stages}["after"] == 1
    program.finish()


def test_switched_off_it_leaves_functions_alone_and_opens_nothing(start: Start) -> None:
    program = start(
        """
from contextlib import ExitStack
from bottletop.probe import status
def f():
    return 1
assert stage("x")(f) is f and status() == "off: BOTTLETOP_PROBE=0"
assert stage(f) is f and stage(name="x")(f) is f
with stage(7), stage(["x"]):
    pass
with stage("x"):
    pass
with ExitStack() as stack:
    stack.enter_context(stage("x"))
try:
    with stage("x"):
        raise LookupError
except LookupError:
    say("raised")
hold()
""",
        BOTTLETOP_PROBE="0",
    )
    assert program.until_ready() == ["raised"]
    assert program.readings() == []
    program.finish()


def test_without_shared_memory_it_is_off_and_makes_no_file(start: Start, tmp_path: Path) -> None:
    program = start("""
import errno
def refuse(*arguments):
    raise OSError(errno.ENOSYS, "no memfd")
os.memfd_create = refuse
from bottletop.probe import status
with stage("x"):
    pass
assert status().startswith("off: no shared memory"), status()
hold()
""")
    program.until_ready()
    assert program.readings() == []
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]
    program.finish()


def test_when_memory_runs_out_it_counts_in_the_cells_it_has(start: Start) -> None:
    program = start("""
import errno, itertools
real, asked = os.posix_fallocate, []
def full(*arguments):
    asked.append(arguments)
    if len(asked) > 1:
        raise OSError(errno.ENOSPC, "full")
    return real(*arguments)
os.posix_fallocate = full
for name in "abcdefghijklmnopqrst":
    for _ in range(2):
        with stage(name):
            pass
hold()
""")
    program.until_ready()
    stages = program.stages()
    assert [one.calls for one in stages.values()] == [2] * 20
    program.finish()


def test_importing_it_starts_and_prints_nothing(start: Start) -> None:
    program = start(
        """
import signal
heavy = {"asyncio", "typing", "socket", "subprocess", "logging", "inspect"} & set(sys.modules)
assert not heavy - before, heavy
assert threading.active_count() == 1
hold()
""".replace("import signal", "before = set()")
    )
    assert program.until_ready() == []
    assert program.readings() == []
    program.finish()


def test_the_fallback_of_its_documentation_runs_without_it(
    python: Interpreter, tmp_path: Path
) -> None:
    text = bottletop.probe.__doc__ or ""
    begin = text.index("    try: from bottletop.probe")
    lines = [line[4:] for line in text[begin:].splitlines()[:3]]
    script = tmp_path / "fallback.py"
    script.write_text(
        "\n".join(lines)
        + """
with stage("x"):
    print("with")
@stage("y")
def y():
    return "decorated"
print(y(), y())
"""
    )
    done = subprocess.run(
        [python.path, "-I", str(script)], capture_output=True, text=True, timeout=60
    )
    if python.path == sys.executable:  # where bottletop is installed, this is the probe itself
        assert done.stdout == "with\ndecorated decorated\n"
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "with\ndecorated decorated\n",
        "",
    )


def test_the_next_sitecustomize_still_runs_and_its_errors_are_its_own(
    python: Interpreter, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("import sys\nsys.chained = __file__\n")

    def run(code: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{BOOT_DIR}:{mine}"}
        return subprocess.run(
            [python.path, "-c", code], capture_output=True, text=True, env=env, timeout=60
        )

    done = run("import sys, sitecustomize; print(sys.chained == sitecustomize.__file__)")
    assert (done.stdout, done.stderr) == ("True\n", "")
    (mine / "sitecustomize.py").write_text("raise LookupError('of my own')\n")
    done = run("from bottletop.probe import stage; print('runs')")
    assert done.stdout == "runs\n"
    assert "of my own" in done.stderr


def test_an_installed_bottletop_wins_over_the_one_that_is_offered(
    python: Interpreter, tmp_path: Path
) -> None:
    installed = tmp_path / "site" / "bottletop"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("here = True\n")

    def run(code: str) -> str:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{BOOT_DIR}:{installed.parent}"}
        done = subprocess.run(
            [python.path, "-c", code], capture_output=True, text=True, env=env, timeout=60
        )
        assert done.stderr == ""
        return done.stdout.strip()

    # One without a probe, such as an old release, is completed; one with a probe is left alone.
    ask = "import bottletop, bottletop.probe as p; print(bottletop.here, p.__file__)"
    here, path = run(ask).split()
    assert here == "True"
    assert os.path.samefile(path, bottletop.probe.__file__)
    (installed / "probe.py").write_text("")
    here, path = run(ask).split()
    assert os.path.samefile(path, installed / "probe.py")


def test_reader_and_probe_agree_on_the_layout() -> None:
    probe = bottletop.probe
    assert f"/memfd:{probe.MEMFD_NAME}" == probe_memory.LINK
    for name in (
        "MAGIC",
        "LAYOUT",
        "SIZE_BYTES",
        "NAMES_AT",
        "NAME_BYTES",
        "MAX_STAGES",
        "CELL_WORDS",
        "BUCKETS",
        "MAX_CELLS",
    ):
        assert getattr(probe, name) == getattr(probe_memory, name)
    assert probe.CELLS_AT == probe_memory.HEADER_BYTES


def test_the_probe_is_valid_for_the_oldest_python_it_names(python: Interpreter) -> None:
    with open(bottletop.probe.__file__, encoding="utf-8") as file:
        source = file.read()
    code = "import ast, sys; ast.parse(sys.stdin.read())"
    subprocess.run([python.path, "-c", code], input=source, text=True, check=True, timeout=60)
