"""Everything that is known of one GPU, in lines: the declared tables walked column by column.

A column that has no value says why; columns without a value for the same reason share a line.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bottletop.model import NS_PER_S, Absent, Kind, State, number
from bottletop.rules.xids import XIDS
from bottletop.tables import (
    Gpu,
    GpuActivity,
    GpuEvent,
    GpuHealth,
    GpuInstance,
    GpuLink,
    GpuProcess,
)
from bottletop.tables.gpu import clock_event_text
from bottletop.tables.gpu_health import XID
from bottletop.text import clean, fit
from bottletop.tui.curves import column_words
from bottletop.tui.inks import SEVERITY_INKS
from bottletop.tui.lines import Line, Span, header, line, wrap
from bottletop.tui.values import per_s
from bottletop.units import MISSING, number_text, percent_text, value_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bottletop.model import Finding, Metric, Table, Value
    from bottletop.snapshot import Snapshot
    from bottletop.store import View
    from bottletop.tui.glyphs import Glyphs

NAME_WIDTH = 24
VALUE_WIDTH = 22
RATE_S = 10.0
EVENTS = 20
"""Newest events that are listed."""
UNASKED = "not read by what fills this table here"
SECTIONS: tuple[tuple[type[Table], str], ...] = (
    (Gpu, "Now"),
    (GpuActivity, "Activity inside (GPM)"),
    (GpuHealth, "Health"),
)
LINK_ERRORS = (
    GpuLink.replay_errors,
    GpuLink.recovery_errors,
    GpuLink.crc_errors,
    GpuLink.recovery_failures,
    GpuLink.effective_errors,
)


def facts(
    key: str, snapshot: Snapshot, findings: Sequence[Finding], width: int, glyphs: Glyphs
) -> list[Line]:
    """All lines about the GPU of that key, findings first."""
    view = snapshot.view
    out = [*_findings(key, findings, width, glyphs), *_processes(view, key, width, glyphs)]
    out += _instances(view, key, width, glyphs)
    for table, title in SECTIONS:
        out += _section(view, table, key, title, width, glyphs)
    out += _links(view, key, width, glyphs)
    return [*out, *_events(snapshot, key, width, glyphs)]


def _head(title: str, width: int, glyphs: Glyphs, facts: Iterable[Span] = ()) -> list[Line]:
    return [line(width, ()), header(width, title, tuple(facts), rule=glyphs.rule)]


def _findings(key: str, findings: Sequence[Finding], width: int, glyphs: Glyphs) -> list[Line]:
    out: list[Line] = []
    for finding in findings:
        if finding.active and finding.scope == key:
            ink = SEVERITY_INKS[finding.severity]
            sign = glyphs.severity[finding.severity]
            told = wrap(f"{finding.code}: {finding.text}", width - 6)
            out.append(line(width, [(f"   {sign} ", ink), (told[0], "text")]))
            out += [line(width, [(f"     {rest}", "text")]) for rest in told[1:]]
    return [line(width, ()), *out] if out else []


# -- a table's row, column by column -----------------------------------------------------------


def _section(
    view: View, table: type[Table], key: str, title: str, width: int, glyphs: Glyphs
) -> list[Line]:
    age_s = view.age_s(table, key)
    if age_s is None:
        return [*_head(title, width, glyphs), _none("nothing was read", width)]
    stale = isinstance(view.last(table.columns[0], key), Absent)
    told: list[Span] = [(f"read {age_s:.0f} s ago", "dim")] if stale else []
    return [*_head(title, width, glyphs, told), *_row(view, table, key, width)]


def _row(view: View, table: type[Table], key: str, width: int) -> list[Line]:
    """Columns with a value, one a line; then the others by the reason why they have none."""
    out: list[Line] = []
    without: dict[str, list[str]] = {}
    for metric in table.columns:
        value = view.last(metric, key)
        name = column_words(metric)
        if isinstance(value, Absent):
            without.setdefault(why(value), []).append(name)
            continue
        spans: list[Span] = [
            (f"   {fit(name, NAME_WIDTH)} ", "dim"),
            (fit(shown(view, metric, key, value), VALUE_WIDTH), "text"),
            (f" {metric.help}", "faint"),
        ]
        out.append(line(width, spans))
    for reason, names in without.items():
        text = wrap(f"{', '.join(names)}: {reason}", width - 6)
        out += [
            line(width, [("   " if at == 0 else "     ", "text"), (part, "dim")])
            for at, part in enumerate(text)
        ]
    return out


def why(value: Absent) -> str:
    """Why there is no value: the state, the source's words, and what it answered instead."""
    if value.state is State.NOT_READ and not value.reason:
        return UNASKED
    raw = f" (it answered {clean(str(value.raw), 24)})" if value.raw is not None else ""
    return clean(f"{value}{raw}")


def shown(view: View, metric: Metric, key: str, value: Value) -> str:
    """A value in words: labels for numbers that stand for them, a rate beside a count."""
    if isinstance(value, str):
        return clean(value) or MISSING
    if metric is Gpu.clock_event_reasons and isinstance(value, (int, float)):
        return clock_event_text(int(value))
    if metric.kind is Kind.ENUM and isinstance(value, (int, float)):
        return metric.labels.get(int(value), number_text(value))
    if metric.kind is Kind.COUNTER:
        return _counted(view, metric, key, value)
    return value_text(value, metric.unit)


def _counted(view: View, metric: Metric, key: str, value: Value) -> str:
    rate = per_s(view, metric, key, max(RATE_S, 2.5 * metric.table.period_s))
    if metric.unit == "ns":
        return MISSING if rate is None else f"{percent_text(rate / NS_PER_S)} of the time"
    if metric.unit == "mJ":
        return MISSING if rate is None else f"{value_text(rate / 1000, 'W')} on average"
    if metric.unit == "B":
        return MISSING if rate is None else value_text(rate, "B/s")
    grows = f", +{number_text(60 * rate)} a minute" if rate else ""
    return f"{value_text(value, metric.unit)}{grows}"


def _none(text: str, width: int) -> Line:
    return line(width, [(f"   {text}", "dim")])


# -- what belongs to a GPU -----------------------------------------------------------------------


def _of_gpu(view: View, table: type[Table], gpu: Metric, key: str) -> list[str]:
    return [row for row in view.keys(table) if view.text(gpu, row) == key]


def _processes(view: View, key: str, width: int, glyphs: Glyphs) -> list[Line]:
    rows = _of_gpu(view, GpuProcess, GpuProcess.gpu, key)
    listed = view.last(Gpu.processes, key)
    out = _head("Processes", width, glyphs)
    if isinstance(listed, Absent) and listed.state is not State.NOT_READ:
        # Some may be known all the same, from what the driver tells of their utilisation.
        out += [_none(part, width) for part in wrap(f"no list: {why(listed)}", width - 4)]
    elif not rows:
        out.append(_none("none" if not isinstance(listed, Absent) else "not listed yet", width))
    rows.sort(key=lambda row: (-(number(view.last(GpuProcess.mem_bytes, row)) or 0.0), row))
    return [*out, *(_process(view, row, width) for row in rows)]


def _process(view: View, row: str, width: int) -> Line:
    pid = view.last(GpuProcess.pid, row)
    whose, shown_pid = ("host pid", pid.raw) if isinstance(pid, Absent) else ("pid", pid)
    kind = view.last(GpuProcess.kind, row)
    facts = [f"{whose} {value_text(shown_pid, '')}"]
    for metric, name in ((GpuProcess.mem_bytes, "memory"), (GpuProcess.sm_util_pct, "SM")):
        value = view.last(metric, row)
        told = value.state.value if isinstance(value, Absent) else value_text(value, metric.unit)
        facts.append(f"{name} {told}")
    if isinstance(kind, int):
        facts.append(GpuProcess.kind.labels.get(kind, str(kind)))
    instance = view.text(GpuProcess.instance, row)
    if instance:
        facts.append(f"on {view.text(GpuInstance.profile, instance) or instance}")
    name = clean(view.text(GpuProcess.process, row)) or "name unknown"
    return line(width, [(f"   {fit(name, NAME_WIDTH)} ", "text"), ("  ".join(facts), "dim")])


def _instances(view: View, key: str, width: int, glyphs: Glyphs) -> list[Line]:
    out: list[Line] = []
    for row in _of_gpu(view, GpuInstance, GpuInstance.gpu, key):
        name = f"MIG {clean(view.text(GpuInstance.profile, row)) or 'device'}"
        out += [*_head(name, width, glyphs, [(clean(row), "dim")])]
        out += _row(view, GpuInstance, row, width)
        if view.age_s(GpuActivity, row) is not None:
            out += _row(view, GpuActivity, row, width)
    return out


def _links(view: View, key: str, width: int, glyphs: Glyphs) -> list[Line]:
    rows = _of_gpu(view, GpuLink, GpuLink.gpu, key)
    out = _head("NVLinks", width, glyphs)
    if not rows:
        return [*out, _none("none was read", width)]
    return [*out, *(_link(view, row, width) for row in rows)]


def _link(view: View, row: str, width: int) -> Line:
    state = view.last(GpuLink.state, row)
    label = (
        GpuLink.state.labels.get(int(state), "?") if isinstance(state, (int, float)) else MISSING
    )
    spans: list[Span] = [
        (f"   link {row.rpartition('/')[2]:<3} ", "dim"),
        (f"{label:<7}", "warn" if label == "down" else "text"),
        (f" {value_text(view.last(GpuLink.speed_bytes_per_s, row), 'B/s'):<12}", "text"),
    ]
    for metric, name in ((GpuLink.rx_bytes, "in"), (GpuLink.tx_bytes, "out")):
        rate = per_s(view, metric, row, 2.5 * GpuLink.period_s)
        spans.append((f" {name} {value_text(rate, 'B/s'):<10}", "text"))
    errors = [
        f"{column_words(metric)} {value:.0f}"
        for metric in LINK_ERRORS
        if (value := number(view.last(metric, row)))
    ]
    return line(width, [*spans, (f"  {', '.join(errors) or 'no errors'}", "dim")])


def _events(snapshot: Snapshot, key: str, width: int, glyphs: Glyphs) -> list[Line]:
    """Events of the last day, the newest first."""
    view = snapshot.view
    kinds = view.series(GpuEvent.kind, key, GpuEvent.kept_s)
    numbers = view.series(GpuEvent.xid, key, GpuEvent.kept_s)
    out = _head("Events of the last 24 h", width, glyphs)
    rows = list(zip(kinds.t_ns, kinds.values, numbers.values, strict=True))
    for t_ns, kind, xid in reversed(rows[-EVENTS:]):
        at = time.strftime("%H:%M:%S", time.localtime(snapshot.anchor.wall_at(t_ns) / NS_PER_S))
        told = GpuEvent.kind.labels.get(int(kind), "other") if kind == kind else "other"
        if kind == XID and xid == xid:
            known = XIDS.get(int(xid))
            told = f"Xid {xid:.0f}: {known.meaning if known else 'not in our table'}"
        out.append(line(width, [(f"   {at}  ", "dim"), (told, "text")]))
    if not rows:
        out.append(_none("none came since we listen", width))
    return out
