"""Where one GPU's idle time went: the gap budget.

In a serial pipeline the time in which the GPU waits must be spent somewhere. What the target's
threads, its storage, its copies, its CPU quota and its stages did in that time is laid on the GPU's
own utilisation, and the idle time is divided among the causes. Demand comes first: idle time
without a request in flight is not a loss. A quota comes before CPU, since time burnt under a quota
looks like CPU work. What nothing explains stays unexplained, and is said to be.

CPU in the gaps is the intercept at u = 0 of a least-squares line through (utilisation, CPU): a
thread that spins while it waits for the GPU is busy at every u, one that prepares work is busy only
at u = 0, and averages cannot tell them apart. Where utilisation hardly varies (cycles shorter than
the sampling) there is no intercept, only bounds: the GPU's busy time was spun through or was not.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from operator import mul
from typing import TYPE_CHECKING

from bottletop.model import NS_PER_S, Confidence
from bottletop.rules import activity as activity_
from bottletop.rules import demand as demand_
from bottletop.rules import load as load_
from bottletop.rules import pcie
from bottletop.rules.activity import (
    Activity,
    SlowBlocked,
    activity,
    coarser,
    moves_data,
    on_core,
    slow_blocked,
    within,
)
from bottletop.rules.demand import Demand, StageKind, demand
from bottletop.rules.entities import NEEDS as ENTITY_NEEDS
from bottletop.rules.entities import NOTHING_ATTACHED, elsewhere
from bottletop.rules.load import Load, load, means_over
from bottletop.rules.quota import NEEDS as QUOTA_NEEDS
from bottletop.rules.quota import Quota, tightest_quota
from bottletop.store import Missing
from bottletop.tables import Gpu, GpuUtilSample, Process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.model import Metric
    from bottletop.store import View

WINDOW_S = 30.0
AT_LEAST_S = 10.0
GAP = 0.10
"""Below this idle share nothing is divided: there is too little of it to see anything in."""
VARIES = 0.15
"""Standard deviation of utilisation from which the intercept is used."""
MIN_POINTS = 15
SURELY, SURELY_NOT = 0.55, 0.40
"""Bounds of the CPU share that settle it without an intercept: at least, at most."""
SLACK_S = 2.0
CLEARLY_BLOCKED = 0.5
"""Part of the gap in storage waits from which the fast rows need no second opinion."""
MISSED = 0.10
"""Storage waits that the slow rows must show beyond the fast ones to be believed instead."""
WORK_PRESENT = 0.02
WORK_BUSY = 0.10
"""Mean utilisation that counts as work where no stage says whether work is in flight."""
LINK_EFFICIENCY = 0.8
"""Part of the link's raw rate that copies reach in practice."""
GBYTES_PER_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}

IO = "gpu-starved-io"
CPU = "gpu-starved-cpu"
EXTERNAL = "gpu-starved-external"
QUOTA = "cgroup-cpu-throttled"
COPY = "h2d-bound"
CAUSES = (QUOTA, IO, COPY, CPU, EXTERNAL)

NEEDS: tuple[Metric, ...] = (
    *load_.NEEDS,
    *activity_.NEEDS,
    *demand_.NEEDS,
    *ENTITY_NEEDS,
    *QUOTA_NEEDS,
    *pcie.NEEDS,
    Gpu.pcie_gen_max,
    Gpu.pcie_width,
)


@dataclass(frozen=True, slots=True)
class GapBudget:
    """One GPU's idle time over a window, divided. All shares are of time, 0 to 1."""

    gpu: str
    span_s: float
    busy: float
    gap: float
    work: bool
    """Work is known to be there: stages in flight, or enough use of the GPU."""
    demand: Demand | None
    """What stages said; None where there are none, or no gap to divide."""
    no_demand: float
    """Part of the time in which the GPU was idle and nobody asked."""
    parts: dict[str, float]
    """Idle time by cause: part of all time, by rule code. Sums to at most `lost`."""
    activity: Activity | None
    guilty_thread: str
    """Thread with most CPU in the gaps; empty when none ran."""
    guilty_cores: float
    """CPU of that thread in the gaps, in cores."""
    guilty_delay: float
    """Time in the gaps that it was runnable without a core, in cores."""
    quota: Quota | None
    sharp: bool
    """Causes were told apart moment by moment; otherwise only by averages."""

    @property
    def lost(self) -> float:
        """Part of the time in which the GPU was idle although work was there."""
        return max(0.0, self.gap - self.no_demand)

    @property
    def unexplained(self) -> float:
        return max(0.0, self.lost - sum(self.parts.values()))

    def share(self, code: str) -> float:
        """Part of the lost time that `code` explains, 0 to 1."""
        return self.parts.get(code, 0.0) / self.lost if self.lost > 0 else 0.0

    @property
    def confidence(self) -> Confidence:
        """Low without stages (demand is then a guess), high with them and a sharp picture."""
        if self.demand is None:
            return Confidence.LOW
        return Confidence.HIGH if self.sharp else Confidence.MEDIUM


def gap_budget(view: View, gpu: str) -> GapBudget:
    """Divide the idle time of `gpu` over the last 30 s. Raises `Missing`.

    Judges on 10 s or more. Start-up of the target and of the GPU's first use is left out.
    """
    return view.memo(("budget", gpu), lambda: _gap_budget(view, gpu))


def _gap_budget(view: View, gpu: str) -> GapBudget:
    if not view.keys(Process):
        raise Missing(Process, "", NOTHING_ATTACHED)
    found = load(view, gpu, WINDOW_S, at_least_s=AT_LEAST_S)
    attached_s = view.memo("target span", lambda: _target_span_s(view))
    if attached_s < AT_LEAST_S:
        reason = f"needs {AT_LEAST_S:.0f} s of the target, has {attached_s:.0f} s"
        raise Missing(Process, "", reason)
    if attached_s < found.span_s - SLACK_S:
        found = load(view, gpu, attached_s)
    # Whole seconds, so that GPUs whose samples end at slightly other moments share the work.
    span_s = float(round(found.span_s))
    gap = 1.0 - found.busy
    if gap < GAP:
        return GapBudget(
            gpu=gpu,
            span_s=span_s,
            busy=found.busy,
            gap=gap,
            work=True,
            demand=None,
            no_demand=0.0,
            parts={},
            activity=None,
            guilty_thread="",
            guilty_cores=0.0,
            guilty_delay=0.0,
            quota=None,
            sharp=False,
        )
    asked = demand(view, span_s, elsewhere(view, gpu))
    work = asked.present >= WORK_PRESENT if asked is not None else found.busy >= WORK_BUSY
    return _Division(view, gpu, found, span_s, asked).budget(work)


def _target_span_s(view: View) -> float:
    """Seconds since the target's first row; no matter how much more than the window they are."""
    enough_s = max(view.reach_s(table, WINDOW_S) for table in (GpuUtilSample, Gpu))
    longest_s = 0.0
    for key in view.keys(Process):
        times = view.series(Process.pid, key, WINDOW_S + SLACK_S).t_ns
        if times:
            longest_s = max(longest_s, (view.now_ns - times[0]) / NS_PER_S)
        if longest_s >= enough_s:
            break
    return longest_s


class _Division:
    """Divides one GPU's idle time. All shares are of time until `budget` is done."""

    def __init__(
        self, view: View, gpu: str, found: Load, span_s: float, asked: Demand | None
    ) -> None:
        self.view, self.gpu, self.found, self.span_s, self.asked = view, gpu, found, span_s, asked
        self.gap = 1.0 - found.busy
        self.activity = activity(view, gpu, WINDOW_S)
        self.idle = self._idle()
        self.spread = _variance(self.idle)
        self.sharp = len(self.idle) >= MIN_POINTS and self.spread >= VARIES**2

    def _idle(self) -> list[float]:
        """1 - u on the threads' grid, or everything moved to the GPU's when that is coarser."""
        samples, act = self.found.samples, self.activity
        times = samples.series.t_ns
        step_ns = (act.edges[-1] - act.edges[0]) / (len(act.edges) - 1)
        if samples.window_s * NS_PER_S > 1.5 * step_ns:
            act = self.activity = coarser(act, times)
        act = self.activity = within(act, self.found.since_ns, times[-1])
        return [1.0 - u for u in means_over(samples, act.edges)]

    def budget(self, work: bool) -> GapBudget:
        """The finished division."""
        gap, asked = self.gap, self.asked
        waiting = min(gap, asked.waiting) if asked else 0.0
        external = min(gap - waiting, asked.share(StageKind.EXTERNAL)) if asked else 0.0
        quota = tightest_quota(self.view, self.span_s)
        parts, unsure = self._measured(quota)
        left = gap - waiting - external
        total = sum(parts.values())
        if total > left:
            parts = {code: part * left / total for code, part in parts.items()}
        left -= sum(parts.values())
        no_demand = waiting
        if asked is not None:
            # What may or may not be CPU work stays unexplained.
            left = max(0.0, left - unsure)
            held = max(0.0, self._held_by_stages(asked) - sum(parts.values()))
            waited = min(left, held)
            external += waited
            no_demand += left - waited
        parts[EXTERNAL] = external
        thread, cores, delay = self._guilty()
        return GapBudget(
            gpu=self.gpu,
            span_s=self.span_s,
            busy=self.found.busy,
            gap=gap,
            work=work,
            demand=asked,
            no_demand=no_demand,
            parts={code: part for code, part in parts.items() if part > 0},
            activity=self.activity,
            guilty_thread=thread,
            guilty_cores=cores,
            guilty_delay=delay,
            quota=quota,
            sharp=self.sharp,
        )

    def _measured(self, quota: Quota | None) -> tuple[dict[str, float], float]:
        """Parts that sensors show, before they are fitted into the gap, and how much of all time
        may be CPU work besides."""
        gap = self.gap
        cpu, unsure = self._cpu()
        parts = {
            IO: self._storage() * gap,
            COPY: min(gap, self._copying()),
            CPU: cpu * gap,
        }
        if quota is not None and quota.throttled_periods > 0:
            # Time burnt in a period that ends throttled is the quota's pace, not the code's. The
            # throttled time itself may already be there, as time without a core.
            paced = quota.throttled_periods * parts[CPU]
            burnt = quota.throttled_periods * self._burnt() * gap
            parts[CPU] -= paced
            parts[QUOTA] = min(gap, max(paced, burnt + quota.throttled_time))
        return parts, unsure * gap

    # -- one cause each ---------------------------------------------------------------------

    def _held_by_stages(self, asked: Demand) -> float:
        """Idle time that lies inside stages of the host, storage or unnamed kinds."""
        return min(
            self.gap,
            asked.share(StageKind.HOST, StageKind.STORAGE, StageKind.OTHER, StageKind.INPUT),
        )

    def _in_gaps(self, series: Sequence[float], low: float, high: float) -> float | None:
        """Mean of `series` while the GPU is idle, bounded; None where averages are all there is."""
        if not self.sharp:
            return None
        return max(low, min(high, _at_full(self.idle, self.spread, series)))

    def _cpu(self) -> tuple[float, float]:
        """Share of the gap in which the target computed, and how much more it may have been."""
        act, gap, asked = self.activity, self.gap, self.asked
        n = len(act.busiest)
        mean = sum(act.busiest) / n
        low = max(0.0, (mean - self.found.busy) / gap)
        high = min(1.0, sum(act.together) / n / gap)
        sharp = self._in_gaps(act.busiest, 0.0, min(1.0, mean / gap))
        if sharp is not None:
            # Work handed from thread to thread keeps no single one busy; its stages tell.
            pooled = self._in_gaps(act.together, 0.0, high) or 0.0
            inside = asked.share(StageKind.HOST, StageKind.OTHER) / gap if asked else 0.0
            return max(sharp, min(pooled, inside)), 0.0
        named = asked.share(StageKind.HOST) / gap if asked is not None else 0.0
        cpu = max(low, min(high, named))
        return (cpu, high - cpu) if low <= SURELY and high >= SURELY_NOT else (cpu, 0.0)

    def _burnt(self) -> float:
        """Share of the gap in which the target was on a core, without what it waited for one."""
        act = self.activity
        columns = [on_core(self.view, act, key, WINDOW_S) for key in act.lines]
        if not columns:
            return 0.0
        most = [min(1.0, max(column)) for column in zip(*columns, strict=True)]
        high = min(1.0, sum(most) / len(most) / self.gap)
        sharp = self._in_gaps(most, 0.0, high)
        return high if sharp is None else sharp

    def _storage(self) -> float:
        """Share of the gap in which a thread of the target waited for storage."""
        if moves_data(self.view, self.span_s) is False:
            return 0.0
        blocked = self.activity.blocked
        fast = sum(blocked) / len(blocked)
        if fast < CLEARLY_BLOCKED * self.gap:
            slow = slow_blocked(self.view, self.gpu, self.span_s)
            seen = sum(slow.blocked) / len(slow.blocked) if slow is not None else 0.0
            if slow is not None and seen > fast + MISSED:
                return self._slow_storage(slow, seen)
        high = min(1.0, fast / self.gap)
        if not self.sharp or not high:
            return high
        # States are moments, not means: each is laid on the two intervals that it parts.
        around = [(before + after) / 2 for before, after in pairwise(self.idle)]
        spread = _variance(around)
        if spread < VARIES**2 / 2:
            return high
        return max(0.0, min(high, _at_full(around, spread, blocked[:-1])))

    def _slow_storage(self, slow: SlowBlocked, seen: float) -> float:
        """The same from readings once a second: their mean, weighted by how idle the GPU was."""
        until = self.found.samples.series.t_ns[-1]
        edges = [edge for edge in slow.edges if edge <= until]
        weights = [1.0 - u for u in means_over(self.found.samples, edges)]
        total = sum(weights)
        weighted = sum(map(mul, weights, slow.blocked)) / total if total > 0 else 0.0
        return min(weighted, 1.0, seen / self.gap)

    def _copying(self) -> float:
        """Share of time that the link needs for the bytes moved; 0 where that is unknown."""
        view, gpu = self.view, self.gpu
        try:
            moved = sum(pcie.traffic(view, gpu, self.span_s).values())
            lane = GBYTES_PER_LANE.get(int(view.number(Gpu.pcie_gen_max, gpu)))
            width = view.number(Gpu.pcie_width, gpu)
        except Missing:
            return 0.0
        if lane is None or width <= 0:
            return 0.0
        return moved / (lane * 1e9 * width * LINK_EFFICIENCY)

    def _guilty(self) -> tuple[str, float, float]:
        """The thread that wanted most CPU in the gaps: its CPU and its wait for a core."""
        act, total = self.activity, sum(self.idle)
        if total <= 0 or not act.lines:
            return "", 0.0, 0.0
        wanted = {key: sum(map(mul, act.wanted(key), self.idle)) / total for key in act.lines}
        thread = max(wanted, key=lambda key: (wanted[key], key))
        if not act.lines[thread].waits:
            return thread, wanted[thread], 0.0
        used = on_core(self.view, act, thread, WINDOW_S)
        cores = sum(map(mul, used, self.idle)) / total
        return thread, cores, max(0.0, wanted[thread] - cores)


def _variance(series: Sequence[float]) -> float:
    mean = sum(series) / len(series)
    square: float = sum(map(mul, series, series)) / len(series)
    return square - mean**2


def _at_full(idle: Sequence[float], spread: float, series: Sequence[float]) -> float:
    """Value at idle = 1 of the least-squares line through (idle, series); `spread` is the variance
    of `idle`."""
    n = len(idle)
    mean_idle, mean = sum(idle) / n, sum(series) / n
    covariance: float = sum(map(mul, idle, series)) / n - mean_idle * mean
    at_full: float = mean + covariance / spread * (1.0 - mean_idle)
    return at_full
