"""The memory behind the store: a window of exact rows, and thinned history for a few columns.

Rings are appended to by one thread and read by others without a lock: columns are appended before
the time stamp, a reader takes its length from the time stamps, and trimming replaces the whole set
of arrays at once.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from itertools import chain
from operator import le, lt, sub, truediv
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NOT_READ, NS_PER_S, Kind, Metric, Row, Table, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAN = math.nan
TEXT = Kind.TEXT
NUMBERS = frozenset({int, float})
STALE_PERIODS = 2
TRIM_SLACK = 256
"""Rows kept beyond the window before old ones are dropped, so that trimming is amortised."""


class Series(NamedTuple):
    """Time-stamped numbers of one metric of one entity. NaN marks a moment without a value."""

    t_ns: array[int]
    values: array[float]

    def points(self) -> list[tuple[int, float]]:
        """The moments that have a value."""
        return [(t, v) for t, v in zip(self.t_ns, self.values, strict=True) if v == v]


EMPTY = Series(array("q"), array("d"))


class Ends(NamedTuple):
    """First and last row of one entity in a window, as numbers in the order of its columns."""

    rows: int
    """Rows in the window, these two included."""
    first_ns: int
    first: array[float]
    last_ns: int
    last: array[float]

    def grown(self, metric: Metric) -> float | None:
        """Growth of a counter between the two; None where an end is absent or it went back."""
        step = self.last[metric.index] - self.first[metric.index]
        return step if step >= 0 else None


class Ring:
    """Rows of one entity over the raw window.

    Numbers are kept row by row in one array, with NaN where there was none: a row is added in one
    call and a column is a strided slice, both at C speed. Text and the reasons of absent values are
    kept as a list of changes, since they hardly ever change. Together they give every row back
    exactly, which is how a recording that starts late includes the past.
    """

    __slots__ = (
        "_changes",
        "_climbs",
        "_data",
        "_width",
        "last",
        "last_sample",
        "stale_ns",
        "stretch",
        "table",
    )

    def __init__(self, table: type[Table], stretch: float = 1.0) -> None:
        """`stretch` is how many times slower than declared the table is filled."""
        self.table = table
        self.stretch = stretch
        self.stale_ns = stale_ns(table, stretch)
        """Age from which its newest row is stale."""
        self._width = len(table.columns)
        self._data = (array("q"), array("d"), array("q"))
        self._changes: list[tuple[int, int, Value]] = []
        self._climbs: dict[int, tuple[int, int]] = {}
        """Stretch of time, by column, over which a counter is known to have only grown."""
        self.last: Row | None = None
        self.last_sample = ("", 0)
        """Source and number of the sample that had its newest row."""

    def append(self, row: Row, arrival: int = 0) -> None:
        """Add a row that came with sample number `arrival`; order in time never goes back."""
        times, cells, arrivals = self._data
        _, t_ns, values = row
        if times and t_ns <= times[-1]:
            return
        odd = [at for at, value in enumerate(values) if value.__class__ not in NUMBERS]
        if odd:
            before = None if self.last is None else self.last.values
            numbers = list(values)
            for at in odd:
                numbers[at] = NAN
                if before is None or before[at] != values[at]:
                    self._changes.append((t_ns, at, values[at]))
            cells.extend(numbers)  # type: ignore[arg-type]
        else:
            cells.extend(values)  # type: ignore[arg-type]
        arrivals.append(arrival)
        times.append(t_ns)
        self.last = row

    def extend(self, rows: Sequence[Row], arrivals: Sequence[int]) -> None:
        """Add many rows at once: as `append` one by one, at a tenth of the cost a row."""
        stamps = [row[1] for row in rows]
        newest_ns = self.newest_ns
        if not (stamps and newest_ns < stamps[0] and all(map(lt, stamps, stamps[1:]))):
            for row, arrival in zip(rows, arrivals, strict=True):
                self.append(row, arrival)
            return
        columns: list[Sequence[object]] = []
        changes: list[tuple[int, int, Value]] = []
        for at, values in enumerate(zip(*[row[2] for row in rows], strict=True)):
            if NUMBERS.issuperset(map(type, values)):
                columns.append(values)
                continue
            columns.append([v if v.__class__ in NUMBERS else NAN for v in values])
            before = () if self.last is None else (self.last.values[at],)
            changes += _changed(stamps, at, values, before)
        times, cells, numbers = self._data
        cells.extend(chain.from_iterable(zip(*columns, strict=True)))
        self._changes += sorted(changes, key=lambda change: change[:2])
        numbers.extend(arrivals)
        times.extend(stamps)
        self.last = rows[-1]

    def trim(self, before_ns: int) -> None:
        """Drop rows older than `before_ns` once enough of them have gathered."""
        times, cells, arrivals = self._data
        stale = bisect_left(times, before_ns)
        if stale > TRIM_SLACK:
            self._data = (times[stale:], cells[stale * self._width :], arrivals[stale:])
            latest = {
                index: (t, index, value) for t, index, value in self._changes if t < before_ns
            }
            kept = [change for change in self._changes if change[0] >= before_ns]
            self._changes = sorted(latest.values(), key=lambda change: change[0]) + kept

    def rows(self, since_ns: int) -> list[tuple[int, Row]]:
        """Every row stamped after `since_ns`, exactly as it came, with its arrival number."""
        times, cells, arrivals = self._data
        start = bisect_left(times, since_ns + 1)
        others: list[Value] = [NOT_READ] * self._width
        changes = iter(self._changes)
        change = next(changes, None)
        out = []
        for at in range(start, len(times)):
            t_ns = times[at]
            while change is not None and change[0] <= t_ns:
                others[change[1]] = change[2]
                change = next(changes, None)
            numbers = cells[at * self._width : (at + 1) * self._width]
            values = tuple(
                others[index] if number != number else self._exact(index, number)
                for index, number in enumerate(numbers)
            )
            out.append((arrivals[at], Row(self.last.key if self.last else "", t_ns, values)))
        return out

    def _exact(self, index: int, value: float) -> Value:
        """Undo the array's float: the quantum gives back the very number that came."""
        return self.table.columns[index].quantise(value)

    def series(self, metric: Metric, since_ns: int, until_ns: int | None = None) -> Series:
        """Rows stamped in (since_ns, until_ns]. A text metric has none."""
        if metric.kind is TEXT:
            return EMPTY
        times, cells, _ = self._data
        start, end = _between(times, since_ns, until_ns)
        width = self._width
        column = cells[start * width + metric.index : end * width : width]
        return Series(times[start:end], column)

    def holds(self, metric: Metric, value: float, since_ns: int, until_ns: int) -> bool:
        """Whether any row stamped in (since_ns, until_ns] has this very number."""
        times, cells, _ = self._data
        start, end = _between(times, since_ns, until_ns)
        return value in cells[start * self._width + metric.index : end * self._width : self._width]

    def ends(self, since_ns: int, until_ns: int | None = None) -> Ends | None:
        """First and last row stamped in (since_ns, until_ns]; None with fewer than two."""
        times, cells, _ = self._data
        start, end = _between(times, since_ns, until_ns)
        if end - start < 2:
            return None
        width, last = self._width, end - 1
        return Ends(
            end - start,
            times[start],
            cells[start * width : (start + 1) * width],
            times[last],
            cells[last * width : end * width],
        )

    def edges(self, metric: Metric, since_ns: int) -> tuple[int, float, int, float, float] | None:
        """First and last reading in the window with the growth between them.

        Returns (t0, first, t1, last, grown); `grown` adds only steps upward, so a counter that was
        reset loses the step, not the whole window. None with fewer than two readings.
        """
        times, cells, _ = self._data
        end = len(times)
        start = bisect_left(times, since_ns, 0, end)
        if end - start < 2:
            return None
        width, at = self._width, metric.index
        first_ns, last_ns = times[start], times[end - 1]
        climb = self._climbs.get(at)
        climbed = climb is not None and climb[0] <= first_ns and climb[1] == last_ns
        if climbed or self._only_grew(times, cells, at, start):
            first, last = cells[start * width + at], cells[(end - 1) * width + at]
            return first_ns, first, last_ns, last, last - first
        return _edges_with_steps(times[start:end], cells[start * width + at : end * width : width])

    def _only_grew(self, times: array[int], cells: array[float], at: int, start: int) -> bool:
        """Whether a counter grew, or stood, at every step from a row on, which is the rule.

        What one look found is kept, so that the next has only the new rows to go through. Two
        readers at once keep one of two true stretches.
        """
        end, first_ns = len(times), times[start]
        since_ns, until_ns = self._climbs.get(at, (0, -1))
        if since_ns <= first_ns <= until_ns:
            start = bisect_left(times, until_ns, start, end)
        else:
            since_ns = first_ns
        values = cells[start * self._width + at : end * self._width : self._width]
        if not all(map(le, values, values[1:])):
            return False
        self._climbs[at] = since_ns, times[end - 1]
        return True

    @property
    def newest_ns(self) -> int:
        """Stamp of the newest row, 0 when there is none."""
        times = self._data[0]
        return times[-1] if times else 0


def stale_ns(table: type[Table], stretch: float) -> int:
    """Age from which a row is stale, of a table that is filled `stretch` times slower than
    declared."""
    return int((STALE_PERIODS * table.period_s * stretch + 0.5) * NS_PER_S)


def rates_of(series: Series) -> Series:
    """Growth per second between neighbouring rows, NaN where an end is missing or it went back."""
    times, values = series
    steps = map(sub, values[1:], values)
    rates = map(truediv, steps, map(sub, times[1:], times))
    return Series(times[1:], array("d", [r * NS_PER_S if r >= 0 else NAN for r in rates]))


def _between(times: array[int], since_ns: int, until_ns: int | None) -> tuple[int, int]:
    """Numbers of the first row stamped after `since_ns` and of the first after `until_ns`."""
    end = len(times)
    if until_ns is not None and end and times[end - 1] > until_ns:
        end = bisect_left(times, until_ns + 1, 0, end)
    return bisect_left(times, since_ns + 1, 0, end), end


def _changed(
    stamps: Sequence[int], at: int, values: Sequence[Value], before: tuple[Value, ...]
) -> Iterator[tuple[int, int, Value]]:
    """The values of a column that are no numbers and differ from the one before."""
    for t_ns, value in zip(stamps, values, strict=True):
        if value.__class__ not in NUMBERS and (value,) != before:
            yield t_ns, at, value
        before = (value,)


def _edges_with_steps(
    times: array[int], values: array[float]
) -> tuple[int, float, int, float, float] | None:
    """`Ring.edges` where a reading is missing or the counter went back."""
    first = last = NAN
    t0 = t1 = 0
    grown = 0.0
    seen = 0
    for t_ns, value in zip(times, values, strict=True):
        if value != value:
            continue
        if not seen:
            t0, first = t_ns, value
        elif value >= last:
            grown += value - last
        t1, last = t_ns, value
        seen += 1
    return (t0, first, t1, last, grown) if seen > 1 else None


class Trend:
    """Mean per bucket over a long span: one second for an hour, one minute for a day."""

    __slots__ = ("_bucket_ns", "_count", "_data", "_keep", "_start_ns", "_sum")

    def __init__(self, bucket_s: int, span_s: int) -> None:
        self._bucket_ns = bucket_s * NS_PER_S
        self._keep = span_s // bucket_s
        self._data = (array("q"), array("f"))
        self._start_ns = -1
        self._sum = 0.0
        self._count = 0

    def add(self, t_ns: int, value: float) -> None:
        """Count `value` into the bucket of `t_ns`; NaN counts for nothing."""
        start = t_ns - t_ns % self._bucket_ns
        if start != self._start_ns:
            self._close()
            self._start_ns = start
        if value == value:
            self._sum += value
            self._count += 1

    def _close(self) -> None:
        if self._count:
            times, values = self._data
            values.append(self._sum / self._count)
            times.append(self._start_ns)
            if len(times) > self._keep + TRIM_SLACK:
                self._data = (times[-self._keep :], values[-self._keep :])
        self._sum, self._count = 0.0, 0

    def series(self, since_ns: int) -> Series:
        """Closed buckets that start after `since_ns`."""
        times, values = self._data
        end = len(times)
        start = bisect_left(times, since_ns + 1, 0, end)
        return Series(times[start:end], array("d", values[start:end]))
