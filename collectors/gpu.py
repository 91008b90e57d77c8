"""NVIDIA GPUs through NVML and the real nvidia-ml-py. Fills the `gpu` tables.

One thread talks to the driver: the collector is `blocking`, so the runtime gives it a lane of its
own. What moves is read each second, what hardly moves every five, what never moves once. NVML alone
decides whether NVML exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.base import Unavailable
from bottletop.collectors.gpu_pace import Held, Pace
from bottletop.collectors.gpu_places import on_the_bus
from bottletop.collectors.gpu_process_names import ProcessNames
from bottletop.collectors.gpu_roster import Roster
from bottletop.linux.pci import PciBus, pci_address
from bottletop.model import (
    NS_PER_S,
    Absent,
    Metric,
    Row,
    Sample,
    State,
    Table,
    Value,
)
from bottletop.tables.gpu import (
    ASLEEP,
    LOST,
    Gpu,
    GpuClockSample,
    GpuPowerSample,
    GpuProcess,
    GpuUtilSample,
)
from bottletop.tables.gpu_activity import GpuActivity, GpuInstance
from bottletop.tables.gpu_health import GpuHealth, GpuLink
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.collectors.gpu_device import Device, Reads
    from bottletop.collectors.gpu_driver import Driver

FINEST_PER_GPU_S = 0.01
"""Power and clock samples closer than this times the number of GPUs are averaged: the store and the
recording of a big host take 200 rows a second of them, a host with two GPUs loses nothing."""

HEALTH_WAITS_S = 3
"""After so long rows of health wait no longer for GPUs whose turn comes later in the round."""

LOOKED_AT_PERIOD_S = 2
"""Period of the process lists while a screen shows them."""

_UNLISTED = Absent(State.LOST, "the driver no longer lists it")


class GpuCollector:
    """Reads every GPU that the NVIDIA driver lists. A lost one is shown lost, the others live."""

    name: ClassVar[str] = "gpu"
    tables: ClassVar[tuple[type[Table], ...]] = (
        Gpu,
        GpuUtilSample,
        GpuPowerSample,
        GpuClockSample,
        GpuProcess,
        GpuActivity,
        GpuInstance,
        GpuHealth,
        GpuLink,
    )
    period_s: ClassVar[float] = 1.0
    blocking: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        self._context = context
        self._clock = context.clock
        self._driver: Driver | None = None
        self._devices: list[Device] = []
        self._seen: dict[str, dict[Metric, Value]] = {}
        """Facts of every GPU ever read, by UUID: one that leaves the list is shown as lost."""
        self._listed_ns: int | None = None
        self._instances_ns: int | None = None
        self._had_instances = False
        self._names = ProcessNames(context.roots)
        self._bus = PciBus(context.roots)
        self._roster = Roster(self._bus, context.exchange)
        self._pace = Pace(self.period_s)
        self._held = Held()
        self._read_ns = 0

    def open(self) -> None:
        """Initialise the driver and list its GPUs. Raises `Unavailable` saying what to do.

        A GPU that sleeps is not opened, and where all of them do, neither is the driver.
        """
        self.close()
        self._roster.follow(self._clock.monotonic_ns())
        if not self._roster.all_asleep:
            self._open()
        elif not self._seen:
            raise Unavailable(
                "the GPU sleeps (PCI runtime power state) and is not woken; it is read as soon as"
                " something uses it",
                retry_s=self.period_s,
            )

    def _open(self) -> None:
        # Imports nvidia-ml-py, which takes 20-40 ms: here it costs nobody their first frame.
        from bottletop.collectors.gpu_device import Device
        from bottletop.collectors.gpu_driver import Driver, NoDriver

        driver = Driver(self._clock, self._context.roots, self._context.stats)
        try:
            driver.open()
        except NoDriver as refusal:
            raise self._told_with_the_bus(refusal) from None
        try:
            count = driver.gpu_count()
            version = driver.call("nvmlSystemGetDriverVersion")
        except Unavailable:
            driver.close()
            raise
        facts: dict[Metric, Value] = {
            Gpu.provenance: self._provenance,
            Gpu.driver: version if isinstance(version, Absent) else clean(version),
        }
        self._devices = [
            Device(
                driver,
                self._clock,
                self._context.roots,
                index,
                facts,
                FINEST_PER_GPU_S * count,
                address=address,
                after_ns=self._read_ns,
            )
            for index, address in self._roster.awake(count)
            if not address or driver.lists(address)
        ]
        self._driver = driver
        self._held.forget()
        self._listed_ns = None
        self._instances_ns = None

    def _told_with_the_bus(self, refusal: Unavailable) -> Unavailable:
        """Why there is no driver, and what GPUs the host has: of others, or without a driver."""
        seen = on_the_bus(self._bus)
        if not seen:
            return refusal
        return Unavailable(f"{refusal.reason}; {seen}" if self._bus.nvidia() else seen)

    def close(self) -> None:
        """Shut the driver down. Never raises, may be called twice."""
        driver, self._driver = self._driver, None
        for device in self._devices:
            device.close()
        self._devices = []
        if driver is not None:
            driver.close()

    def read(self) -> Sequence[Sample]:
        """Read all GPUs that are awake. Raises `Unavailable` when the driver itself has gone.

        While driver calls are slow most reads are left out, and tell what grows stale as late.
        """
        began_ns = self._clock.monotonic_ns()
        if self._roster.follow(began_ns):
            # One came, went, sleeps or woke. Only shutting the driver down lets a GPU go.
            self.open()
        driver = self._driver
        if driver is None:
            if not self._roster.all_asleep:
                raise Unavailable("the NVIDIA driver is not open")
            return self._samples([], began_ns, 0)
        if not self._pace.is_due(began_ns):
            return self._held.late(began_ns)
        try:
            samples = self._read(began_ns)
        except Unavailable:
            self.close()  # here, in the thread that may block
            raise
        self._pace.note(began_ns, driver.end_read())
        self._held.keep(samples)
        return [*samples, *self._held.late(self._read_ns)]

    def _read(self, began_ns: int) -> list[Sample]:
        step = self._pace.step
        looked_at = GpuProcess in self._context.exchange.on_screen
        period_s = (LOOKED_AT_PERIOD_S if looked_at else GpuProcess.period_s) * step.slow
        listing = self._listed_ns is None or began_ns - self._listed_ns >= period_s * NS_PER_S
        if listing:
            self._listed_ns = began_ns
        partitions = self._instances_due(began_ns)
        looking = self._looking(began_ns) if step.slow == 1 else None
        reads = [
            device.read(
                step,
                list_processes=listing,
                list_instances=partitions,
                look=device is looking,
            )
            for device in self._devices
        ]
        ended_ns = self._read_ns = self._clock.monotonic_ns()
        for device, read in zip(self._devices, reads, strict=True):
            self._roster.observe(
                ended_ns,
                pci_address(str(device.facts.get(Gpu.pci_bus_id))),
                util_pct=read.gpu.values[Gpu.util_pct.index],
                processes=read.gpu.values[Gpu.processes.index],
            )
        samples = self._samples(reads, ended_ns, ended_ns - began_ns)
        if listing:
            rows = self._process_rows(ended_ns)
            samples.append(Sample(self.name, GpuProcess, ended_ns, ended_ns - began_ns, rows))
        if partitions:
            self._instances_ns = began_ns
            samples += self._instance_samples(ended_ns, ended_ns - began_ns)
        return samples + self._health_samples(ended_ns, ended_ns - began_ns)

    def _looking(self, now_ns: int) -> Device | None:
        """The GPU at whose link may be looked in this read: one at most, for the call blocks."""
        waiting = [device for device in self._devices if device.looks.due(now_ns)]
        return min(waiting, key=lambda device: device.looks.due_ns, default=None)

    def _instances_due(self, now_ns: int) -> bool:
        """Whether MIG devices are listed: all GPUs' at once, since they share a sample."""
        last_ns = self._instances_ns
        period_s = GpuInstance.period_s * self._pace.step.slow
        late = last_ns is None or now_ns - last_ns >= period_s * NS_PER_S
        return late or any(device.instances.due for device in self._devices)

    def _instance_samples(self, t_ns: int, took_ns: int) -> list[Sample]:
        """None on a host without MIG; an empty one once the last MIG device has gone."""
        rows: list[Row] = []
        for device in self._devices:
            device.instances.due = False  # of one that did not answer too: its return sets it anew
            rows += device.instances.rows
        had, self._had_instances = self._had_instances, bool(rows)
        if not (rows or had):
            return []
        return [Sample(self.name, GpuInstance, t_ns, took_ns, tuple(rows))]

    def _health_samples(self, t_ns: int, took_ns: int) -> list[Sample]:
        """Health and links, once every GPU has had its turn: an entity lives by its sample."""
        found = [device.health for device in self._devices if device.health is not None]
        if len(found) < len(self._devices):
            if any(t_ns - row.t_ns >= HEALTH_WAITS_S * NS_PER_S for row, _ in found):
                for device in self._devices:
                    if device.health is None:
                        device.hurry()
            return []
        for device in self._devices:
            device.health = None
        streams: list[tuple[type[Table], list[Row]]] = [
            (GpuHealth, [row for row, _ in found]),
            (GpuLink, [row for _, links in found for row in links]),
        ]
        return [Sample(self.name, table, t_ns, took_ns, tuple(rows)) for table, rows in streams]

    def _samples(self, reads: list[Reads], t_ns: int, took_ns: int) -> list[Sample]:
        rows = [read.gpu for read in reads]
        for device in self._devices:
            if device.known:
                self._seen[device.uuid] = device.facts
        rows += self._asleep_rows(t_ns)
        for uuid in sorted(self._seen.keys() - {row.key for row in rows}):
            facts = {**self._seen[uuid], Gpu.health: LOST, Gpu.util_pct: _UNLISTED}
            rows.append(Gpu.row(uuid, t_ns, facts))
        streams: list[tuple[type[Table], list[Row]]] = [
            (Gpu, rows),
            (GpuUtilSample, [row for read in reads for row in read.util]),
            (GpuPowerSample, [row for read in reads for row in read.power]),
            (GpuClockSample, [row for read in reads for row in read.clock]),
            (GpuActivity, [row for read in reads for row in read.activity]),
        ]
        return [Sample(self.name, table, t_ns, took_ns, tuple(rows)) for table, rows in streams]

    @property
    def _provenance(self) -> str:
        return "nvml" if self._context.roots.live else "nvml, of this host and not the captured one"

    def _asleep_rows(self, t_ns: int) -> list[Row]:
        known = {
            pci_address(str(facts.get(Gpu.pci_bus_id))): uuid for uuid, facts in self._seen.items()
        }
        rows = []
        for place, address, why in self._roster.sleepers():
            uuid = known.get(address)
            unseen: dict[Metric, Value] = {
                Gpu.index: place,
                Gpu.pci_bus_id: address,
                Gpu.provenance: self._provenance,
            }
            facts = unseen if uuid is None else self._seen[uuid]
            cells = {**dict.fromkeys(Gpu.columns, why), **facts, Gpu.health: ASLEEP}
            rows.append(Gpu.row(uuid or f"index {place}", t_ns, cells))
        return rows

    def _process_rows(self, t_ns: int) -> tuple[Row, ...]:
        rows = []
        for device in self._devices:
            for pid, seen in device.processes.found.items():
                named = self._names.name(pid)
                values: dict[Metric, Value] = {
                    GpuProcess.gpu: device.uuid,
                    GpuProcess.pid: named.pid,
                    GpuProcess.process: named.name,
                    GpuProcess.mem_bytes: seen.mem_bytes,
                    GpuProcess.sm_util_pct: seen.sm_util_pct,
                    GpuProcess.kind: seen.kind,
                    GpuProcess.namespace_pid: named.namespace_pid,
                    GpuProcess.instance: device.instances.uuid_at(seen.instance),
                }
                rows.append(GpuProcess.row(f"{device.uuid}/{pid}", t_ns, values))
        return tuple(rows)
