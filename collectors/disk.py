"""Whole disks from /proc/diskstats, with what /sys/block says of each. Fills `disk`.

Fields are those of the kernel's Documentation/admin-guide/iostats.rst. Network file systems, FUSE
and overlays never appear there; the `target` collector names what lies behind a file instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.base import Unavailable
from bottletop.collectors.files import FileCollector
from bottletop.linux.blockdev import SECTOR_BYTES, BlockDevices
from bottletop.model import Absent, State, Table, Value
from bottletop.roots import read_bytes
from bottletop.tables.host import Disk
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.model import Row, Sample

STAT_FIELDS = 14
"""Three of identity and eleven counters; later kernels append discards and flushes."""
MAX_DISKS = 1024
_QUIET_UNLESS_USED = frozenset({"loop", "ram", "zram"})
_MANY = 1 << 31

_NO_TARGET = Absent(State.NOT_APPLICABLE, "no process is attached")
_NOT_SAID = Absent.unsupported("the kernel does not say")


class DiskCollector(FileCollector):
    """One row for each whole disk, device-mapper device and md array."""

    name: ClassVar[str] = "disk"
    tables: ClassVar[tuple[type[Table], ...]] = (Disk,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._devices = BlockDevices(context.roots)
        self._whole: dict[str, bool] = {}

    def open(self) -> None:
        """Raises `Unavailable` where the kernel has no block layer statistics."""
        try:
            read_bytes(f"{self._roots.proc}/diskstats", 1)
        except FileNotFoundError:
            raise Unavailable(f"{self._roots.proc}/diskstats is not there") from None

    def read(self) -> Sequence[Sample]:
        """Read all disks. Raises OSError."""
        began_ns = self._clock.monotonic_ns()
        raw = read_bytes(f"{self._roots.proc}/diskstats")
        t_ns = self._clock.monotonic_ns()
        stats = parse_diskstats(raw)
        self._tell_disks_from_partitions(list(stats))
        rows = [
            self._row(name, t_ns, counters)
            for name, counters in stats.items()
            if self._whole[name] and self._is_used(name, counters)
        ]
        return (self.sample(Disk, began_ns, rows[:MAX_DISKS]),)

    def _tell_disks_from_partitions(self, names: list[str]) -> None:
        if self._whole.keys() == set(names):
            return
        for name in [name for name in self._whole if name not in names]:
            self._devices.forget(name)
        whole = self._devices.whole_disks(names)
        self._whole = {name: name in whole for name in names}

    def _is_used(self, name: str, counters: tuple[int, ...]) -> bool:
        """Loop and memory devices exist by the dozen; they are listed once something used them."""
        if self._devices.describe(name).transport not in _QUIET_UNLESS_USED:
            return True
        return counters[0] + counters[4] > 0

    def _row(self, name: str, t_ns: int, counters: tuple[int, ...]) -> Row:
        device = self._devices.describe(name)
        reads, _, read_sectors, read_ms, writes, _, written_sectors, write_ms = counters[:8]
        in_flight, busy_ms, queue_ms = counters[8:11]
        return Disk.row(
            name,
            t_ns,
            {
                Disk.reads: reads,
                Disk.writes: writes,
                Disk.read_bytes: read_sectors * SECTOR_BYTES,
                Disk.write_bytes: written_sectors * SECTOR_BYTES,
                Disk.read_ms: read_ms,
                Disk.write_ms: write_ms,
                Disk.busy_ms: busy_ms,
                Disk.queue_ms: queue_ms,
                # Some kernels lose count of requests that span CPUs and go below zero.
                Disk.in_flight: in_flight
                if 0 <= in_flight < _MANY
                else Absent.implausible(in_flight, "the kernel lost count"),
                Disk.rotational: _NOT_SAID if device.rotational is None else int(device.rotational),
                Disk.transport: device.transport or _NOT_SAID,
                Disk.model: device.model or _NOT_SAID,
                Disk.size_bytes: _NOT_SAID if device.size_bytes is None else device.size_bytes,
                Disk.holds_target: self._holds_target(name),
            },
        )

    def _holds_target(self, name: str) -> Value:
        if self._context.target() is None:
            return _NO_TARGET
        disks = self._context.exchange.target_disks
        return disks if isinstance(disks, Absent) else int(name in disks)


def parse_diskstats(raw: bytes) -> dict[str, tuple[int, ...]]:
    """Device name to its first eleven counters. Lines that are not whole are left out."""
    stats: dict[str, tuple[int, ...]] = {}
    for line in raw.splitlines():
        fields = line.split()
        if len(fields) < STAT_FIELDS:
            continue
        try:
            counters = tuple(int(field) for field in fields[3:STAT_FIELDS])
        except ValueError:
            continue
        stats[clean(fields[2], 64)] = counters
    return stats
