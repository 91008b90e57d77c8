"""The table of GPU signals says of every column where it comes from, and the page is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from bottletop.collectors import docs
from bottletop.collectors.gpu import GpuCollector
from bottletop.collectors.gpu_event import GpuEventCollector

PAGE = Path(__file__).parents[2] / "docs" / "collectors.md"


def test_every_column_of_every_gpu_table_is_accounted_for_once() -> None:
    assert set(docs.TABLES) == {*GpuCollector.tables, *GpuEventCollector.tables}
    for table in docs.TABLES:
        assert [row[0] for row in docs.rows(table)] == [metric.name for metric in table.columns]
    told = [metric for metric, _ in docs.told()]
    assert len(told) == len(set(told))


def test_the_page_is_what_the_collectors_read() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert docs.inserted(page) == page, (
        "run: python -m bottletop.collectors.docs docs/collectors.md"
    )


def test_a_page_without_marks_is_refused_and_what_stands_around_them_kept() -> None:
    with pytest.raises(ValueError, match="end of what is written"):
        docs.inserted(f"before {docs.BEGIN}")
    page = docs.inserted(f"before\n{docs.BEGIN}\nold\n{docs.END}\nafter\n")
    assert page.startswith("before\n")
    assert page.endswith("\nafter\n")
    assert "old\n" not in page
    assert "| `power_w` | field 185, else nvmlDeviceGetPowerUsage | W |" in page
