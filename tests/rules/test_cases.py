"""Each rule against scenes that must make it fire and look-alikes that must leave it quiet."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rulelab.play import play, read_scene

from bottletop.model import Severity
from bottletop.rules import RULES

if TYPE_CHECKING:
    from rulelab.play import Played

CASES = sorted((Path(__file__).parent / "cases").glob("*/*.toml"))
LABELS = {severity.label: severity for severity in Severity}
EXPECTATIONS = frozenset(
    {"state", "code", "also", "never", "said", "evidence", "verdict_says", "worst", "by_s"}
    | {"confidence"}
)


@cache
def played_case(path: Path) -> Played:
    return play(read_scene(path))


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", CASES, ids=name_of)
def test_rule_fires_where_it_must_and_stays_quiet_where_it_must_not(path: Path) -> None:
    raw = read_scene(path)
    expect: dict[str, Any] = raw["expect"]
    assert expect.keys() <= EXPECTATIONS
    played = played_case(path)
    code = path.parent.name
    assert (code in played.codes) is path.stem.startswith("fires-"), played.summary
    check_findings(played, code, expect)
    check_verdict(played, expect)


def check_findings(played: Played, code: str, expect: dict[str, Any]) -> None:
    findings = played.summary.findings
    assert set(expect.get("also", ())) <= played.codes
    assert not set(expect.get("never", ())) & played.codes
    worst = max((finding.severity for finding in findings), default=Severity.INFO)
    assert worst <= LABELS[expect.get("worst", "crit")], findings
    said = " ".join(finding.text for finding in findings)
    for words in expect.get("said", ()):
        assert words in said
    quoted = " ".join(str(item) for finding in findings for item in finding.evidence)
    for words in expect.get("evidence", ()):
        assert words in quoted
    if "by_s" in expect:
        onset_s = played.onset_s(code)
        assert onset_s is not None
        assert onset_s <= expect["by_s"]
    if "confidence" in expect:
        own = {finding.confidence.label for finding in findings if finding.code == code}
        assert own == {expect["confidence"]}


def check_verdict(played: Played, expect: dict[str, Any]) -> None:
    for verdict in (played.summary.verdict, played.judgements[-1].verdict):
        if "state" in expect:
            assert verdict.state.value == expect["state"], verdict
        if "code" in expect:
            assert verdict.code == expect["code"], verdict
        for words in expect.get("verdict_says", ()):
            assert words in verdict.text
        assert len(verdict.text) <= 100
        assert sum(cause.share for cause in verdict.causes) <= 1.001


@pytest.mark.parametrize("path", CASES, ids=name_of)
def test_no_rule_trips_over_its_case_and_every_finding_is_complete(path: Path) -> None:
    played = played_case(path)
    for judgement in played.judgements:
        assert not [item for item in judgement.unknown if "the rule failed" in item.missing]
        for finding in judgement.findings:
            assert finding.text
            assert len(finding.text) <= 120, finding.text
            assert finding.evidence, finding.code
            assert finding.advice
            assert finding.refuted_by
            assert finding.next_check


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_rule_has_a_case_that_must_fire_and_one_that_must_not(rule: Any) -> None:
    names = {path.stem.partition("-")[0] for path in CASES if path.parent.name == rule.code}
    assert names == {"fires", "quiet"}


def test_every_case_belongs_to_a_rule() -> None:
    assert {path.parent.name for path in CASES} <= {rule.code for rule in RULES}
