"""Rule preprocess-on-critical-path."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Severity
from bottletop.rules import demand as demand_
from bottletop.rules import load
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.demand import Demand, StageKind, demand
from bottletop.rules.entities import NEEDS as ENTITY_NEEDS
from bottletop.rules.entities import NOTHING_ATTACHED, target_gpus, target_pids
from bottletop.store import Missing
from bottletop.tables import Gpu, Process, Stage
from bottletop.units import percent_text as pct
from bottletop.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.store import View


class PreprocessOnCriticalPath(Rule):
    """Preparing and running a request take turns instead of overlapping.

    What
        Stages such as decode, resize, tokenise or postprocess take a large part of each request,
        and the GPU stands still meanwhile.
    Why
        Even work that pegs no core delays every request when it comes before or after the model in
        the same line. Overlapped, it would cost nothing.
    How judged
        From stage timings over 30 s: such stages take at least 30 % of the time in which work is in
        flight, and at most 20 % of them can overlap with GPU work, since together they fit into
        that time. Without a GPU reading the stages that run the model stand in for it.
    What to do
        Prepare batch N+1 while batch N runs: a second thread or process and a queue of two.
    When it is wrong
        Names decide which stages prepare: a picture "decode" is one, a language model's is not.
        Passes of several workers overlap in ways that sums cannot show.
    References
        PyTorch profiler's advice on data loading (5 % of a step); Triton's compute-input share.
    """

    code = "preprocess-on-critical-path"
    title = "preparing and running take turns"
    severity = Severity.ADVICE
    role = Role.PATTERN
    needs = (*demand_.NEEDS, *load.NEEDS, *ENTITY_NEEDS)
    window_s = 30
    fire = KofN(5, 8)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "share": Threshold(0.30, "", "judgement", "part of the time in flight spent preparing"),
        "share_near": Threshold(0.22, "", "judgement", "below this part it ends"),
        "overlap": Threshold(0.20, "", "judgement", "part of it that overlaps with GPU work"),
    }
    advice = (
        "Prepare the next batch while this one runs: a second thread or process and a queue of two."
    )
    refuted_by = "The GPU is as busy during these stages as outside them."
    next_check = (
        "Compare the sum of the stages with the time of a whole request: equal means that nothing "
        "overlaps."
    )

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Hold the share of preparing stages, and how far they overlap, against the limits."""
        del key
        found = demand(view, self.window_s)
        if not target_pids(view):
            raise Missing(Process, "", NOTHING_ATTACHED)
        if found is None:
            raise Missing(Stage, "", "no stage timings; mark stages with the probe")
        if found.span_s < 8:
            raise Missing(Stage, "", f"needs 8 s of stage timings, has {found.span_s:.0f} s")
        preparing = found.share(StageKind.HOST)
        if found.present <= 0 or preparing <= 0:
            return Quiet()
        part = preparing / found.present
        running = self._running(view, found)
        overlap = min(1.0, max(0.0, (preparing + running - found.present) / preparing))
        if part < limits["share"] or overlap > limits["overlap"]:
            return Quiet(near=part >= limits["share_near"] and overlap <= limits["overlap"] + 0.1)
        longest = found.longest(StageKind.HOST)
        name = longest.name if longest is not None else "preparing"
        each = f" ({seconds_text(longest.mean_s)} each)" if longest and longest.mean_s else ""
        return Fires(
            text=(
                f"{pct(part)} of each request goes to preparing, most in {name}{each}, while the "
                "model waits"
            ),
            evidence=self._evidence(found, part, overlap, limits),
        )

    def _running(self, view: View, found: Demand) -> float:
        """Share of time in which the model runs: the busiest GPU's, else its stages'."""
        busy = []
        for gpu in target_gpus(view):
            try:
                busy.append(load.load(view, gpu, self.window_s).busy)
            except Missing:
                continue
        if busy:
            return max(busy)
        running = found.share(StageKind.DEVICE)
        if running <= 0:
            raise Missing(Gpu, "", "no GPU reading and no stage that runs the model")
        return running

    def _evidence(
        self, found: Demand, part: float, overlap: float, limits: Mapping[str, float]
    ) -> tuple[Evidence, ...]:
        span_s = round(found.span_s)
        return (
            evidence(
                Stage.self_ns,
                "",
                round(100 * part, 1),
                unit="% of time in flight",
                threshold=100 * limits["share"],
                span_s=span_s,
            ),
            evidence(
                Stage.self_ns,
                "",
                round(100 * overlap, 1),
                unit="% overlaps with the GPU",
                threshold=100 * limits["overlap"],
                span_s=span_s,
            ),
            *(
                evidence(Stage.self_ns, use.key, round(100 * use.occupancy, 1), unit="% of time")
                for use in found.stages
                if use.kind is StageKind.HOST and use.occupancy >= 0.01
            ),
        )
