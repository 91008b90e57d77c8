"""Rule gpu-contended."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Absent, Confidence, Severity
from bottletop.rules import load
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.entities import NEEDS as ENTITY_NEEDS
from bottletop.rules.entities import gpu_name, gpu_rows, target_gpus, target_pids
from bottletop.store import Missing
from bottletop.tables import Gpu, GpuActivity, GpuProcess
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.store import View


class GpuContended(Rule):
    """Another process uses the same GPU at the same time.

    What
        Beside the target, processes that do not belong to it run kernels on its GPU.
    Why
        The driver slices time: while one runs, the other waits, and both look fully busy. Nothing
        in the target's own numbers shows it, except that every pass takes longer.
    How judged
        The driver's utilisation by process: others together at least 10 % while the target itself
        runs. The loss is what the others take. Without a target, two or more busy processes on one
        GPU are advice: which of them is the victim is not known. Where no utilisation by process
        can be read but GPM counts context switches (Hopper and newer), 5 % of the time in them.
    What to do
        Give each its own GPU, schedule them apart, or share on purpose: MPS, MIG.
    When it is wrong
        In a container the driver names host pids that match nothing here. Under MPS the server
        stands for its clients. Display servers use a few percent and stay below the limit.
    References
        nvmlDeviceGetProcessUtilization and its traps (go-nvml issue 51, nvtop issue 110);
        onnxruntime/mobius issue 369 (frame times in two modes beside another job).
    """

    code = "gpu-contended"
    title = "another process on the GPU"
    severity = Severity.WARN
    role = Role.CAUSE
    blames = "other processes"
    scope = Gpu
    needs = (
        *load.NEEDS,
        *ENTITY_NEEDS,
        GpuProcess.sm_util_pct,
        GpuProcess.process,
        GpuActivity.context_switch_pct,
    )
    window_s = 10
    fire = KofN(5, 8)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "others": Threshold(10, "%", "judgement", "utilisation of others, summed"),
        "others_near": Threshold(5, "%", "judgement", "below this it ends"),
        "switching": Threshold(5, "%", "judgement", "time in context switches, from GPM"),
        "own": Threshold(1, "%", "judgement", "utilisation of the target that counts as running"),
    }
    advice = (
        "Move one of them to another GPU or another hour, or share on purpose with MPS or MIG "
        "partitions."
    )
    refuted_by = "The target's pass times do not change when the other process pauses."
    next_check = "nvidia-smi pmon -c 10 lists utilisation by process; ask who owns the other pid."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Sum the utilisation of the processes on this GPU, the target's and the others'."""
        if key not in target_gpus(view):
            return Quiet()
        if load.load(view, key, self.window_s).busy < 0.05:
            return Quiet()
        try:
            shares = self._shares(view, key)
        except Missing:
            found = self._switching(view, key, limits)
            if found is None:
                raise
            return found
        pids = target_pids(view)
        own = {pid: share for pid, share in shares.items() if pid in pids}
        if pids and own:
            others = {pid: share for pid, share in shares.items() if pid not in pids}
            return self._beside_target(view, key, sum(own.values()), others, limits)
        busy = {pid: share for pid, share in shares.items() if share >= limits["others"]}
        if len(busy) < 2:
            return Quiet()
        names = _list(view, key, busy)
        return Fires(
            text=f"{len(busy)} busy processes share {gpu_name(view, key)}: {names}",
            evidence=_evidence(key, busy, limits),
            severity=Severity.ADVICE,
            confidence=Confidence.LOW,
        )

    def _switching(self, view: View, key: str, limits: Mapping[str, float]) -> Answer | None:
        """Where nobody says which process runs: whether contexts are switched. None: no GPM."""
        series = view.series(GpuActivity.context_switch_pct, key, self.window_s).values
        values = [value for value in series if value == value]
        if not values:
            return None
        mean = sum(values) / len(values)
        if mean < limits["switching"]:
            return Quiet(near=mean >= limits["switching"] / 2)
        return Fires(
            text=(
                f"{gpu_name(view, key)} spends {mean:.0f} % of its time in switching contexts: "
                "several processes share it"
            ),
            evidence=(
                evidence(
                    GpuActivity.context_switch_pct,
                    key,
                    round(mean, 1),
                    threshold=limits["switching"],
                    span_s=self.window_s,
                ),
            ),
            lost_gpu_s_per_s=mean / 100,
        )

    def _shares(self, view: View, key: str) -> dict[int, float]:
        """Utilisation in percent by pid. Raises `Missing` where none of them can be read."""
        shares: dict[int, float] = {}
        refused: Missing | None = None
        seen = False
        for row in gpu_rows(view).get(key, ()):
            seen = True
            value = view.last(GpuProcess.sm_util_pct, row)
            pid = view.last(GpuProcess.pid, row)
            if isinstance(value, (int, float)) and isinstance(pid, (int, float)):
                shares[int(pid)] = value
            else:
                why = str(value) if isinstance(value, Absent) else "no pid"
                refused = Missing(GpuProcess.sm_util_pct, row, why)
        if not seen:
            raise Missing(GpuProcess, key, "the driver lists no process on a busy GPU")
        if refused is not None and not shares:
            raise refused
        return shares

    def _beside_target(
        self,
        view: View,
        key: str,
        own: float,
        others: dict[int, float],
        limits: Mapping[str, float],
    ) -> Answer:
        taken = sum(others.values())
        if own < limits["own"] or taken < limits["others"]:
            return Quiet(near=taken >= limits["others_near"])
        busiest = {pid: share for pid, share in others.items() if share >= 1}
        return Fires(
            text=(
                f"{_list(view, key, busiest)} runs on {gpu_name(view, key)} too and takes "
                f"{pct(taken / 100)} of its time, the target {pct(own / 100)}"
            ),
            evidence=_evidence(key, busiest, limits),
            lost_gpu_s_per_s=min(1.0, taken / 100),
            confidence=Confidence.HIGH,
        )


def _list(view: View, gpu: str, shares: Mapping[int, float]) -> str:
    """The busiest two by name and pid."""
    names = []
    for pid in sorted(shares, key=lambda pid: (-shares[pid], pid))[:2]:
        name = view.text(GpuProcess.process, f"{gpu}/{pid}")
        names.append(f"{name} (pid {pid})" if name else f"pid {pid}")
    more = f" and {len(shares) - 2} more" if len(shares) > 2 else ""
    return ", ".join(names) + more


def _evidence(
    gpu: str, shares: Mapping[int, float], limits: Mapping[str, float]
) -> tuple[Evidence, ...]:
    return tuple(
        evidence(GpuProcess.sm_util_pct, f"{gpu}/{pid}", shares[pid], threshold=limits["others"])
        for pid in sorted(shares, key=lambda pid: (-shares[pid], pid))[:4]
    )
