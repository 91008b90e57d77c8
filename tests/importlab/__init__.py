"""Reads foreign evidence as the product does, and asks what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop import importers
from bottletop.imported import judge
from bottletop.importers import Joined, Options, Reading
from bottletop.model import Absent
from bottletop.snapshot import ReadFile

if TYPE_CHECKING:
    from bottletop.importers.base import Fact
    from bottletop.model import Metric, State, Table, Value
    from bottletop.snapshot import Watch


def read(
    text: str | bytes, name: str = "log.txt", columns: str = "", every_s: float | None = None
) -> Reading:
    """Read one file's content by whichever importer knows it."""
    raw = text if isinstance(text, bytes) else text.encode()
    options = Options(tuple(columns.split(",")) if columns else (), every_s)
    return importers.read(importers.material(name, raw), options)


def facts(reading: Reading, table: type[Table]) -> list[Fact]:
    """What a reading says of one table, in its order."""
    return [fact for fact in reading.facts if fact.table is table]


def values(reading: Reading, metric: Metric) -> list[Value]:
    """One column, in the order of the rows."""
    return [fact.values[metric] for fact in facts(reading, metric.table) if metric in fact.values]


def state(value: Value) -> State:
    """Why a value is not there."""
    assert isinstance(value, Absent), value
    return value.state


def watch(*readings: Reading) -> Watch:
    """Judge readings together."""
    joined: Joined = importers.join(readings)
    return judge(joined, [ReadFile(f"file{n}", r.format) for n, r in enumerate(readings)])


def codes(watched: Watch) -> set[str]:
    """Codes of all findings."""
    return {finding.code for finding in watched.judgement.findings}


def query(rows: list[str], header: str) -> str:
    """A query log."""
    return "\n".join([header, *rows]) + "\n"
