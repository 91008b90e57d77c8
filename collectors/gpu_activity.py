"""What inside a GPU was busy: two GPM samples, a second apart, and the means between them.

Sources: nvmlGpmSampleGet for a GPU, nvmlGpmMigSampleGet for a MIG GPU instance, nvmlGpmMetricsGet.
Instances are asked of the GPU, never of a MIG device's own handle, which some drivers answer with
errors in other calls afterwards. GPM counts with units of its own, so it disturbs no profiler.
Numbers of metrics are those of nvml.h (NVML_GPM_METRIC_*), since older bindings lack some names.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import pynvml

from bottletop.collectors.base import Unavailable
from bottletop.collectors.gpu_driver import GpuGone, absence
from bottletop.collectors.gpu_readings import SLOW_PERIOD_S
from bottletop.model import NOT_READ, NS_PER_S, Absent, Metric, Row, State, Value
from bottletop.tables.gpu_activity import GpuActivity
from bottletop.tables.gpu_believed import believed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bottletop.clock import Clock
    from bottletop.collectors.gpu_driver import Driver
    from bottletop.collectors.gpu_mig import MigDevice

SHORTEST_NS = 100_000_000
"""Samples that lie no further apart give no numbers (nvml.h)."""
OLDEST_NS = 10 * NS_PER_S
"""An older sample is no basis: the mean over a suspend or a pause says nothing of now."""
FIRST_DRIVERS_KNEW = 97
"""Highest metric of the first drivers with GPM (R525); they may refuse a list with a newer one."""
MOST_METRICS = 512
"""Room for as many as any nvml.h so far gives nvmlGpmMetricsGet_t, though few are asked for."""

_MIB = 2**20
_HEAD = struct.Struct("=IIQQ")
"""nvmlGpmMetricsGet_t up to its metrics: version, number of metrics, both samples."""
_SLOT = struct.Struct("=4xid24x")
"""nvmlGpmMetric_t without its number and its three texts: return code and value.

Written and read as bytes: versions of the binding differ in what they declare and in what their
wrappers take, and attributes of its structures go through Python code.
"""
_SLOT_IN = struct.Struct("=I36x")
_VERSION = 1
"""Of both structs of GPM."""


class Counted(NamedTuple):
    """One column: the metrics it is the mean of, and what a raw number is multiplied by.

    `lacking` says where it is absent besides all others.
    """

    metric: Metric
    ids: tuple[int, ...]
    scale: float = 1
    lacking: str = ""


_LINK = "of a MIG instance, where links are counted by GPU only"
_C2C = f"there is no link to a CPU; {_LINK}"

COUNTED = (
    Counted(GpuActivity.graphics_pct, (1,)),
    Counted(GpuActivity.sm_pct, (2,)),
    Counted(GpuActivity.occupancy_pct, (3,)),
    Counted(GpuActivity.integer_pct, (4,)),
    Counted(GpuActivity.tensor_pct, (5,)),
    Counted(GpuActivity.dram_pct, (10,)),
    Counted(GpuActivity.fp64_pct, (11,)),
    Counted(GpuActivity.fp32_pct, (12,)),
    Counted(GpuActivity.fp16_pct, (13,)),
    Counted(GpuActivity.pcie_tx_bytes_per_s, (20,), _MIB, _LINK),
    Counted(GpuActivity.pcie_rx_bytes_per_s, (21,), _MIB, _LINK),
    Counted(GpuActivity.decoder_pct, tuple(range(30, 38))),
    Counted(GpuActivity.nvlink_rx_bytes_per_s, (60,), _MIB, _LINK),
    Counted(GpuActivity.nvlink_tx_bytes_per_s, (61,), _MIB, _LINK),
    Counted(GpuActivity.c2c_tx_bytes_per_s, (100,), _MIB, _C2C),
    Counted(GpuActivity.c2c_rx_bytes_per_s, (101,), _MIB, _C2C),
    Counted(GpuActivity.context_switch_pct, (174,)),
)

_NO_GPM = Absent.unsupported(
    "the driver offers no GPM for this GPU: it needs Hopper or newer, and few vGPU guests have it"
)
_ONE_SAMPLE = Absent(State.NOT_READ, "counted between two samples, of which this is the first")
_TOO_NEW = absence(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
_INVALID = (pynvml.NVML_ERROR_INVALID_ARGUMENT,)
_NOT_A_NUMBER = Absent.error("the driver had no number for this interval")
_GONE = Absent(State.LOST, "the driver no longer knows this GPU instance")

_PAUSES_NS = {State.UNSUPPORTED: 2**62, State.DENIED: SLOW_PERIOD_S * NS_PER_S}
"""How long nothing is asked after such an answer; any other is asked again at the next read. Rights
may be granted, and have been seen to come and go (NVIDIA/DCGM#214)."""


def _everywhere(absent: Absent) -> tuple[Value, ...]:
    """A row's cells where nothing could be counted."""
    return (absent,) * len(GpuActivity.columns)


class MetricBatch:
    """The metrics of one GPU or instance, computed with one call into a struct made once.

    Metrics that turn out unsupported leave the list; they are answered from memory.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._unsupported: dict[int, Absent] = {}
        self._get = (ctypes.c_uint64 * ((_HEAD.size + MOST_METRICS * _SLOT.size) // 8))()
        self._bytes = memoryview(self._get).cast("B")
        self._load(number for counted in COUNTED for number in counted.ids)

    def _load(self, ids: Iterable[int]) -> None:
        self._ids = tuple(ids)
        for at, number in enumerate(self._ids):
            _SLOT_IN.pack_into(self._bytes, _HEAD.size + at * _SLOT.size, number)

    def between(
        self, older: ctypes.c_void_p, newer: ctypes.c_void_p
    ) -> dict[int, float | Absent] | Absent:
        """Every metric by its number, or why there is none. Raises `GpuGone` and `Unavailable`."""
        answer = self._compute(older, newer)
        if answer == pynvml.NVML_ERROR_INVALID_ARGUMENT and max(self._ids) > FIRST_DRIVERS_KNEW:
            self._forget({n: _TOO_NEW for n in self._ids if n > FIRST_DRIVERS_KNEW})
            answer = self._compute(older, newer)
        if isinstance(answer, Absent):
            return answer
        if answer != pynvml.NVML_SUCCESS:
            return absence(answer)
        slots = self._bytes[_HEAD.size : _HEAD.size + len(self._ids) * _SLOT.size]
        fresh = {
            number: self._value(code, value)
            for number, (code, value) in zip(self._ids, _SLOT.iter_unpack(slots), strict=True)
        }
        self._forget(fresh)
        return self._unsupported | fresh

    def _compute(self, older: ctypes.c_void_p, newer: ctypes.c_void_p) -> int | Absent:
        if not self._ids:
            return Absent.unsupported("the driver supports none of these metrics")
        _HEAD.pack_into(self._bytes, 0, _VERSION, len(self._ids), older.value, newer.value)
        return self._driver.raw("nvmlGpmMetricsGet", self._get, also=_INVALID)

    def _value(self, code: int, value: float) -> float | Absent:
        if code == pynvml.NVML_SUCCESS:
            return value
        if code == pynvml.NVML_ERROR_INVALID_ARGUMENT:  # a metric that this driver does not know
            return _TOO_NEW
        return self._driver.judge(code)

    def _forget(self, answers: Mapping[int, float | Absent]) -> None:
        """Stop asking for what is not supported."""
        unsupported = {
            number: value
            for number, value in answers.items()
            if isinstance(value, Absent) and value.state is State.UNSUPPORTED
        }
        if unsupported:
            self._unsupported |= unsupported
            self._load([number for number in self._ids if number not in unsupported])


class Moment(NamedTuple):
    """When a sample was taken, by both clocks: the monotonic one stands still in a suspend."""

    mono_ns: int
    wall_ns: int

    def is_basis(self, now: Moment) -> bool:
        """Whether a sample taken here may be counted from `now`."""
        apart_ns = now.mono_ns - self.mono_ns
        return apart_ns > SHORTEST_NS and max(apart_ns, now.wall_ns - self.wall_ns) < OLDEST_NS


class Meter:
    """One GPU, or one of its GPU instances: two sample buffers used by turns."""

    def __init__(
        self, driver: Driver, clock: Clock, handle: object, gpu_instance: int | None = None
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._take: tuple[Any, ...] = ("nvmlGpmSampleGet", handle)
        self._unknown: tuple[int, ...] = ()
        """Codes besides NOT_FOUND that may mean that there is no such instance."""
        if gpu_instance is not None:
            self._take = ("nvmlGpmMigSampleGet", handle, ctypes.c_uint(gpu_instance))
            self._unknown = _INVALID
        self._buffers: list[ctypes.c_void_p] = []
        """The one filled last comes first."""
        self._taken: Moment | None = None
        """When that was: the basis of the next reading."""
        self._batch = MetricBatch(driver)
        self._last: tuple[int, tuple[Value, ...]] | None = None
        self._ask_again_ns = 0
        self.gone = False
        """Whether the driver did not know the instance when it was last asked."""

    def read(self) -> tuple[int, tuple[Value, ...]]:
        """Stamp and cells of a row of `gpu_activity`. Raises `GpuGone` and `Unavailable`."""
        now_ns = self._clock.monotonic_ns()
        if self._last is not None:
            if now_ns < self._ask_again_ns:
                return now_ns, self._last[1]
            if self._taken is not None and now_ns - self._taken.mono_ns <= SHORTEST_NS:
                return self._last
        counted = self._sample()
        now_ns = self._clock.monotonic_ns()
        if isinstance(counted, Absent):
            self._ask_again_ns = now_ns + _PAUSES_NS.get(counted.state, 0)
            counted = _everywhere(counted)
        self._last = now_ns, counted
        return self._last

    def _sample(self) -> tuple[Value, ...] | Absent:
        """Fill the older buffer anew and count from the other one to it."""
        while len(self._buffers) < 2:
            buffer = ctypes.c_void_p()
            made = self._driver.raw("nvmlGpmSampleAlloc", ctypes.byref(buffer))
            if made != pynvml.NVML_SUCCESS:
                return made if isinstance(made, Absent) else absence(made)
            self._buffers.append(buffer)
        older, newer = self._buffers
        code = self._driver.raw(*self._take, newer, also=self._unknown)
        if isinstance(code, Absent):
            return code
        self.gone = code != pynvml.NVML_SUCCESS
        if self.gone:
            self._taken = None
            return _GONE
        before = self._taken
        self._taken = Moment(self._clock.monotonic_ns(), self._clock.wall_ns())
        self._buffers = [newer, older]
        if before is None or not before.is_basis(self._taken):
            return _everywhere(_ONE_SAMPLE)
        answers = self._batch.between(older, newer)
        if isinstance(answers, Absent):
            return answers
        return _cells(answers, (self._taken.mono_ns - before.mono_ns) / NS_PER_S)

    def close(self) -> None:
        """Free the buffers. Never raises."""
        buffers, self._buffers, self._taken = self._buffers, [], None
        for buffer in buffers:
            # The driver may be gone already, and its buffers with it.
            with contextlib.suppress(GpuGone, Unavailable):
                self._driver.raw("nvmlGpmSampleFree", buffer)


def _cells(answers: Mapping[int, float | Absent], interval_s: float) -> tuple[Value, ...]:
    """A row's cells, quantised; as `GpuActivity.row`, without a dictionary a row."""
    cells: list[Value] = [NOT_READ] * len(GpuActivity.columns)
    cells[GpuActivity.interval_s.index] = GpuActivity.interval_s.quantise(interval_s)
    for counted in COUNTED:
        metric, ids = counted.metric, counted.ids
        raw = answers[ids[0]] if len(ids) == 1 else _mean([answers[number] for number in ids])
        cells[metric.index] = raw if isinstance(raw, Absent) else _value(counted, raw)
    return tuple(cells)


def _mean(found: Sequence[float | Absent]) -> float | Absent:
    """Of those that are numbers; else why the first is none."""
    numbers = [value for value in found if not isinstance(value, Absent)]
    return sum(numbers) / len(numbers) if numbers else found[0]


def _value(counted: Counted, raw: float) -> Value:
    """What is believed of a number, scaled and quantised."""
    metric = counted.metric
    if not math.isfinite(raw):
        return _NOT_A_NUMBER
    value = metric.quantise(believed(metric, raw, counted.scale))
    if metric.unit == "%" and isinstance(value, float):
        return min(value, 100.0)  # counters that were not read in the very same moment
    return value


class Activities:
    """Activity of one GPU and of its MIG devices."""

    def __init__(self, driver: Driver, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock
        self._meter: Meter | None = None
        self._instances: dict[int, tuple[str, Meter]] = {}
        self.restart(None, "")

    def restart(self, handle: object, uuid: str) -> None:
        """Ask everything anew, of this handle."""
        self.close()
        self._handle = handle
        self._uuid = uuid
        self._absent: Absent | None = None
        self._ask_again_ns = 0

    def close(self) -> None:
        """Free all buffers. Never raises."""
        for meter in (self._meter, *(meter for _, meter in self._instances.values())):
            if meter is not None:
                meter.close()
        self._meter, self._instances = None, {}
        self._followed: Sequence[MigDevice] = ()
        self._uncounted: dict[str, Absent] = {}
        self._doubted: set[str] = set()
        self.outdated = False
        """Whether, since the MIG devices were listed, one was not to be found."""

    def read(self, devices: Sequence[MigDevice]) -> list[Row]:
        """A row for the GPU and each MIG device. Raises `GpuGone` and `Unavailable`."""
        now_ns = self._clock.monotonic_ns()
        absent = self._unavailable(now_ns)
        if absent is not None:
            return self.absent_rows(absent, now_ns, devices)
        if devices is not self._followed:
            self._follow(devices)
        self._meter = self._meter or Meter(self._driver, self._clock, self._handle)
        rows = [self._row(self._uuid, *self._meter.read())]
        rows += [self._row(uuid, *meter.read()) for uuid, meter in self._instances.values()]
        for uuid, uncounted in self._uncounted.items():
            rows.append(self._row(uuid, now_ns, _everywhere(uncounted)))
        self._doubt()
        return rows

    def _doubt(self) -> None:
        """Ask once for a new listing when an instance is not found, however long it stays so."""
        gone = {uuid for uuid, meter in self._instances.values() if meter.gone}
        self.outdated = not gone <= self._doubted
        self._doubted = gone

    def absent_rows(
        self, absent: Absent, now_ns: int, devices: Sequence[MigDevice] = ()
    ) -> list[Row]:
        """The rows where nothing can be counted."""
        cells = _everywhere(absent)
        return [self._row(key, now_ns, cells) for key in (self._uuid, *(d.uuid for d in devices))]

    def _row(self, key: str, t_ns: int, cells: tuple[Value, ...]) -> Row:
        return Row(key, t_ns, (self._uuid, *cells[1:]))

    def _unavailable(self, now_ns: int) -> Absent | None:
        """Why there is no GPM here; None where there is. Asked once, if the answer is final."""
        if self._meter is not None:
            return None
        if self._absent is not None and now_ns < self._ask_again_ns:
            return self._absent
        support = (ctypes.c_uint * 2)(_VERSION, 0)  # nvmlGpmSupport_t: version, and the answer
        code = self._driver.raw("nvmlGpmQueryDeviceSupport", self._handle, support)
        if isinstance(code, Absent):
            self._absent = code
        else:
            self._absent = None if support[1] == 1 else _NO_GPM
        if self._absent is not None:
            self._ask_again_ns = now_ns + _PAUSES_NS.get(self._absent.state, 0)
        return self._absent

    def _follow(self, devices: Sequence[MigDevice]) -> None:
        """Begin to count new instances and let go of those that went.

        An instance is known by the UUID of its MIG device: after a new partition the same number
        may be another instance, and samples of the two have nothing in common.
        """
        members: dict[int, list[str]] = {}
        self._uncounted = {}
        for device in devices:
            if isinstance(device.gpu_instance, int):
                members.setdefault(device.gpu_instance, []).append(device.uuid)
            else:
                self._uncounted[device.uuid] = device.gpu_instance
        before, self._instances = self._instances, {}
        for number, uuids in members.items():
            if len(uuids) > 1:
                self._uncounted |= dict.fromkeys(uuids, _shared(number, len(uuids)))
                continue
            kept = before.get(number)
            if kept is not None and kept[0] == uuids[0]:
                self._instances[number] = before.pop(number)
            else:
                meter = Meter(self._driver, self._clock, self._handle, number)
                self._instances[number] = uuids[0], meter
        for _, meter in before.values():
            meter.close()
        self._followed = devices


def _shared(number: int, devices: int) -> Absent:
    return Absent.unsupported(
        f"GPM counts GPU instance {number} as a whole, which {devices} MIG devices share"
    )
