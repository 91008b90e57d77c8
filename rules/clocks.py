"""What holds a GPU's clock down under load, and how much speed that costs.

Time in a limiter comes from the driver's nanosecond counters (NVML fields 74, 76, 77, 79, 269-271),
which miss nothing between two reads; where a counter is absent, the share of reads in which its
event bit was set stands in. A bit that is set does not yet cost anything: the clock, held against
the card's own reference while kernels run, says what it costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bottletop.rules.base import evidence
from bottletop.rules.load import load
from bottletop.store import Missing
from bottletop.tables import Gpu

if TYPE_CHECKING:
    from bottletop.model import Evidence, Metric
    from bottletop.store import View

BUSY_PCT = 50.0
BUSY_SPAN_S = 30.0
MIN_BUSY_READS = 4
OWN_BEST_S = 300.0
"""How far back the highest clock seen is looked for where no maximum is told."""

SW_POWER_CAP = 0x004
HW_SLOWDOWN = 0x008
SW_THERMAL = 0x020
HW_THERMAL = 0x040
POWER_BRAKE = 0x080
HELD_BITS = 0x002 | 0x010 | 0x100 | 0x200 | 0x400
"""Applications clocks, sync boost, display, board limit, reliability."""

LIMITERS: dict[str, tuple[Metric, int]] = {
    "power": (Gpu.throttle_sw_power_ns, SW_POWER_CAP),
    "thermal": (Gpu.throttle_sw_thermal_ns, SW_THERMAL),
    "hw-thermal": (Gpu.throttle_hw_thermal_ns, HW_THERMAL),
    "brake": (Gpu.throttle_power_brake_ns, POWER_BRAKE),
}
NEEDS: tuple[Metric, ...] = (
    Gpu.util_pct,
    Gpu.sm_clock_mhz,
    Gpu.sm_clock_boost_mhz,
    Gpu.sm_clock_max_mhz,
    Gpu.clock_event_reasons,
    Gpu.clock_event_known,
    *(metric for metric, _ in LIMITERS.values()),
)


class Clock(NamedTuple):
    """SM clock of one GPU while it worked."""

    mean_mhz: float
    reference_mhz: float
    deficit: float
    """1 - mean / reference, never below 0: the share of speed that is missing."""
    busy: float
    """Mean utilisation of the last 30 s, 0 to 1."""

    @property
    def lost_gpu_s_per_s(self) -> float:
        """GPU-seconds lost a second to the low clock."""
        return self.busy * self.deficit


def deficit_evidence(clock: Clock, gpu: str, allowed: float, span_s: float) -> Evidence:
    """The mean clock, held against the reference less the deficit that is allowed."""
    return evidence(
        Gpu.sm_clock_mhz,
        gpu,
        round(clock.mean_mhz),
        threshold=round(clock.reference_mhz * (1 - allowed)),
        span_s=span_s,
    )


def busy_reads(view: View, gpu: str, metric: Metric, span_s: float) -> list[float]:
    """Readings of a gauge of `Gpu` taken while at least half the driver's window was busy."""
    util = view.series(Gpu.util_pct, gpu, span_s).values
    values = view.series(metric, gpu, span_s).values
    return [
        value
        for busy, value in zip(util, values, strict=True)
        if busy >= BUSY_PCT and value == value
    ]


def reference_mhz(view: View, gpu: str) -> float:
    """The clock the part should reach: customer boost, else its maximum. Raises `Missing`.

    What is learnt from the card itself never lowers it.
    """
    try:
        return view.number(Gpu.sm_clock_boost_mhz, gpu)
    except Missing:
        return view.number(Gpu.sm_clock_max_mhz, gpu)


def against_own_best(view: View, gpu: str, metric: Metric, span_s: float) -> Clock | None:
    """A clock under load against the highest that was seen of it: a reference at most too low.

    For sources that tell no maximum. None when the GPU hardly worked.
    """
    reads = busy_reads(view, gpu, metric, span_s)
    seen = [value for value in view.series(metric, gpu, OWN_BEST_S).values if value == value]
    best = max(seen, default=0.0)
    if len(reads) < MIN_BUSY_READS or best <= 0:
        return None
    mean = sum(reads) / len(reads)
    return Clock(mean, best, max(0.0, 1 - mean / best), load(view, gpu, BUSY_SPAN_S).busy)


def loaded_clock(view: View, gpu: str, span_s: float) -> Clock | None:
    """The clock under load, None when the GPU hardly worked. Raises `Missing`."""
    return view.memo(("loaded clock", gpu, span_s), lambda: _loaded_clock(view, gpu, span_s))


def _loaded_clock(view: View, gpu: str, span_s: float) -> Clock | None:
    reference = reference_mhz(view, gpu)
    view.number(Gpu.sm_clock_mhz, gpu)
    reads = busy_reads(view, gpu, Gpu.sm_clock_mhz, span_s)
    if len(reads) < MIN_BUSY_READS or reference <= 0:
        return None
    mean = sum(reads) / len(reads)
    deficit = max(0.0, 1 - mean / reference)
    return Clock(mean, reference, deficit, load(view, gpu, BUSY_SPAN_S).busy)


def limited_share(view: View, gpu: str, limiter: str, span_s: float) -> float:
    """Share of the window in which `limiter` held the clock down, 0 to 1. Raises `Missing`."""
    return view.memo(
        ("limited", gpu, limiter, span_s), lambda: _limited_share(view, gpu, limiter, span_s)
    )


def _limited_share(view: View, gpu: str, limiter: str, span_s: float) -> float:
    metric, bit = LIMITERS[limiter]
    try:
        return min(1.0, view.growth(metric, gpu, span_s).per_s / 1e9)
    except Missing:
        reads = bit_share(view, gpu, bit, span_s)
        if reads is None:
            raise
        return reads


def bit_share(view: View, gpu: str, bits: int, span_s: float) -> float | None:
    """Share of reads in which any of `bits` was set; None with fewer than five reads, and where the
    source cannot tell any of them."""
    known = view.last(Gpu.clock_event_known, gpu)
    if isinstance(known, (int, float)) and not int(known) & bits:
        return None
    masks = [int(v) for v in view.series(Gpu.clock_event_reasons, gpu, span_s).values if v == v]
    if len(masks) < 5:
        return None
    return sum(1 for mask in masks if mask & bits) / len(masks)


def lost_to(view: View, gpu: str, limiters: tuple[str, ...], span_s: float) -> float | None:
    """GPU-seconds a second lost to these limiters: the clock's loss, split by time in each.

    None when the GPU hardly worked.
    """
    clock = loaded_clock(view, gpu, span_s)
    if clock is None:
        return None
    shares = {}
    for limiter in LIMITERS:
        try:
            shares[limiter] = limited_share(view, gpu, limiter, span_s)
        except Missing:
            shares[limiter] = 0.0
    total = sum(shares.values())
    own = sum(shares[limiter] for limiter in limiters)
    return clock.lost_gpu_s_per_s * own / total if total > 0 else 0.0
