"""Rule thermal-throttle."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Absent, Confidence, Severity
from bottletop.rules import clocks, load
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.clocks import limited_share, loaded_clock, lost_to
from bottletop.rules.entities import gpu_name
from bottletop.store import Missing
from bottletop.tables import Gpu
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.store import View

THERMAL = ("thermal", "hw-thermal")


class ThermalThrottle(Rule):
    """The GPU's clock is cut because it is too hot.

    What
        The driver or the hardware limits the clock to hold a temperature, under load, and the clock
        is measurably below its reference.
    Why
        A badly cooled card looks busy at 100 % and works at two thirds of its speed.
    How judged
        The driver's counters of time in software and hardware thermal slowdown, at least 5 % of the
        last 30 s (the share of reads with the bit set where counters are missing), together with a
        clock at least 5 % below the customer boost maximum while kernels run. Hardware slowdown,
        which halves the clock, is critical. Where no maximum clock is told, 20 % of the time under
        load is enough, and what it costs stays open. The bare "hardware slowdown" bit flickers at
        changes of performance state and is not counted.
    What to do
        Air flow, fans, dust, inlet temperature, neighbours; or a power limit 10 % lower, which
        often costs less than the throttling does.
    When it is wrong
        Fan speed is what was asked for, not what turns. Memory may be the hot part while the die is
        cool: its temperature is shown where the card reports it.
    References
        NVML fields 269 and 270 and clocks event reasons; gpud's hardware-slowdown check; gpuprof
        (82 °C and 15 % of clock).
    """

    code = "thermal-throttle"
    title = "heat cuts the clock"
    severity = Severity.WARN
    role = Role.CAUSE
    blames = "heat"
    scope = Gpu
    needs = (*clocks.NEEDS, *load.NEEDS, Gpu.index, Gpu.temp_c, Gpu.temp_mem_c)
    fire = KofN(5, 8)
    clear = KofN(20, 24)
    mutes = ("clocks-held-low", "power-cap-at-limit")
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "time": Threshold(0.05, "", "judgement", "share of time in thermal slowdown"),
        "time_near": Threshold(0.01, "", "judgement", "below this share it ends"),
        "time_alone": Threshold(
            0.20, "", "judgement", "share of time that speaks where no maximum clock is told"
        ),
        "clock": Threshold(0.05, "", "judgement", "missing share of the reference clock"),
    }
    advice = (
        "Improve cooling: fans, dust, inlet temperature, free slots beside the card. A power limit "
        "10 % lower may give more speed than throttling does."
    )
    refuted_by = (
        "The clock stays as low after the card has cooled by 10 degrees under the same load."
    )
    next_check = "nvidia-smi -q -d TEMPERATURE,PERFORMANCE shows limits and active reasons."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Hold time in thermal slowdown and the clock against the limits."""
        soft, hard = _share(view, key, "thermal"), _share(view, key, "hw-thermal")
        if soft is None and hard is None:
            limited_share(view, key, "thermal", self.window_s)
        share = min(1.0, (soft or 0.0) + (hard or 0.0))
        try:
            clock = loaded_clock(view, key, self.window_s)
        except Missing:
            if share < limits["time_alone"] or not self._worked(view, key):
                raise
            return self._without_reference(view, key, share, hard or 0.0, limits)
        near = share >= limits["time_near"]
        if clock is None or share < limits["time"] or clock.deficit < limits["clock"]:
            return Quiet(near=near)
        cut = pct(clock.deficit)
        temp = view.last(Gpu.temp_c, key)
        at = f" at {temp:.0f} °C" if isinstance(temp, (int, float)) else ""
        return Fires(
            text=(
                f"heat limits {gpu_name(view, key)} {pct(share)} of the time{at}: clock {cut} "
                f"below {clock.reference_mhz:.0f} MHz"
            ),
            evidence=self._evidence(view, key, share, clock, limits),
            lost_gpu_s_per_s=lost_to(view, key, THERMAL, self.window_s),
            severity=Severity.CRIT if (hard or 0.0) >= limits["time"] else None,
        )

    def _worked(self, view: View, key: str) -> bool:
        reads = clocks.busy_reads(view, key, Gpu.util_pct, self.window_s)
        return len(reads) >= clocks.MIN_BUSY_READS

    def _without_reference(
        self, view: View, key: str, share: float, hard: float, limits: Mapping[str, float]
    ) -> Answer:
        """Heat limits a card whose full clock is not told: how much that costs stays open."""
        temp = view.last(Gpu.temp_c, key)
        at = f" at {temp:.0f} °C" if isinstance(temp, (int, float)) else ""
        return Fires(
            text=(
                f"heat limits {gpu_name(view, key)} {pct(share)} of the time{at}; what that costs "
                "cannot be read: no maximum clock"
            ),
            evidence=self._evidence(view, key, share, None, limits),
            severity=Severity.CRIT if hard >= limits["time_alone"] else None,
            confidence=Confidence.LOW,
        )

    def _evidence(
        self,
        view: View,
        key: str,
        share: float,
        clock: clocks.Clock | None,
        limits: Mapping[str, float],
    ) -> tuple[Evidence, ...]:
        items = [
            evidence(
                Gpu.throttle_sw_thermal_ns,
                key,
                round(100 * share, 1),
                unit="% of time",
                threshold=100 * limits["time"],
                span_s=self.window_s,
            ),
        ]
        if clock is not None:
            items.append(clocks.deficit_evidence(clock, key, limits["clock"], self.window_s))
        for metric in (Gpu.temp_c, Gpu.temp_mem_c):
            value = view.last(metric, key)
            if not isinstance(value, Absent):
                items.append(evidence(metric, key, value))
        return tuple(items)


def _share(view: View, key: str, limiter: str) -> float | None:
    try:
        return limited_share(view, key, limiter, ThermalThrottle.window_s)
    except Missing:
        return None
