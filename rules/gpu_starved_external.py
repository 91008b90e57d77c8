"""Rule gpu-starved-external."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.rules import budget
from bottletop.rules.base import KofN, Threshold
from bottletop.rules.demand import StageKind
from bottletop.rules.entities import gpu_name
from bottletop.rules.starvation import LOST, LOST_CRIT, LOST_NEAR, Starvation, stage_evidence
from bottletop.units import percent_text as pct
from bottletop.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.rules.budget import GapBudget
    from bottletop.store import View


class StarvedExternal(Starvation):
    """The GPU waits for another service: a tool, a retrieval, a network call.

    What
        Requests are open, yet neither the GPU nor the target's CPU nor its storage has anything
        to do.
    Why
        Around a model sit agents, tools, vector stores and remote calls. While they answer, the GPU
        is idle and nothing on this host is busy, which every utilisation graph shows as "no load".
    How judged
        Idle time inside stages whose name says so (tool, retrieve, rpc, http, search ...), plus
        idle time inside other host stages that no CPU, storage, copy or quota explains. It must
        make up at least 60 % of the lost time, with at least 20 % of all time lost.
    What to do
        Run independent calls in parallel, batch retrievals, cache answers, and let more requests
        into the system so that others fill the gap.
    When it is wrong
        Without stages an open request cannot be told from no request; the rule then says nothing
        and the verdict says that it cannot tell. A stage that waits for a lock looks the same.
    References
        Field reports of agents idle during tool calls (ingero-io/ingero); NVIDIA Nsight Systems'
        GPU-gap rule, which names no cause.
    """

    code = budget.EXTERNAL
    title = "GPU waits for another service"
    blames = "other services"
    fire = KofN(6, 9)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "lost": LOST,
        "lost_near": LOST_NEAR,
        "lost_crit": LOST_CRIT,
        "share": Threshold(0.60, "", "tried", "part of the lost time with an open request only"),
        "share_near": Threshold(0.40, "", "judgement", "below this share an active finding ends"),
    }
    advice = (
        "Run independent calls in parallel, batch and cache retrievals, and admit more concurrent "
        "requests so that others use the GPU meanwhile."
    )
    refuted_by = (
        "The stage's time does not change when the remote call is replaced by a canned answer."
    )
    next_check = (
        "ss -tnpi | grep pid=PID shows which connection waits; time that call alone, outside the "
        "service."
    )

    def text(self, view: View, found: GapBudget) -> str:
        use = found.demand.longest(StageKind.EXTERNAL) if found.demand is not None else None
        if use is None and found.demand is not None:
            use = found.demand.longest(StageKind.OTHER, StageKind.HOST, StageKind.INPUT)
        where = f" in {use.name}" if use is not None else ""
        each = f" ({seconds_text(use.mean_s)} each)" if use is not None and use.mean_s else ""
        return (
            f"{gpu_name(view, found.gpu)} waits {pct(found.lost)} of the time for something outside"
            f" this host's CPU and disks{where}{each}"
        )

    def own_evidence(self, view: View, found: GapBudget) -> tuple[Evidence, ...]:
        del view
        kinds = (StageKind.EXTERNAL, StageKind.OTHER, StageKind.HOST, StageKind.INPUT)
        return stage_evidence(found, *kinds)
