"""A replay tells the same story: the live run's judgements, one by one, from its recording."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, ClassVar

import pytest
from rulelab.rows import Rows
from rulelab.scene import Scene
from session.recording import record, recorder, ticks
from session.scripted import ScriptedHost

from bottletop.clock import ManualClock
from bottletop.live import recorder_for
from bottletop.model import NS_PER_S, Judgement, Sample, SourceState, Table
from bottletop.replay import Replay, judge_again
from bottletop.roots import Roots
from bottletop.rules.base import Limits
from bottletop.runtime import Runtime
from bottletop.session.events import Arrived, Evaluated
from bottletop.session.reader import open_recording
from bottletop.tables import TABLES, Core, Gpu, Memory, Process, SourceHealth, Stage, TargetInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bottletop.collectors.base import Context
    from bottletop.session.reader import Recording

WAITS = [
    {"s": 0.45, "jitter": 0.1, "cpu": 1.0, "stage": "decode"},
    {"s": 0.5, "gpu": 1.0, "cpu": 0.05, "stage": "forward"},
]
READS = [
    {"s": 0.6, "jitter": 0.2, "blocked": True, "stage": "load"},
    {"s": 0.4, "gpu": 1.0, "cpu": 0.05, "stage": "forward"},
]
BUSY = [{"s": 0.5, "gpu": 0.97, "cpu": 0.2, "stage": "forward"}]
SLOW_DISK = {"nvme0n1": {"reads_per_s": 800, "await_ms": 20, "queue": 30, "busy": 1.0}}
HOT = {"clock_mhz": 1320, "temp_c": 85, "power_w": 240, "limiters": {"thermal": 0.95}}
COOL = {"clock_mhz": 1980, "temp_c": 60, "power_w": 300, "limiters": {}}
STORY = {
    "seconds": 520,
    "phase": BUSY,
    "change": [
        {"at": 40, "phase": WAITS},
        {"at": 120, "phase": BUSY, "gpu": HOT},
        {"at": 180, "phase": WAITS, "gpu": COOL},
        {"at": 300, "phase": READS, "disk": SLOW_DISK},
        {"at": 400, "phase": WAITS, "without": ["stage"]},
        {"at": 450, "phase": BUSY, "gpu": HOT},
    ],
}


def story(seconds: int = STORY["seconds"]) -> Iterator[list[Sample]]:
    """Second by second what the sources of a host in trouble give; one of them is now and then
    late by a second, others are absent, change their texts or fail."""
    host, late = ScriptedHost(), []
    batch: list[Sample] = []
    rows = Rows(Scene.parse({**STORY, "seconds": seconds}))
    number = 0
    for sample in rows.samples():
        if sample is not None:
            batch.append(sample)
            continue
        number += 1
        others = [one for one in host.samples() if one.table in (Core, Memory, TargetInfo)]
        held = [one for one in batch if one.table is Stage] if number % 7 == 3 else []
        yield [*late, *(one for one in batch if one not in held), *others]
        late, batch = held, []


def churn(seconds: int) -> Iterator[list[Sample]]:
    """Processes that come, go and have their pids taken over; a lost GPU; a late disk."""
    host = ScriptedHost()
    for _ in range(seconds):
        yield [one for one in host.samples() if one.table is not SourceHealth]


class Script:
    """A source that reads from a script, one second's samples a read."""

    name: ClassVar[str] = "script"
    tables: ClassVar[tuple[type[Table], ...]] = TABLES
    period_s: ClassVar[float] = 1.0
    blocking: ClassVar[bool] = False

    def __init__(self, batches: Iterator[list[Sample]]) -> None:
        self._batches = batches

    def __call__(self, context: Context) -> Script:
        return self

    def open(self) -> None: ...

    def read(self) -> Sequence[Sample]:
        return next(self._batches)

    def close(self) -> None: ...


class Live:
    """A real runtime on a stepped clock; keeps every judgement."""

    def __init__(self, batches: Iterator[list[Sample]], limits: Limits | None = None) -> None:
        self.clock = ManualClock()
        self.run = Runtime(
            clock=self.clock,
            roots=Roots(),
            collectors=[Script(batches)],
            limits=limits or Limits(),
            host="gpu-7",
            simulated="simulated GPU",
            recorder_factory=recorder_for,
        )
        for source in self.run.runners:
            source.open()
        self.judged: list[Judgement] = []

    async def go(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            await self.run.beat(evaluate=True)
            self.judged.append(self.run.snapshot().judgement)


def codes(judgements: Sequence[Judgement]) -> set[str]:
    return {finding.code for judgement in judgements for finding in judgement.findings}


def judged_again(recording: Recording, limits: Limits | None = None) -> list[Judgement]:
    said: list[Judgement] = []
    judge_again(recording, limits, lambda recorded, judged: said.append(judged))
    return said


async def test_a_recording_judged_again_says_what_the_live_run_said(tmp_path: Path) -> None:
    live = Live(story())
    path = tmp_path / "a.btrec"
    live.run.start_recording(str(path))
    await live.go(500)
    live.run.stop()
    assert {"gpu-starved-cpu", "thermal-throttle", "gpu-util-sawtooth"} <= codes(live.judged)
    with open_recording(path) as recording:
        assert [one.judgement for one in recording.evaluations()] == live.judged
        assert judged_again(recording) == live.judged
        assert judge_again(recording).judgement == live.run.summary()


async def test_a_recording_begun_mid_run_says_what_the_live_run_said(tmp_path: Path) -> None:
    """It begins with what the rings held; findings keep the onset that they had before that."""
    live = Live(story())
    path = tmp_path / "a.btrec"
    await live.go(370)
    live.run.start_recording(str(path))
    await live.go(140)
    live.run.stop()
    with open_recording(path) as recording:
        recorded = [one.judgement for one in recording.evaluations()]
        assert recorded == live.judged[-len(recorded) :]
        assert len(recorded) > 140 + 290
        said = judged_again(recording)
    assert said == live.judged[-len(said) :]
    assert len(said) > 140
    assert len(codes(said)) > 1


async def test_a_young_run_recorded_late_is_judged_from_its_first_look(tmp_path: Path) -> None:
    live = Live(story())
    path = tmp_path / "a.btrec"
    await live.go(60)
    live.run.start_recording(str(path))
    await live.go(30)
    live.run.stop()
    with open_recording(path) as recording:
        assert judged_again(recording) == live.judged
        assert judge_again(recording).judgement == live.run.summary()


@pytest.mark.parametrize("late", [0, 350])
async def test_processes_that_come_and_go_change_nothing(tmp_path: Path, late: int) -> None:
    live = Live(churn(450))
    path = tmp_path / "a.btrec"
    await live.go(late)
    live.run.start_recording(str(path))
    await live.go(90)
    live.run.stop()
    with open_recording(path) as recording:
        said = judged_again(recording)
        assert said == live.judged[-len(said) :]
        assert len(said) >= 90


async def test_the_recorded_thresholds_hold_unless_others_are_given(tmp_path: Path) -> None:
    deaf = {
        rule: dict.fromkeys(names, 1000000000.0)
        for rule, names in Live(story()).run.engine.effective_thresholds().items()
        if rule == "thermal-throttle"
    }
    assert deaf["thermal-throttle"]
    live = Live(story(), Limits(deaf))
    path = tmp_path / "a.btrec"
    live.run.start_recording(str(path))
    await live.go(175)
    live.run.stop()
    assert "thermal-throttle" not in codes(live.judged)
    with open_recording(path) as recording:
        assert judged_again(recording) == live.judged
        assert "thermal-throttle" in codes(judged_again(recording, Limits()))


@pytest.fixture
def sleeper() -> Iterator[int]:
    """The pid of a process that can be attached to."""
    with subprocess.Popen(["sleep", "100"]) as process:
        yield process.pid
        process.kill()


async def test_attaching_to_another_process_begins_anew_in_both(
    tmp_path: Path, sleeper: int
) -> None:
    live = Live(story())
    path = tmp_path / "a.btrec"
    live.run.start_recording(str(path))
    await live.go(70)
    live.run.attach(sleeper)
    await live.go(40)
    live.run.stop()
    with open_recording(path) as recording:
        assert judged_again(recording) == live.judged
        marks = [(mark.kind, mark.text) for mark in recording.marks()]
        assert ("attach", f"pid {sleeper}") in marks


async def test_a_killed_recording_is_judged_as_far_as_it_goes(tmp_path: Path) -> None:
    live = Live(story())
    path = tmp_path / "a.btrec"
    live.run.start_recording(str(path))
    await live.go(75)
    recorder = live.run._recorder
    assert recorder is not None
    assert recorder.flush()
    with open_recording(path) as recording:
        assert not recording.ended_cleanly
        assert judged_again(recording) == live.judged
    live.run.stop()


# -- playing -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Arrived | Evaluated]]:
    path = tmp_path_factory.mktemp("replay") / "a.btrec"
    events = record(path, 500)
    return path, [event for event in events if isinstance(event, (Arrived, Evaluated))]


@pytest.fixture
def replay(played: tuple[Path, list[Arrived | Evaluated]]) -> Iterator[Replay]:
    with open_recording(played[0]) as recording:
        yield Replay(recording, ManualClock())


def judgements(played: tuple[Path, list[Arrived | Evaluated]]) -> list[Judgement]:
    return [event.judgement for event in played[1] if isinstance(event, Evaluated)]


def seen(replay: Replay) -> dict[str, object]:
    """All that a screen could show of a moment, but for what only history shows."""
    snapshot = replay.snapshot()
    view = snapshot.view
    values = {
        (metric.id, key): view.last(metric, key)
        for table in TABLES
        for key in view.keys(table)
        for metric in table.columns
    }
    window = {
        (metric.id, key): view.series(metric, key, 300).points()
        for table in (Gpu, Core, Process)
        for key in view.keys(table)
        for metric in table.columns
    }
    return {
        "now": snapshot.now_ns,
        "values": values,
        "window": window,
        "judgement": snapshot.judgement,
        "target": snapshot.target,
        "sources": snapshot.sources,
    }


def test_a_replay_begins_at_the_start_and_stands(replay: Replay) -> None:
    playback = replay.snapshot().playback
    assert playback is not None
    assert not playback.playing
    assert playback.now_ns == playback.start_ns
    assert playback.ended_cleanly
    assert replay.snapshot() is replay.snapshot()


def test_a_moment_looks_the_same_however_it_was_reached(
    played: tuple[Path, list[Arrived | Evaluated]],
) -> None:
    moment_ns = judgements(played)[400].t_ns + 200_000_000
    with open_recording(played[0]) as recording:
        clock = ManualClock()
        ahead = Replay(recording, clock)
        ahead.play(True)
        while ahead.snapshot().now_ns + NS_PER_S <= moment_ns:
            clock.advance(1)
            ahead.advance()
        ahead.seek(moment_ns)
        directly = Replay(recording, ManualClock())
        directly.seek(moment_ns)
        back = Replay(recording, ManualClock())
        back.seek(recording.end_ns)
        back.seek(moment_ns)
        assert seen(ahead) == seen(directly) == seen(back)
        assert ahead.snapshot().judgement == judgements(played)[400]


def test_time_plays_at_the_set_speed_and_stops_at_the_end(
    played: tuple[Path, list[Arrived | Evaluated]],
) -> None:
    with open_recording(played[0]) as recording:
        clock = ManualClock()
        replay = Replay(recording, clock)
        replay.play(True)
        clock.advance(1)
        replay.advance()
        assert replay.snapshot().now_ns == recording.start_ns + NS_PER_S
        replay.set_speed(4)
        clock.advance(0.5)
        replay.advance()
        assert replay.snapshot().now_ns == recording.start_ns + 3 * NS_PER_S
        replay.play(False)
        clock.advance(10)
        replay.advance()
        assert replay.snapshot().now_ns == recording.start_ns + 3 * NS_PER_S
        replay.set_speed(1000)
        replay.play(True)
        for _ in range(60):
            clock.advance(1)
            replay.advance()
        playback = replay.snapshot().playback
        assert playback is not None
        assert (playback.now_ns, playback.playing) == (recording.end_ns, False)
        assert playback.speed == 64
        replay.play(True)
        assert replay.snapshot().now_ns == recording.start_ns


def test_a_suspended_terminal_does_not_make_time_jump(
    played: tuple[Path, list[Arrived | Evaluated]],
) -> None:
    with open_recording(played[0]) as recording:
        clock = ManualClock()
        replay = Replay(recording, clock)
        replay.play(True)
        clock.advance(3600)
        replay.advance()
        assert replay.snapshot().now_ns <= recording.start_ns + 2 * NS_PER_S


def test_steps_go_from_judgement_to_judgement_both_ways(
    replay: Replay, played: tuple[Path, list[Arrived | Evaluated]]
) -> None:
    said = judgements(played)
    for wanted in said[:5]:
        replay.step(1)
        assert replay.snapshot().judgement == wanted
        assert replay.snapshot().now_ns == wanted.t_ns
    replay.step(-2)
    assert replay.snapshot().judgement == said[2]
    replay.step(200)
    assert replay.snapshot().judgement == said[202]
    replay.step(-10_000)
    playback = replay.snapshot().playback
    assert playback is not None
    assert playback.now_ns == playback.start_ns
    replay.step(10_000)
    assert replay.snapshot().judgement == said[-1]


def test_a_seek_is_clamped_to_the_recording(replay: Replay) -> None:
    for moment_ns in (-5, 10**30):
        replay.seek(moment_ns)
        playback = replay.snapshot().playback
        assert playback is not None
        assert playback.now_ns in (playback.start_ns, playback.end_ns)


def test_pictures_are_not_changed_by_what_comes_later(replay: Replay) -> None:
    start_ns = replay.snapshot().now_ns
    replay.seek(start_ns + 100 * NS_PER_S)
    picture = replay.snapshot()
    util = picture.view.series(Gpu.util_pct, "GPU-00000000-0000", 60).points()
    generation = picture.generation
    replay.seek(start_ns + 200 * NS_PER_S)
    assert replay.snapshot().generation > generation
    assert picture.view.series(Gpu.util_pct, "GPU-00000000-0000", 60).points() == util


def test_the_target_and_the_sources_come_from_their_rows(replay: Replay) -> None:
    start_ns = replay.snapshot().now_ns
    replay.seek(start_ns + 30 * NS_PER_S)
    snapshot = replay.snapshot()
    target = snapshot.target
    assert target is not None
    assert target.root.key == "4000@900000"
    assert (target.name, target.gone) == ("python3", False)
    assert [process.role for process in target.processes] == [
        "main",
        "loader-worker",
        "loader-worker",
    ]
    assert target.processes[1].parent_pid == 4000
    assert target.notes == ("/proc/4000/io: run as the same user",)
    assert [source.name for source in snapshot.sources] == ["gpu", "x"]
    replay.seek(start_ns + 1150 * NS_PER_S // 100 + 49 * NS_PER_S)
    for _ in range(12):
        replay.step(1)
        failing = {s.name: s for s in replay.snapshot().sources}["x"]
        if failing.state is SourceState.FAILED:
            break
    assert failing.state is SourceState.FAILED
    assert failing.reason.startswith("read failed in tick")
    assert snapshot.host == "gpu-7"
    assert snapshot.simulated == "simulated GPU"


def test_a_target_that_has_ended_is_remembered_as_gone(tmp_path: Path) -> None:
    host = ScriptedHost()
    to = recorder(tmp_path / "a.btrec", host)
    arrival = ticks(host, to, 5)[-1].arrival
    host.clock.advance(1)
    to.sample(arrival + 1, Sample("process", Process, host.clock.monotonic_ns(), 0, ()))
    to.close(10)
    with open_recording(tmp_path / "a.btrec") as recording:
        replay = Replay(recording, ManualClock())
        replay.seek(recording.end_ns)
        target = replay.snapshot().target
    assert target is not None
    assert (target.root.pid, target.gone, target.processes) == (4000, True, ())


def test_a_recording_without_a_target_has_none(tmp_path: Path) -> None:
    host = ScriptedHost()
    to = recorder(tmp_path / "a.btrec", host)
    for number, sample in enumerate(host.samples(), 1):
        if sample.table is Core:
            to.sample(number, sample)
    to.close(10)
    with open_recording(tmp_path / "a.btrec") as recording:
        replay = Replay(recording, ManualClock())
        replay.seek(recording.end_ns)
        assert replay.snapshot().target is None
        assert judge_again(recording).target is None


def test_marks_and_findings_are_there_for_a_timeline(
    replay: Replay, played: tuple[Path, list[Arrived | Evaluated]]
) -> None:
    playback = replay.snapshot().playback
    assert playback is not None
    onsets = [on_ns for on_ns, _, _, _ in playback.finding_spans]
    assert onsets == sorted(onsets)
    assert {code for *_, code in playback.finding_spans} == {"gpu-starved-cpu", "gpu-util-sawtooth"}
    assert all(
        playback.start_ns - 60 * NS_PER_S <= on_ns < off_ns <= playback.end_ns
        for on_ns, off_ns, _, _ in playback.finding_spans
    )
