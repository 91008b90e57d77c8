"""Rule gpu-starved-io."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.rules import budget
from bottletop.rules.activity import moves_data, slow_blocked
from bottletop.rules.base import Threshold, evidence
from bottletop.rules.demand import StageKind
from bottletop.rules.entities import gpu_name
from bottletop.rules.starvation import (
    LOST,
    LOST_CRIT,
    LOST_NEAR,
    Starvation,
    in_stage,
    stage_evidence,
)
from bottletop.store import Missing
from bottletop.tables import HotThread, Process, Psi
from bottletop.units import bytes_text
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.rules.budget import GapBudget
    from bottletop.store import View


class StarvedIo(Starvation):
    """The GPU waits while the target waits for storage.

    What
        Work is there, the GPU is idle for a good part of the time, and in that idle time a thread
        of the target sits in uninterruptible wait while the target reads data.
    Why
        Slow or remote disks, cold caches and thousands of small files keep the GPU waiting without
        any core being busy.
    How judged
        The state of the target's threads is read five times a second and laid on the GPU's
        utilisation; waits for storage must explain at least 40 % of the lost time, with at least
        20 % of all time lost. The target itself must read (bytes, system calls or major faults):
        pressure that another job causes on the same host is no evidence.
    What to do
        Put model and data on local NVMe or warm the page cache; read larger blocks from packed
        files; read ahead in an asynchronous loader.
    When it is wrong
        Uninterruptible wait is not always storage: a driver call or memory reclaim can look the
        same. FUSE file systems wait interruptibly and are not seen. A loader that reads ahead far
        enough also waits for storage, but then the GPU has no gaps.
    References
        Amazon SageMaker Debugger, IOBottleneck (weaker: iowait above 50 %); kernel documentation of
        pressure stall information, delay accounting and iostats.
    """

    code = budget.IO
    title = "GPU waits for storage"
    blames = "storage"
    needs = (*budget.NEEDS, Psi.some_us)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "lost": LOST,
        "lost_near": LOST_NEAR,
        "lost_crit": LOST_CRIT,
        "share": Threshold(0.40, "", "tried", "part of the lost time spent waiting for storage"),
        "share_near": Threshold(0.25, "", "tried", "below this share an active finding ends"),
    }
    advice = (
        "Put the data on local NVMe or warm the page cache, read larger blocks (packed files, not "
        "many small ones), and read ahead in an asynchronous loader."
    )
    refuted_by = (
        "Read the same files once into the page cache (vmtouch -t PATH) and run again: if the gaps "
        "stay, storage was not the cause."
    )
    next_check = (
        "iostat -x 1 shows latency and queue of the disk; look at the disk panel for the one that "
        "holds the target's files."
    )

    def text(self, view: View, found: GapBudget) -> str:
        where = in_stage(found, StageKind.STORAGE)
        rate = _read_rate(view, found.span_s)
        reads = f" ({bytes_text(rate)}/s)" if rate is not None else ""
        return (
            f"{gpu_name(view, found.gpu)} waits {pct(found.lost)} of the time while the target "
            f"waits for storage{reads}{where}"
        )

    def own_evidence(self, view: View, found: GapBudget) -> tuple[Evidence, ...]:
        items = []
        act = found.activity
        slow = slow_blocked(view, found.gpu, found.span_s)
        thread = (act.most_blocked if act is not None else "") or (slow.most if slow else "")
        if thread:
            share = found.share(self.code)
            items.append(
                evidence(
                    HotThread.state,
                    thread,
                    round(100 * share, 1),
                    unit="% of lost time in storage wait",
                    span_s=found.span_s,
                )
            )
        rate = _read_rate(view, found.span_s)
        if rate is not None:
            items.append(evidence(Process.read_bytes, "", round(rate), unit="B/s"))
        try:
            stalled = view.growth(Psi.some_us, "target/io", found.span_s).per_s / 1e4
            items.append(evidence(Psi.some_us, "target/io", round(stalled, 1), unit="% of time"))
        except Missing:
            pass
        return (*items, *stage_evidence(found, StageKind.STORAGE))

    def holds(self, view: View, found: GapBudget, limits: Mapping[str, float]) -> bool:
        """The target itself moves data, where that can be read."""
        del limits
        return moves_data(view, found.span_s) is not False


def _read_rate(view: View, span_s: float) -> float | None:
    """Bytes a second that the target fetches from storage; None where that is denied."""
    total, known = 0.0, False
    for key in view.keys(Process):
        try:
            total += view.growth(Process.read_bytes, key, span_s).per_s
            known = True
        except Missing:
            continue
    return total if known else None
