"""Rule clocks-held-low."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Severity
from bottletop.rules import clocks, load
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.clocks import HELD_BITS, HW_SLOWDOWN, LIMITERS, bit_share, limited_share
from bottletop.rules.entities import gpu_name
from bottletop.store import Missing
from bottletop.tables import Gpu
from bottletop.tables.gpu import clock_event_text
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.store import View


class ClocksHeldLow(Rule):
    """The clock stays low under load although neither heat nor power limits it.

    What
        The GPU is busy, its SM or memory clock is far below its reference, and no thermal, power or
        brake limiter is active.
    Why
        Locked or application clocks left behind, a sync-boost peer, a stuck performance state or a
        laptop on battery: the card looks busy and is slow.
    How judged
        Utilisation at least 80 % over 10 s, SM clock at least 15 % below the customer boost maximum
        (or memory clock at least 15 % below its maximum) over 20 s, and less than 5 % of that time
        in any thermal, power or brake limiter. The event bits that name a holder are quoted. The
        performance state alone is never judged.
    What to do
        Reset locked clocks (nvidia-smi -rgc -rmc -rac, root), turn persistence mode on, check power
        source and peers.
    When it is wrong
        A card that was calm until a moment ago needs seconds to raise its clock. Dense tensor work
        runs below boost because of power, which the power rules explain. Maximum clocks of some
        parts are out of reach by design.
    References
        NVML clocks event reasons; Meta's cluster monitor, which warns 30 MHz from the expected
        clock; linux-surface issue 501 (139 MHz at 100 %).
    """

    code = "clocks-held-low"
    title = "clocks held low under load"
    severity = Severity.WARN
    role = Role.CAUSE
    blames = "low clocks"
    scope = Gpu
    needs = (
        *clocks.NEEDS,
        *load.NEEDS,
        Gpu.index,
        Gpu.mem_clock_mhz,
        Gpu.mem_clock_max_mhz,
        Gpu.pstate,
    )
    window_s = 20
    fire = KofN(6, 9)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "busy": Threshold(0.80, "", "judgement", "utilisation that counts as load"),
        "clock": Threshold(0.15, "", "judgement", "missing share of the reference clock"),
        "clock_near": Threshold(0.08, "", "judgement", "below this missing share it ends"),
        "limiters": Threshold(0.05, "", "judgement", "time in a limiter that explains the clock"),
    }
    advice = (
        "Reset locked clocks with nvidia-smi -rgc and -rmc (root), enable persistence mode, and "
        "check the power source."
    )
    refuted_by = "The clock reaches its reference within seconds of a heavier kernel."
    next_check = "nvidia-smi -q -d CLOCK,PERFORMANCE shows locked, current and maximum clocks."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Compare SM and memory clock under load with their references."""
        if load.load(view, key, 10, at_least_s=8).busy < limits["busy"]:
            return Quiet()
        clock = clocks.loaded_clock(view, key, self.window_s)
        if clock is None:
            return Quiet()
        memory = self._memory_deficit(view, key)
        worst = max(clock.deficit, memory or 0.0)
        if worst < limits["clock"] or self._explained(view, key, limits["limiters"]):
            return Quiet(near=worst >= limits["clock_near"])
        which, deficit = ("SM", clock.deficit) if worst == clock.deficit else ("memory", worst)
        held = self._holder(view, key)
        return Fires(
            text=(
                f"{which} clock of {gpu_name(view, key)} is {pct(deficit)} below its reference "
                f"under load, without heat or power limit{held}"
            ),
            evidence=self._evidence(view, key, clock, limits),
            lost_gpu_s_per_s=clock.busy * worst,
        )

    def _memory_deficit(self, view: View, key: str) -> float | None:
        try:
            top = view.number(Gpu.mem_clock_max_mhz, key)
            view.number(Gpu.mem_clock_mhz, key)
        except Missing:
            return None
        reads = clocks.busy_reads(view, key, Gpu.mem_clock_mhz, self.window_s)
        if len(reads) < clocks.MIN_BUSY_READS or top <= 0:
            return None
        return max(0.0, 1 - sum(reads) / len(reads) / top)

    def _explained(self, view: View, key: str, limit: float) -> bool:
        """Whether heat, power or the brake was active long enough to be the reason."""
        known = False
        for limiter in LIMITERS:
            try:
                share = limited_share(view, key, limiter, self.window_s)
            except Missing:
                continue
            known = True
            if share >= limit:
                return True
        if not known:
            view.number(Gpu.clock_event_reasons, key)
        return (bit_share(view, key, HW_SLOWDOWN, self.window_s) or 0.0) >= 0.5

    def _holder(self, view: View, key: str) -> str:
        bits = view.last(Gpu.clock_event_reasons, key)
        held = int(bits) & HELD_BITS if isinstance(bits, (int, float)) else 0
        return f" ({clock_event_text(held)})" if held else ""

    def _evidence(
        self, view: View, key: str, clock: clocks.Clock, limits: Mapping[str, float]
    ) -> tuple[Evidence, ...]:
        items = [
            clocks.deficit_evidence(clock, key, limits["clock"], self.window_s),
            evidence(Gpu.util_pct, key, round(100 * clock.busy, 1), span_s=self.window_s),
        ]
        for metric in (Gpu.mem_clock_mhz, Gpu.pstate):
            value = view.last(metric, key)
            if isinstance(value, (int, float)):
                items.append(evidence(metric, key, value))
        return tuple(items)
