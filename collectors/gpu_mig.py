"""MIG devices of a GPU: which there are, how big and how full. Fills `gpu_instance`.

Sources: nvmlDeviceGetMigDeviceHandleByIndex, and of each handle nvmlDeviceGetUUID, GpuInstanceId,
ComputeInstanceId, Name, Attributes and MemoryInfo. A handle may outlive its device and be given to
another one, so every listing takes handles and UUIDs anew. In a container that was given one MIG
device the GPU itself may answer "no permission" where the MIG device answers.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

import pynvml

from bottletop.collectors.gpu_processes import GpuProcesses
from bottletop.model import NOT_READ, Absent, Metric, Row, State, Value
from bottletop.tables.gpu_activity import GpuInstance
from bottletop.tables.gpu_believed import believed
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bottletop.collectors.gpu_driver import Driver
    from bottletop.collectors.gpu_processes import Seen

MAX_PLACES = 64
"""Bound on the MIG devices a driver may claim to allow; real ones say 7 or 8."""
MIB_PER_GIB = 1024

_NO_INSTANCE = Absent(State.NOT_APPLICABLE, "not on a MIG device")
_NO_LISTING = Absent.error("the driver failed to list its MIG devices")
_NO_PLACE = Absent.error("the driver did not tell its instance ids")
_NO_SHARE = Absent.unsupported("MIG is enabled: the driver counts no utilisation by process")


class MigDevice(NamedTuple):
    """One MIG device; what of it does not change."""

    uuid: str
    handle: object
    gpu_instance: int | Absent
    compute_instance: int | Absent
    profile: Value
    sm_count: Value

    @property
    def place(self) -> tuple[int, int] | None:
        """GPU instance and compute instance, which process records name; None if not known."""
        gpu, compute = self.gpu_instance, self.compute_instance
        return None if isinstance(gpu, Absent) or isinstance(compute, Absent) else (gpu, compute)


class MigDevices:
    """The MIG devices of one GPU, as of the last listing."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.restart(None, "")

    def restart(self, handle: object, uuid: str) -> None:
        """Forget all of them; they are listed anew at the next opportunity."""
        self._handle = handle
        self._gpu = uuid
        self._places: int | None = None
        self._memory: list[tuple[Value, Value]] = []
        self._counts: dict[str, Value] = {}
        self.devices: Sequence[MigDevice] = ()
        self.rows: tuple[Row, ...] = ()
        self.due = True
        """Whether they are to be listed before their time."""

    def refresh(self, mode: Value) -> bool:
        """List them. `mode` is `Gpu.mig`. Returns whether they are others than before.

        Raises `GpuGone` and `Unavailable`.
        """
        self.due = False
        before = {device.uuid: device for device in self.devices}
        found: tuple[MigDevice, ...] | None = ()
        # Where the mode cannot be seen, the devices may.
        unseen = isinstance(mode, Absent) and mode.state is not State.UNSUPPORTED
        if mode == 1 or unseen:
            found = self._list(before)
        if found is None:
            self._memory = [(_NO_LISTING, _NO_LISTING)] * len(self.devices)
            return False
        self.devices = found
        self._memory = [self._memory_of(device.handle) for device in found]
        return [device.uuid for device in found] != list(before)

    def place(self, processes: GpuProcesses) -> None:
        """Say on which MIG device each process is, and count them by device.

        The lists of the whole GPU tell it to the privileged. Where they are refused, empty or leave
        it open, the lists of the devices are read and what they tell is put into `processes`.
        """
        found = processes.found
        told = found and all(seen.instance is not None for seen in found.values())
        if told and not isinstance(processes.count, Absent):
            places = [seen.instance for seen in found.values()]
            self._counts = {
                device.uuid: places.count(device.place) if device.place else _NO_PLACE
                for device in self.devices
            }
            return
        self._counts = {device.uuid: self._own_list(device, found) for device in self.devices}
        if self.devices and not any(isinstance(n, Absent) for n in self._counts.values()):
            processes.count = len(found)

    def _own_list(self, device: MigDevice, found: dict[int, Seen]) -> Value:
        """Put the processes of one device's own lists into `found`; returns how many they are."""
        own = GpuProcesses(self._driver, device.handle)
        own.refresh()
        for pid, seen in own.found.items():
            place = device.place or seen.instance
            found[pid] = seen._replace(sm_util_pct=_NO_SHARE, instance=place)
        return own.count

    def uuid_at(self, place: tuple[int, int] | None) -> Value:
        """UUID of the MIG device with these GPU and compute instance ids, as processes name it."""
        if place is None or not self.devices:
            return _NO_INSTANCE
        for device in self.devices:
            if device.place == place:
                return device.uuid
        return Absent.error("on GPU instance {}, compute instance {}, not listed".format(*place))

    def report(self, now_ns: int) -> None:
        """Make the rows."""
        self.rows = tuple(
            GpuInstance.row(device.uuid, now_ns, self._cells(device, memory))
            for device, memory in zip(self.devices, self._memory, strict=True)
        )

    def _cells(self, device: MigDevice, memory: tuple[Value, Value]) -> dict[Metric, Value]:
        total, used = memory
        return {
            GpuInstance.gpu: self._gpu,
            GpuInstance.gpu_instance: device.gpu_instance,
            GpuInstance.compute_instance: device.compute_instance,
            GpuInstance.profile: device.profile,
            GpuInstance.sm_count: device.sm_count,
            GpuInstance.mem_total_bytes: total,
            GpuInstance.mem_used_bytes: used,
            GpuInstance.processes: self._counts.get(device.uuid, NOT_READ),
        }

    # -- single devices -----------------------------------------------------------------------

    def _list(self, before: Mapping[str, MigDevice]) -> tuple[MigDevice, ...] | None:
        """The devices, None where the driver failed to list them. Those of others are not seen."""
        if self._places is None:
            count = self._driver.call("nvmlDeviceGetMaxMigDeviceCount", self._handle)
            if isinstance(count, Absent):
                return None if count.state is State.ERROR else ()
            self._places = min(count, MAX_PLACES)
        found = []
        for place in range(self._places):
            handle = pynvml.c_nvmlDevice_t()
            code = self._driver.raw(
                "nvmlDeviceGetMigDeviceHandleByIndex",
                self._handle,
                ctypes.c_uint(place),
                ctypes.byref(handle),
            )
            if isinstance(code, Absent) and code.state is State.ERROR:
                return None
            device = self._device(handle, before) if code == pynvml.NVML_SUCCESS else None
            if device is not None:
                found.append(device)
        return tuple(found)

    def _device(self, handle: object, before: Mapping[str, MigDevice]) -> MigDevice | None:
        """The device of a handle; None if it has just gone."""
        uuid = self._driver.call("nvmlDeviceGetUUID", handle)
        if isinstance(uuid, Absent):
            return None
        uuid = clean(uuid)
        known = before.get(uuid)
        if known is not None and known.place is not None:
            return known._replace(handle=handle)
        attributes = self._driver.call("nvmlDeviceGetAttributes_v2", handle)
        return MigDevice(
            uuid,
            handle,
            self._number(GpuInstance.gpu_instance, "nvmlDeviceGetGpuInstanceId", handle),
            self._number(GpuInstance.compute_instance, "nvmlDeviceGetComputeInstanceId", handle),
            self._profile(handle, attributes),
            attributes
            if isinstance(attributes, Absent)
            else believed(GpuInstance.sm_count, attributes.multiprocessorCount),
        )

    def _number(self, metric: Metric, function: str, handle: object) -> int | Absent:
        answer = self._driver.call(function, handle)
        return answer if isinstance(answer, Absent) else believed(metric, answer)  # type: ignore[return-value]

    def _profile(self, handle: object, attributes: Any) -> Value:
        """What the name ends in ("NVIDIA H100 80GB HBM3 MIG 1g.10gb"), else by the attributes."""
        name = self._driver.call("nvmlDeviceGetName", handle)
        if not isinstance(name, Absent):
            _, mig, profile = clean(name).partition("MIG ")
            if mig:
                return profile
        if isinstance(attributes, Absent):
            return attributes
        slices, compute = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
        part = "" if slices == compute else f"{compute}c."
        return f"{part}{slices}g.{-(-attributes.memorySizeMB // MIB_PER_GIB)}gb"

    def _memory_of(self, handle: object) -> tuple[Value, Value]:
        """Total and used bytes, by memory info v2 or where that is not there, v1."""
        memory = self._driver.call("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
        if isinstance(memory, Absent) and memory.state is State.UNSUPPORTED:
            memory = self._driver.call("nvmlDeviceGetMemoryInfo", handle)
        if isinstance(memory, Absent):
            return memory, memory
        return (
            believed(GpuInstance.mem_total_bytes, memory.total),
            believed(GpuInstance.mem_used_bytes, memory.used),
        )
