"""Rule xid-event."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Confidence, Severity
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.entities import gpu_place
from bottletop.rules.xids import UNKNOWN, XIDS, Seen, Told, XidClass, told_of
from bottletop.tables import Gpu, GpuEvent
from bottletop.tables.gpu_health import XID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.store import View

OFF_THE_BUS = 79
GSP = frozenset({119, 120})
ADVICE = {
    XidClass.APPLICATION: (
        "Look in the program: its log at that time, then compute-sanitizer on a small input. "
        "Starting the process again recovers. Another program on the same GPU tells whether the "
        "error stays with the GPU."
    ),
    XidClass.DEVICE: (
        "Stop what runs on it, keep nvidia-bug-report.sh's output, then reset the GPU (nvidia-smi "
        "--gpu-reset -i GPU, root) or reboot. If it comes back, test it with dcgmi diag -r 3."
    ),
    XidClass.LINK: (
        "Look at nvidia-smi nvlink -s and -e -i GPU on both ends of the link; reseat the bridge or "
        "the board, and see the fabric manager's log on machines with switches."
    ),
    XidClass.RECORD: "Nothing is to be done for this alone; note when it happened.",
}
ADVICE_BUS = (
    "Check temperature, power connectors/PSU, reseat the card, update the SBIOS, then reboot. "
    "Locking clocks low (nvidia-smi -lgc) tells power problems apart."
)
ADVICE_GSP = (
    "Reset the GPU (nvidia-smi --gpu-reset -i GPU, root) or reboot: until then every query of it "
    "may block for 45 s. If it comes back, update driver and firmware."
)


class XidEvent(Rule):
    """The driver reported an error of a GPU under one of its Xid numbers.

    What
        An Xid event of the last 24 hours that we listened to, decoded: whose error it is, and what
        it says. Numbers that only follow another one soon after it are named after that one.
    Why
        The driver's log has the number, not the meaning; the number that is seen last is often the
        clearing away after the error, not the error.
    How judged
        From the driver's own events, by a table of the catalogue's numbers: application errors (13,
        31, ...) are warnings, errors of device, memory or system processor (48, 79, 95, 119, ...)
        and of NVLink are critical, records are information. A number that the table lacks is shown
        as it is. There is no threshold: one event is enough, and it stays for the day.
    What to do
        For application errors look in the program and its log; for the others what the driver asks
        for (recovery-required), a reset, or the diagnosis of the part.
    When it is wrong
        13 and 31 are a matter of the part where they follow the GPU from program to program. 45
        alone also comes of a process that was killed. Events from before we listened are not seen:
        the kernel log has them.
    References
        NVIDIA's Xid catalogue; nvmlEventSetWait; vllm issue 52225 (13 on every SM), gpud issue 46
        (109 after 13), open-gpu-kernel-modules issues 446 (119) and 507 (79).
    """

    code = "xid-event"
    title = "the driver reported an error (Xid)"
    severity = Severity.WARN
    role = Role.PATTERN
    scope = Gpu
    needs = (
        Gpu.index,
        Gpu.pci_bus_id,
        GpuEvent.kind,
        GpuEvent.xid,
        GpuEvent.gpu_instance,
    )
    window_s = 30
    fire = KofN(1, 1)
    clear = KofN(1, 1)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "memory": Threshold(86_400, "s", "judgement", "how long an event is told of"),
    }
    advice = ADVICE[XidClass.DEVICE]
    refuted_by = "dmesg shows no line with NVRM: Xid and this number for this GPU's address."
    next_check = "dmesg -T | grep -i xid names the process and what the driver did about it."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Decode the Xid events of this GPU."""
        span_s = limits["memory"]
        kinds = view.series(GpuEvent.kind, key, span_s)
        if not kinds.t_ns:
            return Quiet()
        numbers = view.series(GpuEvent.xid, key, span_s)
        reports = [
            Seen(t_ns, int(number))
            for t_ns, kind, number in zip(kinds.t_ns, kinds.values, numbers.values, strict=True)
            if kind == XID and number == number
        ]
        if not reports:
            return Quiet()
        told = told_of(reports)
        return Fires(
            text=_text(gpu_place(view, key) + _instance(view, key, span_s), told),
            evidence=_evidence(key, told, span_s),
            severity=told.severity,
            confidence=Confidence.HIGH,
            advice=_advice(told.headlines[0]),
        )


def _instance(view: View, key: str, span_s: float) -> str:
    """ ", MIG instance 3" where all events came from one."""
    instances = set(view.series(GpuEvent.gpu_instance, key, span_s).values)
    instance = instances.pop() if len(instances) == 1 else math.nan
    return f", MIG instance {instance:.0f}" if instance == instance else ""


def _text(place: str, told: Told) -> str:
    first = told.headlines[0]
    known = XIDS.get(first)
    said = known.meaning if known is not None else UNKNOWN.meaning
    whose = known.kind.value if known is not None else "unknown number"
    times = f" ({told.counts[first]} times)" if told.counts[first] > 1 else ""
    text = f"{place}: Xid {first}{times}, {whose}: {said}"
    if told.headlines[1:]:
        text += f"; also Xid {', '.join(map(str, told.headlines[1:]))}"
    if told.consequences:
        text += f"; then {', '.join(map(str, told.consequences))}"
    return text


def _advice(number: int) -> str:
    if number == OFF_THE_BUS:
        return ADVICE_BUS
    if number in GSP:
        return ADVICE_GSP
    return ADVICE[XIDS[number].kind if number in XIDS else XidClass.DEVICE]


def _evidence(key: str, told: Told, span_s: float) -> tuple[Evidence, ...]:
    return tuple(
        evidence(GpuEvent.xid, key, number, unit=_times(told.counts[number]), span_s=span_s)
        for number in (*told.headlines, *told.consequences)[:6]
    )


def _times(count: int) -> str:
    return "seen once" if count == 1 else f"seen {count} times"
