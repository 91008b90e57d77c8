"""The target's cgroup and the ancestors that limit it: quota, throttling, memory. Fills `cgroup`.

Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/. A parent's quota throttles its children too,
so the walk goes up to the root of what is visible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.base import Unavailable
from bottletop.collectors.files import FileCollector
from bottletop.linux import cgroupfs
from bottletop.linux.cgroupfs import UNIFIED, Group, Membership
from bottletop.linux.procfs import parse_number_list, parse_numbers
from bottletop.model import NO_LIMIT, Absent, Metric, ProcessId, State, Table, Value
from bottletop.roots import read_record
from bottletop.tables.host import Cgroup
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.model import Row, Sample

RELOCATE_EVERY = 10
"""Reads between looks for the group: a process can be moved."""
MEMORY_STAT_EVERY = 10
"""Reads between readings of memory.stat, which makes the kernel add up per-CPU counters of the
whole subtree and can hold a lock that the target needs."""
V1_NO_LIMIT = 1 << 62
"""v1 writes "no limit" as the largest page multiple below 2^63, which depends on the page size."""
NS_PER_US = 1000

_NO_QUOTA = Absent(State.NOT_APPLICABLE, "no CPU quota here")
_NOT_HERE = Absent(State.NOT_APPLICABLE, "the controller is not enabled for this group")
_LIMITS = (Cgroup.quota_cores, Cgroup.memory_max_bytes)


class CgroupCollector(FileCollector):
    """The process's own group always, ancestors where they set a limit."""

    name: ClassVar[str] = "cgroup"
    tables: ClassVar[tuple[type[Table], ...]] = (Cgroup,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._membership: Membership | None = None
        self._of: ProcessId | None = None
        self._file_bytes: dict[str, Value] = {}
        self._reads = 0

    def read(self) -> Sequence[Sample]:
        """Read every level. Raises `Unavailable` when the groups cannot be found, and OSError."""
        target = self._context.target()
        if target is None or target.gone:
            self._membership = self._of = None
            return ()
        began_ns = self._clock.monotonic_ns()
        if target.root != self._of or self._reads % RELOCATE_EVERY == 0:
            try:
                self._membership = cgroupfs.locate(self._roots, target.root.pid)
            except cgroupfs.NotLocated as error:
                raise Unavailable(str(error)) from None
            self._of = target.root
        rows = [self._row(group) for group in self._membership.groups] if self._membership else []
        self._reads += 1
        kept = [row for row in rows if _own_or_limiting(row)]
        return (self.sample(Cgroup, began_ns, kept),)

    def _row(self, group: Group) -> Row:
        values: dict[Metric, Value] = {
            Cgroup.version: self._membership.version if self._membership else "",
            Cgroup.depth: group.depth,
        }
        if UNIFIED in group.folders and len(group.folders) == 1:
            folder = group.folders[UNIFIED]
            values.update(_cpu_v2(folder))
            values.update(_memory_v2(folder))
        else:
            values.update(_cpu_v1(group))
            values.update(_memory_v1(group.folders.get("memory")))
        values[Cgroup.memory_file_bytes] = self._memory_file_bytes(group)
        return Cgroup.row(clean(group.path, 256), self._clock.monotonic_ns(), values)

    def _memory_file_bytes(self, group: Group) -> Value:
        """Page cache of the process's own group, read every `MEMORY_STAT_EVERY` reads."""
        if group.depth > 0:
            return Absent(State.NOT_READ, "read for the process's own group only")
        if self._reads % MEMORY_STAT_EVERY == 0 or group.path not in self._file_bytes:
            v1 = group.folders.get("memory")
            folder = v1 or group.folders.get(UNIFIED)
            stat = _numbers(f"{folder}/memory.stat") if folder else {}
            self._file_bytes[group.path] = stat.get(b"total_cache" if v1 else b"file", _NOT_HERE)
        return self._file_bytes[group.path]


def _own_or_limiting(row: Row) -> bool:
    if row.values[Cgroup.depth.index] == 0:
        return True
    return any(not isinstance(row.values[metric.index], Absent) for metric in _LIMITS)


def _cpu_v2(folder: str) -> dict[Metric, Value]:
    stat = _numbers(f"{folder}/cpu.stat")
    quota, _, period = (_text(f"{folder}/cpu.max") or b"max").partition(b" ")
    return {
        Cgroup.quota_cores: _ratio(quota, period),
        Cgroup.cpuset_cores: _cpus(f"{folder}/cpuset.cpus.effective"),
        Cgroup.periods: stat.get(b"nr_periods", _NO_QUOTA),
        Cgroup.throttled_periods: stat.get(b"nr_throttled", _NO_QUOTA),
        Cgroup.throttled_us: stat.get(b"throttled_usec", _NO_QUOTA),
        Cgroup.usage_us: stat.get(b"usage_usec", _NOT_HERE),
    }


def _memory_v2(folder: str) -> dict[Metric, Value]:
    return {
        Cgroup.memory_bytes: _number(f"{folder}/memory.current", _NOT_HERE),
        Cgroup.memory_max_bytes: _number(f"{folder}/memory.max", NO_LIMIT),
        Cgroup.oom_kills: _numbers(f"{folder}/memory.events").get(b"oom_kill", _NOT_HERE),
    }


def _cpu_v1(group: Group) -> dict[Metric, Value]:
    cpu, accounting = group.folders.get("cpu"), group.folders.get("cpuacct")
    values: dict[Metric, Value] = {
        Cgroup.quota_cores: _NOT_HERE,
        Cgroup.periods: _NOT_HERE,
        Cgroup.throttled_periods: _NOT_HERE,
        Cgroup.throttled_us: _NOT_HERE,
        Cgroup.usage_us: _NOT_HERE,
        Cgroup.cpuset_cores: NO_LIMIT,
    }
    if cpu:
        stat = _numbers(f"{cpu}/cpu.stat")
        quota = _text(f"{cpu}/cpu.cfs_quota_us") or b"-1"
        throttled_ns = stat.get(b"throttled_time")
        values[Cgroup.quota_cores] = _ratio(quota, _text(f"{cpu}/cpu.cfs_period_us") or b"")
        values[Cgroup.periods] = stat.get(b"nr_periods", _NO_QUOTA)
        values[Cgroup.throttled_periods] = stat.get(b"nr_throttled", _NO_QUOTA)
        # Nanoseconds here, microseconds in v2.
        values[Cgroup.throttled_us] = (
            _NO_QUOTA if throttled_ns is None else throttled_ns // NS_PER_US
        )
    if accounting:
        used_ns = _number(f"{accounting}/cpuacct.usage", _NOT_HERE)
        values[Cgroup.usage_us] = used_ns // NS_PER_US if isinstance(used_ns, int) else used_ns
    if "cpuset" in group.folders:
        folder = group.folders["cpuset"]
        effective = _cpus(f"{folder}/cpuset.effective_cpus")
        found = _cpus(f"{folder}/cpuset.cpus") if isinstance(effective, Absent) else effective
        values[Cgroup.cpuset_cores] = found
    return values


def _memory_v1(folder: str | None) -> dict[Metric, Value]:
    if folder is None:
        return {
            Cgroup.memory_bytes: _NOT_HERE,
            Cgroup.memory_max_bytes: _NOT_HERE,
            Cgroup.oom_kills: _NOT_HERE,
        }
    limit = _number(f"{folder}/memory.limit_in_bytes", NO_LIMIT)
    if isinstance(limit, int) and limit >= V1_NO_LIMIT:
        limit = NO_LIMIT
    return {
        Cgroup.memory_bytes: _number(f"{folder}/memory.usage_in_bytes", _NOT_HERE),
        Cgroup.memory_max_bytes: limit,
        Cgroup.oom_kills: _numbers(f"{folder}/memory.oom_control").get(b"oom_kill", _NOT_HERE),
    }


# -- single files: absent ones mean "not set", torn ones are read again next time ------------------


def _text(path: str) -> bytes | None:
    try:
        return read_record(path, 4096).strip()
    except OSError:
        return None


def _numbers(path: str) -> dict[bytes, int]:
    return parse_numbers(_text(path) or b"")


def _number(path: str, otherwise: Absent) -> int | Absent:
    raw = _text(path)
    return int(raw) if raw is not None and raw.isdigit() else otherwise


def _ratio(quota: bytes, period: bytes) -> Value:
    """Cores that a quota is worth; "max" and -1 mean that there is none."""
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return NO_LIMIT
    return int(quota) / int(period)


def _cpus(path: str) -> Value:
    raw = _text(path)
    if not raw:
        return NO_LIMIT
    try:
        return parse_number_list(raw)
    except ValueError:
        return Absent.implausible(clean(raw, 64), "not a list of CPUs")
