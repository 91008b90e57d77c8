"""Base of collectors that read kernel files: stamps samples, keeps captured trees honest."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Absent, Kind, Row, Sample, State, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context

CAPTURED_ONCE = Absent(State.NOT_APPLICABLE, "captured at one moment: counters have no rate")


class FileCollector:
    """What these collectors share. Subclasses set the class attributes and implement `read`."""

    name: ClassVar[str]
    tables: ClassVar[tuple[type[Table], ...]]
    period_s: ClassVar[float] = 1.0
    blocking: ClassVar[bool] = False
    of_target: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        self._context = context
        self._clock = context.clock
        self._roots = context.roots
        self._before: dict[type[Table], Sequence[Row]] = {}

    def open(self) -> None:
        """Nothing to prepare."""

    def read(self) -> Sequence[Sample]:
        """Read once."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to let go of."""

    def sample(self, table: type[Table], began_ns: int, rows: Sequence[Row]) -> Sample:
        """Finish a read that began at `began_ns`."""
        if not self._roots.live:
            rows = self._without_frozen_counters(table, rows)
        now_ns = self._clock.monotonic_ns()
        return Sample(self.name, table, now_ns, now_ns - began_ns, tuple(rows))

    def _without_frozen_counters(self, table: type[Table], rows: Sequence[Row]) -> Sequence[Row]:
        """Rows of a captured tree, without counters once a second read finds them all unmoved.

        The files of a capture do not move, so each rate would be a false zero. A tree that
        something rewrites while it is read keeps its counters.
        """
        counters = [metric.index for metric in table.columns if metric.kind is Kind.COUNTER]
        before = self._before.get(table)
        self._before[table] = rows
        if before is None or not counters or _moved(before, rows, counters):
            return rows
        blank = []
        for row in rows:
            values = list(row.values)
            for index in counters:
                if not isinstance(values[index], Absent):
                    values[index] = CAPTURED_ONCE
            blank.append(row._replace(values=tuple(values)))
        return blank


def _moved(before: Sequence[Row], rows: Sequence[Row], counters: Sequence[int]) -> bool:
    """Whether any counter is not what it was; looks no further than the first one that moved."""
    if len(before) != len(rows):
        return True
    for old, new in zip(before, rows, strict=True):
        if old.key != new.key:
            return True
        if old.values is not new.values and any(
            old.values[index] != new.values[index] for index in counters
        ):
            return True
    return False
