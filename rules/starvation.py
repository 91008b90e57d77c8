"""What the rules share that say why a GPU waits although work is there.

All of them read the same gap budget and differ in whose share they name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Severity
from bottletop.rules import budget
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.budget import GapBudget, gap_budget
from bottletop.rules.entities import target_gpus
from bottletop.tables import Gpu, GpuUtilSample, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence, Metric
    from bottletop.rules.demand import StageKind
    from bottletop.store import View

LOST = Threshold(0.20, "", "judgement", "share of time that the GPU waits although work is there")
LOST_NEAR = Threshold(0.12, "", "judgement", "below this much lost time an active finding ends")
LOST_CRIT = Threshold(0.50, "", "judgement", "lost share of time from which it is critical")


class Starvation(Rule):
    """Shared part: the gap budget is read, `code`'s share of the lost time is held to a limit."""

    severity = Severity.WARN
    role = Role.CAUSE
    scope = Gpu
    needs: ClassVar[tuple[Metric, ...]] = budget.NEEDS
    window_s = budget.WINDOW_S
    fire = KofN(5, 8)
    clear = KofN(10, 12)

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Hold this cause's share of the GPU's lost time against the limits."""
        if key not in target_gpus(view):
            return Quiet()
        found = gap_budget(view, key)
        share = found.share(self.code)
        near = found.lost >= limits["lost_near"] and share >= limits["share_near"]
        if not found.work or found.lost < limits["lost"] or share < limits["share"]:
            return Quiet(near=near)
        if not self.holds(view, found, limits):
            return Quiet(near=near)
        crit = found.lost >= limits["lost_crit"]
        return Fires(
            text=self.text(view, found),
            evidence=(*self.common_evidence(found, share, limits), *self.own_evidence(view, found)),
            lost_gpu_s_per_s=found.parts[self.code],
            severity=Severity.CRIT if crit else None,
            confidence=found.confidence,
            advice=self.sharper_advice(view, found),
        )

    def holds(self, view: View, found: GapBudget, limits: Mapping[str, float]) -> bool:
        """What else must be true of this cause."""
        del view, found, limits
        return True

    def text(self, view: View, found: GapBudget) -> str:
        """One sentence with the numbers."""
        raise NotImplementedError

    def sharper_advice(self, view: View, found: GapBudget) -> str:
        """Advice that fits these numbers better than the general one; empty for that one."""
        del view, found
        return ""

    def own_evidence(self, view: View, found: GapBudget) -> tuple[Evidence, ...]:
        """Numbers that only this cause has."""
        raise NotImplementedError

    @staticmethod
    def common_evidence(
        found: GapBudget, share: float, limits: Mapping[str, float]
    ) -> tuple[Evidence, ...]:
        gpu, span_s = found.gpu, found.span_s
        busy = evidence(
            GpuUtilSample.util_pct, gpu, round(100 * found.busy, 1), unit="%", span_s=span_s
        )
        lost = evidence(
            Gpu.util_pct,
            gpu,
            round(100 * found.lost, 1),
            unit="% of time lost",
            threshold=100 * limits["lost"],
            span_s=span_s,
        )
        explained = evidence(
            Gpu.util_pct,
            gpu,
            round(100 * share, 1),
            unit="% of lost time explained",
            threshold=100 * limits["share"],
            span_s=span_s,
        )
        return busy, lost, explained


def stage_evidence(found: GapBudget, *kinds: StageKind) -> tuple[Evidence, ...]:
    """The longest stages of these kinds."""
    if found.demand is None:
        return ()
    uses = [use for use in found.demand.stages if use.kind in kinds and use.occupancy >= 0.01]
    return tuple(
        evidence(
            Stage.self_ns,
            use.key,
            round(100 * use.occupancy, 1),
            unit="% of time",
            span_s=found.span_s,
        )
        for use in uses[:3]
    )


def in_stage(found: GapBudget, *kinds: StageKind) -> str:
    """ ", mostly in decode" where a stage of these kinds says so."""
    use = found.demand.longest(*kinds) if found.demand is not None else None
    return f", mostly in {use.name}" if use is not None else ""
