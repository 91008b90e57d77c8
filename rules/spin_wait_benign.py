"""Rule spin-wait-benign."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Severity
from bottletop.rules import activity as activity_
from bottletop.rules import load
from bottletop.rules.activity import busiest_thread
from bottletop.rules.base import Answer, Fires, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.entities import NEEDS as ENTITY_NEEDS
from bottletop.rules.entities import gpu_name, target_gpus, thread_name
from bottletop.tables import Gpu, GpuUtilSample, HotThread
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.store import View


class SpinWaitBenign(Rule):
    """A core at 100 % while the GPU is fully busy: it polls, it is not the bottleneck.

    What
        A thread of the target uses a whole core, and the GPU it works with has no gaps.
    Why
        CUDA's default wait polls when there are more cores than contexts. "One core at 100 %" is
        therefore true of healthy and of starved processes, and is often mistaken for the cause.
    How judged
        The busiest thread runs at 95 % of a core or more over 30 s while the GPU is busy 90 % or
        more. CPU counts against the GPU only where the GPU has gaps.
    What to do
        Nothing, as long as cores are free. Where CPU is scarce, blocking synchronisation
        (cudaDeviceScheduleBlockingSync) frees the core for about half a percent of throughput.
    When it is wrong
        A thread that launches many tiny kernels is as busy and may be what limits a GPU that looks
        full: utilisation says that some kernel ran, not that the GPU was filled.
    References
        llama.cpp issue 26487, ninfer issue 301 (blocking wait: 0.4 to 0.6 % of throughput),
        torchrec issue 4353 (a neighbour on the CPU ran 28 % slower under spinning).
    """

    code = "spin-wait-benign"
    title = "a core polls for the GPU"
    severity = Severity.INFO
    role = Role.EXPLAINS
    scope = Gpu
    needs = (*load.NEEDS, *activity_.NEEDS, *ENTITY_NEEDS)
    mutes = ("gpu-starved-cpu",)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "core": Threshold(0.95, "cores", "cited", "CPU of the busiest thread"),
        "busy": Threshold(0.90, "", "cited", "GPU utilisation without gaps worth naming"),
        "core_near": Threshold(0.85, "cores", "judgement", "below this much CPU it ends"),
        "busy_near": Threshold(0.85, "", "judgement", "below this utilisation it ends"),
    }
    advice = (
        "Nothing to do while cores are free; where CPU is scarce, let CUDA block instead of spin "
        "(cudaDeviceScheduleBlockingSync)."
    )
    refuted_by = "Throughput rises when this thread gets a faster core at the same GPU clock."
    next_check = (
        "py-spy dump --nonblocking --pid PID: a polling thread stands in synchronize or a copy to "
        "the host."
    )

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Look for a pegged thread beside a GPU without gaps."""
        if key not in target_gpus(view):
            return Quiet()
        found = load.load(view, key, self.window_s, at_least_s=10)
        if found.busy < limits["busy_near"]:
            return Quiet()
        thread, cores = busiest_thread(view, key, self.window_s)
        if found.busy < limits["busy"] or cores < limits["core"]:
            return Quiet(near=cores >= limits["core_near"])
        return Fires(
            text=(
                f"{thread_name(view, thread)} uses a whole core while {gpu_name(view, key)} is "
                f"{pct(found.busy)} busy: it polls for the GPU, it does not slow it"
            ),
            evidence=(
                evidence(
                    HotThread.cpu_ns,
                    thread,
                    round(cores, 2),
                    unit="cores",
                    threshold=limits["core"],
                    span_s=found.span_s,
                ),
                evidence(
                    GpuUtilSample.util_pct,
                    key,
                    round(100 * found.busy, 1),
                    threshold=100 * limits["busy"],
                    span_s=found.span_s,
                ),
            ),
        )
