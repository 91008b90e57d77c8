"""The gap budget on scenes whose causes are known, and on the traps of naming them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from rulelab.play import looks
from rulelab.rows import PID, gpu_key
from rulelab.scene import START_NS, Scene

from bottletop.model import Confidence, Row, Sample
from bottletop.rules import budget
from bottletop.rules.budget import GapBudget, gap_budget
from bottletop.rules.demand import StageKind, demand, stage_kind
from bottletop.store import Missing, Store
from bottletop.tables import Gpu, Process, Stage, Thread

if TYPE_CHECKING:
    from bottletop.store import View

Raw = dict[str, Any]


def view_of(raw: Raw) -> View:
    """The store at the end of a scene."""
    *_, (store, now_ns) = looks(Scene.parse({"seconds": 40} | raw))
    return store.view(now_ns)


def budget_of(raw: Raw, gpu: int = 0) -> GapBudget:
    return gap_budget(view_of(raw), gpu_key(gpu))


def cycle(
    *parts: tuple[str, float], run_s: float = 0.6, spin: float = 0.0, stages: bool = True
) -> Raw:
    """A cycle whose gap holds the given kinds of waiting, with neutral stage names."""
    phases: list[Raw] = []
    for kind, seconds in parts:
        phase: Raw = {"s": seconds, "jitter": 0.1}
        if stages and kind != "none":
            phase["stage"] = "step"
        phase |= {
            "cpu": {"cpu": 1.0},
            "io": {"cpu": 0.03, "blocked": True},
            "external": {"cpu": 0.02},
            "none": {"cpu": 0.01},
        }[kind]
        phases.append(phase)
    phases.append({"s": run_s, "gpu": 1.0, "cpu": spin} | ({"stage": "forward"} if stages else {}))
    return {"phase": phases, "io": {"read_bytes_per_s": 1e8}}


CODES = {"cpu": budget.CPU, "io": budget.IO, "external": budget.EXTERNAL}


@pytest.mark.parametrize("kind", ["cpu", "io", "external"])
@pytest.mark.parametrize("spin", [0.0, 1.0])
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_a_single_cause_takes_nearly_all_of_the_gap(kind: str, spin: float, scale: float) -> None:
    found = budget_of(cycle((kind, 0.6 * scale), run_s=0.6 * scale, spin=spin))
    assert found.share(CODES[kind]) >= 0.85
    assert found.lost == pytest.approx(found.gap, abs=0.06)
    assert found.sharp
    assert found.confidence is Confidence.HIGH


def test_idle_time_without_demand_is_not_lost() -> None:
    found = budget_of(cycle(("none", 0.8)))
    assert found.no_demand >= 0.9 * found.gap
    assert found.lost < 0.06


def test_mixed_gaps_are_shared_out_as_they_were_made() -> None:
    rng = random.Random(3)
    for _ in range(6):
        cpu_s = rng.uniform(0.3, 0.9)
        found = budget_of(cycle(("cpu", cpu_s), ("io", 1.2 - cpu_s), run_s=1.0))
        assert found.share(budget.CPU) == pytest.approx(cpu_s / 1.2, abs=0.15)
        assert found.share(budget.IO) == pytest.approx(1 - cpu_s / 1.2, abs=0.15)


def test_parts_never_exceed_what_was_lost() -> None:
    busy_loader = [{"name": "loader", "cpu": 0.9, "blocked": 0.9}]
    found = budget_of(cycle(("cpu", 0.5), ("io", 0.5)) | {"thread": busy_loader})
    assert sum(found.parts.values()) <= found.lost + 1e-9
    assert found.unexplained >= 0


def test_without_stages_nothing_is_said_about_demand() -> None:
    found = budget_of(cycle(("none", 0.6), stages=False))
    assert found.no_demand == 0
    assert found.unexplained >= 0.8 * found.lost
    assert found.confidence is Confidence.LOW


def test_faster_than_the_sampling_cpu_is_bounded_not_guessed() -> None:
    """External waits and a spinning thread make the same averages as CPU work does."""
    found = budget_of(cycle(("external", 0.06), run_s=0.06, spin=1.0))
    assert not found.sharp
    assert found.share(budget.CPU) < 0.1
    assert found.unexplained >= 0.3 * found.lost


def test_a_quota_takes_what_was_burnt_under_it() -> None:
    raw = cycle(("cpu", 0.6)) | {
        "cgroup": {"quota_cores": 1.0, "throttled_periods": 1.0, "throttled_time": 0.3}
    }
    raw["phase"][0]["cpu"] = 0.5
    found = budget_of(raw)
    assert found.share(budget.QUOTA) > 0.8
    assert found.share(budget.CPU) < 0.1


def test_a_thread_that_spins_for_another_gpu_says_nothing_here() -> None:
    scene: Raw = {
        "gpu": {"count": 2},
        "phase": [
            {"s": 1.0, "gpu": [0.0, 1.0], "cpu": 0.02, "stage": "tool-call"},
            {"s": 1.0, "gpu": [1.0, 1.0], "cpu": 0.02, "stage": "forward"},
        ],
        "thread": [{"name": "rank1", "cpu": 1.0, "pid": 5000}],
        "processes": {"0/0": 50, "1/5000": 100},
    }
    found = budget_of(scene)
    assert found.share(budget.EXTERNAL) > 0.8
    assert found.share(budget.CPU) < 0.2


def test_a_polled_gpu_and_slow_threads_still_divide_long_gaps() -> None:
    scene = cycle(("cpu", 5.0), run_s=5.0) | {"gpu": {"buffer": False}, "without": ["hot_thread"]}
    found = budget_of({"seconds": 60} | scene)
    assert found.share(budget.CPU) > 0.7


def test_storage_waits_of_threads_that_use_no_cpu_are_seen_in_the_slow_rows() -> None:
    view = view_of(cycle(("external", 0.7), run_s=0.5, stages=False))
    assert gap_budget(view, gpu_key(0)).share(budget.IO) == 0
    store = waiting_host(wait_ns_per_s=0, state=2)
    found = gap_budget(store.view(START_NS + 30 * 10**9), gpu_key(0))
    assert found.share(budget.IO) > 0.8


def test_time_without_a_core_counts_as_cpu_and_is_told_apart() -> None:
    store = waiting_host(wait_ns_per_s=9 * 10**8, state=0)
    found = gap_budget(store.view(START_NS + 30 * 10**9), gpu_key(0))
    assert found.share(budget.CPU) > 0.8
    assert found.guilty_delay == pytest.approx(0.9, abs=0.05)
    assert found.guilty_cores < 0.1


def waiting_host(wait_ns_per_s: int, state: int) -> Store:
    """A GPU busy a fifth of each second, and one thread that is hardly ever on a core."""
    store = Store()
    main = f"{PID}@1/{PID}"
    for second in range(1, 31):
        now = START_NS + second * 10**9
        gpu = Gpu.row(gpu_key(0), now, {Gpu.index: 0, Gpu.util_pct: 20 * (second % 2)})
        store.ingest(Sample("test", Gpu, now, 0, (gpu,)))
        process = Process.row(
            f"{PID}@1", now, {Process.pid: PID, Process.read_bytes: second * 10**7}
        )
        store.ingest(Sample("test", Process, now, 0, (process,)))
        thread = Thread.row(
            main,
            now,
            {
                Thread.cpu_ns: second * 10**6,
                Thread.wait_ns: second * wait_ns_per_s,
                Thread.state: state,
            },
        )
        store.ingest(Sample("test", Thread, now, 0, (thread,)))
    return store


# -- what is missing ------------------------------------------------------------------------------


def test_nothing_attached_is_said_to_be_so() -> None:
    view = view_of({"target": False, "phase": [{"s": 1.0, "gpu": 0.5}]})
    with pytest.raises(Missing, match="attach to a PID"):
        gap_budget(view, gpu_key(0))


def test_ten_seconds_are_needed_and_enough() -> None:
    with pytest.raises(Missing, match="needs 10 s"):
        budget_of(cycle(("cpu", 0.6)) | {"seconds": 8})
    assert budget_of(cycle(("cpu", 0.6)) | {"seconds": 12}).share(budget.CPU) > 0.8


def test_unreadable_threads_are_named() -> None:
    view = view_of(cycle(("cpu", 0.6)) | {"without": ["thread", "hot_thread"]})
    with pytest.raises(Missing, match="no thread"):
        gap_budget(view, gpu_key(0))


def test_a_busy_gpu_is_not_divided() -> None:
    found = budget_of({"phase": [{"s": 1.0, "gpu": 0.97, "cpu": 1.0}]})
    assert found.parts == {}


# -- stages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("forward", StageKind.DEVICE),
        ("gpu.forward", StageKind.DEVICE),
        ("model_infer", StageKind.DEVICE),
        ("wait-gpu", StageKind.DEVICE),
        ("preprocess", StageKind.HOST),
        ("Tokenize", StageKind.HOST),
        ("decodeImage", StageKind.HOST),
        ("post-process", StageKind.HOST),
        ("read", StageKind.STORAGE),
        ("load_batch", StageKind.STORAGE),
        ("tool-call", StageKind.EXTERNAL),
        ("vector_search", StageKind.EXTERNAL),
        ("HTTPFetch", StageKind.EXTERNAL),
        ("wait-request", StageKind.WAIT),
        ("wait-queue", StageKind.WAIT),
        ("queue", StageKind.WAIT),
        ("idle", StageKind.WAIT),
        ("wait-batch", StageKind.INPUT),
        ("next-batch", StageKind.INPUT),
        ("step-7", StageKind.OTHER),
        ("", StageKind.OTHER),
        ("分词", StageKind.OTHER),
    ],
)
def test_stage_names_are_read_as_people_mean_them(name: str, kind: StageKind) -> None:
    assert stage_kind(name) is kind


def test_decode_beside_prefill_is_work_on_the_gpu() -> None:
    assert stage_kind("decode", ["prefill", "decode"]) is StageKind.DEVICE
    assert stage_kind("decode", ["resize"]) is StageKind.HOST


def test_demand_adds_up_the_passes_of_one_worker() -> None:
    phases = [
        {"s": 0.3, "stage": "decode", "cpu": 1.0},
        {"s": 0.5, "stage": "forward", "gpu": 1.0},
        {"s": 0.2},
    ]
    found = demand(view_of({"phase": phases}), 30)
    assert found is not None
    assert found.present == pytest.approx(0.8, abs=0.02)
    assert found.share(StageKind.HOST) == pytest.approx(0.3, abs=0.02)
    assert found.waiting == 0
    longest = found.longest(StageKind.DEVICE, StageKind.HOST)
    assert longest is not None
    assert longest.name == "forward"
    assert longest.mean_s == pytest.approx(0.5, abs=0.01)


def test_a_pass_longer_than_the_window_counts_while_it_is_under_way() -> None:
    found = demand(view_of({"phase": [{"s": 500.0, "stage": "tool-call"}]}), 30)
    assert found is not None
    assert found.present == pytest.approx(1.0, abs=0.05)


def test_waiting_for_requests_is_not_demand() -> None:
    phases = [{"s": 0.7, "stage": "wait-request"}, {"s": 0.3, "stage": "forward", "gpu": 1.0}]
    found = demand(view_of({"phase": phases}), 30)
    assert found is not None
    assert found.present == pytest.approx(0.3, abs=0.02)
    assert found.waiting == pytest.approx(0.7, abs=0.02)


def test_a_stage_around_everything_is_no_demand_by_itself() -> None:
    """`serve` never ends; requests come and go inside it."""
    view = view_of(
        {
            "phase": [
                {"s": 1.0},
                {"s": 0.5, "gpu": 1.0, "stage": "forward"},
            ]
        }
    )
    alone = demand(view, 30)
    assert alone is not None
    assert alone.present == pytest.approx(1 / 3, abs=0.03)
    store = Store()
    for second in range(1, 31):
        now = START_NS + second * 10**9
        rows = (
            stage_row("serve", now, calls=0, inside_ns=0, occupied_ns=second * 10**9),
            stage_row(
                "forward",
                now,
                calls=second,
                inside_ns=second * 3 * 10**8,
                occupied_ns=second * 3 * 10**8,
            ),
        )
        store.ingest(Sample("test", Stage, now, 0, rows))
    found = demand(store.view(START_NS + 30 * 10**9), 30)
    assert found is not None
    assert found.present == pytest.approx(0.3, abs=0.02)


def stage_row(name: str, now: int, *, calls: int, inside_ns: int, occupied_ns: int) -> Row:
    return Stage.row(
        f"{PID}@1/{name}",
        now,
        {
            Stage.stage: name,
            Stage.pid: PID,
            Stage.calls: calls,
            Stage.inclusive_ns: inside_ns,
            Stage.self_ns: inside_ns,
            Stage.in_flight: 1,
            Stage.occupied_ns: occupied_ns,
        },
    )
