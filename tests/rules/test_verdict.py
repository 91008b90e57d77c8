"""The verdict line: who leads, who shares, and when nobody can be named."""

from __future__ import annotations

from typing import Any

import pytest
from rulelab.play import play

from bottletop.model import Confidence, VerdictState
from bottletop.rules.verdict import Assessment, Tally, decide

NOUNS = {"a": "CPU work", "b": "storage", "c": "heat"}


def assessment(
    causes: dict[str, float],
    *,
    leading: tuple[str, ...] = (),
    unexplained: float = 0.0,
    **more: Any,
) -> Assessment:
    given: dict[str, Any] = {
        "judged": True,
        "gpus": ("GPU-0",),
        "names": "GPU 0",
        "capacity": 1.0,
        "busy": 0.4,
        "leading": frozenset(leading),
        "unexplained": unexplained,
    }
    found = Assessment(**(given | more))
    for code, amount in causes.items():
        found.add_cause(code, amount, Confidence.HIGH, "GPU-0")
    return found


def test_one_cause_ahead_leads_and_the_next_is_shown_with_its_share() -> None:
    verdict = decide(assessment({"a": 0.45, "b": 0.10}, leading=("a",)), NOUNS)
    assert (verdict.state, verdict.code) == (VerdictState.BOTTLENECK, "a")
    assert verdict.text == (
        "GPU 0 is held back by CPU work: 55 % of its time lost (CPU work 82 %, storage 18 %)"
    )
    assert [cause.code for cause in verdict.causes] == ["a", "b"]
    assert verdict.causes[0].share == pytest.approx(0.45 / 0.55)


def test_causes_close_together_are_mixed() -> None:
    verdict = decide(assessment({"a": 0.30, "b": 0.25}, leading=("a", "b")), NOUNS)
    assert (verdict.state, verdict.code) == (VerdictState.MIXED, None)
    assert "CPU work 55 %, storage 45 %" in verdict.text
    assert "no clear lead" in verdict.text


def test_a_lead_of_fifteen_points_is_where_mixed_ends() -> None:
    assert decide(assessment({"a": 0.58, "b": 0.42}, leading=("a",)), NOUNS).code == "a"
    assert decide(assessment({"a": 0.57, "b": 0.43}, leading=("a",)), NOUNS).code is None


def test_what_nothing_explains_competes_too() -> None:
    verdict = decide(assessment({"a": 0.3}, leading=("a",), unexplained=0.3), NOUNS)
    assert verdict.state is VerdictState.MIXED
    assert "unexplained 50 %" in verdict.text


def test_without_an_active_finding_nobody_leads() -> None:
    assert decide(assessment({"a": 0.5}), NOUNS).state is VerdictState.MIXED


def test_unexplained_loss_cannot_be_told_and_says_what_would_help() -> None:
    verdict = decide(assessment({}, unexplained=0.5, blind="attach to a PID to see why"), NOUNS)
    assert verdict.state is VerdictState.CANNOT_TELL
    assert verdict.text == "GPU 0 idle 50 % of the time: attach to a PID to see why"


def test_small_losses_are_clear() -> None:
    verdict = decide(assessment({"a": 0.05}, busy=0.93), NOUNS)
    assert verdict.state is VerdictState.CLEAR
    assert verdict.text == "nothing holds GPU 0 back: busy 93 % of the time"


def test_no_demand_is_its_own_state() -> None:
    verdict = decide(assessment({}, nobody_asks=True, busy=0.1), NOUNS)
    assert (verdict.state, verdict.code) == (VerdictState.NO_DEMAND, "gpu-idle-no-demand")


def test_losses_of_several_gpus_are_shares_of_all_of_them() -> None:
    found = assessment({"a": 1.2}, leading=("a",), capacity=4.0, names="GPUs 0-3")
    found.gpus = ("0", "1", "2", "3")
    assert decide(found, NOUNS).text == (
        "GPUs 0-3 are held back by CPU work: 30 % of their time lost"
    )


def test_a_cause_of_one_gpu_of_several_names_it() -> None:
    found = assessment({"a": 0.6}, leading=("a",), capacity=2.0, names="GPUs 0, 1")
    found.gpus, found.labels = ("x", "y"), {"x": "GPU 0", "y": "GPU 1"}
    found.causes["a"] = found.causes["a"]._replace(scope="y")
    assert decide(found, NOUNS).text == (
        "GPU 1 is held back by CPU work: 30 % of all GPUs' time lost"
    )


def test_a_cause_whose_cost_cannot_be_read_is_not_called_clear() -> None:
    found = assessment({}, capacity=1.0)
    found.busy, found.unpriced = 0.99, frozenset({"a"})
    verdict = decide(found, NOUNS)
    assert (verdict.state, verdict.code) == (VerdictState.BOTTLENECK, "a")
    assert "cannot be read" in verdict.text


def test_a_cause_on_two_gpus_has_no_single_scope() -> None:
    found = Assessment()
    found.add_cause("a", 0.2, Confidence.HIGH, "GPU-0")
    found.add_cause("a", 0.3, Confidence.LOW, "GPU-1")
    found.add_cause("b", 0.0, Confidence.HIGH, "GPU-1")
    assert found.causes.keys() == {"a"}
    assert found.causes["a"] == (0.5, Confidence.LOW, "")


# -- over a watch ---------------------------------------------------------------------------------


def test_the_summary_ranks_by_total_loss_not_by_the_last_moment() -> None:
    tally = Tally()
    for _ in range(60):
        tally.add(assessment({"a": 0.5}, leading=("a",)), 1.0)
    for _ in range(15):
        tally.add(assessment({"b": 0.6}, leading=("b",)), 1.0)
    verdict = decide(tally.mean(), NOUNS)
    assert verdict.code == "a"
    assert verdict.causes[0].share == pytest.approx(30 / 39)


def test_a_passing_finding_does_not_lead_a_long_watch() -> None:
    tally = Tally()
    tally.add(assessment({"a": 0.5}, leading=("a",)), 20.0)
    tally.add(assessment({}, busy=0.95), 580.0)
    assert decide(tally.mean(), NOUNS).state is VerdictState.CLEAR


def test_a_watch_that_was_never_judged_says_why() -> None:
    tally = Tally()
    tally.add(Assessment(blind="not enough samples yet"), 1.0)
    verdict = decide(tally.mean(), NOUNS)
    assert verdict.state is VerdictState.CANNOT_TELL
    assert verdict.text == "watching: not enough samples yet"


# -- whole scenes ---------------------------------------------------------------------------------


def test_a_host_without_gpu_and_target_says_both() -> None:
    verdict = play({"seconds": 15, "target": False, "gpu": {"count": 0}}).summary.verdict
    assert verdict.state is VerdictState.CANNOT_TELL
    assert verdict.text == "no GPU can be read; no running process is attached"


def test_a_busy_host_without_target_is_clear_and_an_idling_one_asks_for_a_pid() -> None:
    busy = {"seconds": 30, "target": False, "phase": [{"s": 1.0, "gpu": 0.97}]}
    assert play(busy).summary.verdict.state is VerdictState.CLEAR
    half = {"seconds": 30, "target": False, "phase": [{"s": 1.0}, {"s": 1.0, "gpu": 1.0}]}
    verdict = play(half).summary.verdict
    assert verdict.state is VerdictState.CANNOT_TELL
    assert "attach to a PID" in verdict.text


def test_heat_and_starvation_together_are_both_named() -> None:
    scene = {
        "seconds": 40,
        "gpu": {"clock_mhz": 990, "temp_c": 86, "limiters": {"thermal": 0.95}},
        "phase": [
            {"s": 0.4, "jitter": 0.1, "cpu": 1.0, "stage": "decode"},
            {"s": 0.6, "gpu": 1.0, "stage": "forward"},
        ],
    }
    verdict = play(scene).summary.verdict
    assert verdict.state is VerdictState.MIXED
    assert {cause.code for cause in verdict.causes[:2]} == {"gpu-starved-cpu", "thermal-throttle"}


def test_another_jobs_gpu_does_not_lead_the_targets_verdict() -> None:
    scene = {
        "seconds": 30,
        "gpu": {"count": 2, "clock_mhz": 1200, "limiters": {"thermal": 0.9}},
        "phase": [{"s": 1.0, "gpu": [0.97, 0.3], "stage": "forward"}],
        "processes": {"1/0": 30, "0/999": 97},
    }
    played = play(scene)
    hot = {f.scope for f in played.summary.findings if f.code == "thermal-throttle"}
    assert "GPU-0" in hot
    assert "GPU-0" not in {cause.scope for cause in played.summary.verdict.causes}


def test_a_gpu_that_is_hardly_used_is_not_called_clear() -> None:
    scene = {"seconds": 30, "phase": [{"s": 1.0, "gpu": 0.03, "cpu": 1.0}]}
    verdict = play(scene).summary.verdict
    assert verdict.state is VerdictState.CANNOT_TELL
    assert verdict.text.startswith("GPU 0 hardly used (3 %)")
