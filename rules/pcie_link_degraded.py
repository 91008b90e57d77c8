"""Rule pcie-link-degraded."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from bottletop.model import Confidence, Severity
from bottletop.rules import load, pcie
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.budget import GBYTES_PER_LANE
from bottletop.rules.clocks import BUSY_PCT
from bottletop.rules.entities import gpu_name
from bottletop.store import Missing
from bottletop.tables import Gpu
from bottletop.tables.gpu import DEDICATED
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.store import View

RECENT_S = 10
MIN_READS = 10


class Links(NamedTuple):
    """What a link was at its best in the window, and what it could be."""

    gen: int
    width: int
    gen_max: int
    width_max: int

    @property
    def bytes_per_s(self) -> float:
        """Raw rate of one direction, 0 for a generation that nobody knows."""
        return GBYTES_PER_LANE.get(self.gen, 0.0) * 1e9 * self.width

    @property
    def share(self) -> float:
        """Part of the possible rate that is there."""
        most = GBYTES_PER_LANE.get(self.gen_max, 0.0) * 1e9 * self.width_max
        return self.bytes_per_s / most if most else 1.0


class PcieLinkDegraded(Rule):
    """A PCIe link that is at work has fewer lanes, or a lower generation, than card and slot allow.

    What
        While bytes move or kernels run, the link works at a lower width or generation than its
        maximum.
    Why
        A link at a quarter of its lanes makes every copy four times as long, and nothing else on
        the host shows it: not the load, not the CPU.
    How judged
        The best generation and width read in 20 s in which the GPU worked at least 80 % of the time
        or moved at least 5 % of what the link carries, against the lower of card and slot. Idle
        links lower their generation to save power: without work nothing is judged. Parts that share
        memory with their CPU, and report a link only for form's sake, are left out.
    What to do
        Reseat the card, try another slot or riser, look at the slot's wiring and at the BIOS
        settings for lanes (bifurcation) and generation.
    When it is wrong
        Slots that are wired with fewer lanes than they have, on purpose. The driver's maximum is
        that of card and slot together; a chipset in between is not seen.
    References
        nvidia-smi help on PCIe generation (reduced when not in use); DCGM diagnostics; nvtop issues
        6 (idle Gen1) and 426 (placeholders of a C2C part).
    """

    code = "pcie-link-degraded"
    title = "PCIe link below its width or generation"
    severity = Severity.WARN
    role = Role.PATTERN
    scope = Gpu
    needs = (
        *load.NEEDS,
        Gpu.index,
        Gpu.memory_kind,
        Gpu.pcie_gen,
        Gpu.pcie_width,
        Gpu.pcie_gen_max,
        Gpu.pcie_width_max,
        *pcie.NEEDS,
    )
    window_s = 20
    fire = KofN(15, 20)
    clear = KofN(10, 10)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "moving": Threshold(0.05, "", "judgement", "part of the link's rate that counts as moving"),
        "busy": Threshold(0.80, "", "judgement", "utilisation over 10 s that counts as load"),
    }
    advice = (
        "Reseat the card or try another slot or riser; see the BIOS for the slot's lanes and "
        "generation. lspci -vv shows LnkCap (can) against LnkSta (is)."
    )
    refuted_by = "nvidia-smi -q -i GPU during a large copy shows the maximum width and generation."
    next_check = (
        "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv -l 1 "
        "-i GPU, during a large copy."
    )

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Hold the best link of the window against its maximum, where it worked."""
        kind = view.last(Gpu.memory_kind, key)
        if isinstance(kind, (int, float)) and kind != DEDICATED:
            return Quiet()
        if self._whole(view, key):
            return Quiet()
        loaded = self._loaded(view, key, limits["busy"])
        found = self._link(view, key, only_busy=loaded)
        if found is None or (found.gen >= found.gen_max and found.width >= found.width_max):
            return Quiet()
        rates = pcie.traffic(view, key, RECENT_S)
        metric = max(rates, key=lambda name: rates[name], default=None)
        moved = 0.0 if metric is None else rates[metric]
        moving = found.bytes_per_s > 0 and moved >= limits["moving"] * found.bytes_per_s
        if not (loaded or moving):
            return Quiet()
        rate = f", moving {moved / 1e6:.0f} MB/s" if moving else ""
        shown = [
            evidence(Gpu.pcie_width, key, found.width, threshold=found.width_max),
            evidence(Gpu.pcie_gen, key, found.gen, threshold=found.gen_max),
        ]
        if metric is not None:
            shown.append(evidence(metric, key, round(moved), unit="B/s", span_s=RECENT_S))
        return Fires(
            text=(
                f"PCIe link of {gpu_name(view, key)} works at x{found.width} Gen{found.gen} of "
                f"x{found.width_max} Gen{found.gen_max}: {pct(found.share)} of its bandwidth{rate}"
            ),
            evidence=tuple(shown),
            confidence=Confidence.HIGH if moving else Confidence.MEDIUM,
        )

    @staticmethod
    def _whole(view: View, key: str) -> bool:
        """Whether the link is at its maximum just now. Raises `Missing` where nothing tells."""
        top, most = view.number(Gpu.pcie_gen_max, key), view.number(Gpu.pcie_width_max, key)
        gen, width = view.number(Gpu.pcie_gen, key), view.number(Gpu.pcie_width, key)
        return gen >= top and width >= most

    @staticmethod
    def _loaded(view: View, key: str, busy: float) -> bool:
        try:
            return load.load(view, key, RECENT_S, at_least_s=RECENT_S - 2).busy >= busy
        except Missing:
            return False

    def _link(self, view: View, key: str, *, only_busy: bool) -> Links | None:
        """The best of the window, None with too few reads."""
        top, most = view.number(Gpu.pcie_gen_max, key), view.number(Gpu.pcie_width_max, key)
        gens = view.series(Gpu.pcie_gen, key, self.window_s).values
        widths = view.series(Gpu.pcie_width, key, self.window_s).values
        busy = view.series(Gpu.util_pct, key, self.window_s).values
        reads = [
            (gen, width)
            for gen, width, share in zip(gens, widths, busy, strict=True)
            if gen == gen and width == width and (share >= BUSY_PCT or not only_busy)
        ]
        if len(reads) < MIN_READS:
            return None
        gen, width = max(read[0] for read in reads), max(read[1] for read in reads)
        return Links(int(gen), int(width), int(top), int(most))
