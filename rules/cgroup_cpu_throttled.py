"""Rule cgroup-cpu-throttled."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Confidence, Severity
from bottletop.rules import budget
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.budget import GapBudget, gap_budget
from bottletop.rules.entities import NOTHING_ATTACHED, gpu_names, target_gpus, target_pids
from bottletop.rules.load import util_samples
from bottletop.rules.quota import Quota, tightest_quota
from bottletop.store import Missing
from bottletop.tables import Cgroup, Gpu, Process
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.store import View


class CgroupCpuThrottled(Rule):
    """The container's CPU quota runs out and stops the target in mid-work.

    What
        The kernel takes the CPU away from the target's group, or from a parent of it, because its
        quota for the period is used up, and the GPU waits meanwhile.
    Why
        A quota is a rate: eight threads on a two-core quota run for 25 ms and stand still for 75 ms
        of every 100 ms. CPU graphs show a calm average, and the GPU a blur.
    How judged
        At least 10 % of the enforcement periods of the last 30 s ended throttled, and that explains
        at least 20 % of the GPU's lost time. Time burnt in throttled periods counts for the quota,
        not for CPU work. Throttled time sums over run queues, so periods bound it. Without a GPU
        reading the periods alone decide, with less confidence.
    What to do
        Raise or drop the limit (--cpus, resources.limits.cpu), or use no more threads than the
        quota has cores (OMP_NUM_THREADS, torch.set_num_threads).
    When it is wrong
        A few throttled periods at start are normal. Where CPU work alone would fill the gaps, a
        higher quota moves the limit to the CPU.
    References
        Kernel documentation of CFS bandwidth control; ollama issue 17916 (8 threads on 4 CPUs:
        12.07 to 0.27 tokens a second); onyx issue 12351; kserve issue 1031.
    """

    code = "cgroup-cpu-throttled"
    title = "CPU quota used up"
    severity = Severity.WARN
    role = Role.CAUSE
    blames = "the CPU quota"
    needs = (*budget.NEEDS, Cgroup.quota_cores)
    window_s = budget.WINDOW_S
    fire = KofN(5, 8)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "periods": Threshold(0.10, "", "judgement", "share of periods that ended throttled"),
        "periods_near": Threshold(0.03, "", "judgement", "below this share it ends"),
        "periods_crit": Threshold(0.50, "", "judgement", "share from which it is critical"),
        "least": Threshold(40, "periods", "judgement", "periods that must have been seen"),
        "share": Threshold(0.20, "", "tried", "part of the GPU's lost time that it explains"),
        "lost": Threshold(0.10, "", "judgement", "lost share of time of the GPU that matters"),
    }
    advice = (
        "Raise or drop the CPU limit (--cpus, resources.limits.cpu), or run no more threads than "
        "it has cores (OMP_NUM_THREADS, torch.set_num_threads)."
    )
    refuted_by = "nr_throttled in the group's cpu.stat stands still while the GPU still waits."
    next_check = "cat /sys/fs/cgroup/GROUP/cpu.stat twice: nr_throttled against nr_periods."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Hold throttled periods and their part of the GPUs' lost time against the limits."""
        del key
        if not target_pids(view):
            raise Missing(Process, "", NOTHING_ATTACHED)
        if not view.keys(Cgroup):
            raise Missing(Cgroup, "", "the target's CPU quota could not be read")
        quota = tightest_quota(view, self.window_s)
        if quota is None or quota.periods < limits["least"]:
            return Quiet()
        near = quota.throttled_periods >= limits["periods_near"]
        if quota.throttled_periods < limits["periods"]:
            return Quiet(near=near)
        waiting = self._waiting(view, limits) if view.keys(Gpu) else None
        if waiting is not None and not waiting:
            return Quiet()
        where = f", {gpu_names(view, [found.gpu for found in waiting])} waits" if waiting else ""
        crit = quota.throttled_periods >= limits["periods_crit"]
        return Fires(
            text=(
                f"the CPU quota{self._size(view, quota)} ran out in {pct(quota.throttled_periods)} "
                f"of its periods{where}"
            ),
            evidence=self._evidence(view, quota, limits),
            lost_gpu_s_per_s=(
                sum(found.parts[self.code] for found in waiting) if waiting else None
            ),
            severity=Severity.CRIT if crit else None,
            confidence=Confidence.HIGH if waiting else Confidence.MEDIUM,
        )

    def _waiting(self, view: View, limits: Mapping[str, float]) -> list[GapBudget] | None:
        """GPUs that the quota keeps waiting; None where no GPU says how busy it is.

        Raises `Missing` while there is too little to divide any GPU's idle time.
        """
        waiting = []
        divided = False
        pending: Missing | None = None
        for gpu in target_gpus(view):
            try:
                util_samples(view, gpu, self.window_s)
            except Missing:
                continue
            try:
                found = gap_budget(view, gpu)
            except Missing as missing:
                pending = missing
                continue
            divided = True
            if found.lost >= limits["lost"] and found.share(self.code) >= limits["share"]:
                waiting.append(found)
        if pending is not None and not divided:
            raise pending
        return waiting if divided else None

    def _size(self, view: View, quota: Quota) -> str:
        cores = view.last(Cgroup.quota_cores, quota.group)
        return f" of {cores:g} cores" if isinstance(cores, (int, float)) else ""

    def _evidence(
        self, view: View, quota: Quota, limits: Mapping[str, float]
    ) -> tuple[Evidence, ...]:
        items = [
            evidence(
                Cgroup.throttled_periods,
                quota.group,
                round(100 * quota.throttled_periods, 1),
                unit="% of periods",
                threshold=100 * limits["periods"],
                span_s=self.window_s,
            ),
            evidence(
                Cgroup.throttled_us,
                quota.group,
                round(100 * quota.throttled_time, 1),
                unit="% of time",
                span_s=self.window_s,
            ),
        ]
        cores = view.last(Cgroup.quota_cores, quota.group)
        if isinstance(cores, (int, float)):
            items.append(evidence(Cgroup.quota_cores, quota.group, cores))
        return tuple(items)
