"""Numbers read the same everywhere, and what is absent is never a zero."""

from __future__ import annotations

import pytest

from bottletop.model import Absent, Value
from bottletop.tables import TABLES
from bottletop.units import UNITS, value_text


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0, "%", "0 %"),
        (4.25, "%", "4.2 %"),
        (97, "%", "97 %"),
        (84_934_656_000, "B", "79.1 GiB"),
        (1536, "B/s", "1.5 KiB/s"),
        (0, "B", "0 B"),
        (0.0412, "s", "41.2 ms"),
        (245, "s", "4m05s"),
        (7380, "s", "2h03m"),
        (412_000_000, "ns", "412 ms"),
        (300.0, "W", "300 W"),
        (64, "C", "64 °C"),
        (3, "", "3"),
        (None, "W", "–"),
        (Absent.unsupported("MIG"), "%", "–"),
        ("nvme", "", "nvme"),
    ],
)
def test_value_text(value: Value | None, unit: str, shown: str) -> None:
    assert value_text(value, unit) == shown


def test_every_declared_unit_is_known() -> None:
    declared = {metric.unit for table in TABLES for metric in table.columns}
    assert declared <= UNITS
