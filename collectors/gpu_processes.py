"""Who uses a GPU: the driver's process lists, and the utilisation that it counts by process.

Sources: nvmlDeviceGetComputeRunningProcesses and its graphics and MPS twins (4.5 ms a call on some
drivers, so as rarely as the collector asks) and nvmlDeviceGetProcessUtilization. All give PIDs of
the host.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

import pynvml

from bottletop.model import NOT_READ, Absent, State, Value
from bottletop.tables.gpu import COMPUTE, GRAPHICS, MPS, GpuProcess
from bottletop.tables.gpu_believed import believed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.gpu_driver import Driver

MAX_PID = 2**22
"""Above it Linux gives no process a number (PID_MAX_LIMIT)."""
ROOM = 32
MAX_RECORDS = 4096
NOT_AVAILABLE = 2**64 - 1
WHOLE_GPU = 0xFFFFFFFF
FRESH_US = 2_000_000

_LISTS = {
    GRAPHICS: "nvmlDeviceGetGraphicsRunningProcesses",
    COMPUTE: "nvmlDeviceGetComputeRunningProcesses",
    MPS: "nvmlDeviceGetMPSComputeRunningProcesses",
}
"""By kind. A process in several lists is of the last of them: who draws may compute besides, and
who computes may do so through MPS."""
_VERSIONS = ("_v3", "_v2")
_NOT_LISTED = Absent(State.NOT_APPLICABLE, "not in the driver's process list")
_NO_MEMORY = Absent.unsupported("the driver does not say how much memory a process has")


class Record(NamedTuple):
    """One record of a process list."""

    pid: int
    mem_bytes: Value
    gpu_instance: int
    compute_instance: int


class Seen(NamedTuple):
    """What is known of one process on one GPU."""

    mem_bytes: Value
    sm_util_pct: Value
    """Mean since the list before."""
    kind: Value
    instance: tuple[int, int] | None
    """MIG GPU instance and compute instance that it runs on, where the driver says so."""


class GpuProcesses:
    """Processes of one GPU."""

    def __init__(self, driver: Driver, handle: object) -> None:
        self._driver = driver
        self._handle = handle
        self._lists = {
            kind: ProcessList(driver, handle, function) for kind, function in _LISTS.items()
        }
        self._no_util: Absent | None = None
        self._records: ctypes.Array[ctypes.Structure] | None = None
        self._last_seen_us = 0
        self._sums: dict[int, int] = {}
        self._reads = 0
        self._util_failed: Absent | None = None
        self.count: Value = NOT_READ
        """Processes in the lists, or why there is no list."""
        self.found: dict[int, Seen] = {}
        """By PID, as of the last `refresh`."""

    @property
    def held_bytes(self) -> int | None:
        """Memory of all processes together; None unless there are some and each of them says."""
        sizes = [seen.mem_bytes for seen in self.found.values()]
        known = [size for size in sizes if isinstance(size, int)]
        whole = not isinstance(self.count, Absent) and known and len(known) == len(sizes)
        return sum(known) if whole else None

    # -- utilisation: a record a process that ran in the driver's last sampling period --------

    def sample_utilisation(self, gpu_util_pct: Value) -> None:
        """Take the records that are new. Called each tick; `refresh` takes the mean."""
        if self._no_util is not None:
            return
        records = self._utilisation_records()
        if isinstance(records, Absent):
            if records.state is State.UNSUPPORTED:
                self._no_util = records
            self._util_failed = records
            return
        self._util_failed = None
        if not records and isinstance(gpu_util_pct, (int, float)) and gpu_util_pct > 0:
            return  # somebody ran: the driver's next period is not over yet
        self._reads += 1
        newest = max((stamp for _, stamp, _ in records), default=0)
        # At the first read the driver gives the last record of every process, however old.
        oldest = self._last_seen_us or newest - FRESH_US
        for pid, stamp, sm_pct in records:
            if 0 < pid <= MAX_PID and sm_pct <= 100 and stamp > oldest:
                self._sums[pid] = self._sums.get(pid, 0) + sm_pct
        self._last_seen_us = max(newest, self._last_seen_us)

    def _utilisation_records(self) -> list[tuple[int, int, int]] | Absent:
        """(pid, stamp us, SM %) of each new record; an empty list when nobody ran.

        The binding's wrapper asks twice and raises on an empty answer; the array here is kept.
        """
        for _ in range(2):
            count = ctypes.c_uint(0 if self._records is None else len(self._records))
            code = self._driver.raw(
                "nvmlDeviceGetProcessUtilization",
                self._handle,
                self._records,
                ctypes.byref(count),
                ctypes.c_ulonglong(self._last_seen_us),
            )
            if isinstance(code, Absent):
                return code
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                found = count.value if code == pynvml.NVML_SUCCESS and self._records else 0
                return [
                    (record.pid, record.timeStamp, record.smUtil)
                    for record in (self._records or ())[:found]
                ]
            size = min(2 * count.value + 8, MAX_RECORDS)
            self._records = (pynvml.c_nvmlProcessUtilizationSample_t * size)()
        return Absent.error("the driver's number of processes changes faster than it is read")

    # -- lists --------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the process lists and close the account of utilisation since the lists before."""
        listed = self._listed()
        sums, reads = self._sums, self._reads
        self._sums, self._reads = {}, 0
        missing = self._util_failed
        for pid in sums:
            listed.setdefault(pid, (Record(pid, _NOT_LISTED, WHOLE_GPU, WHOLE_GPU), _NOT_LISTED))
        self.found = {
            pid: Seen(
                record.mem_bytes,
                missing or believed(GpuProcess.sm_util_pct, sums.get(pid, 0) / max(reads, 1)),
                kind,
                _instance(record),
            )
            for pid, (record, kind) in listed.items()
        }

    def _listed(self) -> dict[int, tuple[Record, Value]]:
        """Record and kind by PID. Sets `count`."""
        merged: dict[int, tuple[Record, Value]] = {}
        bad: list[int] = []
        failed: Absent | None = None
        for kind, part in self._lists.items():
            records = part.read()
            if isinstance(records, Absent):
                # A GPU that draws nothing need not have the other lists.
                if kind == COMPUTE or records.state is not State.UNSUPPORTED:
                    failed = failed or records
                continue
            bad += [record.pid for record in records if not _possible(record.pid)]
            for record in records:
                if _possible(record.pid):
                    before, _ = merged.get(record.pid, (record, None))
                    merged[record.pid] = _larger(before, record), kind
        self.count = failed or len(merged)
        if bad and failed is None:
            self.count = Absent.implausible(bad[0], f"{len(bad)} records carry no possible PID")
        return dict(sorted(merged.items()))


class ProcessList:
    """One of the driver's process lists of one GPU. "Not supported" is remembered."""

    def __init__(self, driver: Driver, handle: object, function: str) -> None:
        self._driver = driver
        self._handle = handle
        self._function = function
        self._version = 0
        self._array = _process_array(ROOM)
        self._unsupported: Absent | None = None

    def read(self) -> Sequence[Record] | Absent:
        """The list by the newest function whose records make sense.

        Binding and driver have disagreed about the record before (R510, R535): the PIDs are then 0
        or 4294967295, and the older function may still agree.
        """
        if self._unsupported is not None:
            return self._unsupported
        answer = self._records(_VERSIONS[self._version])
        if _doubtful(answer) and self._version + 1 < len(_VERSIONS):
            older = self._records(_VERSIONS[self._version + 1])
            if not _doubtful(older):
                self._version += 1
                answer = older
        if isinstance(answer, Absent) and answer.state is State.UNSUPPORTED:
            self._unsupported = answer
        return answer

    def _records(self, version: str) -> Sequence[Record] | Absent:
        """One call, where the binding's wrapper makes two."""
        for _ in range(2):
            # Half of the array is withheld from the driver: it may write longer records than ours.
            room = len(self._array) // 2
            count = ctypes.c_uint(room)
            code = self._driver.raw(
                self._function + version, self._handle, ctypes.byref(count), self._array
            )
            if isinstance(code, Absent):
                return code
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                found = min(count.value, room) if code == pynvml.NVML_SUCCESS else 0
                return [
                    Record(
                        record.pid,
                        _bytes(record.usedGpuMemory),
                        record.gpuInstanceId,
                        record.computeInstanceId,
                    )
                    for record in self._array[:found]
                ]
            self._array = _process_array(min(2 * count.value, MAX_RECORDS))
        return Absent.error("more processes than can be read")


def _possible(pid: int) -> bool:
    return 0 < pid <= MAX_PID


def _doubtful(answer: Sequence[Record] | Absent) -> bool:
    """Whether another version of the function may do better."""
    if isinstance(answer, Absent):
        return answer.state is State.UNSUPPORTED
    return any(not _possible(record.pid) for record in answer)


def _larger(one: Record, other: Record) -> Record:
    """Of two records of one process, the one that tells of more memory."""
    mine, theirs = one.mem_bytes, other.mem_bytes
    if isinstance(mine, int) and (not isinstance(theirs, int) or mine > theirs):
        return one
    return other


def _instance(record: Record) -> tuple[int, int] | None:
    if WHOLE_GPU in (record.gpu_instance, record.compute_instance):
        return None
    return record.gpu_instance, record.compute_instance


def _process_array(room: int) -> ctypes.Array[ctypes.Structure]:
    array: ctypes.Array[ctypes.Structure] = (pynvml.c_nvmlProcessInfo_v2_t * (2 * room))()
    return array


def _bytes(raw: int) -> Value:
    """Bytes of one process; all ones stand for "not available"."""
    return _NO_MEMORY if raw == NOT_AVAILABLE else believed(GpuProcess.mem_bytes, raw)
