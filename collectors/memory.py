"""Host memory from /proc/meminfo and /proc/vmstat. Fills `memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.files import FileCollector
from bottletop.linux.procfs import parse_numbers
from bottletop.model import Absent, Metric, Table, Value
from bottletop.roots import read_bytes
from bottletop.tables.host import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.model import Sample

KIB = 1024
_MEMINFO: tuple[tuple[Metric, tuple[bytes, ...]], ...] = (
    (Memory.total_bytes, (b"MemTotal",)),
    (Memory.available_bytes, (b"MemAvailable",)),
    (Memory.free_bytes, (b"MemFree",)),
    (Memory.cached_bytes, (b"Cached", b"Buffers")),
    (Memory.dirty_bytes, (b"Dirty",)),
    (Memory.shmem_bytes, (b"Shmem",)),
    (Memory.swap_total_bytes, (b"SwapTotal",)),
    (Memory.swap_free_bytes, (b"SwapFree",)),
)
_VMSTAT: tuple[tuple[Metric, bytes], ...] = (
    (Memory.major_faults, b"pgmajfault"),
    (Memory.swap_in_pages, b"pswpin"),
    (Memory.swap_out_pages, b"pswpout"),
)


class MemoryCollector(FileCollector):
    """One row for the host."""

    name: ClassVar[str] = "memory"
    tables: ClassVar[tuple[type[Table], ...]] = (Memory,)

    def read(self) -> Sequence[Sample]:
        """Read both files. Raises OSError."""
        began_ns = self._clock.monotonic_ns()
        meminfo = parse_numbers(read_bytes(f"{self._roots.proc}/meminfo", 64 * KIB))
        vmstat = parse_numbers(read_bytes(f"{self._roots.proc}/vmstat", 64 * KIB))
        values: dict[Metric, Value] = {}
        for metric, names in _MEMINFO:
            found = [meminfo[name] for name in names if name in meminfo]
            whole = len(found) == len(names)
            values[metric] = sum(found) * KIB if whole else _not_written(names[0])
        for metric, name in _VMSTAT:
            values[metric] = vmstat.get(name, _not_written(name))
        row = Memory.row("host", self._clock.monotonic_ns(), values)
        return (self.sample(Memory, began_ns, (row,)),)


def _not_written(name: bytes) -> Absent:
    return Absent.unsupported(f"the kernel does not write {name.decode('ascii')}")
