"""Where findings belong on the screen: which entity is marked, and which moments of its history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NS_PER_S, Severity
from bottletop.rules.sawtooth import gpu_sawtooth
from bottletop.store import Missing
from bottletop.tables import Gpu

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bottletop.model import Finding, Metric
    from bottletop.store import View

SAWTOOTH = "gpu-util-sawtooth"

HELD_BY: Mapping[str, tuple[Metric, ...]] = {
    "thermal-throttle": (Gpu.throttle_sw_thermal_ns, Gpu.throttle_hw_thermal_ns),
    "power-cap-at-limit": (Gpu.throttle_sw_power_ns,),
    "power-limit-lowered": (Gpu.throttle_sw_power_ns,),
    "power-cap-below-limit": (Gpu.throttle_sw_power_ns,),
    "power-brake": (Gpu.throttle_power_brake_ns,),
}
"""Counters whose growth shows the very seconds a finding is about."""

HELD_DUTY = 0.05
"""Share of an interval under a throttle reason from which the interval is marked."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the findings say of one entity."""

    severity: Severity
    codes: tuple[str, ...]


class Moment(NamedTuple):
    """A stretch of an entity's history that a finding points at."""

    start_ns: int
    end_ns: int
    held: bool
    """A clock was held down, as against one cycle of a wave."""
    severity: Severity


def by_entity(findings: Sequence[Finding]) -> dict[str, Mark]:
    """The worst severity and the codes of active findings, for every entity they name.

    An entity named only in the evidence of a finding about another is marked as its guilty part.
    Findings that explain (info) mark what they are about, not what they mention.
    """
    found: dict[str, tuple[Severity, list[str]]] = {}
    for finding in findings:
        if not finding.active:
            continue
        named = {finding.scope}
        if finding.severity > Severity.INFO:
            named.update(item.entity for item in finding.evidence)
        for entity in named - {""}:
            severity, codes = found.get(entity, (Severity.INFO, []))
            if finding.code not in codes:
                codes.append(finding.code)
            found[entity] = (max(severity, finding.severity), codes)
    return {entity: Mark(severity, tuple(codes)) for entity, (severity, codes) in found.items()}


def moments(view: View, key: str, findings: Sequence[Finding], span_s: float) -> tuple[Moment, ...]:
    """Cycles and throttled stretches of one GPU that active findings are about, oldest first."""
    out: list[Moment] = []
    for finding in findings:
        if not finding.active or finding.scope != key:
            continue
        if finding.code == SAWTOOTH:
            out.extend(
                Moment(start_ns, end_ns, False, finding.severity)
                for start_ns, end_ns in cycles(view, key, span_s)
            )
        for metric in HELD_BY.get(finding.code, ()):
            out.extend(_held(view, metric, key, span_s, finding.severity))
    return tuple(sorted(out))


def _held(view: View, metric: Metric, key: str, span_s: float, severity: Severity) -> list[Moment]:
    times, duties = view.rates(metric, key, span_s)
    before_ns = view.now_ns - round(span_s * NS_PER_S)
    out = []
    for t_ns, duty in zip(times, duties, strict=True):
        if duty >= HELD_DUTY * NS_PER_S:
            out.append(Moment(before_ns, t_ns, True, severity))
        before_ns = t_ns
    return out


def cycles(view: View, key: str, span_s: float) -> list[tuple[int, int]]:
    """Whole cycles of a swinging GPU in the last `span_s` seconds, each from rise to rise."""
    try:
        wave = gpu_sawtooth(view, key)
    except Missing:
        return []
    if wave is None:
        return []
    since_ns = view.now_ns - round(span_s * NS_PER_S)
    pairs = zip(wave.rises_ns, wave.rises_ns[1:], strict=False)
    return [(start_ns, end_ns) for start_ns, end_ns in pairs if end_ns > since_ns]
