"""The words everything else is written in: values, tables, samples, findings, verdicts.

A *table* is declared once (see `bottletop.tables`); collectors, importers, the demo and the session
reader fill it, and the store, the rules, the exporters and the screens walk the declaration.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NS_PER_S = 1_000_000_000


class State(enum.StrEnum):
    """Why there is no value. A missing value is never written as zero."""

    NOT_READ = "not read"
    NOT_APPLICABLE = "not applicable"
    """Known to have no value, such as a quota that is not set."""
    UNSUPPORTED = "unsupported"
    DENIED = "denied"
    STALE = "stale"
    LOST = "lost"
    ERROR = "error"
    IMPLAUSIBLE = "implausible"


@dataclass(frozen=True, slots=True)
class Absent:
    """Stands where a value would stand, says why it is not there, and refuses arithmetic."""

    state: State
    reason: str = ""
    raw: int | float | str | None = None
    """What the source answered, kept when the answer was implausible."""

    @classmethod
    def unsupported(cls, reason: str = "") -> Absent:
        return cls(State.UNSUPPORTED, reason)

    @classmethod
    def denied(cls, reason: str = "") -> Absent:
        return cls(State.DENIED, reason)

    @classmethod
    def error(cls, reason: str) -> Absent:
        return cls(State.ERROR, reason)

    @classmethod
    def implausible(cls, raw: float | str, reason: str = "") -> Absent:
        return cls(State.IMPLAUSIBLE, reason, raw)

    def __str__(self) -> str:
        return f"{self.state.value}: {self.reason}" if self.reason else self.state.value


NOT_READ = Absent(State.NOT_READ)
NO_LIMIT = Absent(State.NOT_APPLICABLE, "no limit")

Value = int | float | str | Absent


def number(value: Value) -> float | None:
    """A value as a number, None where it is absent or text."""
    return value if isinstance(value, (int, float)) else None


class Kind(enum.StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    ENUM = "enum"
    TEXT = "text"


class Metric:
    """One typed column of a table: what it is, its unit, and the resolution its source really has.

    `quantum` is the step that values are rounded to before anything sees them, so that a recording
    holds exactly what the rules saw. `trend` marks the few columns whose hour and day are kept.
    """

    __slots__ = ("help", "index", "kind", "labels", "name", "quantum", "table", "trend", "unit")

    def __init__(
        self,
        kind: Kind,
        unit: str,
        help: str,  # noqa: A002 - the field's own word for it
        *,
        quantum: float = 1,
        trend: bool = False,
        labels: Mapping[int, str] | None = None,
    ) -> None:
        self.kind = kind
        self.unit = unit
        self.help = help
        self.quantum = quantum
        self.trend = trend
        self.labels: Mapping[int, str] = labels or {}
        self.name = ""
        self.index = -1
        self.table: type[Table] = Table

    @property
    def id(self) -> str:
        """`table.column`, the name used in JSON, recordings and documents."""
        return f"{self.table.name}.{self.name}"

    def quantise(self, value: Value) -> Value:
        """Round `value` to the metric's quantum; text and absent values pass unchanged."""
        if self.kind is Kind.TEXT or isinstance(value, (str, Absent)):
            return value
        if self.quantum == 1:
            return value if type(value) is int else round(value)
        return round(value / self.quantum) * self.quantum

    def __repr__(self) -> str:
        return f"<Metric {self.id}>"


def gauge(unit: str, help: str, *, quantum: float = 1, trend: bool = False) -> Metric:  # noqa: A002
    return Metric(Kind.GAUGE, unit, help, quantum=quantum, trend=trend)


def counter(unit: str, help: str, *, quantum: float = 1) -> Metric:  # noqa: A002
    """A number that only grows; what is shown and judged is its difference over time."""
    return Metric(Kind.COUNTER, unit, help, quantum=quantum)


def enumeration(labels: Mapping[int, str], help: str) -> Metric:  # noqa: A002
    return Metric(Kind.ENUM, "", help, labels=labels)


def text(help: str) -> Metric:  # noqa: A002
    return Metric(Kind.TEXT, "", help)


class Row(NamedTuple):
    """The values of one entity at one moment, in the column order of its table."""

    key: str
    t_ns: int
    values: tuple[Value, ...]


class Table:
    """Base of all table declarations; the class itself is the table and is never instantiated."""

    name: ClassVar[str] = ""
    entity: ClassVar[str] = ""
    """What a key names, for documents: "GPU UUID", "pid@start"."""
    period_s: ClassVar[float] = 1.0
    """Nominal cadence; a row older than two of these is stale."""
    stream: ClassVar[bool] = False
    """True where one read yields many stamped rows an entity (driver buffers): an entity then lives
    as long as its newest row, not only while it is in the newest sample."""
    kept_s: ClassVar[float] = 300.0
    """How far back exact rows are kept; more only where rows are rare."""
    columns: ClassVar[tuple[Metric, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = [(name, value) for name, value in vars(cls).items() if isinstance(value, Metric)]
        for index, (name, metric) in enumerate(own):
            metric.name, metric.index, metric.table = name, index, cls
        cls.columns = tuple(metric for _, metric in own)

    @classmethod
    def row(
        cls, key: str, t_ns: int, values: Mapping[Metric, Value], before: Sequence[Value] = ()
    ) -> Row:
        """Build a quantised row; foreign columns raise KeyError.

        Columns not named keep their value of `before`, an earlier row's values, else `NOT_READ`.
        """
        cells = list(before) or [NOT_READ] * len(cls.columns)
        for metric, value in values.items():
            if metric.table is not cls:
                raise KeyError(f"{metric!r} is not a column of {cls.name}")
            # Whole numbers of a whole unit, and what has none, are most of all and need no call.
            kind = value.__class__
            done = kind is Absent or kind is str or (kind is int and metric.quantum == 1)
            cells[metric.index] = value if done else metric.quantise(value)
        return Row(key, t_ns, tuple(cells))


class Sample(NamedTuple):
    """What one read of one source gave for one table."""

    source: str
    table: type[Table]
    t_ns: int
    """CLOCK_MONOTONIC nanoseconds at which the read ended."""
    took_ns: int
    rows: tuple[Row, ...]


class SourceState(enum.IntEnum):
    """Health of a source. Labels are what `--json` and the screens print."""

    OK = 0
    UNAVAILABLE = 1
    DENIED = 2
    LATE = 3
    FAILED = 4
    SIMULATED = 5

    @property
    def label(self) -> str:
        return "ok" if self is SourceState.OK else self.name.lower()


class Source(NamedTuple):
    """One source as screens and reports list it."""

    name: str
    state: SourceState
    reason: str
    took_s: float | None
    age_s: float | None


class Severity(enum.IntEnum):
    INFO = 0
    ADVICE = 1
    WARN = 2
    CRIT = 3

    @property
    def label(self) -> str:
        return self.name.lower()


class Confidence(enum.IntEnum):
    LOW = 0
    MEDIUM = 1
    HIGH = 2

    @property
    def label(self) -> str:
        return self.name.lower()


class Evidence(NamedTuple):
    """One measured number behind a finding, with the threshold it was held against."""

    metric: str
    entity: str
    value: float | str | None
    unit: str
    threshold: float | None = None
    span_s: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule says of one scope (a GPU, a disk, the target), with its evidence."""

    code: str
    severity: Severity
    scope: str
    """Entity key; empty for the host or the target as a whole."""
    text: str
    """One plain sentence, with the numbers in it."""
    active: bool
    since_ns: int
    active_s: float
    lost_gpu_s_per_s: float | None
    evidence: tuple[Evidence, ...]
    advice: str
    refuted_by: str
    next_check: str
    confidence: Confidence = Confidence.MEDIUM


class Cause(NamedTuple):
    """One cause's part of the lost time."""

    code: str
    share: float
    """0 to 1, of the loss that was measured."""
    confidence: Confidence
    scope: str = ""


class VerdictState(enum.StrEnum):
    BOTTLENECK = "bottleneck"
    MIXED = "mixed"
    CLEAR = "clear"
    NO_DEMAND = "no-demand"
    CANNOT_TELL = "cannot-tell"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The one line that answers "what holds it back now?"."""

    state: VerdictState
    code: str | None
    text: str
    causes: tuple[Cause, ...] = ()


class Unknown(NamedTuple):
    """A rule that could not be judged, and what was missing."""

    code: str
    missing: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """All that one evaluation of the rules said."""

    t_ns: int
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    unknown: tuple[Unknown, ...] = ()


@dataclass(frozen=True, slots=True)
class Anchor:
    """Ties the monotonic clock to the wall: a wall step can never reorder samples."""

    mono_ns: int
    wall_ns: int

    def wall_at(self, t_ns: int) -> int:
        """Wall time in ns since the epoch of a monotonic moment."""
        return self.wall_ns + t_ns - self.mono_ns


NO_VERDICT = Verdict(VerdictState.CANNOT_TELL, None, "watching: not enough samples yet")


class ProcessId(NamedTuple):
    """A process that reuse of its pid cannot impersonate."""

    pid: int
    start_ticks: int
    """Field 22 of /proc/PID/stat, clock ticks since boot."""

    @property
    def key(self) -> str:
        return f"{self.pid}@{self.start_ticks}"

    def thread_key(self, tid: int) -> str:
        return f"{self.pid}@{self.start_ticks}/{tid}"

    @classmethod
    def parse(cls, key: str) -> ProcessId:
        """Read a process or thread key back. Raises ValueError on anything else."""
        pid, _, rest = key.partition("@")
        return cls(int(pid), int(rest.partition("/")[0]))


@dataclass(frozen=True, slots=True)
class TargetProcess:
    """One process of the attached tree."""

    id: ProcessId
    parent_pid: int
    name: str
    role: str


@dataclass(frozen=True, slots=True)
class Target:
    """The attached process tree. `processes` has the root first."""

    root: ProcessId
    name: str
    processes: tuple[TargetProcess, ...]
    gone: bool = False
    notes: tuple[str, ...] = field(default=())
    """What could not be seen and the one command that would unlock it."""
    front: ProcessId | None = None
    """The server above the tree of which it is one part; its sockets answer for the tree."""
