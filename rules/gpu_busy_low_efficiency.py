"""Rule gpu-busy-low-efficiency."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from bottletop.model import Confidence, Severity
from bottletop.rules import clocks, load
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.drawn import drawn_evidence, mean_power_w
from bottletop.rules.entities import gpu_name
from bottletop.store import Missing
from bottletop.tables import Gpu, GpuActivity
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Metric
    from bottletop.store import View

LIMITED = 0.05
"""Share of time in a limiter from which a low power or clock needs no other reason."""
CLOCK_DEFICIT = 0.10
DRAM_ADVICE = (
    "This is what small batches of a language model do: each token reads all weights. More "
    "requests in a batch, or quantised weights and KV cache, raise what comes out of it."
)
ADVICE_BLIND = (
    "Find out which it is: nsys profile --trace=cuda -d 10 on a test run shows copies against "
    "kernels, and a larger batch shows whether kernels are too small."
)


class _Activity(NamedTuple):
    sm: float
    dram: float | None


class BusyLowEfficiency(Rule):
    """The GPU is busy all the time and does little in it.

    What
        A kernel runs nearly always, but the SMs, or the power, show that little of the part works.
    Why
        GPU utilisation says that one kernel ran, not how much of the card it used: one thread makes
        100 %. Small batches, tiny kernels and copies between kernels look like a full card.
    How judged
        Utilisation at least 85 % over 30 s, clocks within 10 % of their reference and no heat,
        power or brake limit. With GPM (Hopper and newer): SMs active less than 50 %; where memory
        bandwidth is at least 60 % of its peak the work is memory-bound, which is information only.
        Without GPM: mean power at most 55 % of the limit. Then copies and small kernels cannot be
        told apart; the text says so and names what would tell, and confidence is low.
    What to do
        Larger batches or more requests at once, CUDA graphs or torch.compile, fused attention, half
        precision; for copies see h2d-bound.
    When it is wrong
        Power limits of laptops and of cards with displays are not what their SMs draw. Kernels that
        wait for other GPUs (collectives) are active without working.
    References
        DCGM's user guide on SM activity (0.5 is ineffective use, DRAM tops out near 0.8); kineto's
        note on GPU utilisation.
    """

    code = "gpu-busy-low-efficiency"
    title = "GPU busy but not working hard"
    severity = Severity.ADVICE
    role = Role.PATTERN
    scope = Gpu
    needs = (
        *clocks.NEEDS,
        *load.NEEDS,
        Gpu.index,
        Gpu.energy_mj,
        Gpu.power_w,
        Gpu.power_limit_w,
        GpuActivity.sm_pct,
        GpuActivity.dram_pct,
    )
    window_s = 30
    fire = KofN(20, 30)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "busy": Threshold(0.85, "", "judgement", "utilisation that counts as busy"),
        "sm": Threshold(50, "%", "cited", "SM activity below which a busy GPU is badly used"),
        "sm_near": Threshold(60, "%", "judgement", "above this it ends"),
        "dram": Threshold(60, "%", "judgement", "memory bandwidth that explains waiting SMs"),
        "power": Threshold(0.55, "", "judgement", "part of the power limit, without GPM"),
        "power_near": Threshold(0.65, "", "judgement", "above this it ends, without GPM"),
    }
    advice = (
        "Give it more at once (batch, concurrency), merge small kernels (CUDA graphs, "
        "torch.compile), and use half precision and fused attention."
    )
    refuted_by = "Throughput does not rise with twice the batch or twice the requests in flight."
    next_check = "nsys profile --trace=cuda -d 10 on a test run: kernels, gaps and copies."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Hold a busy GPU's SM activity, or its power, against the limits."""
        busy = load.load(view, key, self.window_s, at_least_s=self.window_s / 2).busy
        if busy < limits["busy"] or self._held(view, key):
            return Quiet()
        activity = self._activity(view, key)
        if activity is None:
            return self._by_power(view, key, busy, limits)
        sm, dram = activity
        if sm >= limits["sm"]:
            return Quiet(near=sm < limits["sm_near"])
        shown = [
            evidence(Gpu.util_pct, key, round(100 * busy, 1), span_s=self.window_s),
            evidence(GpuActivity.sm_pct, key, round(sm, 1), threshold=limits["sm"]),
        ]
        text = f"{gpu_name(view, key)} is busy {pct(busy)} of the time with {sm:.0f} % of its SMs"
        memory_bound = dram is not None and dram >= limits["dram"]
        if dram is not None:
            shown.append(
                evidence(GpuActivity.dram_pct, key, round(dram, 1), threshold=limits["dram"])
            )
            text += f"; memory bandwidth {dram:.0f} %"
            text += ", which is what it waits for" if memory_bound else ""
        return Fires(
            text=text,
            evidence=tuple(shown),
            severity=Severity.INFO if memory_bound else None,
            confidence=Confidence.HIGH if dram is not None else Confidence.MEDIUM,
            advice=DRAM_ADVICE if memory_bound else "",
        )

    def _by_power(self, view: View, key: str, busy: float, limits: Mapping[str, float]) -> Answer:
        """All that parts before Hopper tell: how much power they draw for it."""
        limit_w = view.number(Gpu.power_limit_w, key)
        power_w = mean_power_w(view, key, self.window_s)
        share = power_w / limit_w if limit_w > 0 else 1.0
        if share > limits["power"]:
            return Quiet(near=share <= limits["power_near"])
        return Fires(
            text=(
                f"{gpu_name(view, key)} is busy {pct(busy)} at {pct(share)} of its power; "
                "copies or small kernels: no GPM to tell, a profile (nsys) would"
            ),
            evidence=(
                evidence(Gpu.util_pct, key, round(100 * busy, 1), span_s=self.window_s),
                drawn_evidence(view, key, power_w, limits["power"] * limit_w, self.window_s),
                evidence(Gpu.power_limit_w, key, round(limit_w, 1)),
            ),
            confidence=Confidence.LOW,
            advice=ADVICE_BLIND,
        )

    def _activity(self, view: View, key: str) -> _Activity | None:
        sm = self._mean(view, GpuActivity.sm_pct, key)
        # Exactly nothing beside a busy GPU is a counter that does not count here.
        return _Activity(sm, self._mean(view, GpuActivity.dram_pct, key)) if sm else None

    def _mean(self, view: View, metric: Metric, key: str) -> float | None:
        values = [v for v in view.series(metric, key, self.window_s).values if v == v]
        return sum(values) / len(values) if values else None

    def _held(self, view: View, key: str) -> bool:
        """Whether the clock is held down, which is another rule's finding."""
        for limiter in clocks.LIMITERS:
            try:
                if clocks.limited_share(view, key, limiter, self.window_s) >= LIMITED:
                    return True
            except Missing:
                continue
        try:
            clock = clocks.loaded_clock(view, key, self.window_s)
        except Missing:
            return False
        return clock is not None and clock.deficit > CLOCK_DEFICIT
