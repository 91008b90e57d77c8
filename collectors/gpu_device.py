"""One GPU: what of it is asked when, what is remembered, and its row of `gpu`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pynvml

from bottletop.collectors.gpu_activity import Activities
from bottletop.collectors.gpu_calls import DeviceCalls
from bottletop.collectors.gpu_columns import READ, Columns
from bottletop.collectors.gpu_driver import GpuGone
from bottletop.collectors.gpu_health import Health, absent_row
from bottletop.collectors.gpu_mig import MigDevices
from bottletop.collectors.gpu_pace import aged
from bottletop.collectors.gpu_part import SHARED, Part, recognise
from bottletop.collectors.gpu_processes import GpuProcesses
from bottletop.collectors.gpu_readings import (
    EACH_READ,
    MILLI,
    RARE_PERIOD_S,
    SLOW_PERIOD_S,
    SM_CLOCK,
    Call,
)
from bottletop.collectors.gpu_samples import Kind, SampleBuffer
from bottletop.collectors.gpu_throughput import LOOKS, PcieLooks
from bottletop.model import NOT_READ, NS_PER_S, Absent, Metric, Row, Value
from bottletop.tables.gpu import (
    NO_ACCESS,
    OK,
    UNIFIED,
    Gpu,
    GpuClockSample,
    GpuPowerSample,
    GpuUtilSample,
)
from bottletop.tables.gpu_believed import believed
from bottletop.text import clean

if TYPE_CHECKING:
    from bottletop.clock import Clock
    from bottletop.collectors.gpu_driver import Driver
    from bottletop.collectors.gpu_pace import Step
    from bottletop.roots import Roots

UTIL = Kind(pynvml.NVML_GPU_UTILIZATION_SAMPLES, GpuUtilSample.util_pct)
POWER = Kind(pynvml.NVML_TOTAL_POWER_SAMPLES, GpuPowerSample.power_w, MILLI)
CLOCK = Kind(pynvml.NVML_PROCESSOR_CLK_SAMPLES, GpuClockSample.sm_clock_mhz)
SNAPSHOT = {UTIL: Gpu.util_pct, POWER: Gpu.power_w, CLOCK: Gpu.sm_clock_mhz}
CLOCK_AT = 2
"""Place of the clock among them."""

HEALTH_SPREAD = 4
"""GPUs take their turns for health in so many different seconds; their rows leave together."""
MIG_MODE = Call("nvmlDeviceGetMigMode")
_READ = (*READ, *(look.metric for look in LOOKS), Gpu.processes, Gpu.mig)
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
        roots: Roots,
        index: int,
        facts: dict[Metric, Value],
        finest_s: float,
        *,
        address: str = "",
        after_ns: int = 0,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._roots = roots
        self._index = index
        self._finest_s = finest_s
        self._address = address
        """Where it is opened by that: on hosts where other GPUs must not be woken."""
        self._after_ns = after_ns
        """Until when samples were delivered before the driver was opened anew."""
        self._handle: object | None = None
        self._gone: GpuGone | None = None
        self._retry_ns = 0
        self._part = Part()
        self._slow: dict[Metric, Value] = {}
        self._slow_due_ns = self._slow_ns = 0
        self._mig: Value = NOT_READ
        """MIG mode when it could last be read."""
        self._rare: dict[Metric, Value] = {}
        self._kept: tuple[Value, ...] = ()
        """Cells of the last row that come from facts, slow and rare reads."""
        self._rare_due_ns = self._rare_ns = 0
        self.health: tuple[Row, list[Row]] | None = None
        """Rows of `gpu_health` and `gpu_link` that are new; whoever takes them sets it to None."""
        self._lost_told_ns = 0
        self.known = False
        """Whether the UUID was ever read; until then the key is the place in the list."""
        self.uuid = f"index {index}"
        self.facts: dict[Metric, Value] = {Gpu.index: index, **facts}
        """What does not change: name, address, maxima."""
        self._buffers: list[SampleBuffer] = []
        self.instances = MigDevices(driver)
        self._activity = Activities(driver, clock)
        self._forget()

    def _forget(self, calls: DeviceCalls | None = None) -> None:
        """Ask everything anew: after a GPU came back, or MIG was switched."""
        told = self._driver, self._handle
        self._calls = calls or DeviceCalls(*told)
        self._columns = Columns(*told, self._calls, self._part, self._roots)
        self._health = Health(*told, self._calls, self._part, self.uuid)
        self.looks = PcieLooks(self._calls, self._part)
        before = self._buffers
        self._buffers = [
            SampleBuffer(
                self._driver,
                self._clock,
                self._handle,
                kind,
                self.uuid,
                0 if kind is UTIL else self._finest_s,
                before[at].last_row_ns if before else self._after_ns,
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

    def read(self, step: Step, *, list_processes: bool, list_instances: bool, look: bool) -> Reads:
        """Read the GPU once; where it is lost, the row says so. Raises `Unavailable`.

        `step` says how much rarer than asked a slow driver is read. `look` permits the one call
        that blocks, for 20 ms, where `looks` says that it is due.
        """
        try:
            self._calls.begin()
            self._acquire()
            cells = self._cells(step)
            self.processes.sample_utilisation(cells[Gpu.util_pct])
            changed = list_instances and self.instances.refresh(self._slow[Gpu.mig])
            if list_processes or changed:
                self.processes.refresh()
                self.instances.place(self.processes)
            now_ns = self._clock.monotonic_ns()
            if list_instances:
                self.instances.report(now_ns)
            rows = [
                buffer.drain(now_ns, partial(self._snapshot, cells, metric))
                for buffer, metric in zip(self._buffers, SNAPSHOT.values(), strict=True)
            ]
            newest = rows[CLOCK_AT][-1].values[0] if rows[CLOCK_AT] else None
            if isinstance(newest, (int, float)):
                cells.setdefault(Gpu.sm_clock_mhz, newest)
            self._snapshot(cells, Gpu.sm_clock_mhz)
            rows[0] = self._columns.measured(rows[0])
            # Last, since memory has been seen to be refused after it where MIG is on.
            rows.append(self._activity.read(self.instances.devices))
            cells |= self.looks.read(now_ns, cells, look=look)
        except GpuGone as gone:
            return self._lost(gone)
        util, power, clock = self._buffers
        if self._part.memory_kind == UNIFIED:
            held = self.processes.held_bytes
            cells[Gpu.mem_used_bytes] = SHARED if held is None else held
        cells |= {
            Gpu.processes: self.processes.count,
            Gpu.sample_interval_s: util.interval_s,
            Gpu.power_interval_s: power.interval_s,
            Gpu.clock_interval_s: clock.interval_s,
            Gpu.stamp_domain: util.domain,
            Gpu.stamp_correction_s: util.correction_s,
        }
        self.instances.due |= self._activity.outdated
        row = Gpu.row(self.uuid, now_ns, self._part.worded(cells), self._kept)
        return Reads(row, *rows)

    def _snapshot(self, cells: dict[Metric, Value], metric: Metric) -> Value:
        """What the plain call answers; that for the SM clock is made when it is wanted."""
        if metric not in cells:
            cells[metric] = self._calls.first_of(SM_CLOCK)
        return cells[metric]

    def _cells(self, step: Step) -> dict[Metric, Value]:
        """What is read now; the other columns are in `_kept`."""
        now_ns = self._clock.monotonic_ns()
        slow_s, rare_s = SLOW_PERIOD_S * step.slow, RARE_PERIOD_S * step.slow
        # The pace may have become quicker since a turn was set.
        slowly = now_ns >= min(self._slow_due_ns, self._slow_ns + slow_s * NS_PER_S)
        rarely = now_ns >= min(self._rare_due_ns, self._rare_ns + rare_s * NS_PER_S)
        if slowly:
            self._slow, self._slow_ns = self._read_slow(now_ns, slow_s), now_ns
        if rarely:
            self._rare, self._rare_ns = self._read_rare(now_ns, rare_s), now_ns
        if slowly or rarely or step.slow > 1:  # what is read more rarely grows old meanwhile
            kept = {
                Gpu.health: OK,
                **self.facts,
                **aged(self._slow, now_ns - self._slow_ns, SLOW_PERIOD_S),
                **aged(self._rare, now_ns - self._rare_ns, RARE_PERIOD_S),
            }
            self._kept = Gpu.row(self.uuid, now_ns, self._part.worded(kept)).values
        return {
            Gpu.driver_backoff: step.fast,
            **self._columns.utilisation(self._slow[Gpu.mig]),
            **self._columns.read(EACH_READ),
        }

    def _read_slow(self, now_ns: int, period_s: int) -> dict[Metric, Value]:
        # GPUs take their slow turns in different seconds, so that no tick carries them all.
        stagger_s = 0 if self._slow_due_ns else self._index % SLOW_PERIOD_S
        self._slow_due_ns = now_ns + (period_s - stagger_s) * NS_PER_S
        mode = self._calls.ask(MIG_MODE)
        mig: Value = mode if isinstance(mode, Absent) else believed(Gpu.mig, mode[0])
        if not isinstance(mig, Absent):  # what could not be read has not changed
            before, self._mig = self._mig, mig
            if before not in (NOT_READ, mig):
                self._forget()
        self.facts |= self._columns.static(self.facts)
        return {Gpu.mig: mig, **self._columns.read(SLOW_PERIOD_S)}

    def _read_rare(self, now_ns: int, period_s: int) -> dict[Metric, Value]:
        stagger_s = 0 if self._rare_due_ns else self._index % HEALTH_SPREAD
        self._rare_due_ns = now_ns + (period_s - stagger_s) * NS_PER_S
        self.health = self._health.read(now_ns)
        return self._columns.read(RARE_PERIOD_S)

    def hurry(self) -> None:
        """Take the turn for health with the next read, since others of the round have waited."""
        self._rare_due_ns = min(self._rare_due_ns, self._clock.monotonic_ns())

    def _lost(self, gone: GpuGone) -> Reads:
        """The row of a GPU that does not answer, and a fresh start for when it does."""
        now_ns = self._clock.monotonic_ns()
        if gone is not self._gone:
            # Each question to a GPU that is lost may take the driver long: ask rarely.
            self._gone, self._retry_ns = gone, now_ns + SLOW_PERIOD_S * NS_PER_S
            self._handle = None
            self._slow, self._slow_due_ns = {}, 0
            self._rare, self._rare_due_ns = {}, 0
            self._forget()
        cells = {**self.facts, **dict.fromkeys(_READ, gone.absent), Gpu.health: gone.health}
        if self.health is not None or now_ns - self._lost_told_ns >= RARE_PERIOD_S * NS_PER_S:
            # As often as health is read, and stamped anew while it waits for the other GPUs.
            self._lost_told_ns = now_ns if self.health is None else self._lost_told_ns
            self.health = absent_row(self.uuid, now_ns, gone.absent), []
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
        handle = self._driver.handle(self._index, self._address, self.uuid if self.known else "")
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
        calls = DeviceCalls(self._driver, handle)
        model, capability = self.facts[Gpu.model], self.facts[Gpu.compute_capability]
        self._part = recognise(calls, model, capability, self._roots)
        self.facts |= self._part.facts()
        self._forget(calls)
