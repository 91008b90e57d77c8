"""What the engine adds to rules: k-of-n, hysteresis, unknown, muting, sums over a watch."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

import pytest
from rulelab.play import looks, play
from rulelab.scene import Scene

from bottletop.model import NS_PER_S, Sample, Severity, SourceState, VerdictState
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, evidence
from bottletop.rules.engine import Engine
from bottletop.store import Missing, Store
from bottletop.tables import Disk, SourceHealth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Judgement
    from bottletop.store import View

START_NS = 500 * NS_PER_S


class Scripted(Rule):
    """A rule that answers from a script: F fires, C fires as critical, n near, q quiet, ? missing,
    x trips over itself."""

    code = "scripted"
    title = "scripted"
    severity = Severity.WARN
    role = Role.CAUSE
    scope: ClassVar = Disk
    needs = (Disk.reads,)
    fire = KofN(2, 3)
    clear = KofN(2, 2)
    advice, refuted_by, next_check = "do", "wrong if", "check"

    def __init__(self, script: str) -> None:
        self.script = script

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        del limits
        at = (view.now_ns - START_NS) // NS_PER_S
        match self.script[at] if at < len(self.script) else self.script[-1]:
            case "F" | "C" as letter:
                return Fires(
                    f"fires at {at}",
                    (evidence(Disk.reads, key, at),),
                    lost_gpu_s_per_s=0.5,
                    severity=Severity.CRIT if letter == "C" else None,
                )
            case "n":
                return Quiet(near=True)
            case "?":
                raise Missing(Disk.reads, key, "not there")
            case "x":
                raise ZeroDivisionError("oops")
        return Quiet()


class Other(Scripted):
    code = "other"


class Muting(Scripted):
    code = "muting"
    mutes = ("scripted",)


def run(
    *rules: Rule, seconds: int, disks: Mapping[int, tuple[str, ...]] | None = None
) -> tuple[list[Judgement], Engine]:
    """Judgements of `seconds` looks; `disks` says from which look on which disks exist."""
    engine, store = Engine(rules), Store()
    now: tuple[str, ...] = ("sda",)
    out: list[Judgement] = []
    for at in range(seconds):
        now = (disks or {}).get(at, now)
        t_ns = START_NS + at * NS_PER_S
        rows = tuple(Disk.row(name, t_ns, {Disk.reads: at}) for name in now)
        store.ingest(Sample("test", Disk, t_ns, 0, rows))
        out.append(engine.evaluate(store.view(t_ns)))
    return out, engine


def active(judgements: list[Judgement], code: str = "scripted") -> str:
    return "".join(
        "A" if any(f.code == code for f in judgement.findings) else "-" for judgement in judgements
    )


def test_fires_on_k_of_n_and_not_before() -> None:
    judgements, _ = run(Scripted("qFqqFqFFq"), seconds=9)
    assert active(judgements) == "------AAA"


@pytest.mark.parametrize(
    ("looks", "shown"), [(60, "---A"), (30, "---A"), (20, "--AA"), (1, "-AAA")]
)
def test_a_short_log_needs_a_part_of_k(looks: int, shown: str) -> None:
    class Patient(Scripted):
        fire = KofN(3, 3)

    engine, store = Engine([Patient("qFFFF")], looks=looks), Store()
    out = []
    for at in range(4):
        t_ns = START_NS + at * NS_PER_S
        rows = (Disk.row("sda", t_ns, {Disk.reads: at}),)
        store.ingest(Sample("test", Disk, t_ns, 0, rows))
        out.append(engine.evaluate(store.view(t_ns)))
    assert active(out) == shown


def test_time_between_the_lines_of_a_coarse_log_counts_as_watched() -> None:
    engine, store = Engine([Scripted("F")], cadence_s=60), Store({Disk: 60.0})
    for at in range(10):
        t_ns = START_NS + at * 60 * NS_PER_S
        store.ingest(Sample("log", Disk, t_ns, 0, (Disk.row("sda", t_ns, {Disk.reads: at}),)))
        engine.evaluate(store.view(t_ns))
    (finding,) = engine.summary().findings
    assert finding.active_s == pytest.approx(9 * 60)


def test_clears_only_when_k_of_n_are_beyond_the_looser_condition() -> None:
    judgements, _ = run(Scripted("FFnnqnqqq"), seconds=9)
    assert active(judgements) == "-AAAAAA--"


def test_since_is_when_the_condition_began_to_hold() -> None:
    judgements, _ = run(Scripted("qqFqFF"), seconds=6)
    finding = judgements[4].findings[0]
    assert finding.since_ns == START_NS + 2 * NS_PER_S
    assert finding.active_s == 2
    assert finding.active
    assert judgements[5].findings[0].active_s == 3


def test_unknown_is_named_and_an_unknown_finding_is_not_kept_alive() -> None:
    judgements, _ = run(Scripted("FF?????"), seconds=6)
    assert active(judgements) == "-AA---"
    assert judgements[2].unknown[0].code == "scripted"
    assert judgements[2].unknown[0].missing == "disk.reads of sda: not there"


def test_a_rule_that_trips_is_unknown_and_the_others_go_on() -> None:
    judgements, _ = run(Scripted("x"), Other("F"), seconds=3)
    assert judgements[0].unknown[0].missing == "the rule failed: ZeroDivisionError: oops"
    assert active(judgements, "other") == "-AA"


def test_a_finding_ends_with_its_scope() -> None:
    judgements, engine = run(Scripted("F"), seconds=4, disks={2: ("sdb",)})
    assert [f.scope for f in judgements[1].findings] == ["sda"]
    assert judgements[2].findings == ()
    ended = engine.summary().findings[0]
    assert (ended.scope, ended.active) == ("sda", False)


def test_a_stale_source_is_unknown_and_its_findings_end() -> None:
    engine, store = Engine((Scripted("F"),)), Store()
    for at in range(2):
        t_ns = START_NS + at * NS_PER_S
        row = Disk.row("sda", t_ns, {Disk.reads: at})
        store.ingest(Sample("test", Disk, t_ns, 0, (row,)))
        judgement = engine.evaluate(store.view(t_ns))
    assert len(judgement.findings) == 1
    for at in range(5, 8):
        judgement = engine.evaluate(store.view(START_NS + at * NS_PER_S))
    assert judgement.findings == ()
    assert judgement.unknown[0].missing == "disk: no reading"


def test_an_empty_table_is_unknown_with_the_reason_of_its_source() -> None:
    engine, store = Engine((Scripted("F"),)), Store()
    row = SourceHealth.row(
        "disk",
        START_NS,
        {SourceHealth.state: int(SourceState.UNAVAILABLE), SourceHealth.reason: "no /proc"},
    )
    store.ingest(Sample("runtime", SourceHealth, START_NS, 0, (row,)))
    judgement = engine.evaluate(store.view(START_NS))
    assert judgement.unknown[0].missing == "disk: no /proc"


def test_a_muting_finding_ends_the_muted_one_in_its_scope_only() -> None:
    judgements, _ = run(
        Muting("qqqFFF"), Scripted("F"), seconds=6, disks={0: ("sda", "sdb"), 3: ("sda",)}
    )
    assert active(judgements[:4]) == "-AAA"
    assert active(judgements[4:]) == "--"
    assert active(judgements, "muting") == "----AA"


def test_findings_are_ordered_by_severity_then_loss_then_name() -> None:
    judgements, _ = run(Scripted("C"), Other("F"), seconds=2, disks={0: ("sdb", "sda")})
    found = [(f.code, f.scope) for f in judgements[1].findings]
    assert found == [("scripted", "sda"), ("scripted", "sdb"), ("other", "sda"), ("other", "sdb")]


def test_summary_lists_ended_findings_with_their_time_and_worst_severity() -> None:
    _, engine = run(Scripted("qFFCFqqqqFFqq"), seconds=13)
    finding = engine.summary().findings[0]
    assert not finding.active
    assert finding.severity is Severity.CRIT
    assert finding.since_ns == START_NS + 1 * NS_PER_S
    assert finding.active_s == pytest.approx(4 + 2)  # from the first sign to the last look
    assert finding.lost_gpu_s_per_s == pytest.approx(0.5)


def test_summary_calls_a_rule_unknown_only_if_it_was_so_half_of_the_time() -> None:
    _, engine = run(Scripted("???qqqqq"), Other("qqq?????"), seconds=8)
    assert [item.code for item in engine.summary().unknown] == ["other"]


# -- over real scenes -----------------------------------------------------------------------------


def starved(seconds: int = 40) -> dict[str, object]:
    return {
        "seconds": seconds,
        "phase": [
            {"s": 0.6, "jitter": 0.1, "cpu": 1.0, "stage": "decode"},
            {"s": 0.5, "gpu": 1.0, "stage": "forward"},
        ],
    }


def test_the_same_looks_give_the_same_judgements() -> None:
    assert play(starved()).judgements == play(starved()).judgements


def test_a_second_engine_that_starts_late_comes_to_the_same_findings() -> None:
    first, second = Engine(), Engine()
    for store, now_ns in looks(Scene.parse(starved(80))):
        ours = first.evaluate(store.view(now_ns))
        if now_ns > START_NS + 530 * NS_PER_S:
            theirs = second.evaluate(store.view(now_ns))
    assert {f.code for f in ours.findings} == {f.code for f in theirs.findings}
    assert ours.verdict.code == theirs.verdict.code == "gpu-starved-cpu"


def test_many_gpus_take_turns_and_still_all_get_their_findings() -> None:
    scene = starved(40)
    scene["gpu"] = {"count": 8}
    played = play(scene)
    last = played.judgements[-1]
    scopes = {f.scope for f in last.findings if f.code == "gpu-starved-cpu"}
    assert scopes == {f"GPU-{index}" for index in range(8)}
    assert last.verdict.text.startswith("GPUs 0-7 are held back by CPU work")
    assert played.judgements == play(scene).judgements


def test_the_verdict_changes_at_most_every_five_seconds() -> None:
    scene = starved(60)
    scene["change"] = [
        {"at": at, "phase": [{"s": 0.5, "gpu": 0.99 if at % 20 else 0.4, "stage": "forward"}]}
        for at in range(10, 60, 10)
    ]
    judgements = play(scene).judgements
    moments = [
        judgement.t_ns
        for before, judgement in pairwise(judgements)
        if before.verdict != judgement.verdict
    ]
    critical = {
        judgement.t_ns
        for before, judgement in pairwise(judgements)
        if {f.code for f in before.findings if f.severity is Severity.CRIT}
        != {f.code for f in judgement.findings if f.severity is Severity.CRIT}
    }
    assert len(moments) > 2
    for before, after in pairwise(moments):
        assert after - before >= 5 * NS_PER_S or after in critical


def test_before_there_is_enough_the_verdict_says_so() -> None:
    first = play(starved(12)).judgements[0]
    assert first.verdict.state is VerdictState.CANNOT_TELL
    assert "watching" in first.verdict.text


def test_a_demo_length_watch_reaches_its_verdict_well_before_thirty_seconds() -> None:
    played = play(starved(30))
    reached = [j for j in played.judgements if j.verdict.code == "gpu-starved-cpu"]
    assert (reached[0].t_ns - played.judgements[0].t_ns) / NS_PER_S <= 17
    assert played.summary.verdict.code == "gpu-starved-cpu"


def test_missing_values_name_the_gpu_as_people_do() -> None:
    played = play(starved(12) | {"without": ["process", "thread", "hot_thread"]})
    missing = {item.code: item.missing for item in played.judgements[-1].unknown}
    assert missing["gpu-starved-cpu"] == "process: attach to a PID to see why"
    early = {item.code: item.missing for item in play(starved(12)).judgements[3].unknown}
    assert early["gpu-starved-cpu"].startswith("gpu_util_sample.util_pct of GPU 0: needs 10 s")


def test_advice_and_checks_name_this_process_and_this_gpu() -> None:
    finding = play(starved(30)).summary.findings[0]
    assert finding.code == "gpu-starved-cpu"
    assert "--pid 4242 " in finding.next_check
    low = play(
        {
            "seconds": 20,
            "gpu": {"power_w": 174, "limit_w": 175, "clock_mhz": 1300, "limiters": {"power": 0.9}},
            "phase": [{"s": 1.0, "gpu": 0.98}],
        }
    )
    assert "nvidia-smi -i 0 -pl WATTS" in low.summary.findings[0].advice
