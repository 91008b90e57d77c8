"""The columns of `gpu` that calls and fields of one GPU fill, by how often they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bottletop.collectors.gpu_calls import settled
from bottletop.collectors.gpu_fields import FieldReader
from bottletop.collectors.gpu_part import (
    MEMORY_V1,
    MEMORY_V2,
    PLACEHOLDER,
    SHARED,
    host_memory_bytes,
)
from bottletop.collectors.gpu_readings import (
    CALL_READINGS,
    EACH_READ,
    FIELD_READINGS,
    RARE_PERIOD_S,
    SLOW_PERIOD_S,
    STATIC_READINGS,
    Call,
)
from bottletop.model import NOT_READ, Absent, Metric, Row, State, Value
from bottletop.tables.gpu import INSTANT, MEAN, UNIFIED, Gpu, GpuUtilSample
from bottletop.tables.gpu_believed import believed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.collectors.gpu_calls import DeviceCalls
    from bottletop.collectors.gpu_driver import Driver
    from bottletop.collectors.gpu_part import Part
    from bottletop.collectors.gpu_readings import Reading
    from bottletop.roots import Roots

BUSY_PCT = 90
UTILISATION = Call("nvmlDeviceGetUtilizationRates")
MEMORY = (Gpu.mem_total_bytes, Gpu.mem_used_bytes, Gpu.mem_reserved_bytes, Gpu.mem_info)
LINK = (Gpu.pcie_gen, Gpu.pcie_width, Gpu.pcie_gen_max, Gpu.pcie_width_max)
READ = (
    *(reading.metric for reading in (*FIELD_READINGS, *CALL_READINGS)),
    *MEMORY,
    *(Gpu.util_pct, Gpu.mem_util_pct, Gpu.power_basis, Gpu.sm_clock_mhz),
)
"""Columns that say nothing of a GPU that does not answer."""

_MIG = Absent.unsupported("MIG is enabled: the driver gives no utilisation of the whole GPU")
_IN_USED = Absent.unsupported("memory info v1 counts it as used")
_NEVER_MOVED = "drivers of this part answer 0 without measuring, and it has answered nothing else"
_NOT_MEASURED = Absent.unsupported("0 while the GPU works: this part does not measure it")


class Plan(NamedTuple):
    """What is asked together."""

    fields: FieldReader
    metrics: tuple[Metric, ...]
    calls: tuple[Reading, ...]
    instead: Mapping[Metric, Value]
    """Columns for which such a part is not asked, and why."""


class Columns:
    """One GPU's columns, for as long as it answers and MIG stays as it is."""

    def __init__(
        self, driver: Driver, handle: object, calls: DeviceCalls, part: Part, roots: Roots
    ) -> None:
        self._calls = calls
        self._part = part
        self._roots = roots
        self._plans = {
            every_s: self._plan(driver, handle, every_s)
            for every_s in (EACH_READ, SLOW_PERIOD_S, RARE_PERIOD_S)
        }
        self._never_moved: set[Metric] = {Gpu.util_pct, Gpu.mem_util_pct} if part.jetson else set()
        self._memory_moved = self._memory_idle = False
        self._host_memory: Value = NOT_READ
        self._basis: Value | None = None

    def _plan(self, driver: Driver, handle: object, every_s: int) -> Plan:
        own = [one for one in (*FIELD_READINGS, *CALL_READINGS) if one.every_s == every_s]
        part = self._part
        asked = [one for one in own if one.concerns(part.architecture, beside_cpu=part.beside_cpu)]
        fields = [one for one in asked if one.fields]
        return Plan(
            FieldReader(driver, handle, fields, self._calls.first_of),
            tuple(one.metric for one in fields),
            tuple(one for one in asked if not one.fields),
            {
                one.metric: Absent(State.NOT_APPLICABLE, one.instead)
                for one in own
                if one not in asked
            },
        )

    def read(self, every_s: int) -> dict[Metric, Value]:
        """The columns that are asked so often. Raises `GpuGone` and `Unavailable`."""
        plan = self._plans[every_s]
        cells = dict(plan.instead)
        cells.update(zip(plan.metrics, plan.fields.read(), strict=True))
        for reading in plan.calls:
            cells[reading.metric] = self._calls.first_of(reading)
        if every_s == EACH_READ:
            cells |= self._power(plan, cells)
            cells |= self._memory()
        return cells

    def static(self, known: Mapping[Metric, Value]) -> dict[Metric, Value]:
        """What never changes, as far as it is not yet `known`."""
        cells: dict[Metric, Value] = {}
        for reading in STATIC_READINGS:
            if not settled(known.get(reading.metric, NOT_READ)):
                cells[reading.metric] = self._calls.first_of(reading)
        widest = cells.get(Gpu.pcie_gen_max), cells.get(Gpu.pcie_width_max)
        if self._part.beside_cpu and widest == (1, 1):
            cells |= dict.fromkeys((Gpu.pcie_gen_max, Gpu.pcie_width_max), PLACEHOLDER)
            for reading in CALL_READINGS:
                if reading.metric in LINK:
                    self._calls.refuse(reading.calls[0], PLACEHOLDER)
        return cells

    def _power(self, plan: Plan, cells: Mapping[Metric, Value]) -> dict[Metric, Value]:
        """What kind of power it is. Where the plain call is of the instant, it is that too."""
        basis = self._basis
        if basis is None:
            basis = MEAN if plan.fields.answers(Gpu.power_w) else self._part.power_basis
            self._basis = basis if plan.fields.settled else None
        instant = cells[Gpu.power_instant_w]
        if basis == INSTANT and isinstance(instant, Absent):
            instant = cells[Gpu.power_w]
        return {Gpu.power_basis: basis, Gpu.power_instant_w: instant}

    # -- utilisation ------------------------------------------------------------------------

    def utilisation(self, mig: Value) -> dict[Metric, Value]:
        """Utilisation of GPU and memory over the driver's last window."""
        util = self._calls.ask(UTILISATION)
        if isinstance(util, Absent):
            if util.state is State.UNSUPPORTED and mig == 1:
                util = _MIG
            return {Gpu.util_pct: util, Gpu.mem_util_pct: util}
        gpu = believed(Gpu.util_pct, util.gpu)
        memory = believed(Gpu.mem_util_pct, util.memory)
        if memory == 0 and isinstance(gpu, int) and gpu >= BUSY_PCT:
            self._memory_idle = True
        self._memory_moved |= isinstance(memory, int) and memory > 0
        if memory == 0 and self._memory_idle and not self._memory_moved:
            memory = _NOT_MEASURED
        return {
            Gpu.util_pct: self._moved(Gpu.util_pct, gpu),
            Gpu.mem_util_pct: self._moved(Gpu.mem_util_pct, memory),
        }

    def _moved(self, metric: Metric, value: Value) -> Value:
        """The value; of a part whose drivers answer 0 for "not measured", 0 only after another."""
        if metric not in self._never_moved or isinstance(value, Absent):
            return value
        if value == 0:
            return Absent.implausible(0, _NEVER_MOVED)
        self._never_moved.discard(metric)
        return value

    def measured(self, samples: list[Row]) -> list[Row]:
        """Rows of `gpu_util_sample`, without zeros that may stand for "not measured"."""
        if Gpu.util_pct not in self._never_moved:
            return samples
        moved = [row for row in samples if row.values[GpuUtilSample.util_pct.index] != 0]
        if moved:
            self._never_moved.discard(Gpu.util_pct)
        return moved

    # -- memory -----------------------------------------------------------------------------

    def _memory(self) -> dict[Metric, Value]:
        """Memory info v2; v1, which counts the driver's reserve as used, where v2 is not there.

        A part that works in the host's memory is not asked: some drivers refuse, others answer with
        success and a total of their own.
        """
        if self._part.memory_kind == UNIFIED:
            if isinstance(self._host_memory, Absent):
                self._host_memory = host_memory_bytes(self._roots)
            return dict(zip(MEMORY, (self._host_memory, SHARED, SHARED, SHARED), strict=True))
        version, memory = 2, self._calls.ask(MEMORY_V2)
        if isinstance(memory, Absent) and memory.state is State.UNSUPPORTED:
            version, memory = 1, self._calls.ask(MEMORY_V1)
        if isinstance(memory, Absent):
            return dict.fromkeys(MEMORY, memory)
        total = believed(Gpu.mem_total_bytes, memory.total)
        used = believed(Gpu.mem_used_bytes, memory.used)
        if isinstance(total, int) and isinstance(used, int) and used > total:
            used = Absent.implausible(used, "more than the GPU has")
        reserved = _IN_USED if version == 1 else believed(Gpu.mem_reserved_bytes, memory.reserved)
        return dict(zip(MEMORY, (total, used, reserved, version), strict=True))
