"""The memory behind the store: a window of exact rows, and thinned history for a few columns.

Rings are appended to by one thread and read by others without a lock: columns are appended before
the time stamp, a reader takes its length from the time stamps, and trimming replaces the whole set
of arrays at once.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from typing import NamedTuple

from bottletop.model import NS_PER_S, Kind, Metric, Row, Table

NAN = math.nan
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


class Ring:
    """Rows of one entity over the raw window, column by column."""

    __slots__ = ("_data", "_numeric", "last", "last_sample")

    def __init__(self, table: type[Table]) -> None:
        self._numeric = tuple(metric.kind is not Kind.TEXT for metric in table.columns)
        self._data = (array("q"), tuple(array("d") for _ in table.columns))
        self.last: Row | None = None
        self.last_sample = 0

    def append(self, row: Row) -> None:
        """Add a row. Rows older than the newest are refused silently: order never goes back."""
        times, columns = self._data
        if times and row.t_ns <= times[-1]:
            if row.t_ns == times[-1]:
                self.last = row
            return
        for column, numeric, value in zip(columns, self._numeric, row.values, strict=True):
            if numeric:
                column.append(value if isinstance(value, (int, float)) else NAN)
        times.append(row.t_ns)
        self.last = row

    def trim(self, before_ns: int) -> None:
        """Drop rows older than `before_ns` once enough of them have gathered."""
        times, columns = self._data
        stale = bisect_left(times, before_ns)
        if stale > TRIM_SLACK:
            self._data = (times[stale:], tuple(column[stale:] for column in columns))

    def series(self, metric: Metric, since_ns: int, until_ns: int | None = None) -> Series:
        """Rows stamped in (since_ns, until_ns]. A text metric has none."""
        if not self._numeric[metric.index]:
            return EMPTY
        times, columns = self._data
        end = len(times)
        if until_ns is not None and end and times[end - 1] > until_ns:
            end = bisect_left(times, until_ns + 1, 0, end)
        start = bisect_left(times, since_ns + 1, 0, end)
        return Series(times[start:end], columns[metric.index][start:end])

    def edges(self, metric: Metric, since_ns: int) -> tuple[int, float, int, float, float] | None:
        """First and last reading in the window with the growth between them.

        Returns (t0, first, t1, last, grown); `grown` adds only steps upward, so a counter that was
        reset loses the step, not the whole window. None with fewer than two readings.
        """
        times, columns = self._data
        end = len(times)
        column = columns[metric.index]
        start = bisect_left(times, since_ns, 0, end)
        first = last = NAN
        t0 = t1 = 0
        grown = 0.0
        seen = 0
        for index in range(start, end):
            value = column[index]
            if value != value:
                continue
            if not seen:
                t0, first = times[index], value
            elif value >= last:
                grown += value - last
            t1, last = times[index], value
            seen += 1
        return (t0, first, t1, last, grown) if seen > 1 else None

    @property
    def newest_ns(self) -> int:
        """Stamp of the newest row, 0 when there is none."""
        times = self._data[0]
        return times[-1] if times else 0


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
