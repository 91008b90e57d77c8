"""CPU quota of the target's control groups: how often and how long it stopped the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottletop.store import Missing
from bottletop.tables import Cgroup

if TYPE_CHECKING:
    from bottletop.model import Metric
    from bottletop.store import View

NEEDS: tuple[Metric, ...] = (Cgroup.periods, Cgroup.throttled_periods, Cgroup.throttled_us)


@dataclass(frozen=True, slots=True)
class Quota:
    """CPU quota of the tightest group over a window."""

    group: str
    periods: float
    """Enforcement periods that passed in the window."""
    throttled_periods: float
    """Share of enforcement periods in which the quota ran out, 0 to 1."""
    throttled_time: float
    """Share of time throttled, 0 to 1: run queues are summed, so it is bounded by the periods."""


def tightest_quota(view: View, span_s: float) -> Quota | None:
    """The group, own or ancestor, that was throttled most; None where none has a quota."""
    return view.memo(("quota", span_s), lambda: _tightest_quota(view, span_s))


def _tightest_quota(view: View, span_s: float) -> Quota | None:
    worst: Quota | None = None
    for key in view.keys(Cgroup):
        try:
            periods = view.growth(Cgroup.periods, key, span_s)
            throttled = view.growth(Cgroup.throttled_periods, key, span_s)
        except Missing:
            continue
        if periods.amount <= 0:
            continue
        share = min(1.0, throttled.amount / periods.amount)
        try:
            time = view.growth(Cgroup.throttled_us, key, span_s).per_s / 1e6
        except Missing:
            time = share
        found = Quota(key, periods.amount, share, min(share, time))
        if worst is None or found.throttled_periods > worst.throttled_periods:
            worst = found
    return worst
