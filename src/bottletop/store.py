"""Samples in, windows out. One store per run, filled by the runtime or by replay.

The rules and the screens see it through a `View`, which never changes what is stored and answers
"unknown" by raising `Missing`, so that no caller can mistake it for a zero.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bottletop.model import NS_PER_S, Absent, Kind, Metric, Row, Sample, State, Table, Value
from bottletop.rings import EMPTY, Ends, Ring, Series, Trend, rates_of, stale_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

RAW_SPAN_S = round(Table.kept_s)
HOUR_S = 3600
DAY_S = 86_400
RECENT_SLACK_NS = 5 * NS_PER_S
"""Rows of a sample may be stamped this much before the sample itself (driver buffers)."""
SWEEP_EVERY = 32
"""Samples of a table between two sweeps of its old rows."""
MAX_ENTITIES = 20_000
"""Bound on entities a table may hold: a hostile source cannot grow us without end."""

NEVER_SEEN = Absent(State.NOT_READ, "never seen")

T = TypeVar("T")
_COUNTER = Kind.COUNTER


class Missing(Exception):
    """A value that a judgement needs is not there."""

    def __init__(self, metric: Metric | type[Table], key: str, reason: str) -> None:
        self.what = metric.id if isinstance(metric, Metric) else metric.name
        self.key = key
        self.reason = reason
        super().__init__(self.what, key, reason)

    def __str__(self) -> str:
        where = f" of {self.key}" if self.key else ""
        return f"{self.what}{where}: {self.reason}"


class Growth(NamedTuple):
    """How far a counter moved over the part of a window that was really covered."""

    amount: float
    span_s: float

    @property
    def per_s(self) -> float:
        return self.amount / self.span_s


class _TableState:
    __slots__ = ("newest", "rings", "sample_number", "trends")

    def __init__(self) -> None:
        self.rings: dict[str, Ring] = {}
        self.trends: dict[tuple[str, int], tuple[Trend, Trend]] = {}
        self.sample_number = 0
        self.newest: dict[str, tuple[int, int]] = {}
        """Number and time of the newest sample of each source: several may fill one table."""

    def count(self, sample: Sample) -> tuple[str, int]:
        """Count a sample in; returns what marks the entities that are in it."""
        if not sample.table.stream or sample.rows:
            self.sample_number += 1
            self.newest[sample.source] = self.sample_number, sample.t_ns
        return sample.source, self.sample_number


class _Run:
    """Rows of one entity that are taken in at once."""

    __slots__ = ("arrivals", "mark", "rows")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.arrivals: list[int] = []
        self.mark = ("", 0)


class Store:
    """Tiered rings: exact rows for five minutes, 1 s means for an hour, 1 min means for a day.

    `periods` are the seconds between rows of tables that are filled more slowly than declared, as
    imported logs are. Their rows stay fresh for as many periods as others, windows on them reach
    back over as many rows, and what is kept follows.
    """

    def __init__(self, periods: Mapping[type[Table], float] | None = None) -> None:
        self.stretch = {
            table: period / table.period_s
            for table, period in (periods or {}).items()
            if period > table.period_s
        }
        """How many times slower than declared each slow table is filled."""
        self._tables: dict[type[Table], _TableState] = {}
        self._log: deque[tuple[int, Sample]] = deque()
        self.arrivals = 0
        """Samples taken in so far. Recordings keep it, so that replay delivers in that order."""
        self.dropped_entities = 0

    def ingest(self, sample: Sample) -> int:
        """Take in one sample and return its arrival number."""
        self.arrivals += 1
        table = sample.table
        state = self._tables.get(table)
        if state is None:
            state = self._tables[table] = _TableState()
        mark = state.count(sample)
        trended = [metric for metric in table.columns if metric.trend]
        horizon_ns = sample.t_ns - self._kept_ns(table)
        for row in sample.rows:
            ring = state.rings.get(row.key)
            if ring is None:
                if len(state.rings) >= MAX_ENTITIES:
                    self.dropped_entities += 1
                    continue
                ring = state.rings[row.key] = Ring(table, self.stretch.get(table, 1.0))
            ring.append(row, self.arrivals)
            ring.last_sample = mark
            for metric in trended:
                self._trend(state, row, metric)
        if state.sample_number % SWEEP_EVERY == 0:
            self._sweep(state, horizon_ns)
        self._log.append((self.arrivals, sample._replace(rows=())))
        while self._log[0][1].t_ns < horizon_ns:
            self._log.popleft()
        return self.arrivals

    def _kept_ns(self, table: type[Table]) -> int:
        """How far back exact rows of a table are kept."""
        return round(table.kept_s * self.stretch.get(table, 1.0) * NS_PER_S)

    def ingest_many(self, samples: Iterable[Sample]) -> None:
        """Take in many samples: as `ingest` one by one, in a fifth of the time. For replays."""
        runs: dict[tuple[type[Table], str], _Run] = {}
        newest_ns: dict[type[Table], int] = {}
        for sample in samples:
            self.arrivals += 1
            table = sample.table
            state = self._tables.setdefault(table, _TableState())
            mark = state.count(sample)
            for row in sample.rows:
                run = runs.get((table, row.key))
                if run is None:
                    run = runs[table, row.key] = _Run()
                run.rows.append(row)
                run.arrivals.append(self.arrivals)
                run.mark = mark
            newest_ns[table] = sample.t_ns
            self._log.append((self.arrivals, sample._replace(rows=())))
        for (table, key), run in runs.items():
            self._take_run(self._tables[table], table, key, run)
        for table, t_ns in newest_ns.items():
            self._sweep(self._tables[table], t_ns - self._kept_ns(table))
        horizon_ns = max(newest_ns.values(), default=0) - RAW_SPAN_S * NS_PER_S
        while self._log and self._log[0][1].t_ns < horizon_ns:
            self._log.popleft()

    def _take_run(self, state: _TableState, table: type[Table], key: str, run: _Run) -> None:
        ring = state.rings.get(key)
        if ring is None:
            if len(state.rings) >= MAX_ENTITIES:
                self.dropped_entities += len(run.rows)
                return
            ring = state.rings[key] = Ring(table, self.stretch.get(table, 1.0))
        ring.extend(run.rows, run.arrivals)
        ring.last_sample = run.mark
        for metric in table.columns:
            if metric.trend:
                for row in run.rows:
                    self._trend(state, row, metric)

    def recent(self, since_ns: int) -> list[tuple[int, Sample]]:
        """Samples read after `since_ns`, whole and in arrival order, as a recording wants them.

        May be called while another thread adds samples; one being added just then may lack rows.
        """
        rows: dict[int, list[Row]] = {}
        for state in list(self._tables.values()):
            for ring in list(state.rings.values()):
                for arrival, row in ring.rows(since_ns - RECENT_SLACK_NS):
                    rows.setdefault(arrival, []).append(row)
        return [
            (arrival, sample._replace(rows=tuple(rows.get(arrival, ()))))
            for arrival, sample in list(self._log)
            if sample.t_ns > since_ns
        ]

    @staticmethod
    def _trend(state: _TableState, row: Row, metric: Metric) -> None:
        value = row.values[metric.index]
        if not isinstance(value, (int, float)):
            return
        pair = state.trends.get((row.key, metric.index))
        if pair is None:
            pair = state.trends[row.key, metric.index] = (Trend(1, HOUR_S), Trend(60, DAY_S))
        for trend in pair:
            trend.add(row.t_ns, value)

    @staticmethod
    def _sweep(state: _TableState, horizon_ns: int) -> None:
        """Drop rows past the window, and entities that have been gone for a whole window."""
        for ring in state.rings.values():
            ring.trim(horizon_ns)
        for key in [key for key, ring in state.rings.items() if ring.newest_ns < horizon_ns]:
            ring = state.rings.pop(key)
            for index in range(len(ring.last.values) if ring.last else 0):
                state.trends.pop((key, index), None)

    def view(self, now_ns: int) -> View:
        """A reading glass on the store as of `now_ns`."""
        return View(self, now_ns)


class View:
    """Read access for rules and screens at one moment.

    Methods that return numbers raise `Missing` where there is none; `last`, `keys` and the series
    methods do not raise.
    """

    __slots__ = ("_keys", "_memo", "_stretch", "_tables", "now_ns")

    def __init__(self, store: Store, now_ns: int) -> None:
        self._tables = store._tables
        self._stretch = store.stretch
        self.now_ns = now_ns
        self._keys: dict[type[Table], list[str]] = {}
        self._memo: dict[object, object] = {}

    # -- entities ---------------------------------------------------------------------------

    def keys(self, table: type[Table]) -> list[str]:
        """Entities alive now, in the order in which they first appeared.

        An entity is alive while it is in the newest sample of its source and that sample is fresh;
        an entity of a stream table while its newest row is fresh.
        """
        keys = self._keys.get(table)
        if keys is None:
            keys = self._keys[table] = self._alive(table)
        return keys

    def _alive(self, table: type[Table]) -> list[str]:
        state = self._tables.get(table)
        if state is None:
            return []
        oldest_ns = self.now_ns - stale_ns(table, self._stretch.get(table, 1.0))
        rings = list(state.rings.items())
        if table.stream:
            return [key for key, ring in rings if ring.newest_ns >= oldest_ns]
        newest = list(state.newest.items())
        marks = {(source, number) for source, (number, t_ns) in newest if t_ns >= oldest_ns}
        return [key for key, ring in rings if ring.last_sample in marks]

    def age_s(self, table: type[Table], key: str) -> float | None:
        """Seconds since the entity's newest row, None if it was never seen."""
        ring = self._ring(table, key)
        if ring is None or not ring.newest_ns:
            return None
        return (self.now_ns - ring.newest_ns) / NS_PER_S

    # -- cadence ----------------------------------------------------------------------------

    def period_s(self, table: type[Table]) -> float:
        """Seconds between two rows of an entity: declared, or slower where the source is."""
        return table.period_s * self._stretch.get(table, 1.0)

    def reach_s(self, table: type[Table], span_s: float) -> float:
        """How far back a look of `span_s` goes, so that it holds the readings it was meant to."""
        return span_s * self._stretch.get(table, 1.0)

    # -- single values ----------------------------------------------------------------------

    def last(self, metric: Metric, key: str) -> Value:
        """The newest value, or an `Absent` that says why there is none."""
        ring = self._ring(metric.table, key)
        if ring is None or ring.last is None:
            return NEVER_SEEN
        _, t_ns, values = ring.last
        value = values[metric.index]
        if isinstance(value, Absent):
            return value
        age_ns = self.now_ns - t_ns
        if age_ns > ring.stale_ns:
            return Absent(State.STALE, f"last read {age_ns / NS_PER_S:.0f} s ago", value)
        return value

    def number(self, metric: Metric, key: str) -> float:
        """The newest value as a number. Raises `Missing`."""
        value = self.last(metric, key)
        if isinstance(value, (int, float)):
            return value
        raise Missing(metric, key, str(value) if isinstance(value, Absent) else "not a number")

    def text(self, metric: Metric, key: str) -> str:
        """The newest text, empty when there is none."""
        value = self.last(metric, key)
        return value if isinstance(value, str) else ""

    # -- windows ----------------------------------------------------------------------------

    def series(self, metric: Metric, key: str, span_s: float) -> Series:
        """Every row of the last `span_s` seconds; NaN where the value was absent.

        Longer by as much as the table is filled more slowly than declared (`reach_s`), as in all
        windows.
        """
        ring = self._ring(metric.table, key)
        if ring is None:
            return EMPTY
        return ring.series(metric, self._since_ns(ring, span_s), self.now_ns)

    def ends(self, table: type[Table], key: str, span_s: float) -> Ends | None:
        """First and last row of the window, of which all counters of an entity can be told at once;
        None with fewer than two."""
        ring = self._ring(table, key)
        return None if ring is None else ring.ends(self._since_ns(ring, span_s), self.now_ns)

    def saw(self, metric: Metric, key: str, value: float, span_s: float) -> bool:
        """Whether any row of the last `span_s` seconds has this very number."""
        ring = self._ring(metric.table, key)
        if ring is None:
            return False
        return ring.holds(metric, value, self._since_ns(ring, span_s), self.now_ns)

    def rates(self, metric: Metric, key: str, span_s: float) -> Series:
        """Growth per second of a counter between neighbouring rows, stamped at the later one.

        NaN where either end is absent or the counter went back.
        """
        return rates_of(self.series(metric, key, span_s))

    def mean(self, metric: Metric, key: str, span_s: float) -> float:
        """Plain mean of a gauge over the window. Raises `Missing` when stale or never read."""
        self._require_fresh(metric, key)
        values = [v for v in self.series(metric, key, span_s).values if v == v]
        if not values:
            raise Missing(metric, key, str(self.last(metric, key)))
        return sum(values) / len(values)

    def growth(self, metric: Metric, key: str, span_s: float) -> Growth:
        """How much a counter grew over the window, and over how many seconds of it.

        Steps downward (a reset, a driver reload) count as nothing. Raises `Missing` when the source
        is stale or two readings are not there yet.
        """
        if metric.kind is not _COUNTER:
            raise TypeError(f"{metric.id} is not a counter")
        ring = self._require_fresh(metric, key)
        edges = ring.edges(metric, self._since_ns(ring, span_s))
        if edges is None or edges[2] <= edges[0]:
            last = self.last(metric, key)
            why = str(last) if isinstance(last, Absent) else "needs two readings"
            raise Missing(metric, key, why)
        return Growth(edges[4], (edges[2] - edges[0]) / NS_PER_S)

    def trend(self, metric: Metric, key: str, span_s: float) -> Series:
        """History beyond the raw window: 1 s means up to an hour, 1 min means up to a day."""
        state = self._tables.get(metric.table)
        pair = state.trends.get((key, metric.index)) if state else None
        if pair is None:
            return EMPTY
        return pair[0 if span_s <= HOUR_S else 1].series(self.now_ns - round(span_s * NS_PER_S))

    # -- work shared by rules ---------------------------------------------------------------

    def memo(self, key: object, compute: Callable[[], T]) -> T:
        """Compute something once a view, however many rules ask for it."""
        if key not in self._memo:
            self._memo[key] = compute()
        return self._memo[key]  # type: ignore[return-value]

    def _ring(self, table: type[Table], key: str) -> Ring | None:
        state = self._tables.get(table)
        return state.rings.get(key) if state is not None else None

    def _require_fresh(self, metric: Metric, key: str) -> Ring:
        ring = self._ring(metric.table, key)
        if ring is None or ring.last is None:
            raise Missing(metric, key, "never read")
        age_ns = self.now_ns - ring.last.t_ns
        if age_ns > ring.stale_ns:
            raise Missing(metric, key, f"stale: last read {age_ns / NS_PER_S:.0f} s ago")
        return ring

    def _since_ns(self, ring: Ring, span_s: float) -> int:
        return self.now_ns - round(span_s * ring.stretch * NS_PER_S)
