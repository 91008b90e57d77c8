"""The model's signals agree with one another as they do on a card."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from bottletop.demo.gpu_model import (
    GPU_IDLE,
    HW_SLOWDOWN,
    HW_THERMAL,
    STEP_NS,
    STEP_S,
    SW_POWER_CAP,
    SW_THERMAL,
    Card,
    GpuModel,
)

STEPS_A_S = round(1 / STEP_S)
HOT = Card(thermal_resistance_c_per_w=0.30, start_temp_c=79.0)
CAPPED = Card(power_limit_w=175.0)


def run(model: GpuModel, seconds: float, load: float = 1.0) -> None:
    for _ in range(round(seconds * STEPS_A_S)):
        model.step([load])


def test_energy_is_the_integral_of_power() -> None:
    model = GpuModel(Card(), 0)
    integral_j = 0.0
    rng = random.Random(1)
    for _ in range(30 * STEPS_A_S):
        model.step([rng.random()])
        integral_j += model.instant_power_w * STEP_S
    assert model.energy_j == pytest.approx(integral_j)


def test_reported_power_is_the_mean_of_the_last_second_and_matches_energy() -> None:
    model = GpuModel(CAPPED, 0)
    run(model, 3, 0.7)
    before_j = model.energy_j
    run(model, 1, 0.2)
    assert model.power_w == pytest.approx(model.energy_j - before_j)


@pytest.mark.parametrize("card", [Card(), HOT, CAPPED])
def test_counters_grow_exactly_while_their_bit_is_set(card: Card) -> None:
    model = GpuModel(card, 0)
    expected = dict.fromkeys(model.throttle_ns, 0)
    for number in range(40 * STEPS_A_S):
        model.step([1.0 if number % 90 < 70 else 0.0])
        for bit in expected:
            expected[bit] += STEP_NS if model.bits & bit else 0
    assert model.throttle_ns == expected


@pytest.mark.parametrize(("card", "bit"), [(HOT, SW_THERMAL), (CAPPED, SW_POWER_CAP)])
def test_a_limiter_bit_means_that_the_clock_is_down(card: Card, bit: int) -> None:
    model = GpuModel(card, 0)
    seen = 0
    for number in range(40 * STEPS_A_S):
        model.step([1.0])
        ramp_is_over = number > STEPS_A_S
        if model.bits & bit:
            seen += 1
            assert model.sm_clock_mhz < card.sm_clock_max_mhz
        elif ramp_is_over and not model.bits:
            assert model.sm_clock_mhz == card.sm_clock_max_mhz
    assert seen > 20 * STEPS_A_S


def test_power_is_brought_under_a_lowered_limit_within_a_second_and_stays_there() -> None:
    model = GpuModel(CAPPED, 0)
    run(model, 2)
    for _ in range(30 * STEPS_A_S):
        model.step([1.0])
        assert model.power_w <= CAPPED.power_limit_w * 1.02
    assert model.power_w >= CAPPED.power_limit_w * 0.9
    assert model.bits == SW_POWER_CAP


def test_at_its_default_limit_a_cool_card_runs_at_full_clock_with_no_bit_set() -> None:
    model = GpuModel(Card(), 0)
    run(model, 60)
    assert (model.sm_clock_mhz, model.bits) == (1980, 0)
    assert not any(model.throttle_ns.values())


def test_temperature_converges_to_what_power_and_cooling_say() -> None:
    model = GpuModel(Card(), 0)
    run(model, 300)
    card = model.card
    expected_c = card.ambient_c + model.power_w * card.thermal_resistance_c_per_w
    assert model.temp_c == pytest.approx(expected_c, abs=0.1)


def test_heat_has_inertia() -> None:
    model = GpuModel(Card(), 0)
    run(model, 1)
    after_a_second = model.temp_c
    run(model, 60)
    assert after_a_second < 54.0
    assert model.temp_c > 62.0


def test_poor_cooling_is_held_at_the_slowdown_temperature_by_a_lower_clock() -> None:
    model = GpuModel(HOT, 0)
    run(model, 25)
    assert model.bits == SW_THERMAL
    assert 83.0 < model.temp_c < 86.0
    assert 0.5 < model.sm_clock_mhz / HOT.sm_clock_max_mhz < 0.9
    assert model.power_w < 250.0


def test_hardware_halves_the_clock_when_software_cannot_hold_the_temperature() -> None:
    hopeless = Card(thermal_resistance_c_per_w=1.2, start_temp_c=90.0, heat_capacity_j_per_c=20.0)
    model = GpuModel(hopeless, 0)
    run(model, 1)
    assert model.bits & HW_THERMAL
    assert model.bits & HW_SLOWDOWN
    assert model.sm_clock_mhz <= hopeless.sm_clock_max_mhz / 2
    assert model.throttle_ns[HW_THERMAL] > 0


def test_a_hot_card_that_is_left_alone_cools_and_gets_its_clock_back() -> None:
    model = GpuModel(HOT, 0)
    run(model, 30)
    run(model, 120, 0.0)
    assert model.temp_c < 60.0
    run(model, 1)
    assert model.sm_clock_mhz == HOT.sm_clock_max_mhz


def test_idle_is_reported_as_idle_never_as_a_limiter() -> None:
    model = GpuModel(CAPPED, 0)
    run(model, 10)
    run(model, 10, 0.0)
    assert model.bits == GPU_IDLE
    assert model.sm_clock_mhz == CAPPED.sm_clock_idle_mhz
    assert model.instant_power_w == CAPPED.idle_w
    before = dict(model.throttle_ns)
    run(model, 10, 0.0)
    assert model.throttle_ns == before


def test_short_gaps_do_not_lower_the_clock() -> None:
    model = GpuModel(Card(), 0)
    run(model, 2)
    for number in range(20 * STEPS_A_S):
        model.step([1.0 if number % 50 < 20 else 0.0])
        assert model.sm_clock_mhz == 1980
        assert model.bits == 0


def test_utilisation_windows_tile_time_and_add_up_to_the_busy_time() -> None:
    model = GpuModel(Card(), 0)
    rng = random.Random(7)
    for _ in range(60 * STEPS_A_S):
        model.step([rng.choice([0.0, 0.3, 1.0])])
    points = model.drain().util_pct
    ends = [point.t_ns for point in points]
    windows = [after - before for before, after in itertools.pairwise(ends)]
    assert len(points) == 360
    assert set(windows) == {166_666_666}
    mean_busy = sum(point.value for point in points) / len(points) / 100
    assert mean_busy == pytest.approx(model.busy_s / 60, abs=0.005)


def test_a_window_covers_only_its_own_time() -> None:
    model = GpuModel(Card(), 0)
    for number in range(STEPS_A_S + 1):
        model.step([1.0 if number < STEPS_A_S / 2 else 0.0])
    assert [point.value for point in model.drain().util_pct] == [100, 100, 100, 0, 0, 0]


def test_a_window_that_ends_inside_a_step_takes_its_part_of_it() -> None:
    model = GpuModel(Card(), 0)
    for number in range(20):
        model.step([1.0 if number == 8 else 0.0])
    # The first window ends at 166.7 ms, a third into the busy step from 160 to 180 ms.
    assert [point.value for point in model.drain().util_pct] == [4, 8]


def test_draining_empties_the_buffers() -> None:
    model = GpuModel(Card(), 0)
    run(model, 1)
    assert model.drain().util_pct
    assert model.drain() == ((), (), ())


def test_buffers_nobody_drains_stay_bounded() -> None:
    model = GpuModel(Card(), 0)
    run(model, 1000)
    drained = model.drain()
    assert len(drained.util_pct) == 4096
    assert drained.util_pct[-1].t_ns > 999 * 10**9


def test_two_processes_share_the_time_and_the_card_is_busy_once() -> None:
    model = GpuModel(Card(), 0)
    assert model.step([1.0, 1.0]) == (0.5, 0.5)
    assert model.busy_s == pytest.approx(STEP_S)
    assert model.step([1.0, 0.0]) == (1.0, 0.0)
    assert sum(model.step([0.5, 0.5])) == pytest.approx(0.75)


def test_bytes_over_the_bus_follow_the_work() -> None:
    model = GpuModel(Card(), 0)
    run(model, 10, 0.0)
    assert model.h2d_bytes == 0
    run(model, 10, 0.5)
    assert model.h2d_bytes == pytest.approx(5 * model.card.h2d_bytes_per_busy_s)


def test_the_same_load_gives_the_same_story_and_no_number_is_lost() -> None:
    def story() -> list[float]:
        rng = random.Random(3)
        model = GpuModel(HOT, 0)
        told: list[float] = []
        for _ in range(120 * STEPS_A_S):
            model.step([rng.random() * 1.4 - 0.2, rng.random()])
            told += [model.temp_c, model.power_w, model.energy_j, model.sm_clock_mhz, model.bits]
        return told

    first = story()
    assert first == story()
    assert all(math.isfinite(value) for value in first)
