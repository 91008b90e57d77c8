"""Judges all rules once a second and keeps what has to outlast one look: k-of-n, since when, sums.

The engine depends on nothing but the views it is given and its own past: the same views in the same
order give the same judgements, which is what lets a recording be judged again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bottletop.model import (
    NO_VERDICT,
    NS_PER_S,
    Finding,
    Judgement,
    Severity,
    Unknown,
    Verdict,
)
from bottletop.rules import RULES
from bottletop.rules.base import Fires, Limits, Quiet, Role
from bottletop.rules.entities import filled, missing_text
from bottletop.rules.turns import Turns
from bottletop.rules.verdict import Assessment, Tally, assess, decide
from bottletop.store import Missing
from bottletop.tables import SourceHealth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bottletop.model import Table
    from bottletop.rules.base import Answer, Rule
    from bottletop.store import View

VERDICT_HOLD_S = 5.0
"""A verdict stands this long before another may take its place, unless something is critical."""
ENOUGH_LOOKS = 30
"""Looks from which k of n is taken in full; a live watch has no end that is known."""
LONGEST_STEP_S = 5.0
"""More time between two evaluations than this was not watched (a suspend, a gap)."""


class _Track:
    """State of one rule in one scope."""

    __slots__ = ("active", "away", "fired", "last", "since_ns")

    def __init__(self, rule: Rule) -> None:
        self.fired: deque[int] = deque(maxlen=rule.fire.n)
        """Moments of the last evaluations that fired, 0 for those that did not."""
        self.away: deque[bool] = deque(maxlen=rule.clear.n)
        self.active = False
        self.since_ns = 0
        self.last: Fires | None = None

    def update(self, rule: Rule, answer: Answer | None, now_ns: int, patience: float = 1.0) -> None:
        """Take in one answer; None is "unknown", which neither fires nor keeps alive.

        `patience` is the part of k that is due.
        """
        if isinstance(answer, Fires):
            self.last = answer
            self.fired.append(now_ns)
            self.away.append(False)
            if not self.active:
                self._begin(max(1, int(patience * rule.fire.k)))
        else:
            self.fired.append(0)
            self.away.append(not (isinstance(answer, Quiet) and answer.near))
        if self.active and sum(self.away) >= rule.clear.k:
            self.end()

    def _begin(self, k: int) -> None:
        """Become active if it fired often enough."""
        moments = [moment for moment in self.fired if moment]
        if len(moments) >= k:
            self.active, self.since_ns = True, moments[0]
            self.away.clear()

    def end(self) -> None:
        """Stop being active; it takes k of n again to come back."""
        self.active = False
        self.fired.clear()
        self.away.clear()


@dataclass(slots=True)
class _Past:
    """What the summary says of one rule in one scope."""

    finding: Finding
    first_ns: int
    active_s: float = 0.0
    lost_gpu_s: float = 0.0


class Engine:
    """All rules, their state, and the judgement over the whole watch."""

    def __init__(
        self,
        rules: Sequence[Rule] = RULES,
        limits: Limits | None = None,
        *,
        cadence_s: float = 1.0,
        looks: int = ENOUGH_LOOKS,
    ) -> None:
        """`cadence_s` is the time between looks, `looks` how many there will be: a log of twelve
        readings cannot hold a condition for longer, so k of n is scaled to a short one."""
        self._rules = tuple(rules)
        self._longest_step_s = LONGEST_STEP_S * max(1.0, cadence_s)
        self._patience = min(1.0, looks / ENOUGH_LOOKS)
        limits = limits or Limits()
        self._limits: dict[str, Mapping[str, float]] = {r.code: limits.of(r) for r in self._rules}
        self._nouns = {rule.code: rule.blames for rule in self._rules if rule.blames}
        self._causes = frozenset(rule.code for rule in self._rules if rule.role is Role.CAUSE)
        self._tracks: dict[str, dict[str, _Track]] = {rule.code: {} for rule in self._rules}
        self._past: dict[tuple[str, str], _Past] = {}
        self._looks = 0
        self._unknown: dict[str, tuple[int, str]] = {}
        """How often each rule could not be judged, and why the last time."""
        self._tally = Tally()
        self._turns = Turns()
        self._verdict: Verdict = NO_VERDICT
        self._verdict_ns = 0
        self._critical: frozenset[tuple[str, str]] = frozenset()
        self._now_ns = 0
        self._began_ns = 0

    # -- what recordings keep ---------------------------------------------------------------

    def effective_thresholds(self) -> dict[str, dict[str, float]]:
        """Thresholds in force, by rule code and name."""
        return {code: dict(values) for code, values in self._limits.items()}

    @property
    def began_ns(self) -> int:
        """Moment of the first look, 0 before it."""
        return self._began_ns

    def rule_versions(self) -> dict[str, int]:
        """Version of each rule's logic, by code."""
        return {rule.code: rule.version for rule in self._rules}

    # -- one look ---------------------------------------------------------------------------

    def evaluate(self, view: View) -> Judgement:
        """Judge every rule on `view` and return what holds now."""
        dt_s = self._step_s(view.now_ns)
        self._began_ns = self._began_ns or view.now_ns
        self._turns.lay_out(view)
        began: list[tuple[str, str]] = []
        unknown = []
        for rule in self._rules:
            missing = self._judge(rule, view, began)
            if missing:
                unknown.append(Unknown(rule.code, missing))
                looks = self._unknown.get(rule.code, (0, ""))[0]
                self._unknown[rule.code] = (looks + 1, missing)
        self._mute()
        findings = self._findings(view)
        found = assess(view, findings, self._causes)
        self._turns.keep(view)
        self._looks += 1
        self._remember(findings, found, began, dt_s)
        self._settle(found, findings, view.now_ns)
        return Judgement(view.now_ns, self._verdict, findings, tuple(unknown))

    def resume(self, judgement: Judgement, verdict_ns: int) -> None:
        """Go on where another engine stood when it gave `judgement`, its verdict of `verdict_ns`.

        Called after enough looks of our own to have filled the windows and the k-of-n histories,
        which stay; what these looks could not know, since when, is taken over. The sums of the
        watch begin here.
        """
        active = {(f.code, f.scope): f for f in judgement.findings if f.active}
        rules = {rule.code: rule for rule in self._rules}
        for code, tracks in self._tracks.items():
            for scope, track in tracks.items():
                if track.active and (code, scope) not in active:
                    track.end()
        for (code, scope), finding in active.items():
            if code not in rules:
                continue
            track = self._tracks[code].setdefault(scope, _Track(rules[code]))
            track.active, track.since_ns = True, finding.since_ns
            track.last = Fires(
                finding.text,
                finding.evidence,
                finding.lost_gpu_s_per_s,
                finding.severity,
                finding.confidence,
                finding.advice,
            )
        self._past, self._tally, self._unknown, self._looks = {}, Tally(), {}, 0
        self._verdict, self._verdict_ns = judgement.verdict, verdict_ns
        self._critical = frozenset(k for k, f in active.items() if f.severity is Severity.CRIT)

    def _step_s(self, now_ns: int) -> float:
        before_ns, self._now_ns = self._now_ns, now_ns
        if not before_ns:
            return 0.0
        return min(self._longest_step_s, max(0.0, (now_ns - before_ns) / NS_PER_S))

    def _judge(self, rule: Rule, view: View, began: list[tuple[str, str]]) -> str:
        """Judge one rule in all its scopes. Returns what was missing, empty when nothing was."""
        now_ns, tracks = view.now_ns, self._tracks[rule.code]
        keys = [""] if rule.scope is None else view.keys(rule.scope)
        if not keys:
            assert rule.scope is not None
            for track in tracks.values():
                track.update(rule, None, now_ns)
            return f"{rule.scope.name}: {_why_empty(view, rule.scope)}"
        for gone in tracks.keys() - set(keys):
            del tracks[gone]  # a finding ends with its scope
        missing = ""
        others = 0
        for key in keys:
            answer, reason = self._answer(rule, view, key, tell=not missing)
            if answer is None:
                others += bool(missing)
                missing = missing or reason
            if key not in tracks:
                tracks[key] = _Track(rule)
            track = tracks[key]
            was_active = track.active
            track.update(rule, answer, now_ns, self._patience)
            if track.active and not was_active:
                began.append((rule.code, key))
        return f"{missing} (and {others} more)" if others else missing

    def _answer(self, rule: Rule, view: View, key: str, *, tell: bool) -> tuple[Answer | None, str]:
        """The rule's answer; None where it is unknown, with what was missing if asked to tell."""
        try:
            return rule.judge(view, key, self._limits[rule.code]), ""
        except Missing as missing:
            if not tell:
                return None, ""
            return None, missing_text(view, missing.what, missing.key, missing.reason)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # A rule that trips over a reading nobody foresaw must not take the monitor with it.
            return None, f"the rule failed: {type(error).__name__}: {error}"

    def _mute(self) -> None:
        """End findings that another active one in the same scope rules out, in rule order."""
        for rule in self._rules:
            for key, track in self._tracks[rule.code].items():
                for code in rule.mutes if track.active else ():
                    muted = self._tracks.get(code, {}).get(key)
                    if muted is not None:
                        muted.end()

    def _findings(self, view: View) -> tuple[Finding, ...]:
        found = [
            _finding(rule, key, track, track.last, view)
            for rule in self._rules
            for key, track in self._tracks[rule.code].items()
            if track.active and track.last is not None
        ]
        return tuple(sorted(found, key=_order))

    def _remember(
        self,
        findings: tuple[Finding, ...],
        found: Assessment,
        began: list[tuple[str, str]],
        dt_s: float,
    ) -> None:
        """Add this look to the sums of the watch."""
        now = {(finding.code, finding.scope): finding for finding in findings}
        for scope, ended in self._past.items():
            if ended.finding.active and scope not in now:
                ended.finding = replace(ended.finding, active=False)
        for key, finding in now.items():
            built_up_s = finding.active_s if key in began else 0.0
            if key not in self._past:
                self._past[key] = _Past(finding, finding.since_ns)
            past = self._past[key]
            seconds = built_up_s or dt_s
            past.active_s += seconds
            past.lost_gpu_s += (finding.lost_gpu_s_per_s or 0.0) * seconds
            worst = max(past.finding.severity, finding.severity)
            if finding.severity == worst:
                past.finding = finding
            elif not past.finding.active:
                past.finding = replace(past.finding, active=True)
            if built_up_s > dt_s and finding.code in self._causes and found.judged:
                self._tally.add_earlier(finding, built_up_s - dt_s)
        self._tally.add(found, dt_s)

    def _settle(self, found: Assessment, findings: tuple[Finding, ...], now_ns: int) -> None:
        """Let the verdict change at most every few seconds, at once when something is critical."""
        critical = frozenset(
            (finding.code, finding.scope)
            for finding in findings
            if finding.severity is Severity.CRIT
        )
        held = now_ns - self._verdict_ns < VERDICT_HOLD_S * NS_PER_S
        if held and critical == self._critical and self._verdict_ns:
            return
        self._critical = critical
        verdict = decide(found, self._nouns)
        if verdict != self._verdict:
            if found.judged:
                self._verdict_ns = now_ns
            self._verdict = verdict

    # -- the whole watch --------------------------------------------------------------------

    def summary(self) -> Judgement:
        """The judgement over all looks so far.

        A finding is listed when it was active at any time; `active_s` is the time in which it was,
        `since_ns` its first onset and the loss its mean while active. The verdict is ranked by the
        total loss. A rule is unknown when it could not be judged at half of the looks or more.
        """
        findings = []
        for past in self._past.values():
            finding = past.finding
            lost = finding.lost_gpu_s_per_s
            if lost is not None and past.active_s > 0:
                lost = past.lost_gpu_s / past.active_s
            findings.append(
                replace(
                    finding,
                    since_ns=past.first_ns,
                    active_s=past.active_s,
                    lost_gpu_s_per_s=lost,
                )
            )
        verdict = decide(self._tally.mean(), self._nouns)
        unknown = tuple(
            Unknown(code, missing)
            for code, (looks, missing) in self._unknown.items()
            if 2 * looks >= self._looks
        )
        return Judgement(self._now_ns, verdict, tuple(sorted(findings, key=_order)), unknown)


def _finding(rule: Rule, key: str, track: _Track, fires: Fires, view: View) -> Finding:
    return Finding(
        code=rule.code,
        severity=rule.severity if fires.severity is None else fires.severity,
        scope=key,
        text=fires.text,
        active=True,
        since_ns=track.since_ns,
        active_s=(view.now_ns - track.since_ns) / NS_PER_S,
        lost_gpu_s_per_s=fires.lost_gpu_s_per_s,
        evidence=fires.evidence,
        advice=filled(view, rule.scope, key, fires.advice or rule.advice),
        refuted_by=filled(view, rule.scope, key, rule.refuted_by),
        next_check=filled(view, rule.scope, key, rule.next_check),
        confidence=fires.confidence,
    )


def _order(finding: Finding) -> tuple[int, float, str, str]:
    """Worst first, then by loss, then by name, so that the order never depends on chance."""
    return (-finding.severity, -(finding.lost_gpu_s_per_s or 0.0), finding.code, finding.scope)


def _why_empty(view: View, table: type[Table]) -> str:
    """Why a table has no rows: what its source says, where a source of that name says something."""
    reason = view.text(SourceHealth.reason, table.name)
    return reason or "no reading"
