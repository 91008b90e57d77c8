"""What the target's threads did, on a time grid that GPU utilisation can be laid on.

The busiest threads are read five times a second; where those rows are missing, the once-a-second
rows of all threads stand in. A thread of a process that works on other GPUs only is left out: one
that spins on GPU 1 says nothing about the gaps of GPU 0.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from functools import partial, reduce
from itertools import pairwise
from math import isnan
from operator import add, sub, truediv
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NS_PER_S
from bottletop.rings import EMPTY
from bottletop.rules.entities import NOTHING_ATTACHED, elsewhere
from bottletop.store import Missing
from bottletop.tables import HotThread, Process, Thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bottletop.model import Metric, Table
    from bottletop.rings import Ends, Series
    from bottletop.store import View

NEEDS: tuple[Metric, ...] = (
    HotThread.cpu_ns,
    HotThread.wait_ns,
    HotThread.state,
    Thread.cpu_ns,
    Thread.wait_ns,
    Thread.state,
    Thread.block_io_ns,
    Process.read_bytes,
    Process.read_chars,
    Process.major_faults,
)
MOST_THREADS = 16
QUIET_CORES = 0.02
STORAGE_WAIT = 2.0
"""`THREAD_STATES`: uninterruptible wait, which is storage or a network file system, seldom else."""
ALIGN_NS = NS_PER_S // 10
COVERED = 0.6
"""Part of the slow rows' span that the fast rows must cover to be used instead of them."""


class Line(NamedTuple):
    """One thread on the grid."""

    wanted: list[float]
    """CPU used and time runnable without a core, in cores."""
    waits: bool
    """The latter is worth telling apart."""
    blocked: tuple[int, ...]
    """Numbers of the grid's moments at which it waited for storage."""


class Activity(NamedTuple):
    """CPU and storage waits of the target between neighbouring moments of a grid."""

    edges: Sequence[int]
    """Grid, one longer than the lists below."""
    busiest: list[float]
    """What the thread that wants most CPU used or waited for in each interval: cores, at most 1."""
    together: list[float]
    """The same of all threads, at most one core: time in which anything ran or wanted to."""
    blocked: list[float]
    """1 where a thread was seen waiting for storage at the end of the interval."""
    lines: dict[str, Line]
    """Every thread that did anything."""
    cpu: Metric
    """Counter of CPU time behind it: of the fast table or of the slow one."""
    skipped: int = 0
    """Intervals that the lines have before the first of this grid."""

    def wanted(self, key: str) -> list[float]:
        """What one thread used or waited for in each interval, in cores."""
        return self.lines[key].wanted[self.skipped : self.skipped + len(self.busiest)]

    @property
    def most_blocked(self) -> str:
        """The thread seen most often waiting for storage; empty when none was."""
        often = {key: len(line.blocked) for key, line in self.lines.items() if line.blocked}
        return max(often, key=lambda key: (often[key], key), default="")


class _Source(NamedTuple):
    """One of the two tables with CPU time by thread, and the grid of its readings."""

    cpu: Metric
    wait: Metric
    state: Metric
    ends: dict[str, Ends]
    """First and last readings of each thread that has two."""
    edges: array[int]
    steps: list[int]
    """Length of each interval of the grid in ns, which the threads have in common."""


def activity(view: View, gpu: str, span_s: float) -> Activity:
    """What the target's threads did that may keep `gpu` waiting. Raises `Missing`."""
    excluded = elsewhere(view, gpu)
    return view.memo(("activity", excluded, span_s), lambda: _activity(view, excluded, span_s))


def _activity(view: View, excluded: frozenset[int], span_s: float) -> Activity:
    source = view.memo(("threads", span_s), lambda: _source(view, span_s))
    keys = [key for key in source.ends if not excluded or pid_of(key) not in excluded]
    lines = {}
    for key in keys:
        line = view.memo(("line", key, span_s), partial(_line, view, source, key, span_s))
        if line is not None:
            lines[key] = line
    size = len(source.edges) - 1
    wanted = [line.wanted for line in lines.values()]
    blocked = [0.0] * size
    for line in lines.values():
        for at in line.blocked:
            blocked[at] = 1.0
    if len(wanted) > 1:
        busiest = _at_most_one(list(map(max, *wanted)))
        together = _at_most_one(reduce(_added, wanted))
    else:
        busiest = together = _at_most_one(wanted[0]) if wanted else [0.0] * size
    return Activity(source.edges, busiest, together, blocked, lines, source.cpu)


def _added(total: list[float], cores: list[float]) -> list[float]:
    return list(map(add, total, cores))


def _at_most_one(cores: list[float]) -> list[float]:
    return [value if value < 1.0 else 1.0 for value in cores] if max(cores) > 1.0 else cores


def busiest_thread(view: View, gpu: str, span_s: float) -> tuple[str, float]:
    """The thread that wanted most CPU and the mean of it, in cores: time that it was runnable
    without getting a core counts. Raises `Missing`."""
    source = view.memo(("threads", span_s), lambda: _source(view, span_s))
    means = view.memo(("means", span_s), lambda: _means(source))
    excluded = elsewhere(view, gpu)
    return next(((key, mean) for mean, key, pid in means if pid not in excluded), ("", 0.0))


def _means(source: _Source) -> list[tuple[float, str, int]]:
    """Mean CPU in cores, thread and pid, the busiest first."""
    out = []
    for key, ends in source.ends.items():
        wanted = _grown_s(ends, source.cpu) + _grown_s(ends, source.wait)
        out.append((wanted * NS_PER_S / (ends.last_ns - ends.first_ns), key, pid_of(key)))
    return sorted(out, reverse=True)


def pid_of(key: str) -> int:
    """Pid of a process or thread key."""
    return int(key.partition("@")[0])


def _source(view: View, span_s: float) -> _Source:
    """The fast rows where they cover most of the window, else the slow ones. Raises `Missing`."""
    fast = _read(view, HotThread, view.keys(HotThread), span_s)
    if len(fast.edges) > 2 and _span(fast.edges) >= COVERED * span_s * NS_PER_S:
        return fast
    slow = _read(view, Thread, _busiest(view, span_s), span_s)
    if len(fast.edges) > 2 and _span(fast.edges) >= COVERED * _span(slow.edges):
        return fast
    if len(slow.edges) > 2:
        return slow
    if not view.keys(Process):
        raise Missing(Process, "", NOTHING_ATTACHED)
    if not view.keys(Thread) and not view.keys(HotThread):
        raise Missing(Thread, "", "no thread of the target could be read")
    raise Missing(Thread.cpu_ns, "", "needs more readings")


def _read(
    view: View, table: type[HotThread | Thread], keys: Iterable[str], span_s: float
) -> _Source:
    ends = _ends(view, table, keys, span_s)
    edges = _longest(view, table.cpu_ns, ends, span_s)
    return _Source(table.cpu_ns, table.wait_ns, table.state, ends, edges, _steps(edges))


def _busiest(view: View, span_s: float) -> list[str]:
    """The few threads with most CPU, so that hundreds of idle ones cost nothing."""
    keys = view.keys(Thread)
    ends = _ends(view, Thread, keys, span_s)
    grown = {key: _grown_s(one, Thread.cpu_ns) for key, one in ends.items()}
    return sorted(keys, key=lambda key: (-grown.get(key, 0.0), key))[:MOST_THREADS]


def _ends(view: View, table: type[Table], keys: Iterable[str], span_s: float) -> dict[str, Ends]:
    found = ((key, view.ends(table, key, span_s)) for key in keys)
    return {key: ends for key, ends in found if ends is not None}


def _line(view: View, source: _Source, key: str, span_s: float) -> Line | None:
    """One thread on the grid; None when it did nothing."""
    ends = source.ends[key]
    used, waited = _grown_s(ends, source.cpu), _grown_s(ends, source.wait)
    was_blocked = view.saw(source.state, key, STORAGE_WAIT, span_s)
    seconds = (ends.last_ns - ends.first_ns) / NS_PER_S
    if used + waited < QUIET_CORES * seconds and not was_blocked:
        return None
    grid = source.edges[1:]
    states = view.series(source.state, key, span_s) if was_blocked else EMPTY
    times, used_ns = view.series(source.cpu, key, span_s)
    wanted_ns = used_ns.tolist()
    if waited > 0:
        wanted_ns = _added(wanted_ns, view.series(source.wait, key, span_s).values.tolist())
    return Line(
        wanted=_cores(grid, times, wanted_ns, source.steps if times == source.edges else None),
        waits=waited >= QUIET_CORES * seconds,
        blocked=_blocked_moments(grid, states),
    )


def _grown_s(ends: Ends, metric: Metric) -> float:
    """Growth of a ns counter in seconds; 0 where an end is missing."""
    return (ends.grown(metric) or 0.0) / NS_PER_S


def _longest(view: View, metric: Metric, ends: Mapping[str, Ends], span_s: float) -> array[int]:
    """Stamps of the thread that was read most often."""
    if not ends:
        return array("q")
    return view.series(metric, max(ends, key=lambda key: ends[key].rows), span_s).t_ns


def _span(edges: Sequence[int]) -> int:
    return edges[-1] - edges[0] if edges else 0


def _steps(times: Sequence[int]) -> list[int]:
    return list(map(sub, times[1:], times))


def _cores(
    grid: Sequence[int], times: Sequence[int], counter: list[float], steps: list[int] | None = None
) -> list[float]:
    """Growth of a ns counter up to each moment of `grid`, in cores; 0 where none was read near.

    `steps` are the lengths between `times`, where they are known.
    """
    cores = list(map(truediv, map(sub, counter[1:], counter), steps or _steps(times)))
    if (
        len(cores) == len(grid)
        and abs(times[1] - grid[0]) < ALIGN_NS
        and abs(times[-1] - grid[-1]) < ALIGN_NS
        and (not cores or min(cores) >= 0)
        and not isnan(sum(cores))
    ):
        return cores
    out = [0.0] * len(grid)
    for t_ns, value in zip(times[1:], cores, strict=True):
        index = bisect_left(grid, t_ns - ALIGN_NS)
        if value >= 0 and index < len(grid) and grid[index] - t_ns < ALIGN_NS:
            out[index] = value
    return out


def _blocked_moments(grid: Sequence[int], states: Series) -> tuple[int, ...]:
    """Numbers of the grid's moments at which the state was a wait for storage."""
    out = []
    for t_ns, value in zip(states.t_ns, states.values, strict=True):
        if value == STORAGE_WAIT:
            index = bisect_left(grid, t_ns - ALIGN_NS)
            if index < len(grid) and grid[index] - t_ns < ALIGN_NS:
                out.append(index)
    return tuple(out)


def on_core(view: View, act: Activity, key: str, span_s: float) -> list[float]:
    """CPU that one thread really got in each interval of `act`, in cores."""
    times, used_ns = view.series(act.cpu, key, span_s)
    return _cores(act.edges[1:], times, used_ns.tolist())


def within(act: Activity, since_ns: int, until_ns: int) -> Activity:
    """The part of `act` that the GPU's readings cover. Raises `Missing` where they do not meet."""
    first = bisect_left(act.edges, since_ns)
    last = bisect_right(act.edges, until_ns) - 1
    if last - first < 2:
        raise Missing(act.cpu, "", "threads and GPU were not read at the same time")
    return act._replace(
        edges=act.edges[first : last + 1],
        busiest=act.busiest[first:last],
        together=act.together[first:last],
        blocked=act.blocked[first:last],
        skipped=first,
    )


def coarser(act: Activity, times: Sequence[int]) -> Activity:
    """`act` averaged between the stamps of a slower GPU reading, as far as both reach."""
    edges = array("q", [t for t in times if act.edges[0] <= t <= act.edges[-1]])
    if len(edges) < 3:
        return act
    bounds, at = [], 0
    for edge in edges:
        while at < len(act.busiest) and act.edges[at + 1] <= edge:
            at += 1
        bounds.append(at)

    def averaged(values: Sequence[float]) -> list[float]:
        out = []
        for low, high in pairwise(bounds):
            part = values[low:high]
            out.append(sum(part) / len(part) if len(part) else 0.0)
        return out

    return act._replace(
        edges=edges,
        busiest=averaged(act.busiest),
        together=averaged(act.together),
        blocked=averaged(act.blocked),
        lines={key: line._replace(wanted=averaged(line.wanted)) for key, line in act.lines.items()},
    )


class SlowBlocked(NamedTuple):
    """Storage waits from the once-a-second rows of all threads: those that use hardly any CPU are
    not among the busiest."""

    edges: Sequence[int]
    blocked: list[float]
    most: str
    """The thread seen waiting most often."""


def slow_blocked(view: View, gpu: str, span_s: float) -> SlowBlocked | None:
    """Storage waits of all threads, once a second; None where no thread waited.

    From delay accounting where it is on (it misses nothing), else from states.
    """
    excluded = elsewhere(view, gpu)
    return view.memo(("slow", excluded, span_s), lambda: _slow_blocked(view, excluded, span_s))


def _slow_blocked(view: View, excluded: frozenset[int], span_s: float) -> SlowBlocked | None:
    keys = [
        key
        for key in view.memo(("waiting", span_s), lambda: _waiting(view, span_s))
        if pid_of(key) not in excluded
    ]
    edges = _longest(view, Thread.state, _ends(view, Thread, keys, span_s), span_s)
    if len(edges) < 3:
        return None
    grid = edges[1:]
    moments = {key: _blocked_moments(grid, view.series(Thread.state, key, span_s)) for key in keys}
    delays = [_delays(view, grid, key, span_s) for key in keys]
    if any(map(any, delays)):
        blocked = [min(1.0, max(column)) for column in zip(*delays, strict=True)]
    else:
        seen = frozenset().union(*moments.values())
        blocked = [float(at in seen) for at in range(len(grid))]
    most = max(moments, key=lambda key: (len(moments[key]), key))
    return SlowBlocked(edges, blocked, most)


def _delays(view: View, grid: Sequence[int], thread: str, span_s: float) -> list[float]:
    times, blocked_ns = view.series(Thread.block_io_ns, thread, span_s)
    return _cores(grid, times, blocked_ns.tolist())


def _waiting(view: View, span_s: float) -> list[str]:
    """Threads that were seen waiting for storage at all."""
    return [key for key in view.keys(Thread) if view.saw(Thread.state, key, STORAGE_WAIT, span_s)]


def moves_data(view: View, span_s: float) -> bool | None:
    """Whether the target reads from storage; None where that cannot be read.

    A storage wait without a byte, a system call's read or a major fault is something else.
    """
    return view.memo(("moves data", span_s), lambda: _moves_data(view, span_s))


def _moves_data(view: View, span_s: float) -> bool | None:
    known = False
    for key in view.keys(Process):
        for metric, floor in (
            (Process.read_bytes, 1 << 20),
            (Process.read_chars, 1 << 20),
            (Process.major_faults, 10),
        ):
            try:
                grown = view.growth(metric, key, span_s)
            except Missing:
                continue
            known = known or metric is not Process.major_faults
            if grown.per_s >= floor:
                return True
    return False if known else None
