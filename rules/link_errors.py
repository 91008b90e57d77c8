"""Rule link-errors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from bottletop.model import Confidence, Severity
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.entities import gpu_name
from bottletop.store import Missing
from bottletop.tables import Gpu, GpuHealth, GpuLink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence, Metric, Table
    from bottletop.store import View

REPLAYS_PER_LANE = {1: 0.15, 2: 0.30, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""A minute, by generation: what one bad bit in 10^12 comes to (DCGM)."""
DOWN, UP = 0, 1
NVLINK_ERRORS: tuple[tuple[Metric, str, Severity], ...] = (
    (GpuLink.recovery_failures, "failed recoveries", Severity.CRIT),
    (GpuLink.effective_errors, "errors left after correction", Severity.WARN),
    (GpuLink.recovery_errors, "recoveries", Severity.WARN),
    (GpuLink.replay_errors, "packets sent again", Severity.WARN),
)


class _Told(NamedTuple):
    severity: Severity
    text: str
    shown: Evidence


class LinkErrors(Rule):
    """A PCIe or NVLink link has errors beyond its budget, or an NVLink is down beside its peers.

    What
        Packets that have to be sent again more often than the link's bit-error budget allows, fatal
        PCIe errors, NVLink recoveries, replays or errors, or one NVLink down while others are up.
    Why
        A link that repeats itself is slow before it fails, and what waits for it looks like a slow
        program.
    How judged
        PCIe replays a minute against one bad bit in 10^12: 16 for Gen4 x16, 31 for Gen5 x16. A
        replay now and then is normal and not reported. Of NVLinks any growth of recoveries, replays
        or uncorrected errors, and 100 bad checksums a second. A finding ends after 30 clean
        minutes.
    What to do
        Reseat card, riser, cable or bridge; look at temperature; exchange part and slot in turn.
    When it is wrong
        Links that are left unconnected on purpose read as down beside others that are up.
    References
        NVML fields 94, 161-163, 165, 180, 213-221; DCGM's limits for replays and CRC errors.
    """

    code = "link-errors"
    title = "PCIe or NVLink errors"
    severity = Severity.WARN
    role = Role.PATTERN
    scope = Gpu
    needs = (
        Gpu.index,
        Gpu.pcie_gen,
        Gpu.pcie_gen_max,
        Gpu.pcie_width,
        GpuHealth.pcie_replays,
        GpuHealth.pcie_fatal_errors,
        GpuLink.state,
        GpuLink.crc_errors,
        *(metric for metric, _, _ in NVLINK_ERRORS),
    )
    window_s = 60
    fire = KofN(1, 1)
    clear = KofN(1800, 1800)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "crc": Threshold(100, "1/s", "cited", "NVLink packets with a bad checksum"),
        "budgets": Threshold(1, "", "cited", "PCIe replays, in bit-error budgets of the link"),
    }
    advice = (
        "Reseat the card, riser, cable or bridge, look at its temperature, and exchange part and "
        "slot in turn to see which of them the errors follow."
    )
    refuted_by = "The counters stand still under the same load for half an hour."
    next_check = "nvidia-smi -q -i GPU (Replays Since Reset); nvidia-smi nvlink -e -i GPU."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Hold the growth of the error counters against the limits."""
        links = _new_links(view)
        if not links:
            view.number(GpuHealth.pcie_replays, key)
        told = []
        if _is_new(view, GpuHealth, key):
            told += self._pcie(view, key, limits["budgets"])
        told += self._nvlinks(view, links.get(key, []), limits)
        if not told:
            return Quiet()
        worst = max(told, key=lambda one: one.severity)
        more = f"; and {len(told) - 1} more" if len(told) > 1 else ""
        return Fires(
            text=f"{gpu_name(view, key)}: {worst.text}{more}",
            evidence=tuple(one.shown for one in told[:6]),
            severity=worst.severity,
            confidence=Confidence.HIGH,
        )

    def _pcie(self, view: View, key: str, budgets: float) -> list[_Told]:
        found = []
        fatal = _grown(view, GpuHealth.pcie_fatal_errors, key, self.window_s)
        if fatal:
            shown = evidence(GpuHealth.pcie_fatal_errors, key, fatal[0], threshold=1)
            found.append(_Told(Severity.CRIT, f"{fatal[0]:.0f} fatal PCIe errors", shown))
        replays = _grown(view, GpuHealth.pcie_replays, key, self.window_s)
        allowed, link = self._allowed(view, key)
        if replays is not None and allowed is not None:
            a_minute = 60 * replays[0] / replays[1]
            if a_minute > budgets * allowed:
                text = (
                    f"PCIe sends {a_minute:.0f} packets a minute again, {allowed} are normal "
                    f"for {link}"
                )
                shown = evidence(
                    GpuHealth.pcie_replays,
                    key,
                    round(a_minute),
                    unit="a minute",
                    threshold=budgets * allowed,
                    span_s=replays[1],
                )
                found.append(_Told(Severity.WARN, text, shown))
        return found

    @staticmethod
    def _allowed(view: View, key: str) -> tuple[int | None, str]:
        """Replays a minute within the budget of the link at its best, and the link in words."""
        gens = [
            value
            for metric in (Gpu.pcie_gen, Gpu.pcie_gen_max)
            if isinstance(value := view.last(metric, key), (int, float))
        ]
        width = view.last(Gpu.pcie_width, key)
        lane = REPLAYS_PER_LANE.get(int(max(gens, default=0)))
        if lane is None or not isinstance(width, (int, float)):
            return None, ""
        return math.ceil(lane * width), f"x{width:.0f} Gen{max(gens):.0f}"

    def _nvlinks(self, view: View, links: list[str], limits: Mapping[str, float]) -> list[_Told]:
        found = []
        up = sum(view.last(GpuLink.state, link) == UP for link in links)
        for link in links:
            name = f"NVLink {link.rpartition('/')[2]}"
            if up and view.last(GpuLink.state, link) == DOWN:
                shown = evidence(GpuLink.state, link, "down")
                text = f"{name} is down while {up} of its links are up"
                found.append(_Told(Severity.WARN, text, shown))
            for metric, what, severity in NVLINK_ERRORS:
                grown = _grown(view, metric, link, self.window_s)
                if grown:
                    shown = evidence(metric, link, grown[0], threshold=1, span_s=grown[1])
                    found.append(_Told(severity, f"{name}: {grown[0]:.0f} {what}", shown))
            bad = _grown(view, GpuLink.crc_errors, link, self.window_s)
            if bad and bad[0] / bad[1] >= limits["crc"]:
                rate = bad[0] / bad[1]
                shown = evidence(
                    GpuLink.crc_errors, link, round(rate), unit="1/s", threshold=limits["crc"]
                )
                found.append(
                    _Told(Severity.WARN, f"{name}: {rate:.0f} bad checksums a second", shown)
                )
        return found


def _is_new(view: View, table: type[Table], key: str) -> bool:
    """Whether counters have come since the last look: they are read every 10 s only."""
    age_s = view.age_s(table, key)
    return age_s is not None and age_s <= 1.5 * view.period_s(Gpu)


def _new_links(view: View) -> dict[str, list[str]]:
    """Keys of the links of each GPU, no links where none has news: big hosts have hundreds."""
    return view.memo("new gpu links", lambda: _grouped(view))


def _grouped(view: View) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for link in view.keys(GpuLink):
        gpu = link.rpartition("/")[0]
        if gpu not in found:
            found[gpu] = []
            if not _is_new(view, GpuLink, link):
                continue
        elif not found[gpu]:
            continue
        found[gpu].append(link)
    return found


def _grown(view: View, metric: Metric, key: str, span_s: float) -> tuple[float, float] | None:
    """How far a counter of errors grew and over how many seconds, None where it did not."""
    if view.last(metric, key) == 0:
        return None  # of most counters of most links, and soon seen
    try:
        growth = view.growth(metric, key, span_s)
    except Missing:
        return None
    return (growth.amount, growth.span_s) if growth.amount > 0 else None
