"""How much power a GPU drew over a window, and under which limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.model import NS_PER_S
from bottletop.rules.base import evidence
from bottletop.rules.clocks import busy_reads
from bottletop.store import Missing
from bottletop.tables import Gpu

if TYPE_CHECKING:
    from bottletop.model import Evidence
    from bottletop.store import View


def mean_power_w(view: View, gpu: str, span_s: float) -> float:
    """Mean power: from the energy counter, which cannot alias, else of the gauge while busy.

    Raises `Missing`.
    """
    try:
        return view.growth(Gpu.energy_mj, gpu, span_s).per_s / 1000
    except Missing:
        view.number(Gpu.power_w, gpu)
        reads = busy_reads(view, gpu, Gpu.power_w, span_s)
        if not reads:
            raise
        return sum(reads) / len(reads)


def drawn_evidence(
    view: View, gpu: str, power_w: float, threshold_w: float, span_s: float
) -> Evidence:
    """Mean power, under the name of what it was read from."""
    try:
        view.growth(Gpu.energy_mj, gpu, span_s)
        metric = Gpu.energy_mj
    except Missing:
        metric = Gpu.power_w
    return evidence(
        metric, gpu, round(power_w, 1), unit="W", threshold=round(threshold_w, 1), span_s=span_s
    )


def since_limit_set_s(view: View, gpu: str, span_s: float) -> float:
    """Seconds of the window in which the present power limit has been in force, at least 1."""
    times, values = view.series(Gpu.power_limit_w, gpu, span_s)
    for at in range(len(values) - 1, 0, -1):
        if values[at] == values[at] and values[at - 1] == values[at - 1] != values[at]:
            stretch = view.reach_s(Gpu, 1.0)
            return max(1.0, (view.now_ns - times[at]) / NS_PER_S / stretch + 0.5)
    return span_s
