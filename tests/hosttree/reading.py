"""Short ways to what a collector read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.clock import ManualClock
from bottletop.collectors.base import Context

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bottletop.collectors.base import Collector
    from bottletop.model import Row, Sample, Table, Target, Value
    from bottletop.roots import Roots


def context_for(roots: Roots, target: Target | None = None) -> Context:
    """A context with a clock that stands until it is told to move."""
    return Context(ManualClock(), roots, target=lambda: target)


def cells(table: type[Table], row: Row) -> dict[str, Value]:
    """A row as column name to value."""
    return {metric.name: value for metric, value in zip(table.columns, row.values, strict=True)}


def read_table(collector: Collector, table: type[Table]) -> dict[str, dict[str, Value]]:
    """Read once and give one table's rows by key."""
    return of_table(collector.read(), table)


def of_table(samples: Iterable[Sample], table: type[Table]) -> dict[str, dict[str, Value]]:
    """The rows of one table among samples, by key."""
    found: dict[str, dict[str, Value]] = {}
    for sample in samples:
        if sample.table is table:
            found.update((row.key, cells(table, row)) for row in sample.rows)
    return found


def only(rows: dict[str, dict[str, Value]]) -> dict[str, Value]:
    """The single row that there must be."""
    assert len(rows) == 1, list(rows)
    return next(iter(rows.values()))
