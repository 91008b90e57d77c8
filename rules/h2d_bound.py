"""Rule h2d-bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.rules import budget
from bottletop.rules.base import Threshold, evidence
from bottletop.rules.entities import gpu_name
from bottletop.rules.starvation import LOST, LOST_CRIT, LOST_NEAR, Starvation
from bottletop.tables import Gpu
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.rules.budget import GapBudget
    from bottletop.store import View


class H2dBound(Starvation):
    """The GPU waits for copies over its PCIe link.

    What
        Work is there, the GPU is idle for a good part of the time, and the bytes moved need at
        least 40 % of that idle time at the link's practical rate.
    Why
        Copy engines are not kernels: a GPU that waits for its input reads as idle. Many small or
        pageable copies, or float images sent where bytes would do, fill the link.
    How judged
        From the driver's byte counters of both directions against generation x lanes x 0.8. Gauges
        of PCIe throughput are not used: they see 20 ms a read.
    What to do
        Pin host buffers, overlap copies with compute on a second stream, send uint8 and convert on
        the GPU, keep tensors on the device, merge small copies.
    When it is wrong
        Copies that overlap with kernels cost nothing but are counted here too. Links that are not
        PCIe (C2C, NVLink) and GPUDirect Storage are not seen.
    References
        NVML fields 197 and 198; DCGM notes on PCIe metrics; Nsight Systems rules on memory copies.
    """

    code = budget.COPY
    title = "GPU waits for copies"
    blames = "copies"
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "lost": LOST,
        "lost_near": LOST_NEAR,
        "lost_crit": LOST_CRIT,
        "share": Threshold(0.40, "", "tried", "part of the lost time that the copies need"),
        "share_near": Threshold(0.30, "", "tried", "below this share an active finding ends"),
    }
    advice = (
        "Pin host buffers, overlap copies with compute, send uint8 and convert on the GPU, and "
        "merge small copies."
    )
    refuted_by = "Utilisation does not rise when the same input is kept on the device and reused."
    next_check = (
        "nsys profile --trace=cuda -d 10 on a test run shows size and duration of every copy."
    )

    def text(self, view: View, found: GapBudget) -> str:
        return (
            f"{gpu_name(view, found.gpu)} waits {pct(found.lost)} of the time; copies over PCIe "
            f"fill {pct(found.share(self.code))} of that"
        )

    def own_evidence(self, view: View, found: GapBudget) -> tuple[Evidence, ...]:
        items = []
        for metric in (Gpu.pcie_rx_bytes, Gpu.pcie_tx_bytes):
            rate = view.growth(metric, found.gpu, found.span_s).per_s
            items.append(evidence(metric, found.gpu, round(rate), unit="B/s"))
        return tuple(items)
