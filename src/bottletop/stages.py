"""Numbers of stages over a window, as screens, the report and `--json` show them.

Where several processes of the target have a stage of the same name, it is one stage here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NS_PER_S
from bottletop.store import RAW_SPAN_S, Missing
from bottletop.tables.stage import AT_REQUEST_END, PROBE, STACKS, Stage, StageTime

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bottletop.model import Metric
    from bottletop.store import View

LEAST_FOR_P95 = 20
"""Passes without which a 95th percentile would be an accident."""
ENOUGH_SAMPLES = 200
"""Stack samples of the window without which no stage is named: at a third of the time, 200 are good
for 7 points."""
ALONE = 0.05
"""A step with fewer passes than this part of its own beside it stands alone."""


class StageStat(NamedTuple):
    """One stage of the target over a window. None is unknown, never zero."""

    key: str
    """Entity of `stage` whose process spent the most time in it."""
    name: str
    source: str
    mean_s: float | None
    """Of the passes that ended in the window, nested stages included; None when none ended, and
    where the source counts time alone."""
    p95_s: float | None
    """None below 20 passes, and where the source keeps no durations or its steps are too wide."""
    calls_per_s: float | None
    """Passes that ended, a second; None where the source counts time alone."""
    occupancy: float | None
    """Mean number of passes under way (Little's law); above 1 when passes overlap."""
    share: float | None
    """Share of the cycle, 0 to 1: time in the stage without nested ones, over the window or, when
    stages of several threads add up to more than the window, over their sum. What is missing to
    1 was spent outside of all stages. Stages of one source are set against one another only."""
    in_flight: int | None
    """Passes under way at the end of the window."""
    margin: float | None = None
    """Half of the 95 % interval of `share`, where it is estimated from samples."""


@dataclass(slots=True)
class _Use:
    """One stage of one process over the window. Times in seconds."""

    key: str
    name: str
    source: str
    calls: float | None
    inclusive_s: float
    occupied_s: float
    own_part: float | None
    """Part of its time that is not in nested stages; None when no pass ever ended."""
    in_flight: int | None
    age_s: float
    samples: float
    """Stack samples behind its time; 0 of stages that are counted."""
    own_s: float = 0.0


@dataclass(slots=True)
class _Step:
    """Passes whose duration lies between two edges."""

    to_ns: float
    calls: float
    inclusive_ns: float | None
    """Time in them; None where only their number is known, as of a histogram's bucket."""


_Steps = dict[float, _Step]
"""By lower edge in ns."""


def stage_stats(view: View, span_s: float) -> list[StageStat]:
    """Stages over the last `span_s` seconds (300 at most), in the order in which they came up."""
    span_s = min(span_s, RAW_SPAN_S)
    return view.memo(("stage_stats", span_s), lambda: _stage_stats(view, span_s))


def _stage_stats(view: View, span_s: float) -> list[StageStat]:
    uses: list[_Use] = []
    covered_s = 0.0
    for key in view.keys(Stage):
        found = _use(view, key, span_s)
        if found is not None:
            use, seen_s = found
            uses.append(use)
            covered_s = max(covered_s, seen_s)
    sampled = sum(use.samples for use in uses)
    if sampled < ENOUGH_SAMPLES:
        uses = [use for use in uses if use.source != STACKS]
    if not uses:
        return []
    _divide_time(uses)
    own_s: dict[str, float] = {}
    grouped: dict[tuple[str, str], list[_Use]] = {}
    for use in uses:
        own_s[family(use.source)] = own_s.get(family(use.source), 0.0) + use.own_s
        grouped.setdefault((use.name, use.source), []).append(use)
    steps = _durations(view, span_s)
    return [
        _with_margin(
            _stat(
                group, covered_s, max(covered_s, own_s[family(source)]), steps.get((name, source))
            ),
            sampled,
        )
        for (name, source), group in grouped.items()
    ]


def _with_margin(stat: StageStat, sampled: float) -> StageStat:
    """A share that is estimated from samples is as good as their number (binomial, 95 %)."""
    if stat.source != STACKS or stat.share is None:
        return stat
    share = min(1.0, stat.share)
    return stat._replace(margin=1.96 * math.sqrt(share * (1 - share) / sampled))


def outside_shares(stats: Iterable[StageStat]) -> dict[str, float]:
    """Part of the cycle, 0 to 1, that no stage accounts for, by source.

    Of the probe and the stack sampler, which see the whole time of a process. The requests of a
    server overlap, and its stages have no such rest.
    """
    rest: dict[str, float] = {}
    for stat in stats:
        if stat.source in (PROBE, STACKS) and stat.share is not None:
            rest[stat.source] = max(0.0, rest.get(stat.source, 1.0) - stat.share)
    return rest


def family(source: str) -> str:
    """The source without its remark: "vLLM metrics" of "vLLM metrics, at request end"."""
    return source.partition(",")[0]


def is_lagging(source: str) -> bool:
    """Whether a source counts a pass only once its whole request has ended."""
    return source.endswith(AT_REQUEST_END)


def _use(view: View, key: str, span_s: float) -> tuple[_Use, float] | None:
    try:
        inclusive = view.growth(Stage.inclusive_ns, key, span_s)
        own = view.growth(Stage.self_ns, key, span_s)
        occupied = view.growth(Stage.occupied_ns, key, span_s)
    except Missing:
        return None
    try:
        calls = view.growth(Stage.calls, key, span_s).amount
    except Missing:
        calls = None
    in_flight = view.last(Stage.in_flight, key)
    age_ns = view.last(Stage.in_flight_ns, key)
    use = _Use(
        key=key,
        name=view.text(Stage.stage, key),
        source=view.text(Stage.source, key),
        calls=calls,
        inclusive_s=inclusive.amount / NS_PER_S,
        occupied_s=occupied.amount / NS_PER_S,
        own_part=own_part(view, key, own.amount, inclusive.amount),
        in_flight=int(in_flight) if isinstance(in_flight, (int, float)) else None,
        age_s=age_ns / NS_PER_S if isinstance(age_ns, (int, float)) else 0.0,
        samples=_samples(view, key, span_s),
    )
    return use, occupied.span_s


def _samples(view: View, key: str, span_s: float) -> float:
    try:
        return view.growth(Stage.samples, key, span_s).amount
    except Missing:
        return 0.0


def own_part(view: View, key: str, own_ns: float, inclusive_ns: float) -> float | None:
    """Part of a stage's time that is not in nested ones.

    From what grew in the window or, where no pass ended in it, from all that ever ended; None when
    none did.
    """
    if inclusive_ns <= 0:
        own, inclusive = view.last(Stage.self_ns, key), view.last(Stage.inclusive_ns, key)
        if not isinstance(own, (int, float)) or not isinstance(inclusive, (int, float)):
            return None
        own_ns, inclusive_ns = own, inclusive
    return min(1.0, own_ns / inclusive_ns) if inclusive_ns > 0 else None


def _divide_time(uses: Iterable[_Use]) -> None:
    """Give each stage its time without nested stages, passes under way included.

    Completed passes tell which part of a stage's time is its own. Of stages that never completed a
    pass, the youngest is the innermost: each owns what the others of its process leave over.
    """
    known_s: dict[str, float] = {}
    unknown: list[_Use] = []
    for use in uses:
        if use.own_part is None:
            unknown.append(use)
            continue
        use.own_s = use.occupied_s * use.own_part
        process = use.key.partition("/")[0]
        known_s[process] = known_s.get(process, 0.0) + use.own_s
    for use in sorted(unknown, key=lambda use: use.age_s):
        process = use.key.partition("/")[0]
        use.own_s = max(0.0, use.occupied_s - known_s.get(process, 0.0))
        known_s[process] = known_s.get(process, 0.0) + use.own_s


def _stat(group: list[_Use], covered_s: float, whole_s: float, steps: _Steps | None) -> StageStat:
    counted = [use.calls for use in group if use.calls is not None]
    calls = sum(counted) if counted else None
    known = [use.in_flight for use in group if use.in_flight is not None]
    return StageStat(
        key=max(group, key=lambda use: use.occupied_s).key,
        name=group[0].name,
        source=group[0].source,
        mean_s=sum(use.inclusive_s for use in group) / calls if calls else None,
        p95_s=_p95_s(steps or {}),
        calls_per_s=None if calls is None else calls / covered_s,
        occupancy=sum(use.occupied_s for use in group) / covered_s,
        share=sum(use.own_s for use in group) / whole_s,
        in_flight=sum(known) if known else None,
    )


def _durations(view: View, span_s: float) -> dict[tuple[str, str], _Steps]:
    """Durations of the passes that ended in the window, by stage name and source.

    A step's rows begin when the first pass falls into it, at a count of one or more: before its
    first row it was zero.
    """
    since_ns = view.now_ns - round(span_s * NS_PER_S)
    found: dict[tuple[str, str], _Steps] = {}
    for key in view.keys(StageTime):
        calls = _grown(view, StageTime.calls, key, since_ns)
        if calls <= 0:
            continue
        low = view.last(StageTime.from_ns, key)
        if not isinstance(low, (int, float)):
            continue
        high = view.last(StageTime.to_ns, key)
        name = key.rpartition("#")[0].partition("/")[2]
        # Recordings made before there were other sources do not say it.
        source = view.text(StageTime.source, key) or PROBE
        timed = isinstance(view.last(StageTime.inclusive_ns, key), (int, float))
        found.setdefault((name, source), {})[low] = _Step(
            to_ns=high if isinstance(high, (int, float)) else math.inf,
            calls=calls,
            inclusive_ns=_grown(view, StageTime.inclusive_ns, key, since_ns) if timed else None,
        )
    return found


def _grown(view: View, metric: Metric, key: str, since_ns: int) -> float:
    times, values = view.series(metric, key, RAW_SPAN_S)
    if not times:
        return 0.0
    before = 0.0
    for t_ns, value in zip(times, values, strict=True):
        if t_ns > since_ns:
            break
        before = value
    return values[-1] - before


def _p95_s(steps: _Steps) -> float | None:
    """The 95th percentile of the durations, None with fewer than `LEAST_FOR_P95`.

    Within its step a duration is placed around the step's mean, as far as the nearer edge allows,
    and closer where the steps beside it are empty, for then its durations are nearly equal.
    Against the percentile of 2000 durations themselves, constant, normal, lognormal, exponential
    or of two lengths: 1 to 4 % off (root mean square), 7 % at most. Within a bucket of a histogram
    the durations are taken to lie evenly; in its first bucket and its last nothing is known.
    """
    total = sum(step.calls for step in steps.values())
    if total < LEAST_FOR_P95:
        return None
    rank, below = 0.95 * total, 0.0
    for low in sorted(steps):
        step = steps[low]
        if below + step.calls >= rank:
            if step.inclusive_ns is None:
                return _evenly_s(low, step, (rank - below) / step.calls)
            mean = step.inclusive_ns / step.calls
            reach = max(0.0, min(mean - low, step.to_ns - mean))
            beside = sum(
                other.calls
                for other_low, other in steps.items()
                if step.to_ns == other_low or other.to_ns == low
            )
            spread = 1.0 if beside >= ALONE * step.calls else 0.25
            return (mean + spread * (2 * (rank - below) / step.calls - 1) * reach) / NS_PER_S
        below += step.calls
    return None


def _evenly_s(low_ns: float, step: _Step, part: float) -> float | None:
    """A place within a step whose durations lie evenly; None where one edge is open or zero."""
    if low_ns <= 0 or math.isinf(step.to_ns):
        return None
    return (low_ns + part * (step.to_ns - low_ns)) / NS_PER_S
