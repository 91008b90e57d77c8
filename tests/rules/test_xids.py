"""What a GPU's Xid reports are told as: the cause first, its consequences after it, for a day."""

from __future__ import annotations

import pytest

from bottletop.model import NS_PER_S, Sample, Severity
from bottletop.rules.base import Fires, Quiet
from bottletop.rules.xid_event import XidEvent
from bottletop.rules.xids import TOGETHER_NS, XIDS, Seen, XidClass, told_of
from bottletop.store import Store
from bottletop.tables import Gpu, GpuEvent
from bottletop.tables.gpu_health import XID

HOUR_NS = 3600 * NS_PER_S


def reports(*pairs: tuple[float, int]) -> list[Seen]:
    return [Seen(round(t_s * NS_PER_S), xid) for t_s, xid in pairs]


@pytest.mark.parametrize(
    ("pairs", "headlines", "consequences"),
    [
        (((0, 31), (1, 43), (1, 45)), (31,), (43, 45)),
        (((0, 48), (0, 63), (2, 94), (3, 154)), (48,), (63, 94, 154)),
        (((0, 13), (0.1, 13), (2, 109)), (13,), (109,)),
        (((0, 109),), (109,), ()),
        (((0, 45),), (45,), ()),
        (((0, 13), (7200, 79)), (79, 13), ()),
        (((0, 45), (1, 31)), (31, 45), ()),
    ],
)
def test_what_only_follows_is_never_the_headline(
    pairs: tuple[tuple[float, int], ...],
    headlines: tuple[int, ...],
    consequences: tuple[int, ...],
) -> None:
    told = told_of(reports(*pairs))
    assert told.headlines == headlines
    assert told.consequences == consequences


def test_what_comes_much_later_stands_for_itself() -> None:
    late_s = TOGETHER_NS / NS_PER_S + 1
    assert told_of(reports((0, 13), (late_s, 109))).headlines == (109, 13)


@pytest.mark.parametrize(
    ("xid", "severity"),
    [
        (13, Severity.WARN),
        (79, Severity.CRIT),
        (74, Severity.CRIT),
        (63, Severity.INFO),
        (999, Severity.WARN),
    ],
)
def test_severity_follows_whose_error_it_is(xid: int, severity: Severity) -> None:
    assert told_of(reports((0, xid))).severity is severity


def test_no_reports_are_refused() -> None:
    with pytest.raises(ValueError, match="no reports"):
        told_of([])


def test_application_errors_blame_no_hardware() -> None:
    for xid in XIDS.values():
        if xid.kind is XidClass.APPLICATION:
            assert "hardware" not in xid.meaning
            assert "RMA" not in xid.meaning


def test_every_text_and_advice_is_short_enough_to_be_read() -> None:
    assert max(len(xid.meaning) for xid in XIDS.values()) <= 60


def test_an_event_is_told_for_a_day_and_then_no_more() -> None:
    store, rule = Store(), XidEvent()
    limits = {name: threshold.value for name, threshold in rule.thresholds.items()}

    def judged(hour: float) -> object:
        t_ns = round((hour + 1) * HOUR_NS)
        store.ingest(Sample("test", Gpu, t_ns, 0, (Gpu.row("GPU-x", t_ns, {Gpu.index: 0}),)))
        store.ingest(Sample("test", GpuEvent, t_ns, 0, ()))
        return rule.judge(store.view(t_ns), "GPU-x", limits)

    event = {GpuEvent.kind: XID, GpuEvent.xid: 79}
    store.ingest(Sample("test", GpuEvent, HOUR_NS, 0, (GpuEvent.row("GPU-x", HOUR_NS, event),)))
    assert isinstance(judged(1), Fires)
    assert isinstance(judged(23.9), Fires)
    assert isinstance(judged(24.1), Quiet)
