"""One GPU: what of it is asked when, what is remembered, and its row of `gpu`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pynvml

from bottletop.collectors.gpu_activity import Activities
from bottletop.collectors.gpu_driver import GpuGone
from bottletop.collectors.gpu_fields import FieldBatch
from bottletop.collectors.gpu_mig import MigDevices
from bottletop.collectors.gpu_processes import GpuProcesses
from bottletop.collectors.gpu_readings import (
    CALL_READINGS,
    FIELD_READINGS,
    MILLI,
    SLOW_PERIOD_S,
    STATIC_READINGS,
    Call,
    Reading,
    believed,
)
from bottletop.collectors.gpu_samples import Kind, SampleBuffer
from bottletop.model import NOT_READ, NS_PER_S, Absent, Metric, Row, State, Value
from bottletop.tables.gpu import (
    NO_ACCESS,
    OK,
    Gpu,
    GpuClockSample,
    GpuPowerSample,
    GpuUtilSample,
)
from bottletop.text import clean

if TYPE_CHECKING:
    from bottletop.clock import Clock
    from bottletop.collectors.gpu_driver import Driver

UTIL = Kind(pynvml.NVML_GPU_UTILIZATION_SAMPLES, GpuUtilSample.util_pct)
POWER = Kind(pynvml.NVML_TOTAL_POWER_SAMPLES, GpuPowerSample.power_w, MILLI)
CLOCK = Kind(pynvml.NVML_PROCESSOR_CLK_SAMPLES, GpuClockSample.sm_clock_mhz)
SNAPSHOT = {UTIL: Gpu.util_pct, POWER: Gpu.power_w, CLOCK: Gpu.sm_clock_mhz}

FAST_FIELDS = tuple(reading for reading in FIELD_READINGS if not reading.slow)
SLOW_FIELDS = tuple(reading for reading in FIELD_READINGS if reading.slow)
FAST_CALLS = tuple(reading for reading in CALL_READINGS if not reading.slow)
SLOW_CALLS = tuple(reading for reading in CALL_READINGS if reading.slow)

_MIG = Absent.unsupported("MIG is enabled: the driver gives no utilisation of the whole GPU")
_NARROW = Absent.unsupported("this driver counts in 32 bits, which wrap faster than they are read")
_IN_USED = Absent.unsupported("memory info v1 counts it as used")
_BYTE_COUNTERS = frozenset({Gpu.pcie_rx_bytes, Gpu.pcie_tx_bytes})
_MEMORY = (Gpu.mem_total_bytes, Gpu.mem_used_bytes, Gpu.mem_reserved_bytes, Gpu.mem_info)
_READ = (
    *(reading.metric for reading in (*FIELD_READINGS, *CALL_READINGS)),
    *_MEMORY,
    *(Gpu.util_pct, Gpu.mem_util_pct, Gpu.processes, Gpu.mig),
)
"""Columns that say nothing of a GPU that does not answer."""


class Reads(NamedTuple):
    """What one read of one GPU gave: its row, and rows of the sample tables."""

    gpu: Row
    util: list[Row]
    power: list[Row]
    clock: list[Row]
    activity: list[Row]


class Device:
    """A GPU in the driver's list. It may be lost, now or from the start, and come back.

    "Not supported" is remembered by call and by field; every other error is asked again.
    """

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        index: int,
        facts: dict[Metric, Value],
        finest_s: float,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._index = index
        self._finest_s = finest_s
        self._handle: object | None = None
        self._gone: GpuGone | None = None
        self._retry_ns = 0
        self._slow: dict[Metric, Value] = {}
        self._slow_due_ns = 0
        self.known = False
        """Whether the UUID was ever read; until then the key is the place in the list."""
        self.uuid = f"index {index}"
        self.facts: dict[Metric, Value] = {Gpu.index: index, Gpu.provenance: "nvml", **facts}
        """What does not change: name, address, maxima."""
        self._buffers: list[SampleBuffer] = []
        self.instances = MigDevices(driver)
        self._activity = Activities(driver, clock)
        self._forget()

    def _forget(self) -> None:
        """Ask everything anew: after a GPU came back, or MIG was switched."""
        self._unsupported: dict[Call, Absent] = {}
        self._batches: dict[bool, FieldBatch] = {}
        self._choice: dict[Metric, int] = {}
        before = self._buffers
        self._buffers = [
            SampleBuffer(
                self._driver,
                self._clock,
                self._handle,
                kind,
                self.uuid,
                0 if kind is UTIL else self._finest_s,
                before[at].last_row_ns if before else 0,
            )
            for at, kind in enumerate(SNAPSHOT)
        ]
        self.processes = GpuProcesses(self._driver, self._handle)
        self.instances.restart(self._handle, self.uuid)
        self._activity.restart(self._handle, self.uuid)

    def close(self) -> None:
        """Free what the driver was asked to keep for us. Never raises."""
        self._activity.close()

    # -- reading ----------------------------------------------------------------------------

    def read(self, *, list_processes: bool, list_instances: bool) -> Reads:
        """Read the GPU once; where it is lost, the row says so. Raises `Unavailable`."""
        try:
            self._acquire()
            cells = self._cells()
            self.processes.sample_utilisation(cells[Gpu.util_pct])
            changed = list_instances and self.instances.refresh(cells[Gpu.mig])
            if list_processes or changed:
                self.processes.refresh()
                self.instances.place(self.processes)
            now_ns = self._clock.monotonic_ns()
            if list_instances:
                self.instances.report(now_ns)
            rows = [
                buffer.drain(now_ns, cells[metric])
                for buffer, metric in zip(self._buffers, SNAPSHOT.values(), strict=True)
            ]
            # Last, since memory has been seen to be refused after it where MIG is on.
            rows.append(self._activity.read(self.instances.devices))
        except GpuGone as gone:
            return self._lost(gone)
        util, power, clock = self._buffers
        cells |= {
            Gpu.processes: self.processes.count,
            Gpu.sample_interval_s: util.interval_s,
            Gpu.power_interval_s: power.interval_s,
            Gpu.clock_interval_s: clock.interval_s,
            Gpu.stamp_domain: util.domain,
            Gpu.stamp_correction_s: util.correction_s,
        }
        self.instances.due |= self._activity.outdated
        return Reads(Gpu.row(self.uuid, now_ns, cells), *rows)

    def _cells(self) -> dict[Metric, Value]:
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._slow_due_ns:
            self._slow = self._read_slow(now_ns)
        cells = {Gpu.health: OK, **self.facts, **self._slow}
        cells |= self._utilisation()
        cells |= self._fields(slow=False)
        cells |= {reading.metric: self._calls(reading) for reading in FAST_CALLS}
        cells |= self._memory()
        return cells

    def _read_slow(self, now_ns: int) -> dict[Metric, Value]:
        # GPUs take their slow turns in different seconds, so that no tick carries them all.
        stagger_s = 0 if self._slow_due_ns else self._index % SLOW_PERIOD_S
        self._slow_due_ns = now_ns + (SLOW_PERIOD_S - stagger_s) * NS_PER_S
        mode = self._ask(Call("nvmlDeviceGetMigMode"))
        mig: Value = mode if isinstance(mode, Absent) else believed(Gpu.mig, mode[0])
        if self._slow.get(Gpu.mig, mig) != mig:
            self._forget()
        for reading in STATIC_READINGS:
            known = self.facts.get(reading.metric, NOT_READ)
            if isinstance(known, Absent) and known.state is not State.UNSUPPORTED:
                self.facts[reading.metric] = self._calls(reading)
        return {
            Gpu.mig: mig,
            **self._fields(slow=True),
            **{reading.metric: self._calls(reading) for reading in SLOW_CALLS},
        }

    def _lost(self, gone: GpuGone) -> Reads:
        """The row of a GPU that does not answer, and a fresh start for when it does."""
        now_ns = self._clock.monotonic_ns()
        if gone is not self._gone:
            # Each question to a GPU that is lost may take the driver long: ask rarely.
            self._gone, self._retry_ns = gone, now_ns + SLOW_PERIOD_S * NS_PER_S
            self._handle = None
            self._slow, self._slow_due_ns = {}, 0
            self._forget()
        cells = {**self.facts, **dict.fromkeys(_READ, gone.absent), Gpu.health: gone.health}
        activity = self._activity.absent_rows(gone.absent, now_ns)
        return Reads(Gpu.row(self.uuid, now_ns, cells), [], [], [], activity)

    # -- identity ---------------------------------------------------------------------------

    def _acquire(self) -> None:
        """Take handle and facts if need be. Raises `GpuGone` while the GPU cannot be opened."""
        if self._handle is not None:
            return
        if self._gone is not None and self._clock.monotonic_ns() < self._retry_ns:
            raise self._gone.with_traceback(None)
        # By UUID once it is known: after a reset the driver may list GPUs in another order.
        call = self._driver.call
        if self.known:
            handle = call("nvmlDeviceGetHandleByUUID", self.uuid.encode())
        else:
            handle = call("nvmlDeviceGetHandleByIndex", self._index)
        if isinstance(handle, Absent):
            raise GpuGone(NO_ACCESS, handle)
        uuid, index = call("nvmlDeviceGetUUID", handle), call("nvmlDeviceGetIndex", handle)
        name, pci = call("nvmlDeviceGetName", handle), call("nvmlDeviceGetPciInfo", handle)
        capability = call("nvmlDeviceGetCudaComputeCapability", handle)
        if not isinstance(uuid, Absent):
            self.uuid, self.known = clean(uuid), True
        self.facts |= {
            Gpu.index: self._index if isinstance(index, Absent) else index,
            Gpu.model: name if isinstance(name, Absent) else clean(name),
            Gpu.pci_bus_id: pci if isinstance(pci, Absent) else clean(pci.busId),
            Gpu.compute_capability: (
                capability if isinstance(capability, Absent) else "{}.{}".format(*capability)
            ),
        }
        self._handle = handle
        self._forget()

    # -- single readings --------------------------------------------------------------------

    def _ask(self, call: Call) -> Any:
        """Call for this GPU; what is not supported is asked once."""
        known = self._unsupported.get(call)
        if known is not None:
            return known
        answer = self._driver.call(call.function, self._handle, *call.args)
        if isinstance(answer, Absent):
            if answer.state is State.UNSUPPORTED:
                self._unsupported[call] = answer
            return answer
        return getattr(answer, call.attribute) if call.attribute else answer

    def _calls(self, reading: Reading) -> Value:
        """What the first of the calls that is supported answers."""
        absent = Absent.unsupported("no call of this driver gives it")
        for call in reading.calls:
            answer = self._ask(call)
            if not isinstance(answer, Absent):
                return believed(reading.metric, answer, reading.scale)
            absent = answer
            if absent.state is not State.UNSUPPORTED:
                break
        return absent

    def _fields(self, *, slow: bool) -> dict[Metric, Value]:
        readings = SLOW_FIELDS if slow else FAST_FIELDS
        batch = self._batches.get(slow)
        if batch is None:
            ids = [field_id for reading in readings for field_id in reading.fields]
            batch = FieldBatch(self._driver, self._handle, ids)
        answers = batch.read()
        if slow not in self._batches:
            self._choice |= {reading.metric: _choose(reading, answers) for reading in readings}
            if batch.answered:
                batch.keep(self._choice[reading.metric] for reading in readings)
                self._batches[slow] = batch
        return {reading.metric: self._field(reading, batch, answers) for reading in readings}

    def _field(
        self, reading: Reading, batch: FieldBatch, answers: dict[int, float | Absent]
    ) -> Value:
        field_id = self._choice[reading.metric]
        value = answers[field_id]
        if isinstance(value, Absent):
            fall_back = reading.calls and value.state is State.UNSUPPORTED
            return self._calls(reading) if fall_back else value
        if field_id in batch.narrow and reading.metric in _BYTE_COUNTERS:
            return _NARROW
        return believed(reading.metric, value, reading.scale)

    def _utilisation(self) -> dict[Metric, Value]:
        util = self._ask(Call("nvmlDeviceGetUtilizationRates"))
        if isinstance(util, Absent):
            if util.state is State.UNSUPPORTED and self._slow.get(Gpu.mig) == 1:
                util = _MIG
            return {Gpu.util_pct: util, Gpu.mem_util_pct: util}
        return {
            Gpu.util_pct: believed(Gpu.util_pct, util.gpu),
            Gpu.mem_util_pct: believed(Gpu.mem_util_pct, util.memory),
        }

    def _memory(self) -> dict[Metric, Value]:
        """Memory info v2; v1, which counts the driver's reserve as used, where v2 is not there."""
        version = 2
        memory = self._ask(Call("nvmlDeviceGetMemoryInfo", (pynvml.nvmlMemory_v2,)))
        if isinstance(memory, Absent) and memory.state is State.UNSUPPORTED:
            version = 1
            memory = self._ask(Call("nvmlDeviceGetMemoryInfo"))
        if isinstance(memory, Absent):
            return dict.fromkeys(_MEMORY, memory)
        total = believed(Gpu.mem_total_bytes, memory.total)
        used = believed(Gpu.mem_used_bytes, memory.used)
        if isinstance(total, int) and isinstance(used, int) and used > total:
            used = Absent.implausible(used, "more than the GPU has")
        reserved = _IN_USED if version == 1 else believed(Gpu.mem_reserved_bytes, memory.reserved)
        return dict(zip(_MEMORY, (total, used, reserved, version), strict=True))


def _choose(reading: Reading, answers: dict[int, float | Absent]) -> int:
    """The first field that is supported, or the first of all."""
    for field_id in reading.fields:
        value = answers[field_id]
        if not (isinstance(value, Absent) and value.state is State.UNSUPPORTED):
            return field_id
    return reading.fields[0]
