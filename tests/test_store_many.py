"""Taking in many samples at once leaves the store as taking them in one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from session.scripted import ScriptedHost

from bottletop.model import NS_PER_S, Kind, Row, Sample
from bottletop.store import Store
from bottletop.tables import TABLES, Gpu

if TYPE_CHECKING:
    from collections.abc import Sequence


def told(store: Store, now_ns: int) -> dict[str, object]:
    """Everything that a store says of a moment."""
    view = store.view(now_ns)
    out: dict[str, object] = {"arrivals": store.arrivals, "recent": store.recent(now_ns - 10**11)}
    for table in TABLES:
        keys = view.keys(table)
        out[table.name] = keys
        for metric in table.columns:
            for key in keys:
                out[f"{metric.id} {key}"] = (
                    view.last(metric, key),
                    view.series(metric, key, 300).points(),
                    view.trend(metric, key, 3600).points() if metric.trend else None,
                    view.rates(metric, key, 60).points() if metric.kind is Kind.COUNTER else None,
                )
    return out


def scripted(ticks: int) -> list[Sample]:
    host = ScriptedHost()
    return [sample for _ in range(ticks) for sample in [*host.samples(), *host.hot()]]


@pytest.mark.parametrize("parts", [(400,), (1, 150, 249), (60,) * 6])
def test_many_at_once_is_the_same_as_one_by_one(parts: Sequence[int]) -> None:
    samples = scripted(sum(parts))
    one_by_one, at_once = Store(), Store()
    for sample in samples:
        one_by_one.ingest(sample)
    each = len(samples) // sum(parts)
    begin = 0
    for number, part in enumerate(parts):
        end = len(samples) if number == len(parts) - 1 else begin + part * each
        at_once.ingest_many(samples[begin:end])
        begin = end
    now_ns = max(sample.t_ns for sample in samples)
    assert told(at_once, now_ns) == told(one_by_one, now_ns)


def test_rows_that_go_back_in_time_are_refused_here_too() -> None:
    rows = [Gpu.row("g", t_s * NS_PER_S, {Gpu.util_pct: t_s}) for t_s in (5, 6, 4, 6, 7)]
    samples = [Sample("gpu", Gpu, row.t_ns, 0, (row,)) for row in rows]
    one_by_one, at_once = Store(), Store()
    for sample in samples:
        one_by_one.ingest(sample)
    at_once.ingest_many(samples)
    assert told(at_once, 7 * NS_PER_S) == told(one_by_one, 7 * NS_PER_S)
    points = at_once.view(7 * NS_PER_S).series(Gpu.util_pct, "g", 60).points()
    assert [value for _, value in points] == [5, 6, 7]


def test_nothing_is_taken_in_of_nothing() -> None:
    store = Store()
    store.ingest_many([])
    store.ingest_many([Sample("gpu", Gpu, 10, 0, ())])
    assert store.arrivals == 1
    assert store.view(10).keys(Gpu) == []
    assert isinstance(store.recent(0)[0][1].rows, tuple)
    assert Row("k", 1, ()).key == "k"
