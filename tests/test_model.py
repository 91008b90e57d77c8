"""Tables: declared once, rows quantised, foreign columns refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bottletop.model import NOT_READ, Anchor, Kind, Metric, ProcessId
from bottletop.tables import BY_NAME, TABLES, Core, Gpu, metric

NUMERIC = [m for table in TABLES for m in table.columns if m.kind is not Kind.TEXT]


def test_table_and_metric_names_are_unique_and_found_by_id() -> None:
    ids = [m.id for table in TABLES for m in table.columns]
    assert len(BY_NAME) == len(TABLES)
    assert len(set(ids)) == len(ids)
    assert all(metric(name).id == name for name in ids)
    with pytest.raises(KeyError):
        metric("gpu.row")


def test_every_metric_explains_itself() -> None:
    for table in TABLES:
        assert table.__doc__
        assert table.entity
        assert all(m.help for m in table.columns), table


def test_a_row_refuses_the_column_of_another_table() -> None:
    with pytest.raises(KeyError):
        Gpu.row("GPU-a", 1, {Core.user_ns: 1})


def test_columns_not_named_are_not_read() -> None:
    row = Gpu.row("GPU-a", 1, {Gpu.power_w: 71.234})
    assert row.values[Gpu.util_pct.index] is NOT_READ
    assert row.values[Gpu.power_w.index] == pytest.approx(71.2)


def test_columns_not_named_keep_what_an_earlier_row_said() -> None:
    before = Gpu.row("GPU-a", 1, {Gpu.power_w: 71.2, Gpu.util_pct: 50})
    after = Gpu.row("GPU-a", 2, {Gpu.util_pct: 60.4}, before.values)
    assert after.values[Gpu.util_pct.index] == 60
    assert after.values[Gpu.power_w.index] == before.values[Gpu.power_w.index]
    assert before.values[Gpu.util_pct.index] == 50


@given(st.sampled_from(NUMERIC), st.floats(0, 1e15))
def test_quantising_twice_changes_nothing(column: Metric, value: float) -> None:
    once = column.quantise(value)
    assert column.quantise(once) == once


def test_process_keys_read_back() -> None:
    process = ProcessId(12, 345)
    assert ProcessId.parse(process.key) == process
    assert ProcessId.parse(process.thread_key(13)) == process
    with pytest.raises(ValueError):
        ProcessId.parse("cpu3")


def test_the_anchor_maps_to_wall_time() -> None:
    assert Anchor(1_000, 50_000).wall_at(1_500) == 50_500
