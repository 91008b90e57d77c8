"""Collector `gpu` of the demo: a GPU model that follows the `forward` stage of real processes.

It looks at each process's probe memory 50 times a second, from outside and read-only, so the model
is busy exactly when the process waits for its device. Every row says `simulated`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from bottletop.demo.busy import BusyLine, Glance
from bottletop.demo.gpu_model import (
    HW_THERMAL,
    POWER_SAMPLE_STEPS,
    STEP_NS,
    STEP_S,
    SW_POWER_CAP,
    SW_THERMAL,
    WINDOW_NS,
    Card,
    Drained,
    GpuModel,
)
from bottletop.model import NS_PER_S, Absent, Row, Sample, State, Table, Value
from bottletop.roots import read_bytes
from bottletop.tables import Gpu, GpuClockSample, GpuPowerSample, GpuProcess, GpuUtilSample
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.model import Metric

GPU_KEY = "GPU-simulated-0"
SIMULATED = "simulated GPU"
_NOT_MODELLED = Absent(State.NOT_APPLICABLE, "not part of the simulated GPU")


class ForwardWatch(Protocol):
    """Sees one process's `forward` stage from outside."""

    pid: int

    def glance(self, now_ns: int) -> Glance | None:
        """The stage as of `now_ns`, None where there is nothing to see (yet, or any more)."""

    def close(self) -> None:
        """Let go of what was opened; may be called twice."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A process that uses the simulated GPU."""

    watch: ForwardWatch
    mem_bytes: int
    """Device memory that its model takes, once it has run something."""


class _Seat:
    """A tenant's bookkeeping."""

    def __init__(self, tenant: Tenant) -> None:
        self.watch = tenant.watch
        self.mem_bytes = tenant.mem_bytes
        self.line = BusyLine()
        self.present = False
        self.ran_steps = 0.0


class SimulatedGpu:
    """Fills the GPU tables from a `GpuModel`; stands in for the NVML collector, under its name."""

    name: ClassVar[str] = "gpu"
    tables: ClassVar[tuple[type[Table], ...]] = (
        Gpu,
        GpuUtilSample,
        GpuPowerSample,
        GpuClockSample,
        GpuProcess,
    )
    period_s: ClassVar[float] = 1.0
    blocking: ClassVar[bool] = False
    simulated: ClassVar[str] = SIMULATED

    def __init__(self, context: Context, card: Card, tenants: Sequence[Tenant]) -> None:
        self._clock = context.clock
        self._proc = context.roots.proc
        self._card = card
        self._seats = [_Seat(tenant) for tenant in tenants]
        self._model = GpuModel(card, self._clock.monotonic_ns())
        self._steps = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Start to look."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(
                target=self._follow, name="bottletop-simulated-gpu", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(1.0)
        with self._lock:
            for seat in self._seats:
                seat.watch.close()

    def _follow(self) -> None:
        while not self._stop.wait(STEP_S):
            self.advance()

    def advance(self) -> None:
        """Look at every process once and move the model up to now."""
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            for seat in self._seats:
                glance = seat.watch.glance(now_ns)
                seat.present = glance is not None
                seat.line.see(now_ns, glance)
            while self._model.t_ns + STEP_NS <= now_ns:
                until_ns = self._model.t_ns + STEP_NS
                shares = self._model.step(
                    [seat.line.take(until_ns) / STEP_NS for seat in self._seats]
                )
                for seat, share in zip(self._seats, shares, strict=True):
                    seat.ran_steps += share
                self._steps += 1

    def read(self) -> Sequence[Sample]:
        """One `gpu` row, the buffered samples since the last read, and the processes."""
        began_ns = self._clock.monotonic_ns()
        self.advance()
        with self._lock:
            drained = self._model.drain()
            gpu = Gpu.row(GPU_KEY, self._model.t_ns, self._gpu_values())
            processes = self._process_rows()
        took_ns = self._clock.monotonic_ns() - began_ns
        rows: dict[type[Table], tuple[Row, ...]] = {
            Gpu: (gpu,),
            **_buffer_rows(drained),
            GpuProcess: processes,
        }
        return [
            Sample(self.name, table, began_ns + took_ns, took_ns, found)
            for table, found in rows.items()
        ]

    def _gpu_values(self) -> dict[Metric, Value]:
        return {
            **dict.fromkeys(Gpu.columns, _NOT_MODELLED),
            **_identity(),
            **_static(self._card),
            **_state(self._model),
            Gpu.mem_used_bytes: sum(seat.mem_bytes for seat in self._seats if seat.present),
            Gpu.processes: sum(seat.present for seat in self._seats),
        }

    def _process_rows(self) -> tuple[Row, ...]:
        steps, self._steps = self._steps, 0
        rows = []
        for seat in self._seats:
            ran, seat.ran_steps = seat.ran_steps, 0.0
            if not seat.present:
                continue
            values: dict[Metric, Value] = {
                GpuProcess.gpu: GPU_KEY,
                GpuProcess.pid: seat.watch.pid,
                GpuProcess.process: self._process_name(seat.watch.pid),
                GpuProcess.mem_bytes: seat.mem_bytes,
                GpuProcess.sm_util_pct: (
                    100 * ran / steps if steps else Absent(State.NOT_READ, "no time passed")
                ),
            }
            key = f"{GPU_KEY}/{seat.watch.pid}"
            rows.append(GpuProcess.row(key, self._model.t_ns, values))
        return tuple(rows)

    def _process_name(self, pid: int) -> Value:
        try:
            return clean(read_bytes(f"{self._proc}/{pid}/comm", 64))
        except OSError as error:
            return Absent.error(error.strerror or "not readable")


def _buffer_rows(drained: Drained) -> dict[type[Table], tuple[Row, ...]]:
    return {
        GpuUtilSample: tuple(
            GpuUtilSample.row(GPU_KEY, point.t_ns, {GpuUtilSample.util_pct: point.value})
            for point in drained.util_pct
        ),
        GpuPowerSample: tuple(
            GpuPowerSample.row(GPU_KEY, point.t_ns, {GpuPowerSample.power_w: point.value})
            for point in drained.power_w
        ),
        GpuClockSample: tuple(
            GpuClockSample.row(GPU_KEY, point.t_ns, {GpuClockSample.sm_clock_mhz: point.value})
            for point in drained.sm_clock_mhz
        ),
    }


def _identity() -> dict[Metric, Value]:
    return {
        Gpu.index: 0,
        Gpu.model: SIMULATED,
        Gpu.provenance: "simulated",
        Gpu.health: 0,
        Gpu.sample_interval_s: WINDOW_NS / NS_PER_S,
        Gpu.clock_interval_s: WINDOW_NS / NS_PER_S,
        Gpu.power_interval_s: POWER_SAMPLE_STEPS * STEP_S,
        Gpu.stamp_domain: "boot",
        Gpu.mem_info: 2,
        Gpu.mig: 0,
        Gpu.throttle_power_brake_ns: 0,
        Gpu.throttle_sync_boost_ns: 0,
        Gpu.throttle_board_limit_ns: 0,
        Gpu.throttle_reliability_ns: 0,
    }


def _static(card: Card) -> dict[Metric, Value]:
    return {
        Gpu.mem_total_bytes: card.mem_total_bytes,
        Gpu.mem_reserved_bytes: card.mem_reserved_bytes,
        Gpu.power_limit_w: card.power_limit_w,
        Gpu.power_limit_requested_w: card.power_limit_w,
        Gpu.power_limit_default_w: card.power_limit_default_w,
        Gpu.sm_clock_max_mhz: card.sm_clock_max_mhz,
        Gpu.sm_clock_boost_mhz: card.sm_clock_max_mhz,
        Gpu.mem_clock_max_mhz: card.mem_clock_max_mhz,
        Gpu.mem_clock_mhz: card.mem_clock_max_mhz,
        Gpu.pcie_gen_max: 5,
        Gpu.pcie_width: 16,
        Gpu.pcie_width_max: 16,
    }


def _state(model: GpuModel) -> dict[Metric, Value]:
    return {
        Gpu.util_pct: model.util_pct,
        Gpu.mem_util_pct: model.util_pct * model.card.mem_activity,
        Gpu.power_w: model.power_w,
        Gpu.energy_mj: model.energy_j * 1000,
        Gpu.sm_clock_mhz: model.sm_clock_mhz,
        Gpu.clock_event_reasons: model.bits,
        Gpu.throttle_sw_power_ns: model.throttle_ns[SW_POWER_CAP],
        Gpu.throttle_sw_thermal_ns: model.throttle_ns[SW_THERMAL],
        Gpu.throttle_hw_thermal_ns: model.throttle_ns[HW_THERMAL],
        Gpu.temp_c: model.temp_c,
        Gpu.temp_margin_c: model.card.sw_slowdown_c - model.temp_c,
        Gpu.pstate: 0,
        Gpu.pcie_gen: 1 if model.resting else 5,
        Gpu.pcie_rx_bytes: model.h2d_bytes,
        Gpu.pcie_tx_bytes: model.d2h_bytes,
    }
