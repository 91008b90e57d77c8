"""Rule clocks-held-low."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from bottletop.model import Confidence, Severity
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


SHORT_S = 4
"""Seconds of load after which a clock far below its reference is no ramp any more."""
HOT_C = 80
"""From here on heat is a likely reason where no limiter can be read."""
SLOW_PSTATE = 5
"""Performance states from here on are for playing films and for nothing at all."""
_FORCED_LOW_ADVICE = (
    "Check the power source (on battery, AC adapter not seen, supply too small), reset locked "
    "clocks with nvidia-smi -rgc and -rmc and enable persistence mode with -pm 1 (root)."
)


class _Low(NamedTuple):
    """The clock that is furthest below its reference."""

    name: str
    clock: clocks.Clock
    learnt: bool
    """The reference is the highest clock that was seen, for want of a better."""


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
        performance state alone is never judged. Below half of the reference four seconds of load
        are enough, and a GPU below 80 °C where no limiter can be read: a healthy card has raised
        its clock by then. Where no maximum is told, the highest clock seen in five minutes stands
        in, and only half of that or less counts.
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
        Gpu.power_w,
        Gpu.temp_c,
    )
    window_s = 20
    fire = KofN(6, 9)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "busy": Threshold(0.80, "", "judgement", "utilisation that counts as load"),
        "clock": Threshold(0.15, "", "judgement", "missing share of the reference clock"),
        "clock_near": Threshold(0.08, "", "judgement", "below this missing share it ends"),
        "deep": Threshold(0.50, "", "judgement", "missing share that four seconds of load show"),
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
        floor = self._floor(view, key, limits)
        if floor is None:
            return Quiet()
        low = self._lowest(view, key, floor, limits["deep"])
        if low is None:
            return Quiet()
        if low.clock.deficit < floor:
            return Quiet(near=low.clock.deficit >= limits["clock_near"])
        explained = self._explained(view, key, limits["limiters"])
        if explained:
            return Quiet(near=True)
        if explained is None and (low.clock.deficit < limits["deep"] or self._hot(view, key)):
            raise Missing(Gpu.clock_event_reasons, key, "no limiter can be read")
        deep = low.clock.deficit >= limits["deep"] and low.name == "SM"
        text = self._forced_low(view, key, low) if deep else self._below(view, key, low, explained)
        return Fires(
            text=text,
            evidence=self._evidence(view, key, low, limits),
            lost_gpu_s_per_s=low.clock.busy * low.clock.deficit,
            confidence=Confidence.LOW if explained is None or low.learnt else Confidence.MEDIUM,
            advice=_FORCED_LOW_ADVICE if deep else "",
        )

    def _floor(self, view: View, key: str, limits: Mapping[str, float]) -> float | None:
        """The missing share of clock that counts; None without load.

        After some seconds of load any; after four, when a healthy card may still be raising its
        clock, only half of it or more.
        """
        recent = view.series(Gpu.util_pct, key, SHORT_S).values
        busy = sum(recent) >= 100 * limits["busy"] * len(recent)
        short = len(recent) >= SHORT_S and busy and recent[-1] >= clocks.BUSY_PCT
        try:
            if load.load(view, key, 10, at_least_s=8).busy >= limits["busy"]:
                return limits["clock"]
        except Missing:
            if not short:
                raise
        return limits["deep"] if short else None

    def _lowest(self, view: View, key: str, floor: float, deep: float) -> _Low | None:
        """The clock that lacks most; None when the GPU hardly worked. Raises `Missing`.

        Where no maximum is told, the highest clock that was seen is a reference at most too low:
        what is far below it is low, what is not may still be.
        """
        try:
            clock = clocks.loaded_clock(view, key, self.window_s)
        except Missing:
            learnt = self._below_own_best(view, key)
            if learnt is None or learnt.clock.deficit < max(floor, deep):
                raise
            return learnt
        if clock is None:
            return None
        memory = self._memory_deficit(view, key)
        if memory is not None and memory > clock.deficit:
            return _Low("memory", clock._replace(deficit=memory), learnt=False)
        return _Low("SM", clock, learnt=False)

    def _below_own_best(self, view: View, key: str) -> _Low | None:
        found = [
            _Low(name, clock, learnt=True)
            for name, metric in (("SM", Gpu.sm_clock_mhz), ("memory", Gpu.mem_clock_mhz))
            if (clock := clocks.against_own_best(view, key, metric, self.window_s)) is not None
        ]
        return max(found, key=lambda low: low.clock.deficit, default=None)

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

    def _explained(self, view: View, key: str, limit: float) -> bool | None:
        """Whether heat, power or the brake was active long enough; None where nothing tells."""
        known = False
        for limiter in LIMITERS:
            try:
                share = limited_share(view, key, limiter, self.window_s)
            except Missing:
                continue
            known = True
            if share >= limit:
                return True
        slowed = bit_share(view, key, HW_SLOWDOWN, self.window_s)
        if not known and slowed is None:
            return None
        return (slowed or 0.0) >= 0.5

    @staticmethod
    def _hot(view: View, key: str) -> bool:
        temp = view.last(Gpu.temp_c, key)
        return isinstance(temp, (int, float)) and temp >= HOT_C

    def _forced_low(self, view: View, key: str, low: _Low) -> str:
        """A clock below half of its reference: the performance state does not follow the load."""
        power = view.last(Gpu.power_w, key)
        at = f"{low.clock.mean_mhz:.0f} MHz"
        at += f" and {power:.0f} W" if isinstance(power, (int, float)) else ""
        state = view.last(Gpu.pstate, key)
        stuck = isinstance(state, (int, float)) and state >= SLOW_PSTATE
        busy = sum(reads := self._recent(view, key)) / len(reads)
        text = (
            f"{gpu_name(view, key)} is {busy:.0f} % busy at only {at}, {pct(low.clock.deficit)} "
            f"below its reference: performance state forced low"
        )
        if stuck:
            text += f" (P{state:.0f} under load{self._neighbour(view, key)})"
        return text

    @staticmethod
    def _recent(view: View, key: str) -> list[float]:
        return [v for v in view.series(Gpu.util_pct, key, SHORT_S).values if v == v] or [0.0]

    @staticmethod
    def _neighbour(view: View, key: str) -> str:
        """ ", GPU 2 runs P0" where a busy card beside it does better."""
        for other in view.keys(Gpu):
            state, busy = view.last(Gpu.pstate, other), view.last(Gpu.util_pct, other)
            if other == key or not isinstance(state, (int, float)):
                continue
            if isinstance(busy, (int, float)) and busy >= clocks.BUSY_PCT and state < SLOW_PSTATE:
                return f", {gpu_name(view, other)} runs P{state:.0f}"
        return ""

    def _below(self, view: View, key: str, low: _Low, explained: bool | None) -> str:
        why = "without heat or power limit" if explained is False else "and no limiter can be read"
        return (
            f"{low.name} clock of {gpu_name(view, key)} is {pct(low.clock.deficit)} below its "
            f"reference under load, {why}{self._holder(view, key)}"
        )

    def _holder(self, view: View, key: str) -> str:
        bits = view.last(Gpu.clock_event_reasons, key)
        held = int(bits) & HELD_BITS if isinstance(bits, (int, float)) else 0
        return f" ({clock_event_text(held)})" if held else ""

    def _evidence(
        self, view: View, key: str, low: _Low, limits: Mapping[str, float]
    ) -> tuple[Evidence, ...]:
        clock = low.clock
        best = f"MHz, {clock.reference_mhz:.0f} was seen"
        metric = Gpu.mem_clock_mhz if low.name == "memory" else Gpu.sm_clock_mhz
        items = [
            evidence(metric, key, round(clock.mean_mhz), unit=best, span_s=self.window_s)
            if low.learnt
            else clocks.deficit_evidence(clock, key, limits["clock"], self.window_s),
            evidence(Gpu.util_pct, key, round(100 * clock.busy, 1), span_s=self.window_s),
        ]
        for metric in (Gpu.mem_clock_mhz, Gpu.pstate, Gpu.power_w):
            value = view.last(metric, key)
            if isinstance(value, (int, float)):
                items.append(evidence(metric, key, value))
        return tuple(items)
