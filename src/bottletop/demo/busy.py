"""When a process kept its GPU busy, worked out from glances at its `forward` stage.

A glance gives the time spent in completed passes and the begin of the pass under way. Between two
glances the total is exact; only where in between it lies is, at times, an assumption, and then no
wider than the pause between the glances.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Glance(NamedTuple):
    """What a stage's counters say at one moment, on CLOCK_MONOTONIC."""

    completed_ns: int
    """Time inside, completed passes only, since the process began."""
    in_flight_since_ns: int | None
    """Begin of the oldest pass under way."""


class BusyLine:
    """Cumulative busy time of one process as a line through knots; read in the order of time."""

    def __init__(self) -> None:
        self._knots: deque[tuple[int, int]] = deque()
        self._total_ns = 0
        self._in_flight = False
        self._taken_ns = 0.0

    @property
    def known_until_ns(self) -> int:
        """The line may be read up to here."""
        return self._knots[-1][0] if self._knots else 0

    def see(self, now_ns: int, glance: Glance | None) -> None:
        """Add a glance taken at `now_ns`; None where the process shows none (it ran nothing)."""
        since_ns = None if glance is None else glance.in_flight_since_ns
        if not self._knots:
            self._knots.append((now_ns, 0))
            self._total_ns = _total(glance, now_ns)
            self._in_flight = since_ns is not None
            return
        before_ns, busy_ns = self._knots[-1]
        span_ns = now_ns - before_ns
        if span_ns <= 0:
            return
        total_ns = _total(glance, now_ns) if glance is not None else self._total_ns
        grown_ns = min(span_ns, max(0, total_ns - self._total_ns))
        tail_ns = 0 if since_ns is None else min(grown_ns, max(0, now_ns - since_ns))
        head_ns, tail_from_ns = grown_ns - tail_ns, now_ns - tail_ns
        if head_ns and self._in_flight and before_ns + head_ns < tail_from_ns:
            # The pass that was under way at the last glance went on and then ended.
            self._knots.append((before_ns + head_ns, busy_ns + head_ns))
        if before_ns < tail_from_ns < now_ns:
            self._knots.append((tail_from_ns, busy_ns + head_ns))
        self._knots.append((now_ns, busy_ns + grown_ns))
        self._total_ns, self._in_flight = total_ns, since_ns is not None

    def take(self, until_ns: int) -> float:
        """Busy ns between the last `until_ns` and this one; forgets what lies before it."""
        knots = self._knots
        while len(knots) > 1 and knots[1][0] <= until_ns:
            knots.popleft()
        at_ns, busy_ns = knots[0]
        reached = float(busy_ns)
        if len(knots) > 1 and until_ns > at_ns:
            next_ns, next_busy_ns = knots[1]
            reached += (next_busy_ns - busy_ns) * (until_ns - at_ns) / (next_ns - at_ns)
        taken, self._taken_ns = reached - self._taken_ns, max(reached, self._taken_ns)
        return max(0.0, taken)


def _total(glance: Glance | None, now_ns: int) -> int:
    if glance is None:
        return 0
    under_way = 0 if glance.in_flight_since_ns is None else now_ns - glance.in_flight_since_ns
    return glance.completed_ns + max(0, under_way)
