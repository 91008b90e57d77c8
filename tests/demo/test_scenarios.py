"""The main job, end to end and in real time: each scenario leads to its own verdict.

Real processes, real collectors, store and rules; nothing in between knows which scenario runs.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bottletop import demo
from bottletop.demo.gpu_model import Card
from bottletop.live import live_runtime
from bottletop.model import Judgement, SourceState
from bottletop.tables import TABLES, Gpu, GpuProcess, GpuUtilSample, Process

from .conftest import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bottletop.demo.run import RunningDemo
    from bottletop.runtime import Runtime

HEALTHY_WATCH_S = 22.0
"""Long enough for every rule to have fired that may."""


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def watch(
    running: RunningDemo, enough: Callable[[Judgement, float], bool], at_most_s: float
) -> Runtime:
    """Watch until `enough` of the judgement over the whole watch, or the time is up."""
    runtime = live_runtime(
        root_process=running.root_process,
        collectors=running.collectors,
        simulated=running.simulated,
    )
    runtime.start()
    try:
        generation = 0
        while runtime.watched_s < at_most_s:
            snapshot = runtime.wait_for_judgement(generation, 2.0)
            assert runtime.failure is None, runtime.failure
            generation = snapshot.generation
            if enough(runtime.summary(), runtime.watched_s):
                break
    finally:
        runtime.stop()
    return runtime


def started(scenario: demo.Scenario, folder: Path) -> RunningDemo | str:
    """The running demo, or why not: a disk that is memory or too fast is the one honest reason."""
    try:
        return scenario.start(folder=folder)
    except demo.DemoUnavailable as unavailable:
        if not scenario.needs_disk:
            raise
        return str(unavailable)


@pytest.mark.parametrize("scenario", demo.SCENARIOS, ids=lambda scenario: scenario.name)
def test_each_scenario_reaches_its_verdict(scenario: demo.Scenario, tmp_path: Path) -> None:
    def enough(judgement: Judgement, watched_s: float) -> bool:
        settled = scenario.expected is not None or watched_s >= HEALTHY_WATCH_S
        return settled and demo.reached(scenario, judgement)

    running = started(scenario, tmp_path)
    if isinstance(running, str):
        assert str(tmp_path) in running or "reads here" in running
        return
    with running:
        runtime = watch(running, enough, scenario.needs_s)
        _check_that_it_is_marked(runtime, running)
    judgement = runtime.summary()
    assert demo.reached(scenario, judgement), (judgement, runtime.sources())
    assert not running.workspace.exists()
    assert list(tmp_path.iterdir()) == []


def _check_that_it_is_marked(runtime: Runtime, running: RunningDemo) -> None:
    """Simulated is said, and the name of the scenario is nowhere to be read."""
    assert runtime.snapshot().simulated == "simulated GPU"
    gpu = next(source for source in runtime.sources() if source.name == "gpu")
    assert (gpu.state, gpu.reason) == (SourceState.SIMULATED, "simulated GPU")
    view = runtime.snapshot().view
    (key,) = view.keys(Gpu)
    assert view.text(Gpu.provenance, key) == "simulated"
    assert view.text(Gpu.model, key) == "simulated GPU"
    assert str(running.pid) in {key.partition("@")[0] for key in view.keys(Process)}
    assert f"{key}/{running.pid}" in view.keys(GpuProcess)
    texts = [
        value
        for table in TABLES
        for entity in view.keys(table)
        for metric in table.columns
        if isinstance(value := view.last(metric, entity), str)
    ]
    names = [scenario.name for scenario in demo.SCENARIOS if "-" in scenario.name]
    assert texts
    assert not [text for text in texts if any(name in text for name in names)]


def test_the_simulated_gpu_is_busy_when_and_only_when_the_real_stage_is(tmp_path: Path) -> None:
    with demo.find("cpu-starved").start(folder=tmp_path) as running:
        runtime = watch(running, lambda judgement, watched_s: watched_s > 6, 10)
        view = runtime.snapshot().view
        values = view.series(GpuUtilSample.util_pct, "GPU-simulated-0", 5).values
    assert max(values) == 100
    assert min(values) == 0
    assert 0.05 < sum(values) / len(values) / 100 < 0.7


def test_close_ends_processes_and_files_however_often(tmp_path: Path) -> None:
    running = demo.find("contended").start(folder=tmp_path)
    assert not running.ended()
    assert running.log_path.exists()
    running.close()
    running.close()
    assert running.ended()
    assert not running.workspace.exists()


def test_a_program_that_ends_is_noticed(tmp_path: Path) -> None:
    with demo.find("healthy").start(folder=tmp_path) as running:
        os.kill(running.pid, 9)
        wait_for(running.ended, "the end of the program")


def test_a_folder_that_cannot_be_written_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(demo.DemoUnavailable, match="cannot start in") as refused:
        demo.find("io-starved").start(folder=tmp_path / "absent")
    assert "\n" not in str(refused.value)


def test_what_a_killed_demo_left_is_swept_up_and_nothing_else(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    stale = tmp_path / f".bottletop-demo-{ended.pid}-abc"
    alive = tmp_path / f".bottletop-demo-{os.getppid()}-abc"
    other = tmp_path / ".bottletop-demo-notes"
    for folder in (stale, alive, other):
        folder.mkdir()
        (folder / "file").touch()
    with contextlib.suppress(demo.DemoUnavailable):
        demo.find("io-starved").start(folder=tmp_path).close()
    assert sorted(tmp_path.iterdir()) == sorted([alive, other])


def test_real_gpu_is_refused_where_the_scenario_needs_a_simulated_one(tmp_path: Path) -> None:
    with pytest.raises(demo.DemoUnavailable, match="simulated"):
        demo.find("throttled").start(real_gpu=True, folder=tmp_path)


def test_real_gpu_without_torch_is_refused_with_the_command_that_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(demo.DemoUnavailable, match=r"pip install 'bottletop\[torch\]'"):
        demo.find("cpu-starved").start(real_gpu=True, folder=tmp_path)


def test_an_unknown_scenario_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no scenario 'nope'; known: cpu-starved, io-starved"):
        demo.find("nope")


def test_scenarios_differ_in_circumstances_only_where_they_say_so() -> None:
    cards = {scenario.name: scenario.card for scenario in demo.SCENARIOS}
    assert {name for name, card in cards.items() if card != Card()} == {"throttled", "power-capped"}
