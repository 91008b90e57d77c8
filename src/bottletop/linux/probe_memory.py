"""Reads the memory of stage probes in other processes, without touching those processes.

`bottletop.probe` documents the layout; its version is checked here. Everything read is hostile:
sizes and counts are bounded, and a cell that could not be true is left at its last good reading.
Reads go through a descriptor and not a mapping, since a foreign mapping can be cut short under its
reader. A kept descriptor still gives the final totals when the process has ended.
"""

from __future__ import annotations

import os
import stat
import sys
from array import array
from typing import TYPE_CHECKING, NamedTuple

from bottletop.linux import procfs
from bottletop.model import NS_PER_S
from bottletop.roots import read_bytes, read_record
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bottletop.model import ProcessId
    from bottletop.roots import Roots

LINK = "/memfd:bottletop-probe-1"
MAGIC = int.from_bytes(b"BTPROBE1", sys.byteorder)
LAYOUT = 1
SIZE_BYTES = 1 << 20
HEADER_BYTES = 4096
NAMES_AT, NAME_BYTES, MAX_STAGES = 512, 64, 32
CELL_WORDS, BUCKETS = 168, 80
CELL_BYTES = 8 * CELL_WORDS
UNUSED = bytes(CELL_BYTES)
MAX_CELLS = (SIZE_BYTES - HEADER_BYTES) // CELL_BYTES
MAX_PROBES = 8
"""Probes read a process: one an interpreter, and those that an exec left behind."""
SLACK_NS = NS_PER_S
"""How long we may have been kept from running between our look at the clock and our read."""
MAX_SHARED_PASSES = 1_000_000
_WORD = 1 << 64
_ON = 1
_FLAG_SHARED, _FLAG_OTHER = 1, 2


class NotAProbe(Exception):
    """The file is not the memory of a probe of that process; the message says why."""


class StageTotals(NamedTuple):
    """One stage of one process since it began."""

    name: str
    calls: int
    """Completed passes."""
    inclusive_ns: int
    """Time in them, nested stages included."""
    self_ns: int
    """Time in them without nested stages."""
    occupied_ns: int
    """Integral of the number of passes under way over time, up to the moment of reading."""
    in_flight: int
    oldest_start_ns: int | None
    """Begin of the oldest pass under way; their mean begin where passes share a cell."""
    longest_ns: int
    counts: tuple[int, ...]
    """Completed passes by bucket, see `bucket_edges_ns`."""
    sums_ns: tuple[int, ...]
    """Time in them by bucket."""


class ProbeReading(NamedTuple):
    """What a probe says at one moment."""

    stages: tuple[StageTotals, ...]
    """In the order in which the program first named them."""
    on: bool
    """False when it turned itself off after errors of its own."""
    errors: int
    rejected: int
    """Cells that said something impossible and were left at their last good reading."""
    too_many: bool = False
    """More stages than there are names for: the last ones count together as "(other)"."""


def bucket_edges_ns(bucket: int) -> tuple[float, float]:
    """Durations from the first up to the second fall into `bucket`; the last one has no end."""
    low = 2.0 ** ((bucket - 1) / 2) if bucket else 0.0
    return low, 2.0 ** (bucket / 2) if bucket < BUCKETS - 1 else float("inf")


class _Cell(NamedTuple):
    stage: int
    calls: int
    total_ns: int
    nested_ns: int
    under_way: int
    elapsed_ns: int
    """Summed age of the passes under way."""
    oldest_start_ns: int | None
    longest_ns: int
    counts: array[int]
    sums_ns: array[int]


class ProbeMemory:
    """The memory of one probe, open for reading. Raises `NotAProbe` and OSError when opened."""

    def __init__(self, roots: Roots, process: ProcessId, fd_name: str) -> None:
        self._folder = f"{roots.proc}/{process.pid}"
        self._path = f"{self._folder}/fd/{fd_name}"
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        self._fd = os.open(self._path, flags)
        try:
            seen = os.fstat(self._fd)
            if not stat.S_ISREG(seen.st_mode) or seen.st_size != SIZE_BYTES:
                raise NotAProbe("not a file of the size of a probe")
            self.identity = (seen.st_dev, seen.st_ino)
            self._offset_ns = _clock_offset_ns(roots, process.pid)
            self._created_ns = self._check(roots, process)
        except BaseException:
            self.close()
            raise
        self._accepted: dict[int, _Cell] = {}
        self._idle: dict[int, bytes] = {}

    def close(self) -> None:
        """Close it; may be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def is_held(self) -> bool:
        """False once the process has let go of this memory, as an exec makes it do.

        A process that closed all its descriptors still writes to the mapping.
        """
        try:
            seen = os.stat(self._path)
            if (seen.st_dev, seen.st_ino) == self.identity:
                return True
        except OSError:
            pass  # closed, or the process has ended: its mappings decide
        try:
            maps = read_bytes(f"{self._folder}/maps")
        except OSError:
            return False
        inode = str(self.identity[1]).encode()
        return any(
            LINK.encode() in line and inode in line.split()[:5] for line in maps.splitlines()
        )

    def _check(self, roots: Roots, process: ProcessId) -> int:
        words = self._words(128, 0)
        if words[0] != MAGIC or words[1] != LAYOUT or words[2] != SIZE_BYTES:
            raise NotAProbe("no probe, or a layout that this version does not know")
        if words[3] not in (process.pid, _pid_inside(roots, process.pid)):
            raise NotAProbe("inherited from another process")
        if words[4] not in (0, process.start_ticks) and not self._offset_ns:
            raise NotAProbe("made by an earlier process of that pid")
        return words[5] - self._offset_ns

    def _words(self, size: int, at: int) -> memoryview:
        raw = os.pread(self._fd, size, at)
        if len(raw) != size:
            raise NotAProbe("shorter than it says")
        return memoryview(raw).cast("Q")

    def read(self, now_ns: int) -> ProbeReading:
        """Read all stages as of `now_ns`, a CLOCK_MONOTONIC reading taken just before.

        Raises OSError, and `NotAProbe` when the header is no longer one.
        """
        raw = os.pread(self._fd, HEADER_BYTES, 0)
        if len(raw) != HEADER_BYTES:
            raise NotAProbe("shorter than it says")
        header = memoryview(raw).cast("Q")
        if header[0] != MAGIC or header[1] != LAYOUT:
            raise NotAProbe("no longer a probe")
        first = 0 if header[12] & _FLAG_SHARED else MAX_STAGES
        count = min(header[11], MAX_CELLS) - first
        rejected = 0
        for index, bare in self._settled_cells(first, count):
            if bare == self._idle.get(index, UNUSED):
                continue
            before = self._accepted.get(index)
            cell = self._parse(array("Q", bare), index < MAX_STAGES, now_ns)
            if cell is None or (before is not None and not _follows(before, cell)):
                rejected += 1
                continue
            self._accepted[index] = cell
            if cell.under_way:
                self._idle.pop(index, None)
            else:
                self._idle[index] = bare
        return ProbeReading(
            stages=self._stages(raw),
            on=header[7] == _ON,
            errors=header[8],
            rejected=rejected,
            too_many=bool(header[12] & _FLAG_OTHER),
        )

    def _settled_cells(self, first: int, count: int) -> Iterator[tuple[int, bytes]]:
        """The used cells, each as two snapshots agree on it.

        A cell in which a pass ends between all of them is taken as it is: it may be one pass
        ahead in one word of another, and is right again at the next reading.
        """
        if count <= 0:
            return
        at, size = HEADER_BYTES + first * CELL_BYTES, count * CELL_BYTES
        earlier, later = os.pread(self._fd, size, at), os.pread(self._fd, size, at)
        last = later if earlier == later else os.pread(self._fd, size, at)
        if len(last) != size or len(later) != size or len(earlier) != size:
            raise NotAProbe("shorter than it says")
        for offset in range(0, size, CELL_BYTES):
            end = offset + CELL_BYTES
            cell = later[offset:end]
            if last is not later and cell != earlier[offset:end]:
                cell = last[offset:end]
            yield first + offset // CELL_BYTES, cell

    def _parse(self, words: array[int], shared: bool, now_ns: int) -> _Cell | None:
        """Take a cell apart; None when it could not be true."""
        stage, start_ns, under_way, nested_ns, longest_ns = words[:5]
        counts, sums = words[8:88], words[88:168]
        calls, total_ns = sum(counts), sum(sums)
        life_ns = max(0, now_ns - self._created_ns) + SLACK_NS
        if shared:
            elapsed_ns = (under_way * (now_ns + self._offset_ns) - start_ns) % _WORD
            oldest_ns = now_ns - elapsed_ns // under_way if under_way else None
            busy = MAX_SHARED_PASSES
        else:
            under_way = 1 if start_ns else 0
            # A start that is a little ahead of us is one that was stored after we looked.
            age_ns = now_ns - (start_ns - self._offset_ns) if start_ns else 0
            if age_ns < -SLACK_NS:
                return None
            elapsed_ns = max(0, age_ns)
            oldest_ns = now_ns - elapsed_ns if start_ns else None
            busy = 1
        if not 1 <= stage <= MAX_STAGES or under_way > busy or calls >= _WORD // 2:
            return None
        # A cell belongs to one pass at a time, so that no cell can be busier than the clock.
        if total_ns + elapsed_ns > life_ns * busy or max(nested_ns, longest_ns) > total_ns:
            return None
        return _Cell(
            stage - 1,
            calls,
            total_ns,
            nested_ns,
            under_way,
            elapsed_ns,
            oldest_ns,
            longest_ns,
            counts,
            sums,
        )

    def _stages(self, header: bytes) -> tuple[StageTotals, ...]:
        by_name: dict[str, list[_Cell]] = {}
        for cell in sorted(self._accepted.values(), key=lambda cell: cell.stage):
            start = NAMES_AT + cell.stage * NAME_BYTES
            name = clean(header[start : start + NAME_BYTES].partition(b"\0")[0]) or "?"
            by_name.setdefault(name, []).append(cell)
        return tuple(_total(name, cells) for name, cells in by_name.items())


def _follows(before: _Cell, now: _Cell) -> bool:
    """Totals never shrink, and a cell stays with its stage."""
    return (
        now.stage == before.stage
        and now.calls >= before.calls
        and now.total_ns >= before.total_ns
        and now.nested_ns >= before.nested_ns
    )


def _total(name: str, cells: Sequence[_Cell]) -> StageTotals:
    calls = inclusive = nested = elapsed = in_flight = longest = 0
    starts = []
    for cell in cells:
        calls += cell.calls
        inclusive += cell.total_ns
        nested += cell.nested_ns
        elapsed += cell.elapsed_ns
        in_flight += cell.under_way
        longest = max(longest, cell.longest_ns)
        if cell.oldest_start_ns is not None:
            starts.append(cell.oldest_start_ns)
    return StageTotals(
        name=name,
        calls=calls,
        inclusive_ns=inclusive,
        self_ns=max(0, inclusive - nested),
        occupied_ns=inclusive + elapsed,
        in_flight=in_flight,
        oldest_start_ns=min(starts, default=None),
        longest_ns=longest,
        counts=_columns_added([cell.counts for cell in cells]),
        sums_ns=_columns_added([cell.sums_ns for cell in cells]),
    )


def combined(readings: Iterable[ProbeReading]) -> tuple[StageTotals, ...]:
    """Add up the stages of several probes of one process, by name."""
    by_name: dict[str, StageTotals] = {}
    for reading in readings:
        for one in reading.stages:
            other = by_name.get(one.name)
            by_name[one.name] = one if other is None else _sum(other, one)
    return tuple(by_name.values())


def _sum(one: StageTotals, other: StageTotals) -> StageTotals:
    starts = [s for s in (one.oldest_start_ns, other.oldest_start_ns) if s is not None]
    return StageTotals(
        name=one.name,
        calls=one.calls + other.calls,
        inclusive_ns=one.inclusive_ns + other.inclusive_ns,
        self_ns=one.self_ns + other.self_ns,
        occupied_ns=one.occupied_ns + other.occupied_ns,
        in_flight=one.in_flight + other.in_flight,
        oldest_start_ns=min(starts, default=None),
        longest_ns=max(one.longest_ns, other.longest_ns),
        counts=_columns_added((one.counts, other.counts)),
        sums_ns=_columns_added((one.sums_ns, other.sums_ns)),
    )


def _columns_added(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(rows[0]) if len(rows) == 1 else tuple(map(sum, zip(*rows, strict=True)))


def fd_names(roots: Roots, pid: int) -> list[str]:
    """Open descriptors of a process. Raises OSError: PermissionError for other users' processes."""
    return os.listdir(f"{roots.proc}/{pid}/fd")


def fd_identity(roots: Roots, pid: int, fd_name: str) -> tuple[int, int]:
    """Device and inode of what a descriptor is open on. Raises OSError."""
    seen = os.stat(f"{roots.proc}/{pid}/fd/{fd_name}")
    return seen.st_dev, seen.st_ino


def probe_at(roots: Roots, process: ProcessId, fd_name: str) -> ProbeMemory | None:
    """Open the probe behind a descriptor, None when there is something else behind it."""
    try:
        if not os.readlink(f"{roots.proc}/{process.pid}/fd/{fd_name}").startswith(LINK):
            return None
        return ProbeMemory(roots, process, fd_name)
    except (OSError, NotAProbe):
        return None


def probes_of(roots: Roots, process: ProcessId) -> list[ProbeMemory]:
    """Open all probes of a process. Raises OSError when its descriptors cannot be listed."""
    found: dict[tuple[int, int], ProbeMemory] = {}
    for name in fd_names(roots, process.pid):
        probe = probe_at(roots, process, name)
        if probe is None:
            continue
        if probe.identity in found or len(found) >= MAX_PROBES:
            probe.close()
        else:
            found[probe.identity] = probe
    return list(found.values())


def _pid_inside(roots: Roots, pid: int) -> int:
    """The pid that a process sees for itself: the last of NSpid in its status."""
    try:
        status = read_record(f"{roots.proc}/{pid}/status")
        return int((procfs.status_field(status, b"NSpid") or b"").split()[-1])
    except (OSError, ValueError, IndexError):
        return pid


def _clock_offset_ns(roots: Roots, pid: int) -> int:
    """What CLOCK_MONOTONIC of a process in a time namespace is ahead of ours."""
    return _timens_ns(roots, str(pid)) - _timens_ns(roots, "self")


def _timens_ns(roots: Roots, pid: str) -> int:
    try:
        lines = read_record(f"{roots.proc}/{pid}/timens_offsets").splitlines()
        clock, seconds, nanoseconds = next(line for line in lines if b"monotonic" in line).split()
    except (OSError, ValueError, StopIteration):
        return 0
    del clock
    return int(seconds) * NS_PER_S + int(nanoseconds)
