"""A physical model of one GPU: how busy it is goes in, what a driver would report comes out.

Pure and deterministic: no clock, no threads, no randomness. It advances in steps of 20 ms, so that
power, heat, clocks, limiters and counters agree with one another as they do on a card:

- power is an idle part plus parts that grow with (f / fmax)^2.4, voltage following frequency;
- heat has inertia: C dT/dt = P - (T - ambient) / R;
- a limiter is a ceiling on the clock. Its event bit is set exactly while its ceiling holds the
  clock down, and its nanosecond counter grows exactly while its bit is set;
- energy is the integral of the same power that heats the die.

What the numbers mean follows NVML: utilisation is the share of a 1/6 s window in which a kernel
ran, reported power is a 1 s average, clocks move in steps of 15 MHz.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

STEP_NS = 20_000_000
STEP_S = STEP_NS / NS_PER_S
WINDOW_NS = NS_PER_S // 6
"""Averaging window of utilisation (NVML documents 1/6 s to 1 s by product)."""
POWER_SAMPLE_STEPS = 5
"""Steps in one sample of the power buffer: 100 ms."""
POWER_AVERAGE_STEPS = NS_PER_S // STEP_NS
"""Steps in the reported power: NVML's 1 s average on Ampere and newer except GA100."""
MAX_PENDING = 4096
"""Samples kept for a reader that does not come; the oldest go first, as in the driver's buffers."""

GPU_IDLE = 0x001
SW_POWER_CAP = 0x004
HW_SLOWDOWN = 0x008
SW_THERMAL = 0x020
HW_THERMAL = 0x040

CLOCK_GRAIN_MHZ = 15


@dataclass(frozen=True, slots=True)
class Card:
    """The part and the place where it sits. Defaults: a 350 W server card that is well cooled."""

    sm_clock_max_mhz: int = 1980
    sm_clock_idle_mhz: int = 345
    mem_clock_max_mhz: int = 2610
    mem_total_bytes: int = 80 * 1024**3
    mem_reserved_bytes: int = 640 * 1024**2

    idle_w: float = 55.0
    """With clocks at rest."""
    awake_w: float = 25.0
    """What high clocks cost on top while nothing runs, at the highest clock."""
    work_w: float = 230.0
    """What running kernels costs on top, at full utilisation and the highest clock."""
    power_limit_default_w: float = 350.0
    power_limit_w: float = 350.0
    """Requested and enforced limit."""

    ambient_c: float = 28.0
    thermal_resistance_c_per_w: float = 0.12
    heat_capacity_j_per_c: float = 110.0
    start_temp_c: float = 52.0
    sw_slowdown_c: float = 85.0
    """Highest operating temperature: software lowers the clock to hold it."""
    hw_slowdown_c: float = 92.0
    """Here hardware halves the clock, until 5 degrees lower."""

    mem_activity: float = 0.55
    """Share of busy time in which device memory is read or written."""
    h2d_bytes_per_busy_s: float = 400e6
    d2h_bytes_per_busy_s: float = 25e6
    rest_after_s: float = 1.5
    """Idle time after which clocks go to rest."""


class Point(NamedTuple):
    """One sample of a driver buffer: the end of its window, and its value."""

    t_ns: int
    value: float


class Drained(NamedTuple):
    """What the buffers gathered since they were last drained, oldest first."""

    util_pct: tuple[Point, ...]
    power_w: tuple[Point, ...]
    sm_clock_mhz: tuple[Point, ...]


class GpuModel:
    """State of one simulated GPU. `step` moves it; everything else reads it."""

    def __init__(self, card: Card, start_ns: int) -> None:
        self.card = card
        self.t_ns = start_ns
        self.temp_c = card.start_temp_c
        self.energy_j = 0.0
        self.bits = GPU_IDLE
        self.throttle_ns = {SW_POWER_CAP: 0, SW_THERMAL: 0, HW_THERMAL: 0}
        self.h2d_bytes = 0.0
        self.d2h_bytes = 0.0
        self.instant_power_w = card.idle_w
        self.util_pct = 0
        self.busy_s = 0.0
        """Time in which a kernel ran, since the start."""
        self._clock_mhz = float(card.sm_clock_idle_mhz)
        self._power_ceiling_mhz = float(card.sm_clock_max_mhz)
        self._thermal_ceiling_mhz = float(card.sm_clock_max_mhz)
        self._warming_c_per_s = 0.0
        self._hw_slowed = False
        self._idle_s = card.rest_after_s
        self._powers: deque[float] = deque([card.idle_w], maxlen=POWER_AVERAGE_STEPS)
        self._recent_powers: deque[float] = deque([card.idle_w], maxlen=POWER_SAMPLE_STEPS)
        self._window_busy_ns = 0.0
        self._window_end_ns = start_ns + WINDOW_NS
        self._steps = 0
        self._util: deque[Point] = deque(maxlen=MAX_PENDING)
        self._power: deque[Point] = deque(maxlen=MAX_PENDING)
        self._clock: deque[Point] = deque(maxlen=MAX_PENDING)

    # -- what a driver would report ---------------------------------------------------------

    @property
    def power_w(self) -> float:
        """Mean of the last second."""
        return sum(self._powers) / len(self._powers)

    @property
    def sm_clock_mhz(self) -> int:
        return int(self._clock_mhz / CLOCK_GRAIN_MHZ) * CLOCK_GRAIN_MHZ

    @property
    def resting(self) -> bool:
        """True while clocks are, or are on their way, down because nothing runs."""
        return self._idle_s >= self.card.rest_after_s

    def drain(self) -> Drained:
        """Hand over the buffered samples and empty the buffers."""
        drained = Drained(tuple(self._util), tuple(self._power), tuple(self._clock))
        for buffer in (self._util, self._power, self._clock):
            buffer.clear()
        return drained

    # -- physics ----------------------------------------------------------------------------

    def step(self, loads: Sequence[float]) -> tuple[float, ...]:
        """Advance by 20 ms and return the share of the step in which each process ran.

        `loads` holds, for each process, the share (0 to 1) of the step in which it wanted the GPU.
        Where several do, time slicing gives each its part of the time.
        """
        wanted = [min(1.0, max(0.0, load)) for load in loads]
        idle = 1.0
        for load in wanted:
            idle *= 1.0 - load
        busy, total = 1.0 - idle, sum(wanted)
        self.t_ns += STEP_NS
        self._steps += 1
        self._idle_s = 0.0 if busy > 0 else self._idle_s + STEP_S
        self._set_clock()
        self._spend(busy)
        self._buffer(busy)
        return tuple(load / total * busy if total else 0.0 for load in wanted)

    def _set_clock(self) -> None:
        card = self.card
        self._thermal_control()
        self._power_control()
        desired = float(card.sm_clock_idle_mhz if self.resting else card.sm_clock_max_mhz)
        hw_ceiling = card.sm_clock_max_mhz / 2 if self._hw_slowed else float(card.sm_clock_max_mhz)
        ceiling = min(self._power_ceiling_mhz, self._thermal_ceiling_mhz, hw_ceiling)
        goal = max(float(card.sm_clock_idle_mhz), min(desired, ceiling))
        # Clocks rise gradually and fall at once: a slowdown protects the part.
        self._clock_mhz = min(goal, self._clock_mhz + 120.0)
        self.bits = self._limiting_bits(desired, hw_ceiling)
        for bit in self.throttle_ns:
            if self.bits & bit:
                self.throttle_ns[bit] += STEP_NS

    def _limiting_bits(self, desired: float, hw_ceiling: float) -> int:
        """Bits of every ceiling that lies below the wanted clock."""
        if self.resting:
            return GPU_IDLE
        bits = 0
        if self._power_ceiling_mhz < desired:
            bits |= SW_POWER_CAP
        if self._thermal_ceiling_mhz < desired:
            bits |= SW_THERMAL
        if hw_ceiling < desired:
            bits |= HW_THERMAL | HW_SLOWDOWN
        return bits

    def _thermal_control(self) -> None:
        """Hold the die at its highest operating temperature; damped, since heat follows late."""
        card, over = self.card, self.temp_c - self.card.sw_slowdown_c
        if over < -3.0:
            self._thermal_ceiling_mhz += 60.0 * STEP_S
        else:
            self._thermal_ceiling_mhz -= (50.0 * over + 300.0 * self._warming_c_per_s) * STEP_S
        floor, top = float(card.sm_clock_idle_mhz), float(card.sm_clock_max_mhz)
        self._thermal_ceiling_mhz = min(top, max(floor, self._thermal_ceiling_mhz))
        if self.temp_c >= card.hw_slowdown_c:
            self._hw_slowed = True
        elif self.temp_c < card.hw_slowdown_c - 5.0:
            self._hw_slowed = False

    def _power_control(self) -> None:
        """Lower the ceiling in proportion to the excess; raise it only with room to spare."""
        card = self.card
        ratio = sum(self._recent_powers) / len(self._recent_powers) / card.power_limit_w
        if ratio > 1.0:
            self._power_ceiling_mhz -= min(60.0, 400.0 * (ratio - 1.0) + 2.0)
        elif ratio < 0.97:
            self._power_ceiling_mhz += 6.0
        floor, top = float(card.sm_clock_idle_mhz), float(card.sm_clock_max_mhz)
        self._power_ceiling_mhz = min(top, max(floor, self._power_ceiling_mhz))

    def _spend(self, busy: float) -> None:
        card = self.card
        rise = (self._clock_mhz / card.sm_clock_max_mhz) ** 2.4
        awake = 0.0 if self.resting else card.awake_w
        power = card.idle_w + (awake + card.work_w * busy) * rise
        self.instant_power_w = power
        self._powers.append(power)
        self._recent_powers.append(power)
        self.energy_j += power * STEP_S
        leaving_w = (self.temp_c - card.ambient_c) / card.thermal_resistance_c_per_w
        self._warming_c_per_s = (power - leaving_w) / card.heat_capacity_j_per_c
        self.temp_c += self._warming_c_per_s * STEP_S
        self.busy_s += busy * STEP_S
        self.h2d_bytes += card.h2d_bytes_per_busy_s * busy * STEP_S
        self.d2h_bytes += card.d2h_bytes_per_busy_s * busy * STEP_S

    def _buffer(self, busy: float) -> None:
        """Fill the utilisation, power and clock buffers; a window may end inside a step."""
        begin_ns = self.t_ns - STEP_NS
        while self._window_end_ns <= self.t_ns:
            self._window_busy_ns += busy * (self._window_end_ns - begin_ns)
            begin_ns = self._window_end_ns
            self.util_pct = round(100 * min(1.0, self._window_busy_ns / WINDOW_NS))
            self._util.append(Point(begin_ns, self.util_pct))
            self._clock.append(Point(begin_ns, self.sm_clock_mhz))
            self._window_busy_ns = 0.0
            self._window_end_ns += WINDOW_NS
        self._window_busy_ns += busy * (self.t_ns - begin_ns)
        if self._steps % POWER_SAMPLE_STEPS == 0:
            mean_w = sum(self._recent_powers) / len(self._recent_powers)
            self._power.append(Point(self.t_ns, mean_w))
