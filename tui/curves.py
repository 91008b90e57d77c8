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

SPANS_S = (60.0, 120.0, 300.0)
MOST = 3
"""Histories shown for one finding: more cannot be compared by eye."""

_CONTINUOUS = {Stage.inclusive_ns: Stage.occupied_ns, Stage.self_ns: Stage.occupied_ns}
"""What completed passes add at their end, and what grows while they are under way: a history of the
former is a row of spikes."""
_UNIT_SUFFIXES = frozenset({"pct", "ns", "us", "ms", "s", "w", "mhz", "c", "bytes", "mj"})
_SECONDS = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}


def entity_label(view: View, metric_id: str, key: str) -> str:
    """What people call the entity of an evidence: "GPU 0", a thread, a stage, a disk."""
    table = BY_NAME.get(metric_id.partition(".")[0], Gpu)
    if table is Stage:
        return view.text(Stage.stage, key) or key.rpartition("/")[2]
    return entity_name(view, table, key) or "host"


def known_metric(metric_id: str) -> Metric | None:
    """The metric of an evidence, None when this version does not know it (older recordings)."""
    try:
        return metric(metric_id)
    except KeyError:
        return None


def column_words(column: Metric) -> str:
    """A column's name without its unit: "sm clock"."""
    return " ".join(_without_unit(column.name))


def _without_unit(column: str) -> list[str]:
    words = column.removesuffix("_per_s").split("_")
    return words[:-1] if len(words) > 1 and words[-1] in _UNIT_SUFFIXES else words


def metric_words(metric_id: str) -> str:
    """`gpu.util_pct` as words: "gpu util"."""
    table, _, column = metric_id.partition(".")
    words = _without_unit(column)
    of = [word for word in table.split("_") if word not in (*words, "sample")]
    return " ".join([*of, *words])


def of_finding(
    finding: Finding, snapshot: Snapshot, span_s: float, most: int = MOST
) -> list[Curve]:
    """Histories of the measured numbers behind a finding, each metric and entity once, all over
    the same last `span_s` seconds."""
    seen: set[str] = set()
    out: list[Curve] = []
    for item in finding.evidence:
        declared = known_metric(item.metric)
        if declared is None:
            continue
        curve = _curve(declared, item, snapshot, span_s)
        if curve is not None and curve.title not in seen:
            seen.add(curve.title)
            out.append(curve)
        if len(out) == most:
            break
    return out


def _curve(declared: Metric, item: Evidence, snapshot: Snapshot, span_s: float) -> Curve | None:
    view = snapshot.view
    declared = _CONTINUOUS.get(declared, declared)
    series, unit = _series(view, declared, item, span_s)
    if sum(value == value for value in series.values) < 2:
        return None
    threshold = item.threshold if item.unit == unit else None
    low, high = span_of(series.values, unit, threshold)
    return Curve(
        title=f"{metric_words(declared.id)} of {entity_label(view, item.metric, item.entity)}",
        unit=unit or "count",
        series=series,
        threshold=threshold,
        low=low,
        high=high,
        now_ns=view.now_ns,
        span_s=span_s,
        wall_ns=snapshot.anchor.wall_at(view.now_ns),
    )


def _series(view: View, declared: Metric, item: Evidence, span_s: float) -> tuple[Series, str]:
    if declared is Gpu.util_pct:
        fine = view.series(GpuUtilSample.util_pct, item.entity, span_s)
        if len(fine.values) > 2:
            return fine, "%"
    if declared.kind is not Kind.COUNTER:
        return view.series(declared, item.entity, span_s), declared.unit
    rates = view.rates(declared, item.entity, span_s)
    if declared.unit in _SECONDS:
        # Time spent a second is a share: the unit in which rules and people speak of it.
        return _scaled(rates, 100 / _SECONDS[declared.unit]), "%"
    return rates, f"{declared.unit}/s" if declared.unit else "1/s"


def _scaled(series: Series, factor: float) -> Series:
    return Series(series.t_ns, array("d", [value * factor for value in series.values]))
