"""The driver's sample buffers: finer than any tick, with the driver's own stamps.

Source: nvmlDeviceGetSamples. A buffer is asked for what is newer than the newest stamp seen (kept
raw), and its stamps, whose clock differs by driver, are mapped to CLOCK_MONOTONIC. Buffers run dry
while a GPU idles; then the snapshot speaks, and only if it succeeded.
"""

from __future__ import annotations

import ctypes
from collections import deque
from itertools import islice
from operator import lt, sub
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import pynvml

from bottletop.model import NOT_READ, NS_PER_S, Absent, Metric, Row, State, Value
from bottletop.tables.gpu_believed import BELIEVED, believed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bottletop.clock import Clock
    from bottletop.collectors.gpu_driver import Driver

MAX_DEPTH = 16_384
"""Bound on the samples a driver may claim to keep; real ones keep about a hundred."""
DAY_US = 86_400 * 1_000_000
FUTURE_NS = 50_000_000
LATE_NS = 2 * NS_PER_S
CALIBRATE_ON = 64
RESTART_AFTER_S = 3
"""A buffer dry for so long while the snapshot shows work is asked again from its beginning: its
clock may have gone back, and then nothing is ever newer than what was seen."""


class StampClock:
    """Maps one buffer's stamps to the monotonic clock.

    Drivers stamp in microseconds since boot or since 1970. The domain is the nearer of the two
    clocks; the difference of the two clocks then does the mapping. Where that puts a sample into
    the future, or long before it can have appeared, the clocks have drifted apart (a wall step, a
    raw clock, a suspend) and the newest sample is taken to be as old as a fresh one: now.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.domain: Value = NOT_READ
        self.correction_ns = 0

    def offset_ns(self, newest_us: int, now_ns: int, last_read_ns: int | None) -> int:
        """What turns a stamp in ns into monotonic ns. `last_read_ns` had not seen `newest_us`."""
        wall_ns = self._clock.wall_ns()
        newest_ns = newest_us * 1000
        epoch = abs(newest_ns - wall_ns) < abs(newest_ns - now_ns)
        self.domain = "epoch" if epoch else "boot"
        nominal = now_ns - wall_ns if epoch else 0
        for correction in (0, self.correction_ns):
            at_ns = newest_ns + nominal + correction
            late = last_read_ns is not None and at_ns < last_read_ns - LATE_NS
            if at_ns <= now_ns + FUTURE_NS and not late:
                self.correction_ns = correction
                return nominal + correction
        self.correction_ns = now_ns - newest_ns - nominal
        return nominal + self.correction_ns


class Kind(NamedTuple):
    """One of the driver's buffers and the column that it fills."""

    sampling_type: int
    metric: Metric
    scale: float = 1


class SampleBuffer:
    """One buffer of one GPU.

    Where its samples lie closer than `finest_s`, several become one row: their mean, stamped as the
    last of them. Rows begin after `after_ns`.
    """

    def __init__(
        self,
        driver: Driver,
        clock: Clock,
        handle: object,
        kind: Kind,
        key: str,
        finest_s: float = 0,
        after_ns: int = 0,
    ) -> None:
        self._driver = driver
        self._handle = handle
        self._kind = kind
        self._key = key
        self._finest_us = finest_s * 1e6
        self._interval_us = 0.0
        self._rest: tuple[list[int], list[Value]] = ([], [])
        self._group = 1
        self._stamps = StampClock(clock)
        self._samples: ctypes.Array[ctypes.Structure] | None = None
        self._last_seen_us = 0
        self.last_row_ns = after_ns
        self._last_read_ns: int | None = None
        self._dry_since_ns: int | None = None
        self._gaps_us: deque[int] = deque(maxlen=CALIBRATE_ON)
        self.absent: Absent | None = None
        """Why there is no buffer, once the driver has said so; rows are then the snapshots."""

    @property
    def interval_s(self) -> Value:
        """Distance of the rows: the driver's median, or that of our reads where it keeps none."""
        return self._interval_us / 1e6 * self._group if self._interval_us else NOT_READ

    @property
    def domain(self) -> Value:
        """Clock of the stamps: "boot", "epoch", or "polled" where there is no buffer."""
        return "polled" if self.absent is not None else self._stamps.domain

    @property
    def correction_s(self) -> Value:
        """Seconds by which stamps are moved beyond the plain difference of the clocks."""
        return self.absent or self._stamps.correction_ns / NS_PER_S

    def drain(self, now_ns: int, snapshot: Callable[[], Value]) -> list[Row]:
        """Rows that are new, oldest first.

        `snapshot` gives what the plain call answers; it is asked where the buffer has nothing new.
        """
        if self.absent is not None:
            return self._polled(now_ns, snapshot())
        fresh = self._fetch()
        if isinstance(fresh, Absent):
            if fresh.state is not State.UNSUPPORTED:
                return []
            self.absent = fresh
            return self._polled(now_ns, snapshot())
        rows = self._rows(now_ns, *fresh) if fresh[0] else []
        if rows:
            self._dry_since_ns = None
        else:
            rows = self._dry(now_ns, snapshot())
        # Before anything was seen the newest sample may be of any age.
        self._last_read_ns = now_ns if self._last_seen_us else None
        return rows

    def _fetch(self) -> tuple[list[int], Sequence[float]] | Absent:
        """Stamps and raw values newer than what was seen. Two empty lists: nothing new."""
        value_type = ctypes.c_uint()
        count = ctypes.c_uint()
        kind = ctypes.c_uint(self._kind.sampling_type)
        if self._samples is None:
            args = (self._handle, kind, ctypes.c_ulonglong(0), ctypes.byref(value_type))
            sized = self._driver.raw("nvmlDeviceGetSamples", *args, ctypes.byref(count), None)
            if isinstance(sized, Absent):
                return sized
            self._samples = (pynvml.c_nvmlSample_t * max(1, min(count.value, MAX_DEPTH)))()
        count.value = len(self._samples)
        code = self._driver.raw(
            "nvmlDeviceGetSamples",
            self._handle,
            kind,
            ctypes.c_ulonglong(self._last_seen_us),
            ctypes.byref(value_type),
            ctypes.byref(count),
            self._samples,
        )
        if isinstance(code, Absent):
            return code
        if code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            self._samples = None  # it has grown: size it anew at the next read
            return [], []
        found = min(count.value, len(self._samples)) if code == pynvml.NVML_SUCCESS else 0
        return _decode(self._samples, found, value_type.value)

    def _rows(self, now_ns: int, stamps: list[int], raws: Sequence[float]) -> list[Row]:
        start = newest_run(stamps)
        if start:
            stamps, raws = stamps[start:], raws[start:]
            self._rest = [], []
        self._gaps_us.extend(map(sub, islice(stamps, 1, None), stamps))
        if self._last_seen_us and 0 < stamps[0] - self._last_seen_us < DAY_US:
            self._gaps_us.append(stamps[0] - self._last_seen_us)
        self._last_seen_us = stamps[-1]
        self._calibrate()
        offset_ns = self._stamps.offset_ns(stamps[-1], now_ns, self._last_read_ns)
        if self._group == 1:
            marks, cells = stamps, self._values(raws)
        else:
            marks, cells = self._groups(stamps, self._values(raws))
        quantise, after_us = self._kind.metric.quantise, (self.last_row_ns - offset_ns) // 1000
        rows = [
            Row(self._key, mark * 1000 + offset_ns, (quantise(cell),))
            for mark, cell in zip(marks, cells, strict=True)
            if mark > after_us
        ]
        if rows:
            self.last_row_ns = rows[-1].t_ns
        return rows

    def _groups(self, stamps: list[int], values: list[Value]) -> tuple[list[int], list[Value]]:
        """Whole groups: their last stamp and their mean. What is over waits for the next read."""
        stamps, values = self._rest[0] + stamps, self._rest[1] + values
        size = self._group
        whole = len(stamps) - len(stamps) % size
        self._rest = stamps[whole:], values[whole:]
        means = [_mean(values[start : start + size]) for start in range(0, whole, size)]
        return stamps[size - 1 : whole : size], means

    def _values(self, raws: Sequence[float]) -> list[Value]:
        """Scaled values, what cannot be believed absent. Looks at each only if one is odd."""
        metric, scale = self._kind.metric, self._kind.scale
        low, high = BELIEVED[metric]
        if low <= min(raws) * scale and max(raws) * scale <= high:
            return [raw * scale for raw in raws]
        return [believed(metric, raw, scale) for raw in raws]

    def _calibrate(self) -> None:
        if self._gaps_us:
            self._interval_us = median(self._gaps_us)
            self._group = max(1, round(self._finest_us / self._interval_us))

    def _dry(self, now_ns: int, snapshot: Value) -> list[Row]:
        """Nothing new: idle, or not due yet. The snapshot decides, if it could be read."""
        interval_ns = round(self._interval_us * 1000 * self._group) or NS_PER_S
        if self._dry_since_ns is None:
            self._dry_since_ns = now_ns
        elif _above_zero(snapshot) and now_ns - self._dry_since_ns > RESTART_AFTER_S * NS_PER_S:
            self._last_seen_us, self._dry_since_ns = 0, None
        if now_ns - self.last_row_ns < 2 * interval_ns:
            return []
        return self._row_of(now_ns - interval_ns, snapshot)

    def _polled(self, now_ns: int, snapshot: Value) -> list[Row]:
        if self.last_row_ns:
            self._gaps_us.append((now_ns - self.last_row_ns) // 1000)
            self._interval_us = median(self._gaps_us)
        return self._row_of(now_ns, snapshot)

    def _row_of(self, t_ns: int, snapshot: Value) -> list[Row]:
        if not isinstance(snapshot, (int, float)) or t_ns <= self.last_row_ns:
            return []
        self.last_row_ns = t_ns
        return [Row(self._key, t_ns, (self._kind.metric.quantise(snapshot),))]


def _mean(group: Sequence[Value]) -> Value:
    """The mean of the numbers in a group; one lie does not spoil its neighbours."""
    try:
        return sum(group) / len(group)  # type: ignore[arg-type]
    except TypeError:  # an `Absent` refuses arithmetic
        numbers = [value for value in group if isinstance(value, (int, float))]
        return sum(numbers) / len(numbers) if numbers else group[-1]


def _above_zero(value: Value) -> bool:
    return isinstance(value, (int, float)) and value > 0


def newest_run(stamps: list[int]) -> int:
    """Where the last run begins in which time goes forward by less than a day a step.

    What lies before it was stamped by another clock, or before that clock went back.
    """
    if stamps[-1] - stamps[0] < DAY_US and all(map(lt, stamps, islice(stamps, 1, None))):
        return 0
    start = len(stamps) - 1
    while start > 0 and 0 < stamps[start] - stamps[start - 1] < DAY_US:
        start -= 1
    return start


def _decode(
    samples: ctypes.Array[ctypes.Structure], found: int, value_type: int
) -> tuple[list[int], Sequence[float]]:
    """Stamps and values of the first `found` samples.

    Both are 64-bit words, so the array is read as such: attribute access would make two objects a
    sample, several hundred times a second.
    """
    words = memoryview(samples).cast("B")[: found * 16].cast("Q").tolist()
    stamps, raws = words[::2], words[1::2]
    if value_type == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT:
        return stamps, [raw & 0xFFFFFFFF for raw in raws]
    if value_type == pynvml.NVML_VALUE_TYPE_DOUBLE:
        doubles = memoryview(samples).cast("B")[: found * 16].cast("d").tolist()
        return stamps, doubles[1::2]
    return stamps, raws
