"""Busy time is exact whatever the moments of looking."""

from __future__ import annotations

import random

import pytest

from bottletop.demo.busy import BusyLine, Glance

MS = 1_000_000
STEP = 20 * MS


class Passes:
    """A stage that is entered and left at known times."""

    def __init__(self, spans: list[tuple[int, int]]) -> None:
        self.spans = spans

    def glance(self, now: int) -> Glance:
        done = sum(end - begin for begin, end in self.spans if end <= now)
        since = [begin for begin, end in self.spans if begin <= now < end]
        return Glance(done, since[0] if since else None)

    def busy(self, begin: int, end: int) -> int:
        return sum(max(0, min(b, end) - max(a, begin)) for a, b in self.spans)


def steps(line: BusyLine, begin: int, end: int) -> list[float]:
    assert line.take(begin) == 0
    return [line.take(at) / MS for at in range(begin + STEP, end + 1, STEP)]


def test_a_pass_seen_from_begin_to_end_fills_exactly_its_time() -> None:
    passes = Passes([(100 * MS, 170 * MS)])
    line = BusyLine()
    for now in range(0, 301 * MS, 20 * MS):
        line.see(now, passes.glance(now))
    assert steps(line, 0, 300 * MS) == [0] * 5 + [20, 20, 20, 10] + [0] * 6


def test_a_late_look_still_places_both_edges() -> None:
    passes = Passes([(0, 110 * MS), (190 * MS, 400 * MS)])
    line = BusyLine()
    for now in (20 * MS, 300 * MS):
        line.see(now, passes.glance(now))
    line.take(20 * MS)
    assert line.take(100 * MS) / MS == 80
    assert line.take(200 * MS) / MS == 20
    assert line.take(300 * MS) / MS == 100


def test_time_before_the_first_look_does_not_count() -> None:
    line = BusyLine()
    line.see(1000 * MS, Glance(900 * MS, 950 * MS))
    line.see(1020 * MS, Glance(900 * MS, 950 * MS))
    line.take(1000 * MS)
    assert line.take(1020 * MS) == 20 * MS


def test_totals_are_exact_at_irregular_looks() -> None:
    rng = random.Random(11)
    spans, at = [], 0
    for _ in range(200):
        begin = at + rng.randrange(1, 400) * MS
        at = begin + rng.randrange(1, 400) * MS
        spans.append((begin, at))
    passes = Passes(spans)
    line, now = BusyLine(), 0
    while now < at:
        line.see(now, passes.glance(now))
        now += rng.randrange(5, 120) * MS
    end = line.known_until_ns
    taken = sum(steps(line, 0, end)) + line.take(end) / MS
    assert taken == pytest.approx(passes.busy(0, end) / MS)


def test_a_process_that_is_gone_is_idle() -> None:
    line = BusyLine()
    line.see(0, Glance(0, 0))
    line.see(20 * MS, Glance(0, 0))
    for now in (40, 60, 80):
        line.see(now * MS, None)
    assert steps(line, 0, 80 * MS) == [20, 0, 0, 0]


def test_a_counter_that_goes_back_adds_nothing() -> None:
    line = BusyLine()
    line.see(0, Glance(500 * MS, None))
    line.see(20 * MS, Glance(5 * MS, None))
    line.see(40 * MS, Glance(10 * MS, None))
    assert steps(line, 0, 40 * MS) == [0, 5]


def test_more_busy_time_than_time_is_capped() -> None:
    line = BusyLine()
    line.see(0, Glance(0, None))
    line.see(20 * MS, Glance(5000 * MS, None))
    assert steps(line, 0, 20 * MS) == [20]
