"""Time stamps: whatever way a log dates its lines, they land on one axis."""

from __future__ import annotations

import pytest

from bottletop.importers import stamps
from bottletop.importers.moments import Moments

NEW_YEAR = 1_704_067_200.0


@pytest.mark.parametrize(
    ("raw", "after_s"),
    [
        ("2024/01/01 00:00:05.250", 5.25),
        ("2024-01-01 00:00:05", 5),
        ("2024-01-01T00:00:05.25Z", 5.25),
        ("2024-01-01T02:00:05+02:00", 5),
        ("20240101 00:00:05", 5),
        ("20240101   00:00:05", 5),
        ("Mon Jan  1 00:00:05 2024", 5),
        ("1704067205", 5),
        ("1704067205.5", 5.5),
        ("1704067205500", 5.5),
        ("1704067205500000", 5.5),
        ("1704067205500000000", 5.5),
    ],
)
def test_dates_of_every_tool_are_read(raw: str, after_s: float) -> None:
    assert stamps.wall_s(raw) == pytest.approx(NEW_YEAR + after_s)


@pytest.mark.parametrize("raw", ["", "soon", "12", "3.5", "13:00:00", "9" * 40, "nan", "inf", "²"])
def test_what_is_no_date_is_none(raw: str) -> None:
    assert stamps.wall_s(raw) is None


def test_times_of_day_go_on_over_midnight_and_begin_at_0() -> None:
    moments = Moments(1.0)
    stamps_of_day = ["23:59:58", "23:59:59", "00:00:00", "00:00:01"]
    assert [moments.at(stamp, "gpu")[0] for stamp in stamps_of_day] == [0, 1, 2, 3]
    assert not moments.dated
    assert moments.assumed_s is None


def test_without_stamps_a_reading_begins_when_an_entity_comes_again() -> None:
    moments = Moments(5.0)
    assert [moments.at("", who)[0] for who in "abcabcab"] == [0, 0, 0, 5, 5, 5, 10, 10]
    assert moments.assumed_s == 5.0


def test_cards_without_names_are_told_apart_by_rows_that_come_in_one_go() -> None:
    moments = Moments(1.0)
    at = ["2024/01/01 00:00:00.000", "2024/01/01 00:00:00.004"]
    at += ["2024/01/01 00:00:00.200", "2024/01/01 00:00:00.204"]
    assert [moments.at(stamp, "")[1] for stamp in at] == [0, 1, 0, 1]
