"""What the target's threads did, on a time grid that GPU utilisation can be laid on.

The busiest threads are read five times a second; where those rows are missing, the once-a-second
rows of all threads stand in. A thread of a process that works on other GPUs only is left out: one
that spins on GPU 1 says nothing about the gaps of GPU 0.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NS_PER_S, ProcessId
from bottletop.rules.entities import elsewhere
from bottletop.store import Missing
from bottletop.tables import HotThread, Process, Thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.model import Metric, Table
    from bottletop.rings import Series
    from bottletop.store import View

NEEDS: tuple[Metric, ...] = (
    HotThread.cpu_ns,
    HotThread.state,
    Thread.cpu_ns,
    Thread.state,
    Process.read_bytes,
    Process.read_chars,
    Process.major_faults,
)
MOST_THREADS = 16
QUIET_CORES = 0.02
STORAGE_WAIT = 2.0
"""`THREAD_STATES`: uninterruptible wait, which is storage or a network file system, seldom else."""
ALIGN_NS = NS_PER_S // 10


class Activity(NamedTuple):
    """CPU and storage waits of the target between neighbouring moments of a grid."""

    edges: Sequence[int]
    """Grid, one longer than the lists below."""
    busiest: list[float]
    """CPU of the busiest thread in each interval, in cores."""
    together: list[float]
    """CPU of all threads, at most one core: time in which anything ran."""
    blocked: list[float]
    """1 where a thread was seen waiting for storage at the end of the interval."""
    threads: dict[str, list[float]]
    """CPU of each thread that did anything, in cores."""
    means: dict[str, float]
    """Mean of each of them over the whole window, in cores."""
    blocked_threads: dict[str, int]
    """How often each thread was seen waiting for storage."""
    five_hz: bool


def activity(view: View, gpu: str, span_s: float) -> Activity:
    """What the target's threads did that may keep `gpu` waiting. Raises `Missing`."""
    excluded = elsewhere(view, gpu)
    return view.memo(("activity", excluded, span_s), lambda: _activity(view, excluded, span_s))


def _activity(view: View, excluded: frozenset[int], span_s: float) -> Activity:
    table, cpu, state = HotThread, HotThread.cpu_ns, HotThread.state
    keys = _alive(view, HotThread, excluded)
    if not keys:
        table, cpu, state = Thread, Thread.cpu_ns, Thread.state  # type: ignore[assignment]
        keys = _busiest(view, _alive(view, Thread, excluded), span_s)
    if not keys:
        if not view.keys(Process):
            raise Missing(Process, "", "attach to a PID to see why")
        raise Missing(Thread, "", "no thread of the target could be read")
    rates = {key: view.rates(cpu, key, span_s) for key in keys}
    edges = max((view.series(cpu, key, span_s).t_ns for key in keys), key=len, default=array("q"))
    if len(edges) < 3:
        raise Missing(cpu, keys[0], "needs more readings")
    grid = edges[1:]
    threads: dict[str, list[float]] = {}
    means: dict[str, float] = {}
    for key in keys:
        cores = [rate / NS_PER_S for rate in _onto(grid, rates[key])]
        mean = sum(cores) / len(cores)
        if mean >= QUIET_CORES:
            threads[key], means[key] = cores, mean
    blocked, blocked_threads = _blocked(view, state, keys, grid, span_s)
    columns = list(threads.values()) or [[0.0] * len(grid)]
    together = [min(1.0, total) for total in map(sum, zip(*columns, strict=True))]
    busiest = [min(1.0, most) for most in map(max, zip(*columns, strict=True))]
    return Activity(
        edges, busiest, together, blocked, threads, means, blocked_threads, table is HotThread
    )


def _alive(view: View, table: type[Table], excluded: frozenset[int]) -> list[str]:
    keys = view.keys(table)
    return [key for key in keys if ProcessId.parse(key).pid not in excluded] if excluded else keys


def _busiest(view: View, keys: list[str], span_s: float) -> list[str]:
    """The few threads with most CPU, so that hundreds of idle ones cost nothing."""
    grown = []
    for key in keys:
        values = view.series(Thread.cpu_ns, key, span_s).values
        if len(values) > 1:
            step = values[-1] - values[0]
            grown.append((step if step == step else 0.0, key))
    grown.sort(key=lambda item: (-item[0], item[1]))
    return [key for _, key in grown[:MOST_THREADS]]


def _onto(grid: Sequence[int], series: Series) -> Sequence[float]:
    """Values of `series` at the moments of `grid`, 0 where it has none near."""
    same = len(series.t_ns) == len(grid) and all(
        abs(series.t_ns[end] - grid[end]) < ALIGN_NS for end in (0, -1)
    )
    if same and sum(series.values) == sum(series.values):
        return series.values
    out = [0.0] * len(grid)
    for t_ns, value in series.points():
        index = bisect_left(grid, t_ns - ALIGN_NS)
        if index < len(grid) and grid[index] - t_ns < ALIGN_NS:
            out[index] = value
    return out


def _blocked(
    view: View, state: Metric, keys: list[str], grid: Sequence[int], span_s: float
) -> tuple[list[float], dict[str, int]]:
    """Moments at which any thread waited for storage, and how often each of them did."""
    out = [0.0] * len(grid)
    counts: dict[str, int] = {}
    for key in keys:
        series = view.series(state, key, span_s)
        if STORAGE_WAIT not in series.values:
            continue
        for t_ns, value in zip(series.t_ns, series.values, strict=True):
            if value != STORAGE_WAIT:
                continue
            index = bisect_left(grid, t_ns - ALIGN_NS)
            if index < len(grid) and grid[index] - t_ns < ALIGN_NS:
                out[index] = 1.0
                counts[key] = counts.get(key, 0) + 1
    return out, counts


def moves_data(view: View, span_s: float) -> bool | None:
    """Whether the target reads from storage; None where that cannot be read.

    A storage wait without a byte, a system call's read or a major fault is something else.
    """
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
