"""The detector on series whose truth is known, the traps of sampling among them."""

from __future__ import annotations

import bisect
import math
import random
from array import array
from typing import TYPE_CHECKING

import pytest

from bottletop.model import NS_PER_S
from bottletop.rings import Series
from bottletop.rules.load import fill_holes
from bottletop.rules.sawtooth import Sawtooth, detect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

W = 1 / 6
SPAN_S = 120
SUB = 8


def sampled(busy: Callable[[float], float], window_s: float = W, every_s: float = W) -> Series:
    """What averaging over `window_s`, read every `every_s`, makes of a busy function."""
    times, values = array("q"), array("d")
    for number in range(int(SPAN_S / every_s)):
        end_s = (number + 1) * every_s
        parts = [busy(end_s - window_s + (k + 0.5) * window_s / SUB) for k in range(SUB)]
        times.append(round(end_s * NS_PER_S))
        values.append(round(100 * min(1.0, max(0.0, sum(parts) / SUB))))
    return Series(times, values)


def steps(parts: Iterable[tuple[float, float]]) -> Callable[[float], float]:
    """A busy function from (seconds, level) pairs that follow one another."""
    starts, levels, t_s = [], [], 0.0
    for seconds, level in parts:
        starts.append(t_s)
        levels.append(level)
        t_s += seconds
    return lambda at: levels[max(0, bisect.bisect_right(starts, at) - 1)]


def square(
    period_s: float, duty: float, jitter: float, rng: random.Random
) -> Iterable[tuple[float, float]]:
    t_s = 0.0
    while t_s < SPAN_S + 2 * period_s:
        length = period_s * (1 + jitter * (2 * rng.random() - 1))
        yield length * duty, 1.0
        yield length * (1 - duty), 0.0
        t_s += length


def regular(found: Sawtooth | None) -> Sawtooth | None:
    return found if found is not None and found.regular else None


# -- what must be found ---------------------------------------------------------------------------


def test_period_duty_and_levels_of_a_clean_square_wave() -> None:
    found = regular(detect(sampled(steps(square(4.0, 0.25, 0.0, random.Random(1)))), W))
    assert found is not None
    assert found.period_s == pytest.approx(4.0, abs=0.05)
    assert found.duty == pytest.approx(0.25, abs=0.03)
    assert (found.low_pct, found.high_pct) == (0, 100)
    assert found.cycles == len(found.rises_ns) - 1 >= 28
    assert not found.ramped


def test_cycle_marks_lie_where_the_busy_phases_begin() -> None:
    found = detect(sampled(steps(square(3.0, 0.5, 0.0, random.Random(1)))), W)
    assert found is not None
    for t_ns in found.rises_ns:
        off_s = math.fmod(t_ns / NS_PER_S + 1.5, 3.0) - 1.5
        assert abs(off_s) <= W


@pytest.mark.parametrize("period_s", [0.9, 1.0, 2.0, 5.0, 10.0, 20.0])
def test_visible_periods_are_found_despite_jitter(period_s: float) -> None:
    rng = random.Random(period_s)
    right = 0
    for _ in range(20):
        wave = square(period_s, rng.uniform(0.25, 0.75), rng.uniform(0, 0.2), rng)
        found = regular(detect(sampled(steps(wave)), W))
        right += found is not None and abs(found.period_s - period_s) < 0.15 * period_s
    assert right >= 19


def test_slopes_are_found_and_said_to_be_slopes() -> None:
    found = regular(detect(sampled(lambda t: abs(math.fmod(t / 4, 2) - 1)), W))
    assert found is not None
    assert found.ramped
    assert found.period_s == pytest.approx(8, abs=0.2)


def test_a_polled_series_shows_long_periods() -> None:
    series = sampled(steps(square(12.0, 0.5, 0.1, random.Random(3))), every_s=1.0)
    found = regular(detect(series, 1.0))
    assert found is not None
    assert found.period_s == pytest.approx(12, abs=1)


# -- what must not --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("period_s", "window_s"), [(1.5, 1.0), (0.3, 0.2), (0.25, W), (0.4, W), (1.0, 1.0)]
)
def test_no_period_is_told_from_below_the_gate(period_s: float, window_s: float) -> None:
    """A swing of 1.5 windows looks like a perfect one of 3 windows; others lock elsewhere."""
    rng = random.Random(7)
    for _ in range(20):
        wave = square(period_s, rng.uniform(0.3, 0.7), 0.0, rng)
        series = sampled(steps(wave), window_s, window_s)
        assert regular(detect(series, window_s)) is None


def memoryless(rng: random.Random) -> Callable[[float], float]:
    mean_s = rng.uniform(0.3, 4)
    return steps((rng.expovariate(1 / mean_s), float(i % 2)) for i in range(1200))


def poisson(rng: random.Random) -> Callable[[float], float]:
    rate, service_s = rng.uniform(0.2, 1.2), rng.uniform(0.2, 0.6)
    parts, clock_s, free_s = [], 0.0, 0.0
    while clock_s < SPAN_S:
        clock_s += rng.expovariate(rate)
        begin_s = max(clock_s, free_s)
        parts += [(begin_s - free_s, 0.0), (service_s, 1.0)]
        free_s = begin_s + service_s
    return steps(parts)


def walk(rng: random.Random) -> Callable[[float], float]:
    step, level, levels = rng.uniform(0.05, 0.4), 0.5, []
    for _ in range(round(SPAN_S / W) + 2):
        level = min(1.0, max(0.0, level + rng.gauss(0, step)))
        levels.append(level)
    return lambda t_s: levels[max(0, int(t_s / W))]


def one_step(rng: random.Random) -> Callable[[float], float]:
    return steps([(rng.uniform(5, 55), 0.0), (rng.uniform(5, 55), 1.0), (SPAN_S, 0.0)])


def steady(rng: random.Random) -> Callable[[float], float]:
    level = rng.choice((0.95, 0.5, 0.02))
    return lambda t_s: level + 0.05 * math.sin(7 * t_s)


def plateaus(rng: random.Random) -> Callable[[float], float]:
    return steps((rng.uniform(1, 8), rng.random()) for _ in range(200))


@pytest.mark.parametrize(
    ("shape", "allowed"),
    [(steady, 0), (one_step, 0), (poisson, 1), (memoryless, 3), (walk, 3), (plateaus, 1)],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_shapes_without_a_rhythm_get_none(
    shape: Callable[[random.Random], Callable[[float], float]], allowed: int
) -> None:
    rng = random.Random(20)
    false = sum(regular(detect(sampled(shape(rng)), W)) is not None for _ in range(40))
    assert false <= allowed


def test_few_cycles_and_small_swings_are_nothing() -> None:
    rng = random.Random(1)
    assert detect(sampled(steps(square(45.0, 0.5, 0, rng))), W) is None
    assert detect(sampled(lambda t: 0.5 + 0.15 * math.copysign(1, math.sin(t))), W) is None
    assert detect(Series(array("q"), array("d")), W) is None


def test_irregular_swings_are_told_from_regular_ones() -> None:
    rng = random.Random(5)
    parts = [(rng.expovariate(1 / 3) + 0.5, float(i % 2)) for i in range(100)]
    found = detect(sampled(steps(parts)), W)
    assert found is not None
    assert not found.regular


# -- buffers that run dry -------------------------------------------------------------------------


def test_a_dry_buffer_counts_as_idle() -> None:
    """Drivers keep no samples while a GPU idles; reads then add one a second."""
    full = sampled(steps(square(6.0, 0.5, 0.0, random.Random(1))))
    kept = [
        (t, v)
        for t, v in zip(full.t_ns, full.values, strict=True)
        if v > 0 or round(t / NS_PER_S * 6) % 6 == 0
    ]
    dry = Series(array("q", [t for t, _ in kept]), array("d", [v for _, v in kept]))
    found = regular(detect(fill_holes(dry, W), W))
    assert found is not None
    assert found.period_s == pytest.approx(6, abs=0.2)
    assert found.duty == pytest.approx(0.5, abs=0.05)


def test_a_hole_between_busy_samples_stays_busy() -> None:
    times = array("q", [round(s * NS_PER_S) for s in (1, 1 + W, 3, 3 + W)])
    filled = fill_holes(Series(times, array("d", [90, 80, 100, 100])), W)
    assert min(filled.values) == 80
    assert len(filled.values) > len(times)
