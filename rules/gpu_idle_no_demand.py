"""Rule gpu-idle-no-demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Confidence, Severity
from bottletop.rules import budget, load
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.budget import GapBudget, gap_budget
from bottletop.rules.entities import gpu_name, target_gpus, target_pids
from bottletop.tables import Gpu, GpuUtilSample, Stage
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.store import View


class IdleNoDemand(Rule):
    """The GPU is idle because nobody asks for it.

    What
        The idle time of the GPU is time in which no request is in flight.
    Why
        An idle GPU is not a slow GPU. Every starvation rule would fire on quiet traffic without
        this one, which is why it silences them.
    How judged
        Time outside all stages, or inside one that waits for a request, with no CPU work, storage
        wait or copy of the target in it, makes up at least 60 % of the idle time. Without stages: a
        GPU busy less than 10 % while the target does nothing either; without a target: a GPU busy
        less than 10 %.
    What to do
        Nothing. To use the card better: a smaller one, more models on it, batch jobs at night.
    When it is wrong
        A router or queue in front that starves this replica looks the same from here: compare with
        its peers. Work outside all stages that waits on something is taken for no demand.
    References
        NVML clocks event reason "GPU idle"; Azure's node health checks, which leave idle out
        (azurehpc-health-checks 595).
    """

    code = "gpu-idle-no-demand"
    title = "GPU idle, nobody asks"
    severity = Severity.INFO
    role = Role.EXPLAINS
    scope = Gpu
    needs = (*load.NEEDS, *budget.NEEDS)
    window_s = budget.WINDOW_S
    fire = KofN(4, 6)
    clear = KofN(4, 5)
    mutes = (
        "gpu-starved-cpu",
        "gpu-starved-io",
        "gpu-starved-external",
        "h2d-bound",
        "gpu-util-sawtooth",
    )
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "gap": Threshold(0.20, "", "judgement", "idle share of time from which it is worth saying"),
        "no_demand": Threshold(0.60, "", "tried", "part of the idle time in which nobody asks"),
        "no_demand_near": Threshold(0.45, "", "judgement", "below this part it ends"),
        "busy": Threshold(
            0.10, "", "judgement", "utilisation below which a GPU is idle where no stage can tell"
        ),
        "host": Threshold(
            0.40, "", "judgement", "part of the idle time with CPU or storage work that speaks up"
        ),
    }
    advice = (
        "Nothing is wrong here. A smaller card, or more models on this one, would use it better."
    )
    refuted_by = "Requests wait in a queue in front of this process while the GPU is idle."
    next_check = "Look at the queue or router in front of this process, and at its other replicas."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Hold the idle time without demand against the limits."""
        if not target_pids(view):
            return self._without_target(view, key, limits)
        if key not in target_gpus(view):
            return Quiet()
        found = gap_budget(view, key)
        if found.demand is None:
            return self._without_stages(view, found, limits)
        part = found.no_demand / found.gap if found.gap > 0 else 0.0
        if found.gap < limits["gap"] or part < limits["no_demand"]:
            return Quiet(near=found.gap >= limits["gap"] and part >= limits["no_demand_near"])
        idle = self._evidence(found.gpu, found.busy, found.span_s)
        in_flight = evidence(
            Stage.in_flight,
            "",
            round(100 * found.demand.present, 1),
            unit="% of time with work in flight",
            span_s=found.span_s,
        )
        name = gpu_name(view, key)
        return Fires(
            text=f"{name} is idle {pct(found.gap)} of the time; in {pct(part)} of that nobody asks",
            evidence=(*idle, in_flight),
            confidence=Confidence.HIGH,
        )

    def _without_target(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        found = load.load(view, key, self.window_s, at_least_s=budget.AT_LEAST_S)
        if found.busy >= limits["busy"]:
            return Quiet()
        return Fires(
            text=f"{gpu_name(view, key)} is idle: busy {pct(found.busy)} of the time",
            evidence=self._evidence(key, found.busy, found.span_s),
        )

    def _without_stages(self, view: View, found: GapBudget, limits: Mapping[str, float]) -> Answer:
        host_works = any(
            found.parts.get(code, 0.0) >= limits["host"] * found.gap
            for code in (budget.CPU, budget.IO, budget.QUOTA)
        )
        if found.busy >= limits["busy"] or host_works:
            return Quiet()
        return Fires(
            text=f"{gpu_name(view, found.gpu)} is idle and so is the target: nobody seems to ask",
            evidence=self._evidence(found.gpu, found.busy, found.span_s),
            confidence=Confidence.LOW,
        )

    @staticmethod
    def _evidence(gpu: str, busy: float, span_s: float) -> tuple[Evidence, ...]:
        value = round(100 * busy, 1)
        return (evidence(GpuUtilSample.util_pct, gpu, value, unit="%", span_s=span_s),)
