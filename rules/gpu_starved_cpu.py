"""Rule gpu-starved-cpu."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.rules import budget
from bottletop.rules.base import Threshold, evidence
from bottletop.rules.demand import StageKind
from bottletop.rules.entities import gpu_name, thread_name
from bottletop.rules.starvation import (
    LOST,
    LOST_CRIT,
    LOST_NEAR,
    Starvation,
    in_stage,
    stage_evidence,
)
from bottletop.store import Missing
from bottletop.tables import HotThread, Thread
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.rules.budget import GapBudget
    from bottletop.store import View

DELAYED = 0.15
"""Time without a core, in the gaps, from which it is named beside the CPU used."""


class StarvedCpu(Starvation):
    """The GPU waits while the target computes on the CPU.

    What
        Work is there, the GPU is idle for a good part of the time, and in that idle time a thread
        of the target runs on a core.
    Why
        One core at 100 % proves nothing: CUDA waits for the GPU by spinning, so a healthy process
        has a busy core too. What tells them apart is the CPU used *while the GPU is idle*.
        Preprocessing in the loop that also feeds the GPU is the commonest cause of low utilisation.
    How judged
        Over 30 s (10 s at least) the target's busiest thread is laid on the GPU's utilisation, five
        times a second; the line through both, read where utilisation is zero, is the CPU in the
        gaps. Time that the thread was runnable without getting a core counts with it. It must
        explain at least 60 % of the lost time, with at least 20 % of all time lost, and at least
        half of that thread's CPU must be user time. Where cycles are shorter than the sampling,
        bounds from averages and the stages decide, with less confidence.
    What to do
        Take preprocessing out of the loop: worker processes, prefetching at least two batches,
        vectorised or GPU decoding, a larger batch where latency allows.
    When it is wrong
        A thread that polls in the gaps without work looks the same where no stage says that nobody
        asks. Work in other containers is not seen. Overlapping pipelines blur the shares.
    References
        Amazon SageMaker Debugger, CPUBottleneck (weaker: any core, any GPU); Microsoft's study of
        706 low-utilisation jobs (ICSE 2024: 46 % data operations); llama.cpp issue 26487 and ninfer
        issue 301 for spin waits.
    """

    code = budget.CPU
    title = "GPU waits for CPU work"
    blames = "CPU work"
    needs = (*budget.NEEDS, Thread.user_ns, Thread.system_ns)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "lost": LOST,
        "lost_near": LOST_NEAR,
        "lost_crit": LOST_CRIT,
        "share": Threshold(0.60, "", "tried", "part of the lost time spent computing"),
        "share_near": Threshold(0.40, "", "judgement", "below this share an active finding ends"),
        "user": Threshold(
            0.50, "", "judgement", "user part of the thread's CPU; less is page faults or I/O"
        ),
    }
    advice = (
        "Move this work out of the loop that feeds the GPU: worker processes, prefetch of at least "
        "two batches, vectorised or GPU decoding, a larger batch if latency allows."
    )
    refuted_by = (
        "The same thread stays as busy when the GPU is at 100 %: then it polls for the GPU and the "
        "wait is elsewhere."
    )
    next_check = (
        "py-spy record --nonblocking -d 20 -r 50 --pid PID -o cpu.svg names the functions; compare "
        "their share with the stage times shown here."
    )

    def holds(self, view: View, found: GapBudget, limits: Mapping[str, float]) -> bool:
        """User time, not kernel time, makes up the thread's CPU (where the split is known)."""
        user = _user_share(view, found.guilty_thread, found.span_s)
        return user is None or user >= limits["user"]

    def text(self, view: View, found: GapBudget) -> str:
        who = thread_name(view, found.guilty_thread) if found.guilty_thread else "the target"
        where = in_stage(found, StageKind.HOST, StageKind.OTHER)
        delayed = found.guilty_delay >= DELAYED
        core = f", {pct(found.guilty_delay)} more waiting for a core" if delayed else where
        return (
            f"{gpu_name(view, found.gpu)} waits {pct(found.lost)} of the time while {who} computes"
            f" at {pct(min(1.0, found.guilty_cores))} of a core{core}"
        )

    def sharper_advice(self, view: View, found: GapBudget) -> str:
        """Other work on the cores needs another remedy than own work does."""
        del view
        if found.guilty_delay < DELAYED:
            return ""
        return f"Free cores first: this thread waits for one. {self.advice}"

    def own_evidence(self, view: View, found: GapBudget) -> tuple[Evidence, ...]:
        cpu = evidence(
            HotThread.cpu_ns,
            found.guilty_thread,
            round(found.guilty_cores, 2),
            unit="cores while the GPU is idle",
            span_s=found.span_s,
        )
        user = _user_share(view, found.guilty_thread, found.span_s)
        delay = evidence(
            HotThread.wait_ns,
            found.guilty_thread,
            round(found.guilty_delay, 2),
            unit="cores waited for",
            span_s=found.span_s,
        )
        split = (
            ()
            if user is None
            else (
                evidence(
                    Thread.user_ns, found.guilty_thread, round(100 * user), unit="% user time"
                ),
            )
        )
        return (cpu, delay, *split, *stage_evidence(found, StageKind.HOST, StageKind.OTHER))


def _user_share(view: View, thread: str, span_s: float) -> float | None:
    """Part of a thread's CPU that is user time; None where the split is unknown."""
    return view.memo(("user", thread, span_s), lambda: _measured_share(view, thread, span_s))


def _measured_share(view: View, thread: str, span_s: float) -> float | None:
    try:
        user = view.growth(Thread.user_ns, thread, span_s).amount
        total = user + view.growth(Thread.system_ns, thread, span_s).amount
    except Missing:
        return None
    return user / total if total > 0 else None
