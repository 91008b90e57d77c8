"""What a collector is. One file a source; the explicit tuple `COLLECTORS` lists them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

from bottletop.model import NOT_READ

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bottletop.clock import Clock
    from bottletop.model import Absent, ProcessId, Sample, Table, Target
    from bottletop.roots import Roots


class Unavailable(Exception):
    """The source cannot be read here. The message names the cause and what would change it."""

    def __init__(self, reason: str, *, denied: bool = False, retry_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.denied = denied
        self.retry_s = retry_s
        """Ask again after so many seconds, for causes that pass and cost nothing to look at; None
        leaves it to the runtime, which asks ever more rarely."""


@dataclass(slots=True)
class DriverTime:
    """What one collector has spent in driver calls; written by its own thread only."""

    ns: int = 0
    calls: int = 0


@dataclass(slots=True)
class RuntimeStats:
    """What the runtime and the driver collector know of their own cost; `own` turns it to rows."""

    late_ticks: int = 0
    engine_s: float = 0.0
    sampler_ns: int = 0
    """CPU of the processes that the stack sampler starts."""
    driver: dict[str, DriverTime] = field(default_factory=dict)
    """By collector: several threads talk to the driver, and sums have no writer."""
    nvml_p95_s: float | None = None

    @property
    def nvml_ns(self) -> int:
        """Time inside driver calls."""
        return sum(one.ns for one in list(self.driver.values()))

    @property
    def nvml_calls(self) -> int:
        """Driver calls made."""
        return sum(one.calls for one in list(self.driver.values()))


@dataclass(slots=True)
class Exchange:
    """What one collector learns and another needs; collectors do not know one another.

    Each field has one writer, named with it, which replaces the whole value: a reader in another
    thread sees the old or the new one. "Not read" until its writer has been there.
    """

    hot_threads: tuple[tuple[ProcessId, int], ...] = ()
    """`process`: (process, tid) of the busiest threads of the target, busiest first."""
    thread_note: str = ""
    """`process`: says which threads of a very large target are not read."""
    target_disks: frozenset[str] | Absent = NOT_READ
    """`target`: keys of the disks that hold open files of the target."""
    device_files: Mapping[ProcessId, int | Absent] = field(default_factory=dict)
    """`target`: how many GPU device files each process has open."""
    on_screen: frozenset[type[Table]] = frozenset()
    """The screen: tables that somebody looks at, which are read more often where it costs."""
    resting_gpus: frozenset[str] = frozenset()
    """`gpu`: PCI addresses of the GPUs that are left alone, so that they can be suspended."""
    listening: tuple[str, ...] | Absent = NOT_READ
    """`target`: addresses that the target's tree listens on."""
    stack: str | Absent = NOT_READ
    """`stack`: how the target's stacks are sampled, or why they are not."""
    metrics: str | Absent = NOT_READ
    """`server`: how the target's metric pages are read, or why they are not."""
    probe: str | Absent = NOT_READ
    """`stage`: how the target's stages are read, or why they are not."""


@dataclass(frozen=True, slots=True)
class Ways:
    """Which ways into the target may be taken beyond the kernel's own files."""

    scrape: bool = True
    """Ask the target's own HTTP ports for metric pages."""
    stacks: bool = True
    """Read stacks of its Python processes, without pausing them."""
    token: str = field(default="", repr=False)
    """Bearer token that the user gave in a file; never looked for anywhere else, never recorded."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a collector is given: time, file roots, and the target, if one is attached."""

    clock: Clock
    roots: Roots
    target: Callable[[], Target | None] = lambda: None
    """The newest resolved process tree; collectors of the target call it at each read. It may
    change to another process while a run goes on."""
    stats: RuntimeStats = field(default_factory=RuntimeStats)
    exchange: Exchange = field(default_factory=Exchange)
    ways: Ways = field(default_factory=Ways)


class Collector(Protocol):
    """Reads one source into one or more tables.

    `open` is called once before the first read and again, slowly, after it raised `Unavailable`;
    `read` may raise `Unavailable` (the source went away: it is reopened later) or OSError (this
    read failed, the next may not). A collector with `blocking = True` is read in a daemon thread of
    its own, since its calls may never return; the others are read in turn and must be quick. One
    with `of_target = True` (False where it is not set) is not read while nothing is attached.
    """

    name: ClassVar[str]
    tables: ClassVar[tuple[type[Table], ...]]
    period_s: ClassVar[float]
    blocking: ClassVar[bool]

    def open(self) -> None:
        """Prepare. Raises `Unavailable`."""

    def read(self) -> Sequence[Sample]:
        """Read once. Rows are stamped with the clock of the context."""

    def close(self) -> None:
        """Let go of what `open` took. Never raises, may be called twice."""


class CollectorFactory(Protocol):
    """Makes a collector for a run; collector classes are their own factories."""

    def __call__(self, context: Context) -> Collector: ...
