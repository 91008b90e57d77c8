"""Rule gpu-util-sawtooth."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Confidence, Severity
from bottletop.rules import budget, load, sawtooth
from bottletop.rules.base import Answer, Fires, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.budget import gap_budget
from bottletop.rules.entities import gpu_name, target_gpus
from bottletop.rules.sawtooth import Sawtooth, gpu_sawtooth
from bottletop.store import Missing
from bottletop.tables import Gpu, GpuUtilSample
from bottletop.units import percent_text as pct
from bottletop.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.store import View


class UtilSawtooth(Rule):
    """Utilisation swings between busy and idle at a steady period.

    What
        The GPU works, stops, works, stops: at least four cycles of steady length with a swing of at
        least 35 points.
    Why
        It is the face of a serial pipeline: prepare, run, prepare, run. The mean looks like "half
        loaded"; the swing shows that two things take turns that could overlap.
    How judged
        A Schmitt trigger on the 3rd and 97th percentile of the driver's own samples over two
        minutes; the period must be steady (scaled MAD at most 0.35 of the median) and at least four
        sampling windows long, since faster swings show up with a false period. Slopes lower the
        confidence. Idle phases in which nobody asks make it quiet.
    What to do
        Read the cause beside it; this finding only says that there is one. Overlap the stages.
    When it is wrong
        A client that asks at a steady pace looks the same where no stage says whether work is in
        flight. Swings faster than four windows are not visible at this sampling: silence is no
        proof. Phases of training such as evaluation or checkpoints are periodic and wanted.
    References
        Amazon SageMaker Debugger, LowGPUUtilization (95th percentile against 5th); frozen settings
        from a study on synthetic series (precision 0.99, recall 0.995 for periods of five windows
        and more, on clean shapes).
    """

    code = "gpu-util-sawtooth"
    title = "GPU utilisation is a sawtooth"
    severity = Severity.ADVICE
    role = Role.PATTERN
    scope = Gpu
    needs = (*load.NEEDS, *budget.NEEDS)
    window_s = sawtooth.WINDOW_S
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "amplitude": Threshold(
            sawtooth.AMPLITUDE_PCT, "%", "tried", "swing between the 3rd and 97th percentile"
        ),
        "no_demand": Threshold(
            0.60, "", "judgement", "part of the idle time without demand that explains the swing"
        ),
    }
    advice = "See the cause that leads the verdict; then let preparing overlap with running."
    refuted_by = "The swing follows the requests: in the idle phases nothing is in flight."
    next_check = (
        "Mark the stages with the probe (from bottletop.probe import stage) and see which one "
        "fills the idle phase."
    )

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Look for regular swings that demand does not explain."""
        if key not in target_gpus(view):
            return Quiet()
        found = gpu_sawtooth(view, key)
        if found is None or found.amplitude_pct < limits["amplitude"]:
            return Quiet()
        if not found.regular or _nobody_asks(view, key, limits["no_demand"]):
            return Quiet(near=not found.regular)
        return Fires(
            text=_text(view, key, found),
            evidence=_evidence(key, found, limits["amplitude"]),
            confidence=Confidence.LOW if found.ramped else Confidence.HIGH,
        )


def _text(view: View, key: str, found: Sawtooth) -> str:
    shape = ", in slopes" if found.ramped else ""
    return (
        f"{gpu_name(view, key)} swings between {found.low_pct:.0f} % and {found.high_pct:.0f} % "
        f"every {seconds_text(found.period_s)}, busy {pct(found.duty)} of each cycle{shape}"
    )


def _evidence(key: str, found: Sawtooth, amplitude: float) -> tuple[Evidence, ...]:
    swing = evidence(
        GpuUtilSample.util_pct,
        key,
        round(found.amplitude_pct),
        threshold=amplitude,
        span_s=sawtooth.WINDOW_S,
    )
    period = evidence(GpuUtilSample.util_pct, key, round(found.period_s, 3), unit="s a cycle")
    cycles = evidence(
        GpuUtilSample.util_pct, key, found.cycles, unit="cycles", threshold=sawtooth.CYCLES
    )
    return swing, period, cycles


def _nobody_asks(view: View, key: str, limit: float) -> bool:
    try:
        found = gap_budget(view, key)
    except Missing:
        return False
    return found.gap > 0 and found.no_demand / found.gap >= limit
