"""From a finding's evidence to the histories that show it, and names for entities."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from bottletop.model import Kind, Metric
from bottletop.rings import Series
from bottletop.rules.entities import entity_name
from bottletop.tables import BY_NAME, Gpu, GpuUtilSample, Stage, metric
from bottletop.tui.plot import Curve, span_of

if TYPE_CHECKING:
    from bottletop.model import Evidence, Finding
    from bottletop.snapshot import Snapshot
    from bottletop.store import View

SPAN_S = 120.0
MOST = 3
"""Histories shown for one finding: more cannot be compared by eye."""

_SECONDS = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}


def entity_label(view: View, metric_id: str, key: str) -> str:
    """What people call the entity of an evidence: "GPU 0", a thread, a stage, a disk."""
    table = BY_NAME.get(metric_id.partition(".")[0], Gpu)
    if table is Stage:
        return f"stage {view.text(Stage.stage, key) or key.rpartition('/')[2]}"
    return entity_name(view, table, key) or "host"


def known_metric(metric_id: str) -> Metric | None:
    """The metric of an evidence, None when this version does not know it (older recordings)."""
    try:
        return metric(metric_id)
    except KeyError:
        return None


def metric_words(metric_id: str) -> str:
    """`gpu.util_pct` as words: "gpu util"."""
    table, _, column = metric_id.partition(".")
    words = column.split("_")
    if len(words) > 1 and words[-1] in ("pct", "ns", "us", "ms", "s", "w", "mhz", "c", "bytes", "mj"):
        words = words[:-1]
    return f"{table.replace('_', ' ')} {' '.join(words)}".strip()


def of_finding(finding: Finding, snapshot: Snapshot, most: int = MOST) -> list[Curve]:
    """Histories of the measured numbers behind a finding, each metric and entity once."""
    seen: set[tuple[str, str]] = set()
    out: list[Curve] = []
    for item in finding.evidence:
        declared = known_metric(item.metric)
        if declared is None or (item.metric, item.entity) in seen:
            continue
        seen.add((item.metric, item.entity))
        curve = _curve(declared, item, snapshot)
        if curve is not None:
            out.append(curve)
        if len(out) == most:
            break
    return out


def _curve(declared: Metric, item: Evidence, snapshot: Snapshot) -> Curve | None:
    view = snapshot.view
    series, unit = _series(view, declared, item)
    if sum(value == value for value in series.values) < 2:
        return None
    threshold = item.threshold if item.unit == unit else None
    low, high = span_of(series.values, unit, threshold)
    return Curve(
        title=f"{metric_words(item.metric)} of {entity_label(view, item.metric, item.entity)}",
        unit=unit or "count",
        series=series,
        threshold=threshold,
        low=low,
        high=high,
        now_ns=view.now_ns,
        span_s=SPAN_S,
        wall_ns=snapshot.anchor.wall_at(view.now_ns),
    )


def _series(view: View, declared: Metric, item: Evidence) -> tuple[Series, str]:
    if declared is Gpu.util_pct:
        fine = view.series(GpuUtilSample.util_pct, item.entity, SPAN_S)
        if len(fine.values) > 2:
            return fine, "%"
    if declared.kind is not Kind.COUNTER:
        return view.series(declared, item.entity, SPAN_S), declared.unit
    rates = view.rates(declared, item.entity, SPAN_S)
    if declared.unit in _SECONDS:
        # Time spent a second is a share: the unit in which rules and people speak of it.
        return _scaled(rates, 100 / _SECONDS[declared.unit]), "%"
    return rates, f"{declared.unit}/s" if declared.unit else "1/s"


def _scaled(series: Series, factor: float) -> Series:
    return Series(series.t_ns, array("d", [value * factor for value in series.values]))


