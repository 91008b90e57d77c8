"""How many bytes a second a GPU moves over PCIe: from byte counters, else from GPM's rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.store import Missing
from bottletop.tables import Gpu, GpuActivity

if TYPE_CHECKING:
    from bottletop.model import Metric
    from bottletop.store import View

DIRECTIONS: tuple[tuple[Metric, Metric], ...] = (
    (Gpu.pcie_rx_bytes, GpuActivity.pcie_rx_bytes_per_s),
    (Gpu.pcie_tx_bytes, GpuActivity.pcie_tx_bytes_per_s),
)
"""Counter and rate into the GPU, and out of it."""
NEEDS: tuple[Metric, ...] = tuple(metric for pair in DIRECTIONS for metric in pair)


def traffic(view: View, gpu: str, span_s: float) -> dict[Metric, float]:
    """Mean bytes a second of each direction that can be read, under what it was read from.

    A counter misses nothing; where the driver has none, GPM's rate of each interval is as good.
    """
    found: dict[Metric, float] = {}
    for counter, rate in DIRECTIONS:
        try:
            found[counter] = view.growth(counter, gpu, span_s).per_s
        except Missing:
            values = [v for v in view.series(rate, gpu, span_s).values if v == v]
            if values:
                found[rate] = sum(values) / len(values)
    return found
