"""Rule disk-saturated."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from bottletop.model import Severity
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.store import Missing
from bottletop.tables import Disk, Process
from bottletop.units import bytes_text
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.store import View


class _Use(NamedTuple):
    busy: float
    await_ms: float
    queue: float
    reads_per_s: float
    read_bytes_per_s: float


class DiskSaturated(Rule):
    """A disk that the target reads from has more to do than it can.

    What
        Reads take long, requests queue, and the device is busy nearly all the time.
    Why
        Busy time alone means nothing on a parallel device: an NVMe drive with one request in flight
        reads as 100 % busy and is nearly idle. Latency and queue tell.
    How judged
        Over 15 s: mean read latency at least 10 ms (40 ms on spinning disks), at least four
        requests in flight on average, busy at least 90 % of the time. With a target attached, its
        own reads must make up at least 30 % of the device's: a disk kept busy by somebody else is
        not this target's finding. Without a target it is advice.
    What to do
        Faster volume or higher IOPS tier, striping, page cache, fewer parallel readers, larger
        reads.
    When it is wrong
        Virtual disks throttle by credit and show it as latency. Some virtual disks say they spin.
        Network and overlay file systems have no device here.
    References
        iostat(1) on why utilisation misleads; kernel iostats documentation; netdata issue 5744
        (NVMe 90 % busy at 11 requests a second).
    """

    code = "disk-saturated"
    title = "disk saturated by reads"
    severity = Severity.WARN
    role = Role.PATTERN
    scope = Disk
    needs = (
        Disk.reads,
        Disk.read_ms,
        Disk.read_bytes,
        Disk.busy_ms,
        Disk.queue_ms,
        Disk.rotational,
        Process.read_bytes,
    )
    window_s = 15
    fire = KofN(5, 8)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "await": Threshold(10, "ms", "judgement", "read latency of a solid-state or virtual disk"),
        "await_spinning": Threshold(40, "ms", "judgement", "read latency of a spinning disk"),
        "queue": Threshold(4, "", "judgement", "requests in flight on average"),
        "busy": Threshold(0.90, "", "judgement", "share of time with a request in flight"),
        "own": Threshold(0.30, "", "judgement", "target's part of the bytes read"),
        "near": Threshold(0.50, "", "judgement", "part of latency and queue that keeps it alive"),
    }
    advice = (
        "Use a faster volume or IOPS tier, stripe, cache in memory, or read with fewer parallel "
        "readers in larger blocks."
    )
    refuted_by = "Latency stays as high when this target is not reading."
    next_check = (
        "iostat -x 1 DEVICE: r_await, aqu-sz and rareq-sz beside the target's own read rate."
    )

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Hold latency, queue and busy time against the limits."""
        use = self._use(view, key)
        spins = view.last(Disk.rotational, key) == 1
        limit_ms = limits["await_spinning" if spins else "await"]
        full = use.await_ms >= limit_ms and use.queue >= limits["queue"]
        if not full or use.busy < limits["busy"]:
            part = limits["near"]
            still = use.await_ms >= part * limit_ms and use.queue >= part * limits["queue"]
            return Quiet(near=still)
        own = self._own(view, use)
        if own is not None and own < limits["own"]:
            return Quiet()
        return Fires(
            text=(
                f"{key} is saturated: reads take {use.await_ms:.0f} ms with {use.queue:.0f} in "
                f"flight, {use.reads_per_s:.0f}/s at {bytes_text(use.read_bytes_per_s)}/s"
            ),
            evidence=self._evidence(key, use, own, limit_ms, limits),
            severity=Severity.ADVICE if own is None else None,
        )

    def _use(self, view: View, key: str) -> _Use:
        reads = view.growth(Disk.reads, key, self.window_s)
        if reads.span_s < 8:
            raise Missing(Disk.reads, key, "needs 8 s of readings")
        read_ms = view.growth(Disk.read_ms, key, self.window_s)
        return _Use(
            busy=view.growth(Disk.busy_ms, key, self.window_s).per_s / 1000,
            await_ms=read_ms.amount / reads.amount if reads.amount else 0.0,
            queue=view.growth(Disk.queue_ms, key, self.window_s).per_s / 1000,
            reads_per_s=reads.per_s,
            read_bytes_per_s=view.growth(Disk.read_bytes, key, self.window_s).per_s,
        )

    def _own(self, view: View, use: _Use) -> float | None:
        """The target's part of the bytes read from this disk, at most 1; None without a target.

        Which disk the target's bytes came from is not known, so this is an upper bound. Raises
        `Missing` where the target's I/O may not be read.
        """
        processes = view.keys(Process)
        if not processes:
            return None
        total, refused = 0.0, None
        for process in processes:
            try:
                total += view.growth(Process.read_bytes, process, self.window_s).per_s
            except Missing as missing:
                refused = missing
        if refused is not None and total == 0:
            raise refused
        return min(1.0, total / use.read_bytes_per_s) if use.read_bytes_per_s > 0 else 0.0

    def _evidence(
        self, key: str, use: _Use, own: float | None, limit_ms: float, limits: Mapping[str, float]
    ) -> tuple[Evidence, ...]:
        span_s = self.window_s
        items = [
            evidence(
                Disk.read_ms,
                key,
                round(use.await_ms, 1),
                unit="ms a read",
                threshold=limit_ms,
                span_s=span_s,
            ),
            evidence(
                Disk.queue_ms,
                key,
                round(use.queue, 1),
                unit="in flight",
                threshold=limits["queue"],
                span_s=span_s,
            ),
            evidence(
                Disk.busy_ms,
                key,
                round(100 * use.busy, 1),
                unit="% of time",
                threshold=100 * limits["busy"],
                span_s=span_s,
            ),
        ]
        if own is not None:
            items.append(evidence(Process.read_bytes, "", pct(own), unit="of its bytes"))
        return tuple(items)
