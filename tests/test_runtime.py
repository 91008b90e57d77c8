"""The runtime isolates its sources: late is shown as late, and nothing waits for a hung call."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, ClassVar

import pytest
from hosttree import HostTree

from bottletop.clock import ManualClock
from bottletop.collectors.base import Collector, Context, Unavailable
from bottletop.model import NS_PER_S, ProcessId, Sample, Source, SourceState, Table
from bottletop.roots import Roots
from bottletop.rules.base import Limits
from bottletop.runtime import Runtime
from bottletop.snapshot import RecordingStatus
from bottletop.tables import Gpu, Memory, SourceHealth

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Steady:
    """A source that always answers."""

    name: ClassVar[str] = "memory"
    tables: ClassVar[tuple[type[Table], ...]] = (Memory,)
    period_s: ClassVar[float] = 1.0
    blocking: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        self.clock = context.clock
        self.reads = 0

    def open(self) -> None: ...

    def read(self) -> Sequence[Sample]:
        self.reads += 1
        t_ns = self.clock.monotonic_ns()
        row = Memory.row("host", t_ns, {Memory.total_bytes: 1024 * self.reads})
        return (Sample(self.name, Memory, t_ns, 0, (row,)),)

    def close(self) -> None: ...


class Hanging(Steady):
    """A driver that stops answering until the test lets it go."""

    name = "gpu"
    tables = (Gpu,)
    blocking = True
    gate: ClassVar[threading.Event]
    entered: ClassVar[threading.Event]

    def read(self) -> Sequence[Sample]:
        self.entered.set()
        self.gate.wait(30)
        t_ns = self.clock.monotonic_ns()
        return (Sample("gpu", Gpu, t_ns, 0, (Gpu.row("GPU-a", t_ns, {Gpu.util_pct: 5}),)),)


class Flaky(Steady):
    """Goes from missing to broken to fine."""

    name = "disk"
    opens = 0

    def open(self) -> None:
        type(self).opens += 1
        if self.opens == 1:
            raise Unavailable("no such device: load the module")

    def read(self) -> Sequence[Sample]:
        self.reads += 1
        if self.reads == 1:
            raise OSError(5, "Input/output error\x1b[2J")
        return super().read()


@pytest.fixture(autouse=True)
def _fresh_classes() -> Iterator[None]:
    Hanging.gate, Hanging.entered, Flaky.opens = threading.Event(), threading.Event(), 0
    yield
    Hanging.gate.set()


def runtime(clock: ManualClock, *kinds: type[Steady]) -> Runtime:
    return Runtime(
        clock=clock,
        roots=Roots(),
        collectors=kinds,
        limits=Limits(),
        host="test",
    )


def by_name(run: Runtime) -> dict[str, Source]:
    return {source.name: source for source in run.sources()}


def opened(run: Runtime) -> Runtime:
    for source in run.runners:
        source.open()
    return run


async def test_a_beat_reads_judges_and_publishes() -> None:
    clock = ManualClock()
    run = opened(runtime(clock, Steady))
    assert run.snapshot().generation == 0
    await run.beat(evaluate=True)
    clock.advance(1)
    await run.beat(evaluate=True)
    picture = run.snapshot()
    assert picture.generation == 2
    assert picture.watched_s == 1
    assert picture.view.number(Memory.total_bytes, "host") == 2048
    assert picture.view.keys(SourceHealth) == ["memory"]
    assert by_name(run)["memory"].state is SourceState.OK


async def test_a_source_is_not_read_before_its_time() -> None:
    clock = ManualClock()
    run = opened(runtime(clock, Steady))
    await run.beat(evaluate=True)
    clock.advance(0.2)
    await run.beat(evaluate=False)
    clock.advance(0.8)
    await run.beat(evaluate=True)
    assert run.snapshot().view.number(Memory.total_bytes, "host") == 2048


async def test_a_hung_source_is_late_with_its_age_and_delays_nobody() -> None:
    clock = ManualClock()
    run = opened(runtime(clock, Hanging, Steady))
    for _ in range(7):
        await run.beat(evaluate=True)
        clock.advance(1)
    gpu, memory = by_name(run)["gpu"], by_name(run)["memory"]
    assert gpu.state is SourceState.LATE
    assert gpu.reason == "a read has not returned for 7 s"
    assert memory.state is SourceState.OK
    assert run.snapshot().view.number(Memory.total_bytes, "host") == 7 * 1024


async def test_a_late_answer_is_taken_when_it_comes() -> None:
    clock = ManualClock()
    run = opened(runtime(clock, Hanging))
    await run.beat(evaluate=True)
    clock.advance(3)
    Hanging.gate.set()
    for _ in range(2000):
        # The answer comes from a real thread: let the loop hear of it.
        await asyncio.sleep(0.005)
        if by_name(run)["gpu"].state is SourceState.OK:
            break
    await run.beat(evaluate=True)
    assert run.snapshot().view.last(Gpu.util_pct, "GPU-a") == 5


def test_stopping_does_not_wait_for_a_hung_call() -> None:
    run = runtime(ManualClock(), Hanging)
    run.start()
    assert Hanging.entered.wait(10)
    stopped = threading.Event()
    threading.Thread(target=lambda: (run.stop(), stopped.set()), daemon=True).start()
    assert stopped.wait(5)
    assert not Hanging.gate.is_set()


async def test_an_unavailable_source_says_why_and_is_tried_again_slowly() -> None:
    clock = ManualClock()
    run = opened(runtime(clock, Flaky))
    await run.beat(evaluate=True)
    first = by_name(run)["disk"]
    assert (first.state, first.reason) == (
        SourceState.UNAVAILABLE,
        "no such device: load the module",
    )
    clock.advance(1)
    await run.beat(evaluate=True)
    assert Flaky.opens == 1
    clock.advance(5)
    await run.beat(evaluate=True)
    failed = by_name(run)["disk"]
    assert failed.state is SourceState.FAILED
    assert "Input/output error" in failed.reason
    assert "\x1b" not in failed.reason
    clock.advance(1)
    await run.beat(evaluate=True)
    assert by_name(run)["disk"].state is SourceState.OK
    view = run.snapshot().view
    assert view.number(SourceHealth.failures, "disk") == 2


async def test_a_source_that_names_its_own_time_is_tried_again_then_each_time() -> None:
    class Asleep(Steady):
        opens: ClassVar[list[int]] = []

        def open(self) -> None:
            self.opens.append(round(self.clock.monotonic_ns() / NS_PER_S) - 1000)
            raise Unavailable("asleep", retry_s=2)

    clock = ManualClock()
    run = opened(runtime(clock, Asleep))
    for _ in range(9):
        await run.beat(evaluate=True)
        clock.advance(1)
    assert Asleep.opens == [0, 2, 4, 6, 8]


def test_a_dead_sampler_is_reported_and_does_not_look_alive() -> None:
    class Broken(ManualClock):
        def monotonic_ns(self) -> int:
            if threading.current_thread().name == "bottletop-runtime":
                raise ZeroDivisionError("no clock")
            return super().monotonic_ns()

    run = runtime(Broken(), Steady)
    run.start()
    run.wait_for_judgement(0, 10)
    assert isinstance(run.failure, ZeroDivisionError)
    run.stop()


def test_what_a_screen_looks_at_reaches_the_collectors() -> None:
    seen: list[Context] = []

    class Asking(Steady):
        def __init__(self, context: Context) -> None:
            super().__init__(context)
            seen.append(context)

    run = runtime(ManualClock(), Asking)
    run.look_at(frozenset({Memory}))
    assert seen[0].exchange.on_screen == {Memory}


def test_the_collector_protocol_is_what_these_sources_are() -> None:
    kept: Collector = Steady(Context(clock=ManualClock(), roots=Roots()))
    assert kept.read()[0].t_ns == 1_000 * NS_PER_S


class Listening:
    """A recorder that keeps what it is handed, and lets a beat happen while the past is."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, int]] = []
        self.meanwhile: list[object] = []

    def sample(self, arrival: int, sample: Sample) -> None:
        self.heard.append((sample.source, arrival))
        for act in self.meanwhile:
            self.meanwhile = []
            act()  # type: ignore[operator]

    def evaluated(self, arrival: int, judgement: object) -> None:
        self.heard.append(("judged", arrival))

    def status(self) -> RecordingStatus:
        return RecordingStatus("x.btrec", 0, 0, 0)


async def test_nothing_is_lost_or_told_twice_while_the_past_is_handed_over() -> None:
    clock = ManualClock()
    listener = Listening()
    run = runtime(clock, Steady)
    run._recorder_factory = lambda path, owner: listener  # type: ignore[assignment,return-value]
    for _ in range(3):
        await opened(run).beat(evaluate=True)
        clock.advance(1)
    extra = Sample("late", Memory, clock.monotonic_ns(), 0, ())
    listener.meanwhile = [lambda: run._ingest(extra)]
    run.start_recording("x.btrec")
    await run.beat(evaluate=True)
    arrivals = [arrival for kind, arrival in listener.heard if kind != "judged"]
    assert arrivals == list(range(1, run.store.arrivals + 1))
    assert [kind for kind, _ in listener.heard].count("judged") == 4
    assert ("late", 7) in listener.heard


class TestFollowing:
    """A target that ends, and what is started in its place."""

    def run(self, tree: HostTree, clock: ManualClock, follow: str) -> Runtime:
        root = tree.process(50, argv=(b"python3", b"serve.py"), start=500)
        return opened(
            Runtime(
                clock=clock,
                roots=tree.captured,
                collectors=(Steady,),
                limits=Limits(),
                host="test",
                root_process=root,
                follow=follow,
            )
        )

    async def test_a_restarted_service_is_attached_to_again(self, tmp_path: Path) -> None:
        tree, clock = HostTree(tmp_path), ManualClock()
        run = self.run(tree, clock, "serve.py")
        tree.process(40, argv=(b"python3", b"serve.py"), start=400)
        await run.beat(evaluate=True)
        tree.remove("proc/50")
        clock.advance(1)
        await run.beat(evaluate=True)
        target = run.snapshot().target
        assert target is not None
        assert target.gone, "an older process of that name is another one"
        tree.process(60, argv=(b"python3", b"serve.py"), start=900)
        clock.advance(3)
        await run.beat(evaluate=True)
        target = run.snapshot().target
        assert target is not None
        assert (target.root, target.gone) == (ProcessId(60, 900), False)

    async def test_without_being_asked_for_it_stays_gone(self, tmp_path: Path) -> None:
        tree, clock = HostTree(tmp_path), ManualClock()
        run = self.run(tree, clock, "")
        await run.beat(evaluate=True)
        tree.remove("proc/50")
        tree.process(60, argv=(b"python3", b"serve.py"), start=900)
        for _ in range(3):
            clock.advance(3)
            await run.beat(evaluate=True)
        target = run.snapshot().target
        assert target is not None
        assert target.gone


async def test_what_only_reads_the_target_is_left_alone_without_one(tmp_path: Path) -> None:
    class OfTarget(Steady):
        of_target = True
        reads_of_all = 0

        def read(self) -> Sequence[Sample]:
            type(self).reads_of_all += 1
            return ()

    tree, clock = HostTree(tmp_path), ManualClock()
    run = opened(runtime(clock, OfTarget))
    await run.beat(evaluate=True)
    assert OfTarget.reads_of_all == 0
    root = tree.process(50)
    watching = opened(
        Runtime(
            clock=clock,
            roots=tree.captured,
            collectors=(OfTarget,),
            limits=Limits(),
            host="test",
            root_process=root,
        )
    )
    await watching.beat(evaluate=True)
    assert OfTarget.reads_of_all == 1
