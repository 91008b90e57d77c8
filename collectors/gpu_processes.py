"""Who uses a GPU: the driver's process list, and the utilisation that it counts by process.

Sources: nvmlDeviceGetComputeRunningProcesses (4.5 ms a call on some drivers, so at most every
`GpuProcess.period_s`) and nvmlDeviceGetProcessUtilization. Both give PIDs of the host.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pynvml

from bottletop.collectors.gpu_readings import believed
from bottletop.model import NOT_READ, Absent, State, Value
from bottletop.tables.gpu import GpuProcess

if TYPE_CHECKING:
    from bottletop.collectors.gpu_driver import Driver

MAX_PID = 2**22
"""Above it Linux gives no process a number (PID_MAX_LIMIT)."""
ROOM = 32
MAX_RECORDS = 4096
NOT_AVAILABLE = 2**64 - 1
FRESH_US = 2_000_000

_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
)
_NOT_LISTED = Absent(State.NOT_APPLICABLE, "not in the driver's process list")
_NO_MEMORY = Absent.unsupported("the driver does not say how much memory a process has")


class GpuProcesses:
    """Processes of one GPU."""

    def __init__(self, driver: Driver, handle: object) -> None:
        self._driver = driver
        self._handle = handle
        self._listed = _process_array(ROOM)
        self._list_at = 0
        self._no_list: Absent | None = None
        self._no_util: Absent | None = None
        self._records: ctypes.Array[ctypes.Structure] | None = None
        self._last_seen_us = 0
        self._sums: dict[int, int] = {}
        self._reads = 0
        self._util_failed: Absent | None = None
        self.count: Value = NOT_READ
        """Processes in the list, or why there is no list."""
        self.found: dict[int, tuple[Value, Value]] = {}
        """Memory in bytes and mean SM utilisation since the list before, by PID."""

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

    # -- list ---------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the process list and close the account of utilisation since the list before."""
        memory = self._memory_by_pid()
        sums, reads = self._sums, self._reads
        self._sums, self._reads = {}, 0
        missing = self._util_failed
        if isinstance(memory, Absent):
            self.count = memory
            memory = {}
        for pid in sums:
            memory.setdefault(pid, _NOT_LISTED)
        self.found = {
            pid: (
                size,
                missing or believed(GpuProcess.sm_util_pct, sums.get(pid, 0) / max(reads, 1)),
            )
            for pid, size in memory.items()
        }

    def _memory_by_pid(self) -> dict[int, Value] | Absent:
        """Bytes by PID. Sets `count`."""
        if self._no_list is not None:
            return self._no_list
        listed = self._list()
        if isinstance(listed, Absent):
            if listed.state is State.UNSUPPORTED:
                self._no_list = listed
            return listed
        memory = {pid: size for pid, size in listed if 0 < pid <= MAX_PID}
        bad = [pid for pid, _ in listed if not 0 < pid <= MAX_PID]
        self.count = len(memory)
        if bad:
            self.count = Absent.implausible(
                bad[0], f"{len(bad)} of {len(listed)} records carry no possible PID"
            )
        return memory

    def _list(self) -> list[tuple[int, Value]] | Absent:
        """The list by the newest function whose records make sense.

        Binding and driver have disagreed about the record before (R510, R535): the PIDs are then 0
        or 4294967295, and the older function may still agree.
        """
        answer = self._records_of(_LISTS[self._list_at])
        doubtful = (
            answer.state is State.UNSUPPORTED
            if isinstance(answer, Absent)
            else any(not 0 < pid <= MAX_PID for pid, _ in answer)
        )
        if not doubtful or self._list_at + 1 == len(_LISTS):
            return answer
        older = self._records_of(_LISTS[self._list_at + 1])
        if isinstance(older, Absent) or any(not 0 < pid <= MAX_PID for pid, _ in older):
            return answer
        self._list_at += 1
        return older

    def _records_of(self, function: str) -> list[tuple[int, Value]] | Absent:
        """(pid, bytes) of each record. One call, where the binding's wrapper makes two."""
        for _ in range(2):
            # Half of the array is withheld from the driver: it may write longer records than ours.
            room = len(self._listed) // 2
            count = ctypes.c_uint(room)
            code = self._driver.raw(function, self._handle, ctypes.byref(count), self._listed)
            if isinstance(code, Absent):
                return code
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                found = min(count.value, room) if code == pynvml.NVML_SUCCESS else 0
                return [
                    (record.pid, _bytes(record.usedGpuMemory)) for record in self._listed[:found]
                ]
            self._listed = _process_array(min(2 * count.value, MAX_RECORDS))
        return Absent.error("more processes than can be read")


def _process_array(room: int) -> ctypes.Array[ctypes.Structure]:
    array: ctypes.Array[ctypes.Structure] = (pynvml.c_nvmlProcessInfo_v2_t * (2 * room))()
    return array


def _bytes(raw: int) -> Value:
    """Bytes of one process; all ones stand for "not available"."""
    return _NO_MEMORY if raw == NOT_AVAILABLE else believed(GpuProcess.mem_bytes, raw)
