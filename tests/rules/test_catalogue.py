"""What every rule has to bring along."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rulelab.play import looks, read_scene
from rulelab.scene import Scene

from bottletop.model import Metric
from bottletop.rules import RULES, docs
from bottletop.rules.base import Limits, Rule
from bottletop.rules.engine import Engine
from bottletop.store import Missing, View
from bottletop.tables import TABLES

if TYPE_CHECKING:
    from bottletop.model import Table, Value
    from bottletop.rings import Series
    from bottletop.store import Growth, Store

CASES = Path(__file__).parent / "cases"
PAGE = Path(__file__).parents[2] / "docs" / "rules.md"
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)


def test_codes_are_used_once() -> None:
    codes = [rule.code for rule in RULES]
    assert len(codes) == len(set(codes))


@each_rule
def test_docstring_has_all_headings_with_text(rule: Rule) -> None:
    assert set(docs.sections(rule)) == {"", *docs.HEADINGS}


@each_rule
def test_needs_are_columns_of_declared_tables(rule: Rule) -> None:
    assert rule.needs
    for metric in rule.needs:
        assert isinstance(metric, Metric)
        assert metric.table in TABLES
        assert metric.table.columns[metric.index] is metric
    assert rule.scope is None or rule.scope in TABLES


@each_rule
def test_thresholds_say_what_they_rest_on(rule: Rule) -> None:
    for name, threshold in rule.thresholds.items():
        assert threshold.basis in ("cited", "tried", "judgement"), name
        assert threshold.help


@each_rule
def test_mutes_name_known_rules(rule: Rule) -> None:
    assert set(rule.mutes) <= {other.code for other in RULES}


def test_headings_out_of_order_are_refused() -> None:
    class Odd(Rule):
        """Odd.

        Why
            Because.
        What
            Something.
        """

        code = "odd"

    with pytest.raises(ValueError, match="headings"):
        docs.sections(Odd())


def test_the_page_is_what_the_rules_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == docs.markdown(), (
        "run: python -m bottletop.rules.docs > docs/rules.md"
    )


@each_rule
def test_explanation_of_a_rule_fits_a_terminal(rule: Rule) -> None:
    explained = docs.explain(rule.code)
    assert explained is not None
    assert all(len(line) <= 80 for line in explained.splitlines())
    for heading in docs.HEADINGS:
        assert f"\n{heading}\n" in explained


def test_unknown_code_has_no_explanation() -> None:
    assert docs.explain("no-such-rule") is None
    assert len(docs.listing().splitlines()) == len(RULES)


def test_limits_override_only_thresholds_that_exist() -> None:
    rule = next(rule for rule in RULES if rule.code == "gpu-starved-cpu")
    limits = Limits({"gpu-starved-cpu": {"lost": 0.4, "no-such": 1.0}}).of(rule)
    assert limits["lost"] == 0.4
    assert "no-such" not in limits


def test_effective_thresholds_and_versions_cover_every_rule() -> None:
    engine = Engine(limits=Limits({"disk-saturated": {"queue": 9}}))
    thresholds = engine.effective_thresholds()
    assert thresholds.keys() == engine.rule_versions().keys() == {rule.code for rule in RULES}
    assert thresholds["disk-saturated"]["queue"] == 9
    assert thresholds["thermal-throttle"]["time"] == 0.05


# -- a rule reads only what it declares -----------------------------------------------------------


class Watched(View):
    """A view that notes which metrics are read."""

    __slots__ = ("read",)

    def __init__(self, store: Store, now_ns: int) -> None:
        super().__init__(store, now_ns)
        self.read: set[Metric] = set()

    def last(self, metric: Metric, key: str) -> Value:
        self.read.add(metric)
        return super().last(metric, key)

    def series(self, metric: Metric, key: str, span_s: float) -> Series:
        self.read.add(metric)
        return super().series(metric, key, span_s)

    def rates(self, metric: Metric, key: str, span_s: float) -> Series:
        self.read.add(metric)
        return super().rates(metric, key, span_s)

    def growth(self, metric: Metric, key: str, span_s: float) -> Growth:
        self.read.add(metric)
        return super().growth(metric, key, span_s)


def scopes(view: View, table: type[Table] | None) -> list[str]:
    return [""] if table is None else view.keys(table)


@each_rule
def test_rule_reads_only_what_it_declares(rule: Rule) -> None:
    engine = Engine()
    for path in sorted((CASES / rule.code).glob("*.toml")):
        for store, now_ns in looks(Scene.parse(read_scene(path))):
            if now_ns // 10**9 % 7:
                continue
            view = Watched(store, now_ns)
            for key in scopes(view, rule.scope):
                try:
                    rule.judge(view, key, engine.effective_thresholds()[rule.code])
                except Missing:
                    continue
            undeclared = {metric.id for metric in view.read} - {metric.id for metric in rule.needs}
            assert not undeclared, path.stem
