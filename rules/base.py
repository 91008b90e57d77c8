"""What a rule is, and what it answers.

A rule looks at a `View` of the store over its window and answers for one scope (a GPU, a disk, the
target, the host): `Fires`, `Quiet`, or, by letting `Missing` pass through, unknown. It keeps no
state: k-of-n and hysteresis are the engine's.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Confidence, Evidence, Metric, Severity, Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.store import View


class Role(enum.StrEnum):
    """What part a rule's finding may take in the verdict."""

    CAUSE = "cause"
    """Competes for a share of the lost time and may lead the verdict."""
    PATTERN = "pattern"
    """Describes a shape or a stage; attaches to a cause as evidence, never leads."""
    EXPLAINS = "explains"
    """Says why something is not a fault (no demand, design power): mutes or rewords others."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number a rule holds evidence against; configuration may change it."""

    value: float
    unit: str
    basis: str
    """"cited", "tried" (on synthetic series) or "judgement"."""
    help: str


@dataclass(frozen=True, slots=True)
class KofN:
    """True in at least `k` of the last `n` evaluations."""

    k: int
    n: int


@dataclass(frozen=True, slots=True)
class Fires:
    """The rule's condition holds."""

    text: str
    """One plain sentence with its numbers, at most about 100 characters."""
    evidence: tuple[Evidence, ...]
    lost_gpu_s_per_s: float | None = None
    """GPU-seconds lost a second to this cause; None where loss has no meaning."""
    severity: Severity | None = None
    """Overrides the rule's own severity."""
    confidence: Confidence = Confidence.MEDIUM
    advice: str = ""
    """Overrides the rule's own advice where the evidence allows a sharper one."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """The condition does not hold. `near` keeps an active finding alive (the clear threshold is
    looser than the firing one)."""

    near: bool = False


Answer = Fires | Quiet


class Rule:
    """Base of all rules. Subclasses set the class attributes and implement `judge`.

    The docstring of a rule has the headings What / Why / How judged / What to do / When it is wrong
    / References; `docs/rules.md` and `bottletop rules CODE` print it.
    """

    code: ClassVar[str]
    title: ClassVar[str]
    severity: ClassVar[Severity]
    role: ClassVar[Role]
    version: ClassVar[int] = 1
    scope: ClassVar[type[Table] | None] = None
    """Judged once for each live entity of this table; None: once for the target or host."""
    needs: ClassVar[tuple[Metric, ...]] = ()
    window_s: ClassVar[float] = 30
    """How far back the judgement looks; a rule may judge on less, once it has enough."""
    fire: ClassVar[KofN] = KofN(5, 5)
    clear: ClassVar[KofN] = KofN(15, 15)
    thresholds: ClassVar[Mapping[str, Threshold]] = {}
    blames: ClassVar[str] = ""
    """What the verdict names, for causes: "CPU work", "heat"."""
    mutes: ClassVar[tuple[str, ...]] = ()
    """Codes that cannot be true in the same scope while this finding is active."""
    advice: ClassVar[str]
    refuted_by: ClassVar[str]
    """The observation that would show the finding to be wrong."""
    next_check: ClassVar[str]
    """The cheapest thing to run or look at next."""

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Judge one scope. Lets `Missing` pass: the engine turns it into "unknown".

        `key` is the entity's key, empty for rules without a scope table; `limits` has the effective
        value of each of the rule's thresholds.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Limits:
    """Effective thresholds of every rule: defaults overridden by configuration or a recording."""

    overrides: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def of(self, rule: Rule) -> Mapping[str, float]:
        """Thresholds of one rule by name."""
        values = {name: threshold.value for name, threshold in rule.thresholds.items()}
        values.update(
            (name, value)
            for name, value in self.overrides.get(rule.code, {}).items()
            if name in values
        )
        return values


def evidence(
    metric: Metric,
    entity: str,
    value: float | str | None,
    *,
    unit: str | None = None,
    threshold: float | None = None,
    span_s: float | None = None,
) -> Evidence:
    """One number behind a finding, under its metric's id; `unit` where a rate or share is meant."""
    return Evidence(
        metric.id, entity, value, metric.unit if unit is None else unit, threshold, span_s
    )
