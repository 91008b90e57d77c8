"""Rule memory-health."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from bottletop.model import Confidence, Severity
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.entities import gpu_place
from bottletop.tables import Gpu, GpuHealth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence, Metric
    from bottletop.store import View

REPLACE = "Take the GPU out of use and have the part replaced; nvidia-smi -q -i GPU for the report."
RESET_WHEN_IDLE = (
    "Nothing is urgent: reset the GPU (nvidia-smi --gpu-reset -i GPU, root) or reboot when it is "
    "next idle, and the row or page is replaced. Running work is not harmed."
)
ERRORS = (
    "Results since then may be wrong: start the work on this GPU again, read the kernel log for "
    "Xid 48, 63, 94 or 95, and run dcgmi diag -r 3 when it is idle."
)
HISTORY = "Nothing is to be done: the driver has dealt with it. Watch whether the number grows."
ROWS, PAGES = GpuHealth.rows_remapped_uncorrected, GpuHealth.pages_retired_uncorrected
"""Remapped rows from Ampere on, retired pages before."""
COUNTS = (GpuHealth.ecc_uncorrected, ROWS, PAGES, GpuHealth.pages_retired_corrected)


class _Told(NamedTuple):
    """One thing to say of the memory."""

    severity: Severity
    text: str
    shown: Evidence
    advice: str


class MemoryHealth(Rule):
    """A GPU's memory has errors, or repairs of it that wait or failed.

    What
        Uncorrected ECC errors while we watched, a row remap that failed or waits for a reset, a
        retired page that waits for one, or more of them than a healthy part ever has.
    Why
        Uncorrected errors make results wrong or end processes; what was remapped or retired and is
        done with does neither, and must not alarm anybody.
    How judged
        The driver's counts. Uncorrected errors since the driver loaded that grew in the last two
        minutes, a failed remap, or 63 retired pages are critical. A pending remap or retirement,
        and 512 remapped rows, are warnings. Errors from before we watched, and rows or pages that
        were replaced with nothing pending, are history and information only. Corrected errors are
        not judged.
    What to do
        New errors: start the work again and look for the Xid. Pending: reset when it is next idle.
        Failed: have the part replaced. History: nothing.
    When it is wrong
        Counters go back to zero when the driver is loaded again. Parts without ECC, and GeForce
        cards, tell nothing here, which is not the same as healthy.
    References
        NVML fields 4, 29-31 and 142-145; DCGM's limits (512 rows, 63 pages); gpud issue 108 (rows
        that are remapped are no fault).
    """

    code = "memory-health"
    title = "GPU memory errors or repairs"
    severity = Severity.WARN
    role = Role.PATTERN
    scope = Gpu
    needs = (
        Gpu.index,
        Gpu.pci_bus_id,
        GpuHealth.ecc_uncorrected,
        GpuHealth.row_remap_failed,
        GpuHealth.row_remap_pending,
        GpuHealth.page_retirement_pending,
        GpuHealth.rows_remapped_uncorrected,
        GpuHealth.pages_retired_uncorrected,
        GpuHealth.pages_retired_corrected,
    )
    window_s = 120
    fire = KofN(1, 1)
    clear = KofN(3, 3)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "rows": Threshold(512, "", "cited", "remapped rows that are many"),
        "pages": Threshold(63, "", "cited", "retired pages after which a part is replaced"),
    }
    advice = ERRORS
    refuted_by = "nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT -i GPU shows nothing of it."
    next_check = "nvidia-smi -q -d ECC,ROW_REMAPPER -i GPU; dmesg -T | grep -i xid."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Say the worst of what the counts show. Raises `Missing` where there are none."""
        counts = {metric: view.last(metric, key) for metric in COUNTS}
        told = self._repairs(view, key)
        if any(isinstance(count, (int, float)) and count > 0 for count in counts.values()):
            known = {m: c if isinstance(c, (int, float)) else 0.0 for m, c in counts.items()}
            told += [*self._now(view, key), *self._many(key, known, limits)]
            told = told or self._history(key, known)
        if not told:
            self._require_any(view, key)
            return Quiet()
        worst = max(told, key=lambda one: one.severity)
        return Fires(
            text=f"{gpu_place(view, key)}: {worst.text}",
            evidence=tuple(one.shown for one in told),
            severity=worst.severity,
            confidence=Confidence.HIGH,
            advice=worst.advice,
        )

    def _require_any(self, view: View, key: str) -> None:
        """Nothing found is not healthy where nothing can be read. Raises `Missing` then."""
        told = (GpuHealth.ecc_uncorrected, GpuHealth.row_remap_pending, GpuHealth.row_remap_failed)
        if not any(isinstance(view.last(metric, key), (int, float)) for metric in told):
            view.number(PAGES, key)

    def _now(self, view: View, key: str) -> list[_Told]:
        """Uncorrected errors that came while we watched."""
        counts = view.series(GpuHealth.ecc_uncorrected, key, self.window_s).values
        known = [count for count in counts if count == count]
        new = sum(max(0.0, b - a) for a, b in pairwise(known))
        if new <= 0:
            return []
        errors = "error" if new == 1 else "errors"
        shown = evidence(
            GpuHealth.ecc_uncorrected, key, new, unit="new", threshold=1, span_s=self.window_s
        )
        text = f"{new:.0f} uncorrected memory {errors} in the last {self.window_s / 60:.0f} min"
        return [_Told(Severity.CRIT, text, shown, ERRORS)]

    @staticmethod
    def _repairs(view: View, key: str) -> list[_Told]:
        """Repairs that failed or wait."""
        found = []
        for metric, severity, text, advice in (
            (GpuHealth.row_remap_failed, Severity.CRIT, "a bad memory row cannot be replaced any "
             "more: remapping failed", REPLACE),
            (GpuHealth.row_remap_pending, Severity.WARN, "a memory row is to be remapped at the "
             "next reset; running work is not harmed", RESET_WHEN_IDLE),
            (GpuHealth.page_retirement_pending, Severity.WARN, "a memory page is to be retired at "
             "the next reset; running work is not harmed", RESET_WHEN_IDLE),
        ):  # fmt: skip
            if view.last(metric, key) == 1:
                shown = evidence(metric, key, metric.labels[1])
                found.append(_Told(severity, text, shown, advice))
        return found

    @staticmethod
    def _many(key: str, counts: Mapping[Metric, float], limits: Mapping[str, float]) -> list[_Told]:
        """More repairs than a healthy part has."""
        rows, pages = counts[ROWS], counts[PAGES] + counts[GpuHealth.pages_retired_corrected]
        found = []
        if rows >= limits["rows"]:
            shown = evidence(ROWS, key, rows, threshold=limits["rows"])
            text = f"{rows:.0f} memory rows remapped after errors: many, its spares run out"
            found.append(_Told(Severity.WARN, text, shown, REPLACE))
        if pages >= limits["pages"]:
            shown = evidence(PAGES, key, pages, unit="of both kinds", threshold=limits["pages"])
            text = f"{pages:.0f} memory pages retired: at the limit at which parts are replaced"
            found.append(_Told(Severity.CRIT, text, shown, REPLACE))
        return found

    @staticmethod
    def _history(key: str, counts: Mapping[Metric, float]) -> list[_Told]:
        """What happened before we watched, and is dealt with."""
        found = []
        for metric, text in (
            (GpuHealth.ecc_uncorrected, "uncorrected memory errors since the driver loaded, none "
             "while watched"),
            (ROWS, "memory rows were remapped earlier: done with, nothing pending"),
            (PAGES, "memory pages were retired earlier: done with, nothing pending"),
        ):  # fmt: skip
            if counts[metric] > 0:
                shown = evidence(metric, key, counts[metric])
                text = f"{counts[metric]:.0f} {text}"
                found.append(_Told(Severity.INFO, text, shown, HISTORY))
        return found
