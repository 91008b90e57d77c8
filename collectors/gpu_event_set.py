"""The driver's event queue: registered GPU by GPU, drained without waiting.

Importing this module imports `pynvml`, as `gpu_driver` does.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, NamedTuple

import pynvml

from bottletop.collectors.gpu_driver import GpuGone
from bottletop.model import Absent, State, Value
from bottletop.tables.gpu_health import (
    DOUBLE_BIT_ERROR,
    ECC_STORM,
    OTHER,
    PAGE_RETIREMENT,
    POISON,
    RECOVERY,
    UNAVAILABLE,
    XID,
)
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bottletop.collectors.gpu_driver import Driver

XID_BIT = 0x8
KIND_OF_BIT = {
    XID_BIT: XID,
    0x2: DOUBLE_BIT_ERROR,
    0x200: ECC_STORM,
    0x400: PAGE_RETIREMENT,
    0x800: PAGE_RETIREMENT,
    0x1000: POISON,
    0x2000: POISON,
    0x4000: UNAVAILABLE,
    0x8000: RECOVERY,
}
"""nvmlEventType* bits, written out since older bindings lack the newer names. Left out: each single
corrected error, P-state, clock and power source, which are no faults and come by the thousand."""
WANTED = sum(KIND_OF_BIT)
WHOLE_GPU = 0xFFFFFFFF
UNKNOWN_XID = 999
_WAITS = ("nvmlEventSetWait_v2", "nvmlEventSetWait")
"""The older one, of drivers before MIG, leaves the instances of the record as they were."""

_NO_XID = Absent(State.NOT_APPLICABLE, "not an Xid")
_UNNAMED_XID = Absent.unsupported("the driver does not know the number of this Xid")
_NO_INSTANCE = Absent(State.NOT_APPLICABLE, "not of one MIG instance")
_NO_EVENTS = Absent.unsupported("it reports no events")


class Event(NamedTuple):
    """One event as the driver gave it."""

    key: str
    """UUID of the GPU."""
    bits: int
    kind: int
    xid: Value
    gpu_instance: Value
    compute_instance: Value


class EventSet:
    """Events of the GPUs that take part. One that does not support them leaves the others.

    Raises `Unavailable` from every method when the driver itself has gone.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._set = driver.call("nvmlEventSetCreate")
        self._keys: dict[int | None, str] = {}
        self._wait = 0
        self.refusals: dict[str, Absent] = {}
        """GPUs that do not take part, and why. `State.UNSUPPORTED` will not change."""
        self.is_broken = False
        """One of its GPUs is lost: waiting then fails for all until the set is made anew."""

    @property
    def keys(self) -> frozenset[str]:
        """GPUs that take part."""
        return frozenset(self._keys.values())

    def register(self, places: Iterable[tuple[int, str]]) -> None:
        """Ask for the events of each GPU, given by its place in the driver's list and, where it is
        to be opened by that, by its PCI address.
        """
        for index, address in places:
            refusal = self._register(index, address)
            if refusal is not None:
                self.refusals[address or f"GPU {index}"] = refusal

    def _register(self, index: int, address: str) -> Absent | None:
        if isinstance(self._set, Absent):
            return self._set
        try:
            handle = self._driver.handle(index, address)
            if isinstance(handle, Absent):
                return handle
            supported = self._driver.call("nvmlDeviceGetSupportedEventTypes", handle)
            if isinstance(supported, Absent):
                return supported
            bits = supported & WANTED
            if not bits:
                return _NO_EVENTS
            answer = self._driver.call("nvmlDeviceRegisterEvents", handle, bits, self._set)
            if isinstance(answer, Absent):
                return answer
            uuid = self._driver.call("nvmlDeviceGetUUID", handle)
        except GpuGone as gone:
            return gone.absent
        self._keys[_pointer(handle)] = f"index {index}" if isinstance(uuid, Absent) else clean(uuid)
        return None

    def drain(self, at_most: int) -> list[Event]:
        """What has come since, oldest first. Never waits; more than `at_most` stay queued."""
        found: list[Event] = []
        try:
            while self._keys and len(found) < at_most and (data := self._next()) is not None:
                found.append(self._event(data))
        except GpuGone:
            self.is_broken = True
        return found

    def _next(self) -> ctypes.Structure | None:
        """The next record, None where there is none."""
        data: ctypes.Structure = pynvml.c_nvmlEventData_t()
        data.gpuInstanceId = data.computeInstanceId = WHOLE_GPU
        while self._wait < len(_WAITS):
            code = self._driver.raw(
                _WAITS[self._wait],
                self._set,
                ctypes.byref(data),
                ctypes.c_uint(0),
                also=(pynvml.NVML_ERROR_TIMEOUT,),
            )
            if not (isinstance(code, Absent) and code.state is State.UNSUPPORTED):
                return data if code == pynvml.NVML_SUCCESS else None
            self._wait += 1
        return None

    def _event(self, data: ctypes.Structure) -> Event:
        bits, number = int(data.eventType), int(data.eventData)
        xid: Value = _NO_XID
        if bits & XID_BIT:
            xid = _xid(number)
        return Event(
            self._keys.get(_pointer(data.device), "unknown GPU"),
            bits,
            KIND_OF_BIT.get(bits, OTHER),
            xid,
            _instance(data.gpuInstanceId),
            _instance(data.computeInstanceId),
        )

    def close(self) -> None:
        """Let the set go. Raises as the driver's calls do."""
        if not isinstance(self._set, Absent):
            self._driver.call("nvmlEventSetFree", self._set)


def _pointer(handle: object) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value  # type: ignore[arg-type]


def _xid(number: int) -> Value:
    if number == UNKNOWN_XID:
        return _UNNAMED_XID
    return number if 0 < number < 10_000 else Absent.implausible(number, "no such Xid")


def _instance(number: int) -> Value:
    return _NO_INSTANCE if number == WHOLE_GPU else int(number)
