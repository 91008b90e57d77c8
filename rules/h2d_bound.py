"""Rule h2d-bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from bottletop.model import Severity
from bottletop.rules import budget
from bottletop.rules.base import Answer, Fires, Quiet, Threshold, evidence
from bottletop.rules.entities import NOTHING_ATTACHED, gpu_name, target_pids
from bottletop.rules.load import load
from bottletop.rules.pcie import traffic
from bottletop.rules.starvation import LOST, LOST_CRIT, LOST_NEAR, Starvation
from bottletop.store import Missing
from bottletop.tables import Gpu, Process
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence, Metric
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
        From the driver's byte counters of both directions, or GPM's rates where there are none,
        against generation x lanes x 0.8. Gauges of PCIe throughput are not used live: they see 20
        ms a read. Without a target: the GPU works but waits at least 20 % of the time, and one
        direction carries at least 75 % of what the link can at its present generation and width.
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
    needs = (*budget.NEEDS, Gpu.pcie_gen)
    title = "GPU waits for copies"
    blames = "copies"
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "lost": LOST,
        "lost_near": LOST_NEAR,
        "lost_crit": LOST_CRIT,
        "share": Threshold(0.40, "", "tried", "part of the lost time that the copies need"),
        "share_near": Threshold(0.30, "", "tried", "below this share an active finding ends"),
        "full": Threshold(0.75, "", "judgement", "part of its raw rate from which a link is full"),
    }
    advice = (
        "Pin host buffers, overlap copies with compute, send uint8 and convert on the GPU, and "
        "merge small copies."
    )
    refuted_by = "Utilisation does not rise when the same input is kept on the device and reused."
    next_check = (
        "nsys profile --trace=cuda -d 10 on a test run shows size and duration of every copy."
    )

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Divide the gaps where a target is known; without one, look for a full link."""
        if target_pids(view):
            return super().judge(view, key, limits)
        return self._full_link(view, key, limits)

    def _full_link(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Without a target nothing says what a gap is for, but a full link says enough.

        A link that is not full may still be what short copies wait for. Raises `Missing` then.
        """
        found = load(view, key, self.window_s, at_least_s=budget.AT_LEAST_S)
        lost = 1.0 - found.busy
        link = _link(view, key, self.window_s)
        if found.busy < budget.WORK_BUSY or lost < limits["lost"]:
            return Quiet(near=lost >= limits["lost_near"])
        if link is None or link.share < limits["full"]:
            raise Missing(Process, "", NOTHING_ATTACHED)
        name, most = gpu_name(view, key), link.most_bytes_per_s / 1e6
        return Fires(
            text=(
                f"{name} waits {pct(lost)} of the time while its PCIe link, x{link.width} "
                f"Gen{link.gen}, moves {link.bytes_per_s / 1e6:.0f} MB/s, near its ceiling of "
                f"{most:.0f} MB/s"
            ),
            evidence=(
                evidence(
                    link.metric,
                    key,
                    round(link.bytes_per_s),
                    unit="B/s",
                    threshold=round(limits["full"] * link.most_bytes_per_s),
                    span_s=found.span_s,
                ),
                evidence(Gpu.pcie_width, key, link.width),
                evidence(Gpu.pcie_gen, key, link.gen),
                evidence(Gpu.util_pct, key, round(100 * found.busy, 1), span_s=found.span_s),
            ),
            lost_gpu_s_per_s=lost,
            severity=Severity.CRIT if lost >= limits["lost_crit"] else None,
        )

    def text(self, view: View, found: GapBudget) -> str:
        return (
            f"{gpu_name(view, found.gpu)} waits {pct(found.lost)} of the time; copies over PCIe "
            f"fill {pct(found.share(self.code))} of that"
        )

    def own_evidence(self, view: View, found: GapBudget) -> tuple[Evidence, ...]:
        return tuple(
            evidence(metric, found.gpu, round(rate), unit="B/s")
            for metric, rate in traffic(view, found.gpu, found.span_s).items()
        )


class _Link(NamedTuple):
    """How full a GPU's PCIe link is, in its busier direction."""

    metric: Metric
    bytes_per_s: float
    most_bytes_per_s: float
    gen: int
    width: int

    @property
    def share(self) -> float:
        return self.bytes_per_s / self.most_bytes_per_s


def _link(view: View, gpu: str, span_s: float) -> _Link | None:
    """The link at its present generation: while bytes move it is not lowered for idleness. None
    where it or its traffic cannot be read."""
    rates = traffic(view, gpu, span_s)
    gen, top = view.last(Gpu.pcie_gen, gpu), view.last(Gpu.pcie_gen_max, gpu)
    at = gen if isinstance(gen, (int, float)) else top
    width = view.last(Gpu.pcie_width, gpu)
    if not rates or not isinstance(at, (int, float)) or not isinstance(width, (int, float)):
        return None
    lane = budget.GBYTES_PER_LANE.get(int(at), 0.0)
    busier = max(rates, key=lambda metric: rates[metric])
    if lane * width <= 0:
        return None
    return _Link(busier, rates[busier], lane * 1e9 * width, int(at), int(width))
