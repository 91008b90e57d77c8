"""The one line that answers "what holds it back now?".

Causes compete for the GPU-seconds that were lost: idle time with work in flight is divided by the
gap budget, lost speed comes from findings about clocks, and time taken by other processes from the
finding that names them. A cause leads only when an active finding stands behind it and it is ahead
of the next, or of what nothing explains, by 0.15 of the loss; otherwise the line says "mixed" or
that it cannot tell, and what would settle it. Patterns never lead; a GPU that works no further does
where no cause is known of the others.

Without a GPU reading the currency is the time of the target's stages, and the line says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import Cause, Confidence, Severity, Verdict, VerdictState
from bottletop.rules import budget as budget_
from bottletop.rules.budget import gap_budget
from bottletop.rules.demand import StageKind, demand
from bottletop.rules.entities import NOTHING_ATTACHED, gpu_name, gpu_names, target_gpus, target_pids
from bottletop.rules.load import load
from bottletop.rules.quota import tightest_quota
from bottletop.store import Missing
from bottletop.tables import Gpu, GpuUtilSample
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bottletop.model import Finding
    from bottletop.store import View

LEAD = 0.15
"""Part of the loss by which the first cause must be ahead to be named alone."""
LOSS = 0.20
"""Lost share of a GPU's time from which its gaps count without a finding."""
SHOWN = 0.01
LASTING = 0.10
"""Part of a watch for which a finding must have been active to lead the verdict over all of it."""
NO_DEMAND = "gpu-idle-no-demand"
STOPPED = "recovery-required"
PREPROCESS = "preprocess-on-critical-path"
QUOTA = "cgroup-cpu-throttled"
DISK = "disk-saturated"
STAGE_NOUNS = {PREPROCESS: "preparing", DISK: "a saturated disk"}
"""How patterns are named where, without a GPU, they may lead."""

TOO_SOON = "not enough samples yet"
WANTS_STAGES = "waiting, or not asked? stage timings would tell"


class Loss(NamedTuple):
    """What one cause took."""

    amount: float
    """GPU-seconds a second; seconds a second where stages are the currency."""
    confidence: Confidence
    scope: str
    """The GPU, empty when there are several."""


@dataclass(slots=True)
class Assessment:
    """Where the time went, at one moment or summed over a watch. Rates are a second."""

    judged: bool = False
    """There was enough to judge on."""
    by_stages: bool = False
    """No GPU could be read: amounts are seconds of the target's stages."""
    gpus: tuple[str, ...] = ()
    names: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    """Name of each GPU, to be named alone where a cause is of it alone."""
    capacity: float = 0.0
    busy: float = 0.0
    no_demand: float = 0.0
    unexplained: float = 0.0
    causes: dict[str, Loss] = field(default_factory=dict)
    leading: frozenset[str] = frozenset()
    """Codes with an active finding that may lead."""
    unpriced: frozenset[str] = frozenset()
    """Causes that hold at warn or above and whose cost cannot be read."""
    nobody_asks: bool = False
    stopped: Finding | None = None
    """A GPU that works no further, and of which nothing else can be said."""
    blind: str = ""
    """What is missing, or the measurement that would settle it."""
    busiest_stage: str = ""

    @property
    def lost(self) -> float:
        return sum(loss.amount for loss in self.causes.values()) + self.unexplained

    def add_cause(self, code: str, amount: float, confidence: Confidence, scope: str) -> None:
        """Add to one cause; a second GPU makes the scope general, the least confidence counts."""
        if amount <= 0:
            return
        before = self.causes.get(code)
        if before is not None:
            amount += before.amount
            confidence = min(confidence, before.confidence)
            scope = scope if scope == before.scope else ""
        self.causes[code] = Loss(amount, confidence, scope)


def assess(view: View, findings: Iterable[Finding], causes: frozenset[str]) -> Assessment:
    """Gather where the target's time went, from the budgets and the active `findings`.

    `causes` are the codes of rules whose role is to be a cause.
    """
    active = list(findings)
    codes = frozenset(finding.code for finding in active)
    if not view.keys(Gpu):
        return _by_stages(view, codes)
    out = Assessment(leading=codes & causes)
    gpus = target_gpus(view)
    for gpu in gpus:
        _add_gaps(view, gpu, active, out)
    out.stopped = next((f for f in active if f.code == STOPPED and f.scope in gpus), None)
    for finding in active:
        own = finding.scope in out.gpus and finding.code in causes
        if own and finding.code not in budget_.CAUSES and finding.lost_gpu_s_per_s is not None:
            out.add_cause(finding.code, finding.lost_gpu_s_per_s, finding.confidence, finding.scope)
    out.unpriced = frozenset(
        finding.code
        for finding in active
        if finding.scope in out.gpus
        and finding.code in causes
        and finding.lost_gpu_s_per_s is None
        and finding.severity >= Severity.WARN
    )
    out.judged = bool(out.gpus)
    out.capacity = float(len(out.gpus))
    out.names = gpu_names(view, out.gpus or target_gpus(view))
    out.labels = {gpu: gpu_name(view, gpu) for gpu in out.gpus}
    idle = {finding.scope for finding in active if finding.code == NO_DEMAND}
    out.nobody_asks = out.judged and idle.issuperset(out.gpus)
    if not out.judged and not out.blind:
        out.blind = TOO_SOON
    return out


def _add_gaps(view: View, gpu: str, active: list[Finding], out: Assessment) -> None:
    """Add one GPU's idle time, divided as far as it can be."""
    try:
        found = load(view, gpu, budget_.WINDOW_S)
    except Missing as missing:
        out.blind = out.blind or _short(missing)
        return
    table = GpuUtilSample if found.samples.buffered else Gpu
    if found.span_s < view.reach_s(table, budget_.AT_LEAST_S):
        out.blind = out.blind or TOO_SOON
        return
    out.gpus += (gpu,)
    out.busy += found.busy
    gap = 1.0 - found.busy
    try:
        budget = gap_budget(view, gpu)
    except Missing as missing:
        full = [f for f in active if f.scope == gpu and f.code in budget_.CAUSES]
        if full and full[0].lost_gpu_s_per_s is not None:
            # Nothing divides the gap, but one cause was seen on the GPU itself.
            out.add_cause(full[0].code, gap, full[0].confidence, gpu)
        elif found.busy < budget_.WORK_BUSY:
            out.no_demand += gap
        elif gap >= LOSS:
            out.unexplained += gap
            out.blind = out.blind or (_short(missing) if target_pids(view) else NOTHING_ATTACHED)
        return
    out.no_demand += budget.no_demand if budget.work else gap
    named = any(finding.scope in ("", gpu) and finding.code in budget_.CAUSES for finding in active)
    if budget.work and (named or budget.lost >= LOSS):
        for code, amount in budget.parts.items():
            out.add_cause(code, amount, budget.confidence, gpu)
        out.unexplained += budget.unexplained
        if budget.demand is None and budget.unexplained > LEAD * budget.lost:
            out.blind = out.blind or WANTS_STAGES


def _short(missing: Missing) -> str:
    return f"{missing.what}: {missing.reason}"


def _by_stages(view: View, codes: frozenset[str]) -> Assessment:
    """Where the time of the target's stages went, on a host whose GPU cannot be read."""
    out = Assessment(by_stages=True)
    found = demand(view, budget_.WINDOW_S)
    if not target_pids(view):
        out.blind = "no running process is attached"
        return out
    if found is None or found.span_s < budget_.AT_LEAST_S - 1:
        out.blind = "no stage timings" if found is None else TOO_SOON
        return out
    out.judged, out.capacity = True, 1.0
    out.busy = found.share(StageKind.DEVICE)
    out.no_demand = max(0.0, 1.0 - found.present)
    out.nobody_asks = found.present < budget_.WORK_PRESENT
    longest = next((use for use in found.stages if use.kind is not StageKind.WAIT), None)
    out.busiest_stage = longest.name if longest is not None else ""
    quota = tightest_quota(view, budget_.WINDOW_S)
    shares = {
        PREPROCESS: found.share(StageKind.HOST),
        DISK: found.share(StageKind.STORAGE),
        QUOTA: quota.throttled_time if quota is not None else 0.0,
    }
    out.leading = codes & frozenset(shares)
    for code in sorted(out.leading):
        out.add_cause(code, shares[code], Confidence.MEDIUM, "")
    return out


# -- the line -----------------------------------------------------------------------------------


def decide(found: Assessment, nouns: Mapping[str, str]) -> Verdict:
    """Make the verdict of an assessment. `nouns` says how each cause is named in a sentence."""
    if not found.judged and found.stopped is not None:
        return _stopped(found.stopped)
    if not found.judged:
        what = "no GPU can be read; " if found.by_stages else "watching: "
        return Verdict(VerdictState.CANNOT_TELL, None, what + found.blind)
    ranked = sorted(found.causes.items(), key=lambda item: (-item[1].amount, item[0]))
    lost = found.lost
    causes = tuple(
        Cause(code, loss.amount / lost, loss.confidence, loss.scope)
        for code, loss in ranked
        if loss.amount >= SHOWN * lost
    )
    if causes and found.leading & {cause.code for cause in causes}:
        return _with_causes(found, causes, lost, nouns)
    if found.stopped is not None:
        return _stopped(found.stopped)
    if lost >= LOSS * found.capacity:
        if found.unexplained >= 0.5 * lost or not causes:
            return Verdict(VerdictState.CANNOT_TELL, None, _unexplained(found, lost), causes)
        return Verdict(VerdictState.MIXED, None, _mixed(found, causes, lost, nouns), causes)
    if found.unpriced:
        code = min(found.unpriced)
        text = f"{_who(found)}: held back by {_noun(code, nouns)}; what that costs cannot be read"
        return Verdict(VerdictState.BOTTLENECK, code, text, causes)
    if found.nobody_asks:
        return Verdict(VerdictState.NO_DEMAND, NO_DEMAND, _no_demand(found))
    if not found.by_stages and found.busy < budget_.WORK_BUSY * found.capacity:
        text = f"{_who(found)} hardly used ({pct(found.busy / found.capacity)}): {WANTS_STAGES}"
        return Verdict(VerdictState.CANNOT_TELL, None, text)
    return Verdict(VerdictState.CLEAR, None, _clear(found))


def _stopped(finding: Finding) -> Verdict:
    cause = Cause(finding.code, 1.0, finding.confidence, finding.scope)
    return Verdict(VerdictState.BOTTLENECK, finding.code, finding.text, (cause,))


def _with_causes(
    found: Assessment, causes: tuple[Cause, ...], lost: float, nouns: Mapping[str, str]
) -> Verdict:
    first = causes[0]
    rival = max(causes[1].share if len(causes) > 1 else 0.0, found.unexplained / lost)
    if first.code not in found.leading or first.share - rival < LEAD:
        return Verdict(VerdictState.MIXED, None, _mixed(found, causes, lost, nouns), causes)
    many = len(found.gpus) > 1
    alone = found.labels.get(first.scope, "") if many else ""
    who = f"{alone} is" if alone else f"{_who(found)} {'are' if many else 'is'}"
    loss = _loss(found, lost, "all GPUs'" if alone else "")
    text = f"{who} held back by {_noun(first.code, nouns)}: {loss} lost"
    if first.share < 0.985:
        text += f" ({_shares(causes, nouns)})"
    return Verdict(VerdictState.BOTTLENECK, first.code, text, causes)


def _mixed(
    found: Assessment, causes: tuple[Cause, ...], lost: float, nouns: Mapping[str, str]
) -> str:
    rest = found.unexplained / lost
    text = f"{_who(found)}: {_loss(found, lost)} lost, no clear lead ({_shares(causes, nouns)}"
    return text + (f", unexplained {pct(rest)})" if rest >= LEAD else ")")


def _unexplained(found: Assessment, lost: float) -> str:
    why = f": {found.blind}" if found.blind else ", and nothing on this host explains it"
    return f"{_who(found)} idle {pct(min(1.0, lost / found.capacity))} of the time{why}"


def _no_demand(found: Assessment) -> str:
    if found.by_stages:
        return "no GPU can be read; nobody asks: no stage is under way"
    return f"nobody asks: {_who(found)} idle {pct(1 - found.busy / found.capacity)} of the time"


def _clear(found: Assessment) -> str:
    busy = pct(found.busy / found.capacity)
    if found.by_stages:
        longest = f", most time in {found.busiest_stage}" if found.busiest_stage else ""
        return f"no GPU can be read; its stages show nothing that holds it back{longest}"
    return f"nothing holds {_who(found)} back: busy {busy} of the time"


def _who(found: Assessment) -> str:
    return "no GPU can be read; the target" if found.by_stages else found.names


def _loss(found: Assessment, lost: float, whose: str = "") -> str:
    whose = whose or ("their" if len(found.gpus) > 1 else "its")
    return f"{pct(min(1.0, lost / found.capacity))} of {whose} time"


def _noun(code: str, nouns: Mapping[str, str]) -> str:
    return nouns.get(code) or STAGE_NOUNS.get(code, code)


def _shares(causes: tuple[Cause, ...], nouns: Mapping[str, str]) -> str:
    return ", ".join(f"{_noun(cause.code, nouns)} {pct(cause.share)}" for cause in causes[:2])


# -- over a whole watch ---------------------------------------------------------------------------


class Tally:
    """Assessments added up over a watch, so that the whole of it can be judged."""

    def __init__(self) -> None:
        self.judged_s = 0.0
        self.nobody_asks_s = 0.0
        self._leading_s: dict[str, float] = {}
        self._unpriced_s: dict[str, float] = {}
        self._blind_s: dict[str, float] = {}
        self._sums = Assessment()
        self._last = Assessment()

    def add(self, found: Assessment, dt_s: float) -> None:
        """Count `found` for `dt_s` seconds."""
        if not found.judged:
            if self.judged_s == 0:
                self._last = found
            return
        sums = self._sums
        if found.by_stages != sums.by_stages and self.judged_s > 0:
            return  # one currency a watch: what began first counts
        self.judged_s += dt_s
        self.nobody_asks_s += dt_s if found.nobody_asks else 0.0
        sums.judged, sums.by_stages = True, found.by_stages
        if found.blind:
            self._blind_s[found.blind] = self._blind_s.get(found.blind, 0.0) + dt_s
        sums.capacity += found.capacity * dt_s
        sums.busy += found.busy * dt_s
        sums.no_demand += found.no_demand * dt_s
        sums.unexplained += found.unexplained * dt_s
        for code, loss in found.causes.items():
            sums.add_cause(code, loss.amount * dt_s, loss.confidence, loss.scope)
        for code in found.unpriced:
            self._unpriced_s[code] = self._unpriced_s.get(code, 0.0) + dt_s
        for code in found.leading:
            self._leading_s[code] = self._leading_s.get(code, 0.0) + dt_s
        self._last = found

    def add_earlier(self, finding: Finding, seconds: float) -> None:
        """Count a finding that has just become active for the seconds in which it built up.

        Gaps are counted from the budgets, before any finding; only their lead is due here.
        """
        if finding.lost_gpu_s_per_s is not None and finding.code not in budget_.CAUSES:
            amount = finding.lost_gpu_s_per_s * seconds
            self._sums.add_cause(finding.code, amount, finding.confidence, finding.scope)
        led_s = self._leading_s.get(finding.code, 0.0) + seconds
        self._leading_s[finding.code] = min(led_s, self.judged_s)

    def mean(self) -> Assessment:
        """The watch as one assessment: rates are means, findings lead if they lasted."""
        if self.judged_s <= 0:
            return self._last
        sums, seconds = self._sums, self.judged_s
        return Assessment(
            judged=True,
            by_stages=sums.by_stages,
            gpus=self._last.gpus,
            names=self._last.names,
            labels=self._last.labels,
            capacity=sums.capacity / seconds,
            busy=sums.busy / seconds,
            no_demand=sums.no_demand / seconds,
            unexplained=sums.unexplained / seconds,
            causes={
                code: loss._replace(amount=loss.amount / seconds)
                for code, loss in sums.causes.items()
            },
            leading=_lasting(self._leading_s, seconds),
            unpriced=_lasting(self._unpriced_s, seconds),
            nobody_asks=self.nobody_asks_s >= 0.5 * seconds,
            blind=max(self._blind_s, key=lambda text: (self._blind_s[text], text), default=""),
            stopped=self._last.stopped,
            busiest_stage=self._last.busiest_stage,
        )


def _lasting(active_s: Mapping[str, float], seconds: float) -> frozenset[str]:
    """Codes that were active for long enough to speak of all of a watch."""
    return frozenset(code for code, active in active_s.items() if active >= LASTING * seconds)
