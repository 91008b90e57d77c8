"""Detector of sawtooth utilisation: a GPU that swings between busy and idle at a steady period.

Settings are frozen from a study on synthetic series: a Schmitt trigger on the 3rd and 97th
percentile, regularity by MAD, and the gate T >= 4 W, where W is the averaging window of a sample
or the polling interval. Below that gate a perfectly regular *wrong* period appears (a true 1.5 W
reads as 3 W), so nothing is said there: "not visible at this sampling" is not "no sawtooth".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from operator import mul, sub
from statistics import median
from typing import TYPE_CHECKING

from bottletop.model import NS_PER_S
from bottletop.rules.load import util_samples

if TYPE_CHECKING:
    from bottletop.rings import Series
    from bottletop.store import View

WINDOW_S = 120.0
AMPLITUDE_PCT = 35.0
TAIL = 0.03
LOW_LEVEL, HIGH_LEVEL = 0.3, 0.7
MAD_CV, STD_CV = 0.35, 0.6
CYCLES = 4
INTERMITTENT_CYCLES = 3
RAMPED_CYCLES, RAMPED_MAD_CV = 8, 0.25
"""Slopes are what random plateaus and walks have too, so they need more of a rhythm."""
GATE_WINDOWS = 4.0
ALIAS_WINDOWS = 6.0
"""Up to this period samples between the levels mean that a faster swing is seen through the
sampling (a true 2.4 W reads as 5 W), so nothing is said; above it they mean slopes."""
RAMP_SLACK = 0.12


@dataclass(frozen=True, slots=True)
class Sawtooth:
    """Swings of one utilisation series."""

    rises_ns: tuple[int, ...]
    """Moments at which a busy phase began: the cycle marks on a history."""
    period_s: float
    """Median time between two of them."""
    duty: float
    """Share of a cycle spent busy, 0 to 1."""
    low_pct: float
    high_pct: float
    regular: bool
    """False: it swings, but at no steady period."""
    ramped: bool
    """Edges take longer than sampling explains: slopes, not a clean square. Less certain."""

    @property
    def cycles(self) -> int:
        """Complete cycles seen."""
        return len(self.rises_ns) - 1

    @property
    def amplitude_pct(self) -> float:
        return self.high_pct - self.low_pct


def detect(series: Series, window_s: float) -> Sawtooth | None:
    """Find swings in utilisation in percent, oldest first, without NaN.

    `window_s` is what one sample averages over or the polling interval, whichever is longer. None
    where nothing swings, or where it swings too fast for this sampling to tell its period.
    """
    times, values = series
    if len(values) < 4 * CYCLES:
        return None
    ordered = sorted(values)
    tail = int(TAIL * (len(ordered) - 1))
    low, high = ordered[tail], ordered[-1 - tail]
    if high - low < AMPLITUDE_PCT:
        return None
    enter_low = low + LOW_LEVEL * (high - low)
    enter_high = low + HIGH_LEVEL * (high - low)
    rises, falls, between = _edges(series, enter_low, enter_high)
    if len(rises) <= INTERMITTENT_CYCLES:
        return None
    gaps_s = [(after - before) / NS_PER_S for before, after in pairwise(rises)]
    period_s = median(gaps_s)
    if period_s < GATE_WINDOWS * window_s:
        return None
    spread = 1.4826 * median([abs(gap - period_s) for gap in gaps_s]) / period_s
    ramped = between / len(times) > 0.8 * window_s / period_s + RAMP_SLACK
    if ramped and period_s < ALIAS_WINDOWS * window_s:
        return None
    mean_s = sum(gaps_s) / len(gaps_s)
    deviation_s = sqrt(max(0.0, sum(map(mul, gaps_s, gaps_s)) / len(gaps_s) - mean_s**2))
    cycles, allowed = (RAMPED_CYCLES, RAMPED_MAD_CV) if ramped else (CYCLES, MAD_CV)
    regular = len(gaps_s) >= cycles and spread <= allowed and deviation_s <= STD_CV * mean_s
    half_window_ns = round(window_s * NS_PER_S / 2)
    return Sawtooth(
        rises_ns=tuple([t_ns - half_window_ns for t_ns in rises]),
        period_s=period_s,
        duty=_duty(rises, falls),
        low_pct=low,
        high_pct=high,
        regular=regular,
        ramped=ramped,
    )


def _edges(series: Series, enter_low: float, enter_high: float) -> tuple[list[int], list[int], int]:
    """Stamps of rising and falling edges, and how many samples lie between the two levels."""
    rises: list[int] = []
    falls: list[int] = []
    between = 0
    busy: bool | None = None
    for t_ns, value in zip(series.t_ns, series.values.tolist(), strict=True):
        if value >= enter_high:
            if busy is False:
                rises.append(t_ns)
            busy = True
        elif value <= enter_low:
            if busy and rises:
                falls.append(t_ns)
            busy = False
        else:
            between += 1
    return rises, falls, between


def _duty(rises: list[int], falls: list[int]) -> float:
    """Busy share of the complete cycles. Every rise but the last has its fall."""
    busy_ns: int = sum(map(sub, falls, rises[:-1]))
    return busy_ns / (rises[-1] - rises[0])


def gpu_sawtooth(view: View, gpu: str) -> Sawtooth | None:
    """Swings of a GPU over the last two minutes, from its finest source. Raises `Missing`."""
    return view.memo(("sawtooth", gpu), lambda: _gpu_sawtooth(view, gpu))


def _gpu_sawtooth(view: View, gpu: str) -> Sawtooth | None:
    samples = util_samples(view, gpu, WINDOW_S)
    return detect(samples.series, samples.window_s)
