"""Passes are counted exactly and timed where they belong: threads, tasks, nesting, recursion."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from probelab import Interpreter, Program

    Start = Callable[..., Program]

MS = 1_000_000


def test_four_threads_with_fifty_thousand_passes_each_are_counted_exactly(start: Start) -> None:
    program = start("""
def work():
    for _ in range(50_000):
        with stage("outer"):
            with stage("inner"):
                pass
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
hold()
""")
    program.until_ready()
    stages = program.stages()
    outer, inner = stages["outer"], stages["inner"]
    assert (outer.calls, inner.calls) == (200_000, 200_000)
    assert sum(outer.counts) == outer.calls
    assert sum(outer.sums_ns) == outer.inclusive_ns
    assert outer.self_ns == outer.inclusive_ns - inner.inclusive_ns
    assert inner.self_ns == inner.inclusive_ns
    assert (outer.in_flight, inner.in_flight) == (0, 0)
    program.finish()


def test_a_reading_in_the_middle_never_goes_back_and_ends_at_the_exact_total(start: Start) -> None:
    program = start("""
def work():
    for _ in range(30_000):
        with stage("step"):
            pass
say("go")
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
hold()
""")
    assert program.line() == "go"
    seen = [0]
    while seen[-1] < 60_000:
        for reading in program.readings():
            assert reading.rejected == 0
            seen.extend(one.calls for one in reading.stages)
    assert seen == sorted(seen)
    program.until_ready()
    assert program.stages()["step"].calls == 60_000
    program.finish()


def test_time_in_nested_stages_is_not_the_outer_stages_own(start: Start) -> None:
    program = start("""
with stage("request"):
    with stage("decode"):
        time.sleep(0.03)
    with stage("forward"):
        with stage("copy"):
            time.sleep(0.02)
hold()
""")
    program.until_ready()
    stages = program.stages()
    request, decode = stages["request"], stages["decode"]
    forward, copy = stages["forward"], stages["copy"]
    assert decode.inclusive_ns >= 30 * MS
    assert copy.inclusive_ns >= 20 * MS
    assert request.self_ns == request.inclusive_ns - decode.inclusive_ns - forward.inclusive_ns
    assert forward.self_ns == forward.inclusive_ns - copy.inclusive_ns
    assert request.longest_ns == request.inclusive_ns
    program.finish()


def test_a_stage_inside_itself_counts_every_level(start: Start) -> None:
    program = start("""
def down(levels):
    with stage("level"):
        if levels > 1:
            down(levels - 1)
        else:
            hold()
down(5)
hold()
""")
    program.until_ready()
    deep = program.stages()["level"]
    assert (deep.calls, deep.in_flight) == (0, 5)
    assert program.finish() == ["ready"]


def test_tasks_that_take_turns_on_one_thread_do_not_nest_in_each_other(start: Start) -> None:
    program = start("""
import asyncio
async def task(name, seconds):
    for _ in range(5):
        with stage(name):
            await asyncio.sleep(seconds)
async def main():
    await asyncio.gather(*[task("a", 0.004) for _ in range(10)],
                         *[task("b", 0.003) for _ in range(10)])
asyncio.run(main())
hold()
""")
    program.until_ready()
    for name, seconds in (("a", 0.004), ("b", 0.003)):
        stage = program.stages()[name]
        assert (stage.calls, stage.in_flight) == (50, 0)
        assert stage.self_ns == stage.inclusive_ns
        assert stage.inclusive_ns >= 50 * seconds * 1e9 * 0.9
    program.finish()


def test_a_task_nests_its_own_stages_and_only_them(start: Start) -> None:
    program = start("""
import asyncio
async def request():
    with stage("request"):
        with stage("tokenise"):
            await asyncio.sleep(0.003)
        await asyncio.sleep(0.002)
        with stage("forward"):
            await asyncio.sleep(0.004)
async def main():
    await asyncio.gather(*[request() for _ in range(20)])
asyncio.run(main())
hold()
""")
    program.until_ready()
    stages = program.stages()
    request, inside = stages["request"], (stages["tokenise"], stages["forward"])
    assert [one.calls for one in stages.values()] == [20, 20, 20]
    assert request.self_ns == request.inclusive_ns - sum(one.inclusive_ns for one in inside)
    assert request.self_ns >= 20 * 2 * MS * 0.9
    program.finish()


def test_tasks_nested_at_the_same_time_cover_their_parent_once(start: Start) -> None:
    program = start("""
import asyncio
async def part():
    with stage("part"):
        await asyncio.sleep(0.05)
async def main():
    with stage("whole"):
        await asyncio.gather(*[part() for _ in range(8)])
        await asyncio.sleep(0.05)
asyncio.run(main())
hold()
""")
    program.until_ready()
    stages = program.stages()
    whole, part = stages["whole"], stages["part"]
    assert part.inclusive_ns >= 8 * 45 * MS
    assert 45 * MS <= whole.self_ns <= whole.inclusive_ns - 45 * MS
    program.finish()


def test_work_handed_to_a_thread_is_nested_in_the_task_that_waits_for_it(start: Start) -> None:
    program = start("""
import asyncio, contextvars
def forward():
    with stage("forward"):
        time.sleep(0.04)
async def main():
    loop = asyncio.get_running_loop()
    with stage("request"):
        context = contextvars.copy_context()  # as asyncio.to_thread does
        await loop.run_in_executor(None, context.run, forward)
asyncio.run(main())
hold()
""")
    program.until_ready()
    stages = program.stages()
    request, forward = stages["request"], stages["forward"]
    assert request.self_ns == request.inclusive_ns - forward.inclusive_ns
    program.finish()


def test_an_event_loop_inside_a_stage_is_nested_in_it(start: Start) -> None:
    program = start("""
import asyncio
async def task():
    with stage("task"):
        await asyncio.sleep(0.03)
async def main():
    await asyncio.gather(task(), task())
with stage("run"):
    asyncio.run(main())
hold()
""")
    program.until_ready()
    stages = program.stages()
    assert stages["task"].calls == 2
    assert stages["run"].self_ns <= stages["run"].inclusive_ns - 27 * MS
    program.finish()


def test_tasks_are_kept_apart_when_asyncio_comes_after_the_first_stage(start: Start) -> None:
    program = start("""
assert "asyncio" not in sys.modules
def step():
    with stage("step"):
        pass
step()
import asyncio
step()
async def task(name, seconds):
    for _ in range(5):
        with stage(name):
            await asyncio.sleep(seconds)
async def main():
    step()
    await asyncio.gather(*[task("a", 0.004) for _ in range(4)],
                         *[task("b", 0.003) for _ in range(4)])
asyncio.run(main())
step()
hold()
""")
    program.until_ready()
    stages = program.stages()
    assert {name: one.calls for name, one in stages.items()} == {"step": 4, "a": 20, "b": 20}
    assert all(one.self_ns == one.inclusive_ns for one in stages.values())
    program.finish()


def test_a_thread_beside_an_event_loop_nests_its_own_stages_and_only_them(start: Start) -> None:
    program = start("""
import asyncio
async def task():
    with stage("task"):
        await asyncio.sleep(0.001)
async def main(ended):
    while not ended.is_set():
        await asyncio.gather(*[task() for _ in range(20)])
ended = threading.Event()
loop = threading.Thread(target=lambda: asyncio.run(main(ended)))
loop.start()
for _ in range(20_000):
    with stage("outer"):
        with stage("inner"):
            pass
ended.set()
loop.join()
hold()
""")
    program.until_ready()
    stages = program.stages()
    outer, inner, task = stages["outer"], stages["inner"], stages["task"]
    assert (outer.calls, inner.calls) == (20_000, 20_000)
    assert outer.self_ns == outer.inclusive_ns - inner.inclusive_ns
    assert task.self_ns == task.inclusive_ns
    program.finish()


def test_a_callback_of_the_loop_is_nested_in_what_the_loop_runs_in(start: Start) -> None:
    program = start("""
import asyncio
def callback(loop):
    with stage("callback"):
        with stage("leaf"):
            time.sleep(0.01)
    loop.stop()
loop = asyncio.new_event_loop()
with stage("run"):
    loop.call_soon(callback, loop)
    loop.run_forever()
loop.close()
hold()
""")
    program.until_ready()
    stages = program.stages()
    run, callback, leaf = (stages[name] for name in ("run", "callback", "leaf"))
    assert callback.self_ns == callback.inclusive_ns - leaf.inclusive_ns
    assert run.self_ns == run.inclusive_ns - callback.inclusive_ns
    program.finish()


def test_tasks_that_start_eagerly_do_not_nest_in_each_other(
    python: Interpreter, start: Start
) -> None:
    program = start("""
import asyncio
async def task(name):
    with stage(name):
        await asyncio.sleep(0.02)
async def main():
    factory = getattr(asyncio, "eager_task_factory", None)  # from Python 3.12 on
    asyncio.get_running_loop().set_task_factory(factory)
    await asyncio.gather(*[asyncio.get_running_loop().create_task(task(name)) for name in "abc"])
    say(factory is not None)
asyncio.run(main())
hold()
""")
    assert program.until_ready() == [str(python.version >= (3, 12))]
    stages = program.stages()
    assert {name: one.calls for name, one in stages.items()} == {"a": 1, "b": 1, "c": 1}
    assert all(one.self_ns == one.inclusive_ns for one in stages.values())
    program.finish()


def test_what_is_under_way_shows_how_many_and_since_when(start: Start) -> None:
    program = start("""
import asyncio
began = time.monotonic_ns()
def hang(inside):
    with stage("thread"):
        inside.set()
        time.sleep(60)
for _ in range(3):
    inside = threading.Event()
    threading.Thread(target=hang, args=(inside,), daemon=True).start()
    inside.wait()
    time.sleep(0.02)
async def task():
    with stage("task"):
        await asyncio.sleep(60)
async def main():
    tasks = []
    for _ in range(4):
        tasks.append(asyncio.ensure_future(task()))
        await asyncio.sleep(0.01)
    say(began, time.monotonic_ns())
    await asyncio.get_running_loop().run_in_executor(None, hold)
    for one in tasks:
        one.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
asyncio.run(main())
hold()
""")
    began, until = (int(word) for word in program.until_ready()[-1].split())
    before_ns = time.monotonic_ns()
    stages = program.stages()
    after_ns = time.monotonic_ns()
    for name, count, pause in (("thread", 3, 20 * MS), ("task", 4, 10 * MS)):
        stage = stages[name]
        assert (stage.in_flight, stage.calls) == (count, 0)
        assert stage.oldest_start_ns is not None
        assert began <= stage.oldest_start_ns <= until - count * pause
        # The integral counts each of them from its own begin.
        at_least_ns = before_ns - stage.oldest_start_ns
        at_most_ns = count * (after_ns - stage.oldest_start_ns) - pause
        assert at_least_ns < stage.occupied_ns <= at_most_ns
    assert program.finish() == ["ready"]


def test_a_cancelled_task_leaves_its_stage(start: Start) -> None:
    program = start("""
import asyncio
async def task():
    with stage("task"):
        await asyncio.sleep(60)
async def main():
    tasks = [asyncio.ensure_future(task()) for _ in range(4)]
    await asyncio.sleep(0.01)
    for one in tasks:
        one.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
asyncio.run(main())
hold()
""")
    program.until_ready()
    task = program.stages()["task"]
    assert (task.calls, task.in_flight) == (4, 0)
    program.finish()


def test_a_stage_that_one_thread_begins_and_another_ends_is_one_pass(start: Start) -> None:
    program = start("""
def run(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
for _ in range(20):
    with_ = stage("moved")
    run(with_.__enter__)
    with stage("moved"):
        pass
    run(lambda: with_.__exit__(None, None, None))
def later():
    for _ in range(10):
        with stage("moved"):
            pass
run(later)
hold()
""")
    program.until_ready()
    moved = program.stages()["moved"]
    assert (moved.calls, moved.in_flight) == (50, 0)
    program.finish()


def test_a_kept_object_may_be_entered_again_and_by_several_threads(start: Start) -> None:
    program = start("""
kept = stage("kept")
def work():
    for _ in range(2000):
        with kept:
            with kept:
                pass
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
hold()
""")
    program.until_ready()
    kept = program.stages()["kept"]
    assert (kept.calls, kept.in_flight) == (16_000, 0)
    program.finish()


def test_threads_that_come_and_go_share_cells_and_lose_nothing(start: Start) -> None:
    program = start("""
def work():
    for _ in range(10):
        with stage("a"):
            with stage("b"):
                pass
for _ in range(300):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
hold()
""")
    program.until_ready()
    stages = program.stages()
    assert (stages["a"].calls, stages["b"].calls) == (3000, 3000)
    used = int.from_bytes(program.memfd().read_bytes()[88:96], "little")
    assert used <= 32 + 6
    program.finish()


def test_more_passes_at_once_than_there_are_cells_are_counted_in_the_shared_one(
    start: Start,
) -> None:
    program = start("""
from contextlib import ExitStack
with ExitStack() as stack:
    for _ in range(1000):
        stack.enter_context(stage("deep"))
    hold()
    sys.stdin = open("/dev/null")
say("left")
time.sleep(60)
""")
    program.until_ready()
    deep = program.stages()["deep"]
    assert (deep.calls, deep.in_flight) == (0, 1000)
    assert deep.oldest_start_ns is not None
    assert deep.oldest_start_ns < time.monotonic_ns()


def test_shared_passes_that_end_are_counted(start: Start) -> None:
    program = start("""
from contextlib import ExitStack
with ExitStack() as stack:
    for _ in range(1000):
        stack.enter_context(stage("deep"))
for _ in range(5):
    with stage("deep"):
        pass
hold()
""")
    program.until_ready()
    deep = program.stages()["deep"]
    assert (deep.calls, deep.in_flight) == (1005, 0)
    assert sum(deep.counts) == 1005
    program.finish()


def test_stages_beyond_the_table_are_counted_as_other(start: Start) -> None:
    program = start("""
for number in range(40):
    for _ in range(3):
        with stage("stage %d" % number):
            pass
hold()
""")
    program.until_ready()
    stages = program.stages()
    assert len(stages) == 32
    assert [reading.too_many for reading in program.readings()] == [True]
    assert stages["stage 30"].calls == 3
    assert stages["(other)"].calls == 9 * 3
    program.finish()


def test_names_made_up_at_run_time_do_not_grow_the_program(start: Start) -> None:
    program = start("""
import bottletop.probe as probe
for number in range(3000):
    with stage("request %d" % number):
        pass
assert len(probe._local_state.slots) <= 256
hold()
""")
    program.until_ready()
    stages = program.stages()
    assert sum(one.calls for one in stages.values()) == 3000
    program.finish()


def test_long_names_are_cut_between_characters_and_odd_ones_survive(start: Start) -> None:
    program = start(r"""
for name in ("\u00e9" * 100, "x\ud800y", "", "esc\x1b[31m", 7):
    with stage(name):
        pass
hold()
""")
    program.until_ready()
    names = set(program.stages())
    assert names == {"é" * 31, "x?y", "(unnamed)", "esc [31m", "7"}
    program.finish()


def test_generators_out_of_order_end_where_they_began(start: Start) -> None:
    program = start("""
def source(name):
    with stage(name):
        yield 1
        yield 2
for _ in range(50):
    a, b = source("a"), source("b")
    next(a), next(b)
    a.close()
    b.close()
with stage("after"):
    with stage("leaf"):
        time.sleep(0.01)
hold()
""")
    program.until_ready()
    stages = program.stages()
    assert [(s.calls, s.in_flight) for s in stages.values()] == [(50, 0), (50, 0), (1, 0), (1, 0)]
    after, leaf = stages["after"], stages["leaf"]
    assert after.self_ns == after.inclusive_ns - leaf.inclusive_ns
    program.finish()


def test_every_interpreter_of_the_probe_is_at_least_the_oldest_supported(
    python: Interpreter,
) -> None:
    assert (3, 8) <= python.version <= (3, 14)
