"""Stage numbers over a window: means, quantiles, occupancy and shares, and what is not known."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from bottletop.linux.probe_memory import bucket_edges_ns
from bottletop.model import NS_PER_S, Absent, Row, Sample, State
from bottletop.stages import StageStat, stage_stats
from bottletop.store import Store
from bottletop.tables import Stage, StageTime

if TYPE_CHECKING:
    from collections.abc import Sequence

MS = 1_000_000
START_NS = 1_000 * NS_PER_S
NOTHING = Absent(State.NOT_APPLICABLE, "no pass is under way")


class Process:
    """A process whose stages a test moves; its rows are as the collector writes them."""

    def __init__(self, pid: int) -> None:
        self.key = f"{pid}@7"
        self.pid = pid
        self.gone = 0
        self._totals: dict[str, list[int]] = {}
        self.steps: dict[tuple[str, int], tuple[int, int]] = {}
        self._since_ns: dict[str, list[int]] = {}

    def name(self, stage: str) -> None:
        self._totals.setdefault(stage, [0, 0, 0])
        self._since_ns.setdefault(stage, [])

    def passes(self, stage: str, durations_ns: Sequence[int], nested_ns: int = 0) -> None:
        """Complete passes; `nested_ns` of all their time was in nested stages."""
        self.name(stage)
        totals = self._totals[stage]
        totals[0] += len(durations_ns)
        totals[1] += sum(durations_ns)
        totals[2] += sum(durations_ns) - nested_ns
        for spent in durations_ns:
            step = (stage, (spent * spent).bit_length())
            calls, inclusive_ns = self.steps.get(step, (0, 0))
            self.steps[step] = (calls + 1, inclusive_ns + spent)

    def begin(self, stage: str, t_ns: int) -> None:
        self.name(stage)
        self._since_ns[stage].append(t_ns)

    def rows(self, t_ns: int) -> list[Row]:
        stages = []
        for name, (calls, inclusive_ns, self_ns) in self._totals.items():
            ages = [t_ns - since for since in self._since_ns[name]]
            values = {
                Stage.stage: name,
                Stage.source: "probe",
                Stage.pid: self.pid,
                Stage.calls: calls,
                Stage.inclusive_ns: inclusive_ns,
                Stage.self_ns: self_ns,
                Stage.in_flight: len(ages),
                Stage.in_flight_ns: max(ages, default=NOTHING),
                Stage.longest_ns: 0,
                Stage.occupied_ns: inclusive_ns + sum(ages),
                Stage.gone: self.gone,
            }
            stages.append(Stage.row(f"{self.key}/{name}", t_ns, values))
        return stages


class Run:
    """A store that is given a row of every process at each tick."""

    def __init__(self, *processes: Process) -> None:
        self.store = Store()
        self.processes = processes
        self.t_ns = START_NS

    def tick(self, seconds: float = 1.0) -> None:
        self.t_ns += round(seconds * NS_PER_S)
        stages = [row for process in self.processes for row in process.rows(self.t_ns)]
        for table, rows in ((Stage, stages), (StageTime, self._step_rows())):
            self.store.ingest(Sample("stage", table, self.t_ns, 0, tuple(rows)))

    def _step_rows(self) -> list[Row]:
        """Durations over all processes, under the key of the first."""
        added: dict[tuple[str, int], tuple[int, int]] = {}
        for process in self.processes:
            for step, (calls, inclusive_ns) in process.steps.items():
                before = added.get(step, (0, 0))
                added[step] = (before[0] + calls, before[1] + inclusive_ns)
        rows = []
        for (name, bucket), (calls, inclusive_ns) in added.items():
            low, high = bucket_edges_ns(bucket)
            values = {
                StageTime.calls: calls,
                StageTime.inclusive_ns: inclusive_ns,
                StageTime.from_ns: low,
                StageTime.to_ns: high,
            }
            key = f"{self.processes[0].key}/{name}#{bucket}"
            rows.append(StageTime.row(key, self.t_ns, values))
        return rows

    def stats(self, span_s: float = 10.0) -> dict[str, StageStat]:
        return {one.name: one for one in stage_stats(self.store.view(self.t_ns), span_s)}


@pytest.fixture
def process() -> Process:
    return Process(50)


def test_a_loop_is_divided_among_its_stages_and_what_is_outside_them(process: Process) -> None:
    process.name("step")
    process.name("decode")
    process.name("forward")
    run = Run(process)
    run.tick()
    for _ in range(10):
        process.passes("decode", [60 * MS] * 10)
        process.passes("forward", [20 * MS] * 10)
        process.passes("step", [90 * MS] * 10, nested_ns=10 * 80 * MS)
        run.tick()
    stats = run.stats()
    assert list(stats) == ["step", "decode", "forward"]
    assert stats["decode"] == StageStat(
        key="50@7/decode",
        name="decode",
        source="probe",
        mean_s=pytest.approx(0.060),
        p95_s=pytest.approx(0.060, rel=0.03),
        calls_per_s=pytest.approx(10),
        occupancy=pytest.approx(0.6),
        share=pytest.approx(0.6),
        in_flight=0,
    )
    assert stats["step"].occupancy == pytest.approx(0.9)
    assert stats["step"].share == pytest.approx(0.1)
    assert stats["forward"].share == pytest.approx(0.2)
    # A tenth of the window was spent outside of all stages, and stays visible as such.
    assert sum(one.share or 0 for one in stats.values()) == pytest.approx(0.9)


def test_shares_of_stages_that_overlap_are_shares_of_their_sum(process: Process) -> None:
    process.name("load")
    process.name("forward")
    run = Run(process)
    run.tick()
    for _ in range(10):
        process.passes("load", [100 * MS] * 30)
        process.passes("forward", [100 * MS] * 10)
        run.tick()
    stats = run.stats()
    assert stats["load"].occupancy == pytest.approx(3)
    assert stats["load"].share == pytest.approx(0.75)
    assert stats["forward"].share == pytest.approx(0.25)


def test_without_a_completion_the_mean_is_unknown_and_not_zero(process: Process) -> None:
    process.passes("forward", [10 * MS] * 100)
    run = Run(process)
    for _ in range(12):
        run.tick()
    forward = run.stats(5)["forward"]
    assert (forward.mean_s, forward.p95_s) == (None, None)
    assert (forward.calls_per_s, forward.occupancy, forward.share) == (0, 0, 0)


def test_a_pass_that_hangs_takes_its_share_while_it_hangs(process: Process) -> None:
    process.passes("request", [100 * MS] * 50, nested_ns=50 * 90 * MS)
    process.passes("forward", [90 * MS] * 50)
    run = Run(process)
    process.begin("request", run.t_ns)
    process.begin("forward", run.t_ns)
    for _ in range(12):
        run.tick()
    stats = run.stats()
    assert stats["forward"].occupancy == pytest.approx(1)
    # What is nested in it is known from the passes that did end.
    assert stats["forward"].share == pytest.approx(1 / 1.1)
    assert stats["request"].share == pytest.approx(0.1 / 1.1)
    assert stats["forward"].in_flight == 1


def test_a_stage_around_everything_that_never_ends_owns_only_the_rest(process: Process) -> None:
    run = Run(process)
    process.begin("serve", run.t_ns)
    process.begin("epoch", run.t_ns + 5 * MS)
    process.name("forward")
    run.tick()
    for _ in range(10):
        process.passes("forward", [70 * MS] * 10)
        run.tick()
    stats = run.stats()
    assert stats["forward"].share == pytest.approx(0.7)
    assert stats["epoch"].share == pytest.approx(0.3)  # the inner one of the two
    assert stats["serve"].share == pytest.approx(0, abs=0.001)
    assert (stats["serve"].mean_s, stats["serve"].occupancy) == (None, pytest.approx(1))


def test_the_same_stage_of_several_processes_is_one(process: Process) -> None:
    other = Process(60)
    for one in (process, other):
        one.name("load")
    run = Run(process, other)
    run.tick()
    for _ in range(10):
        process.passes("load", [10 * MS] * 3)
        other.passes("load", [20 * MS] * 9)
        run.tick()
    load = run.stats()["load"]
    assert load.key == "60@7/load"
    assert load.calls_per_s == pytest.approx(12)
    assert load.mean_s == pytest.approx((3 * 0.010 + 9 * 0.020) / 12)
    assert load.p95_s == pytest.approx(0.020, rel=0.05)
    assert load.occupancy == pytest.approx(0.21)


def test_a_process_that_ended_counts_for_the_time_it_was_there(process: Process) -> None:
    other = Process(60)
    for one in (process, other):
        one.name("load")
    run = Run(process, other)
    run.tick()
    for tick in range(10):
        process.passes("load", [100 * MS])
        if tick < 5:
            other.passes("load", [100 * MS])
        other.gone = int(tick >= 5)
        run.tick()
    assert run.stats()["load"].occupancy == pytest.approx(0.15)


def test_a_quantile_needs_twenty_passes_of_the_window(process: Process) -> None:
    process.name("forward")
    run = Run(process)
    run.tick()
    process.passes("forward", [5 * MS] * 19)
    run.tick()
    assert run.stats()["forward"].p95_s is None
    process.passes("forward", [5 * MS])
    run.tick()
    assert run.stats()["forward"].p95_s == pytest.approx(0.005, rel=0.05)
    # Those passes leave the window; the totals do not.
    for _ in range(12):
        run.tick()
    assert run.stats(5)["forward"].p95_s is None


def test_the_quantile_is_that_of_the_window_and_not_of_the_past(process: Process) -> None:
    process.passes("forward", [1 * MS] * 10_000)
    run = Run(process)
    run.tick()
    for _ in range(20):
        run.tick()
    for _ in range(5):
        process.passes("forward", [50 * MS] * 10)
        run.tick()
    assert run.stats(5)["forward"].p95_s == pytest.approx(0.050, rel=0.05)


@pytest.mark.parametrize(
    ("shape", "within"),
    [("constant", 0.03), ("normal", 0.08), ("lognormal", 0.15), ("exponential", 0.15)],
)
def test_quantiles_are_close_to_those_of_the_passes(shape: str, within: float) -> None:
    rng = random.Random(7)
    make = {
        "constant": lambda mean: mean,
        "normal": lambda mean: max(1.0, rng.gauss(mean, 0.1 * mean)),
        "lognormal": lambda mean: mean * rng.lognormvariate(0, 0.7),
        "exponential": lambda mean: 1 + rng.expovariate(1 / mean),
    }[shape]
    for step in range(12):
        process = Process(50)
        process.name("forward")
        run = Run(process)
        run.tick()
        spent = sorted(round(make(MS * 2 ** (step / 4))) for _ in range(2000))
        process.passes("forward", spent)
        run.tick()
        true_s = spent[int(0.95 * len(spent))] / NS_PER_S
        assert run.stats()["forward"].p95_s == pytest.approx(true_s, rel=within)


def test_no_stages_give_no_numbers() -> None:
    run = Run(Process(50))
    assert run.stats() == {}
    run.tick()
    assert run.stats() == {}


class TestMetricPages:
    """Stages that a server counts itself, beside those of a probe."""

    SOURCE = "vLLM metrics, at request end"

    def view(self, process: Process | None = None, last_s: int = 10):
        """Ten requests a second, 0.4 s each; 90 % of them in the bucket from 0.3 to 0.5 s."""
        store = Store()
        for second in range(last_s + 1):
            t_ns = START_NS + second * NS_PER_S
            done = 10 * second
            values = {
                Stage.stage: "prefill",
                Stage.source: self.SOURCE,
                Stage.calls: done,
                Stage.inclusive_ns: done * 400 * MS,
                Stage.self_ns: done * 400 * MS,
                Stage.occupied_ns: done * 400 * MS,
            }
            alone = {
                **values,
                Stage.stage: "decode",
                Stage.calls: Absent.unsupported("seconds alone"),
            }
            rows = (
                Stage.row("9@7/prefill (a)", t_ns, values),
                Stage.row("9@7/decode (a)", t_ns, alone),
            )
            store.ingest(Sample("server", Stage, t_ns, 0, rows))
            steps = tuple(
                StageTime.row(
                    f"9@7/prefill#a/{n}",
                    t_ns,
                    {
                        StageTime.calls: round(done * part),
                        StageTime.inclusive_ns: Absent.unsupported("a bucket"),
                        StageTime.from_ns: low,
                        StageTime.to_ns: high,
                        StageTime.source: self.SOURCE,
                    },
                )
                for n, (low, high, part) in enumerate(
                    ((0, 300 * MS, 0.0), (300 * MS, 500 * MS, 1.0))
                )
            )
            store.ingest(Sample("server", StageTime, t_ns, 0, steps))
            if process is not None:
                process.passes("prefill", [1_000 * MS])
                store.ingest(Sample("stage", Stage, t_ns, 0, tuple(process.rows(t_ns))))
        return store.view(START_NS + last_s * NS_PER_S)

    def test_means_come_from_sums_and_counts(self) -> None:
        prefill, decode = stage_stats(self.view(), 10)
        assert (prefill.name, prefill.source) == ("prefill", self.SOURCE)
        assert prefill.mean_s == pytest.approx(0.4)
        assert prefill.calls_per_s == pytest.approx(10)
        assert prefill.occupancy == pytest.approx(4)
        assert prefill.share == pytest.approx(0.5)
        assert decode.mean_s is None
        assert decode.calls_per_s is None
        assert decode.occupancy == pytest.approx(4)

    def test_a_quantile_lies_within_its_bucket(self) -> None:
        prefill, decode = stage_stats(self.view(), 10)
        assert prefill.p95_s == pytest.approx(0.49, abs=0.005)
        assert decode.p95_s is None

    def test_a_stage_of_the_same_name_in_the_probe_is_another(self, process: Process) -> None:
        stats = stage_stats(self.view(process), 10)
        assert [(one.name, one.source) for one in stats] == [
            ("prefill", self.SOURCE),
            ("decode", self.SOURCE),
            ("prefill", "probe"),
        ]
        assert stats[2].share == pytest.approx(1.0), "set against stages of the probe only"
        assert stats[0].share == pytest.approx(0.5)


def test_a_quantile_in_the_first_bucket_of_a_histogram_is_unknown() -> None:
    store = Store()
    for second in range(4):
        t_ns = START_NS + second * NS_PER_S
        done = 100 * second
        values = {
            Stage.stage: "queue",
            Stage.source: "vLLM metrics",
            Stage.calls: done,
            Stage.inclusive_ns: done * 40 * MS,
            Stage.self_ns: done * 40 * MS,
            Stage.occupied_ns: done * 40 * MS,
        }
        step = {
            StageTime.calls: done,
            StageTime.inclusive_ns: Absent.unsupported("a bucket"),
            StageTime.from_ns: 0,
            StageTime.to_ns: 300 * MS,
            StageTime.source: "vLLM metrics",
        }
        store.ingest(Sample("server", Stage, t_ns, 0, (Stage.row("9@7/q", t_ns, values),)))
        store.ingest(
            Sample("server", StageTime, t_ns, 0, (StageTime.row("9@7/queue#a/0", t_ns, step),))
        )
    (queue,) = stage_stats(store.view(START_NS + 3 * NS_PER_S), 3)
    assert queue.mean_s == pytest.approx(0.04)
    assert queue.p95_s is None


class TestStacks:
    """Stages that are estimated from stack samples."""

    def stats(self, samples_a_second: int) -> list[StageStat]:
        store = Store()
        for second in range(6):
            t_ns = START_NS + second * NS_PER_S
            rows = []
            for name, part in (("forward", 0.75), ("wait-data", 0.25)):
                spent_ns = round(second * part * NS_PER_S)
                values = {
                    Stage.stage: name,
                    Stage.source: "stack sampler",
                    Stage.calls: Absent.unsupported("no passes"),
                    Stage.inclusive_ns: spent_ns,
                    Stage.self_ns: spent_ns,
                    Stage.occupied_ns: spent_ns,
                    Stage.samples: round(second * part * samples_a_second),
                }
                rows.append(Stage.row(f"9@7/{name} (stacks)", t_ns, values))
            store.ingest(Sample("stack", Stage, t_ns, 0, tuple(rows)))
        return stage_stats(store.view(START_NS + 5 * NS_PER_S), 5)

    def test_nothing_is_named_before_two_hundred_samples(self) -> None:
        assert self.stats(20) == []

    def test_shares_carry_how_sure_they_are(self) -> None:
        forward, wait = self.stats(100)
        assert (forward.share, wait.share) == (pytest.approx(0.75), pytest.approx(0.25))
        assert forward.margin == pytest.approx(1.96 * (0.75 * 0.25 / 500) ** 0.5)
        assert forward.mean_s is None
        assert forward.calls_per_s is None
