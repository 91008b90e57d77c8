"""Expands a scene into the samples that sources would deliver, in order of arrival."""

from __future__ import annotations

import random
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from bottletop.model import NS_PER_S, Absent, Row, Sample, State
from bottletop.rules.clocks import LIMITERS
from bottletop.tables import (
    Cgroup,
    Disk,
    Gpu,
    GpuActivity,
    GpuEvent,
    GpuHealth,
    GpuLink,
    GpuProcess,
    GpuUtilSample,
    HotThread,
    Own,
    Process,
    Psi,
    Stage,
    Thread,
)
from rulelab.scene import START_NS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bottletop.model import Metric, Table, Value
    from rulelab.scene import Phase, Scene, Settings

PID = 4242
START_TICKS = 777
ROOT = f"{PID}@{START_TICKS}"
MAIN = f"{ROOT}/{PID}"
HOT_PERIOD_S = 0.2
BITS = {name: bit for name, (_, bit) in LIMITERS.items()}


def gpu_key(index: int) -> str:
    return f"GPU-{index}"


class Rows:
    """State of the expansion: counters grow as the scene goes on."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.spans = list(scene.timeline())
        self.starts = [start for start, _, _ in self.spans]
        self.rng = random.Random(scene.seed + 1)
        self.counters: dict[tuple[Metric, str], float] = {}
        self.util_until_s: dict[int, float] = {}
        self.stages = {phase.stage for _, _, phase in self.spans if phase.stage}

    # -- the timeline -------------------------------------------------------------------------

    def parts(self, from_s: float, to_s: float) -> Iterator[tuple[float, Phase]]:
        """Phases between two moments with the seconds of each that lie there."""
        index = max(0, bisect_right(self.starts, from_s) - 1)
        while index < len(self.spans) and self.spans[index][0] < to_s:
            start, end, phase = self.spans[index]
            inside = min(end, to_s) - max(start, from_s)
            if inside > 0:
                yield inside, phase
            index += 1

    def busy(self, gpu: int, from_s: float, to_s: float) -> float:
        """Share of the time between two moments in which a GPU ran."""
        if to_s <= from_s:
            return 0.0
        total = sum(
            s * phase.gpu[min(gpu, len(phase.gpu) - 1)] for s, phase in self.parts(from_s, to_s)
        )
        return total / (to_s - from_s)

    def grow(self, metric: Metric, key: str, by: float) -> float:
        at = (metric, key)
        self.counters[at] = self.counters.get(at, 0.0) + by
        return self.counters[at]

    # -- samples ------------------------------------------------------------------------------

    def samples(self) -> Iterator[Sample | None]:
        """Every sample in order; None marks a moment at which the rules are evaluated."""
        step = 0
        while (t_s := (step + 1) * HOT_PERIOD_S) <= self.scene.seconds + 1e-9:
            step += 1
            settings = self.scene.at(t_s)
            now = START_NS + round(t_s * NS_PER_S)
            if self.scene.target and "hot_thread" not in settings.without:
                yield self._hot(now, t_s, settings)
            else:
                self._threads(t_s, settings, HOT_PERIOD_S)
            if step % round(1 / HOT_PERIOD_S):
                continue
            for sample in self._slow(now, t_s, settings):
                if sample.table.name not in settings.without:
                    yield sample
            yield None

    def _sample(self, table: type[Table], now: int, rows: list[Row]) -> Sample:
        return Sample("scene", table, now, 0, tuple(rows))

    def _threads(self, t_s: float, settings: Settings, dt_s: float) -> dict[str, tuple[str, int]]:
        """Let the threads' CPU grow by one step; their names and states now."""
        main_cpu = sum(s * phase.cpu for s, phase in self.parts(t_s - dt_s, t_s))
        index = max(0, bisect_right(self.starts, t_s) - 1)
        phase = self.spans[index][2]
        self.grow(HotThread.cpu_ns, MAIN, main_cpu * NS_PER_S)
        found = {MAIN: ("python", 2 if phase.blocked else 0 if phase.cpu > 0.5 else 1)}
        for number, line in enumerate(settings.threads, 1):
            pid = line.pid or PID
            key = f"{pid}@{START_TICKS}/{PID + number}"
            self.grow(HotThread.cpu_ns, key, line.cpu * dt_s * NS_PER_S)
            blocked = self.rng.random() < line.blocked
            found[key] = (line.name, 2 if blocked else 1)
        return found

    def _hot(self, now: int, t_s: float, settings: Settings) -> Sample:
        rows = []
        for key, (_, state) in self._threads(t_s, settings, HOT_PERIOD_S).items():
            values: dict[Metric, Value] = {
                HotThread.cpu_ns: self.counters[HotThread.cpu_ns, key],
                HotThread.state: state,
            }
            rows.append(HotThread.row(key, now, values))
        return self._sample(HotThread, now, rows)

    def _slow(self, now: int, t_s: float, settings: Settings) -> Iterator[Sample]:
        gpus, utils = [], []
        for index in range(settings.gpu.count):
            gpus.append(self._gpu(index, now, t_s, settings))
            utils.extend(self._util(index, t_s, settings))
        yield self._sample(Gpu, now, gpus)
        yield self._sample(GpuUtilSample, now, utils)
        yield from self._conditions(now, t_s, settings)
        if settings.processes:
            yield self._gpu_processes(now, settings)
        yield self._disks(now, settings)
        yield self._own(now, settings)
        psi = [
            Psi.row(key, now, {Psi.some_us: self.grow(Psi.some_us, key, share * 1e6)})
            for key, share in settings.psi.items()
        ]
        yield self._sample(Psi, now, psi)
        if self.scene.target:
            yield from self._target(now, t_s, settings)

    def _gpu(self, index: int, now: int, t_s: float, settings: Settings) -> Row:
        line, key = settings.gpu, gpu_key(index)
        busy = self.busy(index, t_s - 1, t_s)
        window_busy = self.busy(index, t_s - line.window_s, t_s)
        bits = line.bits | sum(BITS[name] for name, share in line.limiters.items() if share >= 0.5)
        values: dict[Metric, Value] = {
            Gpu.index: index,
            Gpu.util_pct: 100 * window_busy,
            Gpu.power_w: line.idle_w + (line.power_w - line.idle_w) * busy,
            Gpu.energy_mj: self.grow(
                Gpu.energy_mj, key, 1000 * (line.idle_w + (line.power_w - line.idle_w) * busy)
            ),
            Gpu.power_limit_w: line.limit_w,
            Gpu.power_limit_requested_w: line.requested_w,
            Gpu.power_limit_default_w: line.default_w,
            Gpu.sm_clock_mhz: line.clock_mhz,
            Gpu.sm_clock_boost_mhz: line.boost_mhz,
            Gpu.sm_clock_max_mhz: line.boost_mhz,
            Gpu.mem_clock_mhz: line.mem_clock_mhz,
            Gpu.mem_clock_max_mhz: line.mem_clock_max_mhz,
            Gpu.clock_event_reasons: bits,
            Gpu.temp_c: line.temp_c,
            Gpu.pstate: 0,
            Gpu.pcie_gen_max: 4,
            Gpu.pcie_width: 16,
            Gpu.pcie_rx_bytes: self.grow(Gpu.pcie_rx_bytes, key, line.rx_bytes_per_s),
            Gpu.pcie_tx_bytes: 0,
            Gpu.sample_interval_s: line.window_s if line.buffer else 1.0,
        }
        for name, (metric, _) in LIMITERS.items():
            values[metric] = (
                self.grow(metric, key, line.limiters.get(name, 0.0) * busy * NS_PER_S)
                if line.counters
                else Absent(State.UNSUPPORTED)
            )
        for name, cell in settings.cells.get(str(index), {}).items():
            metric = getattr(Gpu, name)
            values[metric] = self._cell(metric, key, cell, 1)
        return Gpu.row(key, now, values)

    def _cell(self, metric: Metric, key: str, cell: Any, dt_s: float) -> Value:
        """A cell as a scene writes it: a value, a rate, or why there is none."""
        if isinstance(cell, dict):
            return self.grow(metric, key, cell["per_s"] * dt_s)
        if isinstance(cell, str) and cell.startswith("!"):
            state, _, reason = cell[1:].partition(" ")
            return Absent(State(state.replace("-", " ")), reason)
        value: Value = cell
        return value

    def _conditions(self, now: int, t_s: float, settings: Settings) -> Iterator[Sample]:
        """Activity each second, health and links as often as their tables say, events at once."""
        tables: list[tuple[type[Table], Mapping[str, Mapping[str, Any]], float]] = [
            (GpuActivity, settings.activity, 1),
            (GpuHealth, settings.health, GpuHealth.period_s),
            (GpuLink, settings.link, GpuLink.period_s),
        ]
        for table, cells, every_s in tables:
            if not cells or round(t_s) % every_s != 1 % every_s:
                continue
            rows = []
            for name, line in cells.items():
                key = gpu_key(int(name.partition("-")[0]))
                values: dict[Metric, Value] = {}
                if table is GpuLink:
                    values[GpuLink.gpu], values[GpuLink.link] = key, int(name.partition("-")[2])
                    key = f"{key}/{name.partition('-')[2]}"
                for column, cell in line.items():
                    metric = getattr(table, column)
                    values[metric] = self._cell(metric, key, cell, every_s)
                rows.append(table.row(key, now, values))
            yield self._sample(table, now, rows)
        for event in self.scene.events:
            if t_s - 1 < event["at"] <= t_s:
                cells_of = {k: v for k, v in event.items() if k not in ("at", "gpu")}
                happened = {getattr(GpuEvent, name): value for name, value in cells_of.items()}
                key = gpu_key(event.get("gpu", 0))
                yield self._sample(GpuEvent, now, [GpuEvent.row(key, now, happened)])

    def _util(self, index: int, t_s: float, settings: Settings) -> list[Row]:
        """The driver's buffer, or one polled window a second under the same table."""
        line, key = settings.gpu, gpu_key(index)
        if not line.buffer:
            share = self.busy(index, t_s - line.window_s, t_s)
            now = START_NS + round(t_s * NS_PER_S)
            return [GpuUtilSample.row(key, now, {GpuUtilSample.util_pct: 100 * share})]
        rows = []
        end_s = self.util_until_s.get(index, 0.0) + line.window_s
        while end_s <= t_s:
            share = self.busy(index, end_s - line.window_s, end_s)
            stamp = START_NS + round(end_s * NS_PER_S)
            rows.append(GpuUtilSample.row(key, stamp, {GpuUtilSample.util_pct: 100 * share}))
            self.util_until_s[index] = end_s
            end_s += line.window_s
        return rows

    def _gpu_processes(self, now: int, settings: Settings) -> Sample:
        rows = []
        for name, share in settings.processes.items():
            gpu, _, number = name.partition("/")
            pid = int(number) or PID
            key = f"{gpu_key(int(gpu))}/{pid}"
            values: dict[Metric, Value] = {
                GpuProcess.gpu: gpu_key(int(gpu)),
                GpuProcess.pid: pid,
                GpuProcess.process: "python" if pid == PID else "other",
                GpuProcess.sm_util_pct: share,
            }
            rows.append(GpuProcess.row(key, now, values))
        return self._sample(GpuProcess, now, rows)

    def _disks(self, now: int, settings: Settings) -> Sample:
        rows = []
        for name, line in settings.disks.items():
            values: dict[Metric, Value] = {
                Disk.reads: self.grow(Disk.reads, name, line.reads_per_s),
                Disk.read_bytes: self.grow(Disk.read_bytes, name, line.bytes_per_s),
                Disk.read_ms: self.grow(Disk.read_ms, name, line.reads_per_s * line.await_ms),
                Disk.busy_ms: self.grow(Disk.busy_ms, name, 1000 * line.busy),
                Disk.queue_ms: self.grow(Disk.queue_ms, name, 1000 * line.queue),
                Disk.rotational: int(line.spins),
            }
            rows.append(Disk.row(name, now, values))
        return self._sample(Disk, now, rows)

    def _own(self, now: int, settings: Settings) -> Sample:
        own, key = settings.own, "bottletop"
        values: dict[Metric, Value] = {
            Own.cpu_ns: self.grow(Own.cpu_ns, key, own.get("cpu", 0.02) * NS_PER_S),
            Own.nvml_ns: self.grow(Own.nvml_ns, key, own.get("driver", 0.005) * NS_PER_S),
            Own.nvml_p95_s: own.get("call_s", 0.004),
        }
        return self._sample(Own, now, [Own.row(key, now, values)])

    # -- the target -----------------------------------------------------------------------------

    def _target(self, now: int, t_s: float, settings: Settings) -> Iterator[Sample]:
        pids = {PID, *(line.pid or PID for line in settings.threads)}
        rows = []
        for pid in sorted(pids):
            key = f"{pid}@{START_TICKS}"
            part = settings.read_bytes_per_s if pid == PID else 0.0
            faults = settings.major_faults_per_s if pid == PID else 0.0
            values: dict[Metric, Value] = {
                Process.pid: pid,
                Process.parent_pid: 1,
                Process.process: "python",
                Process.is_root: int(pid == PID),
                Process.read_bytes: self.grow(Process.read_bytes, key, part),
                Process.read_chars: self.grow(Process.read_chars, key, part),
                Process.major_faults: self.grow(Process.major_faults, key, faults),
            }
            rows.append(Process.row(key, now, values))
        yield self._sample(Process, now, rows)
        yield self._thread_rows(now, t_s, settings)
        if self.stages:
            yield self._stage_rows(now, t_s)
        if settings.cgroup:
            yield self._cgroup(now, settings)

    def _thread_rows(self, now: int, t_s: float, settings: Settings) -> Sample:
        rows = []
        for key, (name, state) in self._threads(t_s, settings, 0.0).items():
            cpu = self.counters[HotThread.cpu_ns, key]
            values: dict[Metric, Value] = {
                Thread.pid: int(key.partition("@")[0]),
                Thread.tid: int(key.rpartition("/")[2]),
                Thread.thread: name,
                Thread.state: state,
                Thread.cpu_ns: cpu,
                Thread.user_ns: 0.95 * cpu,
                Thread.system_ns: 0.05 * cpu,
            }
            rows.append(Thread.row(key, now, values))
        return self._sample(Thread, now, rows)

    def _stage_rows(self, now: int, t_s: float) -> Sample:
        """Counters of completed passes, and the one under way."""
        done: dict[str, list[float]] = {name: [] for name in self.stages}
        under_way: dict[str, float] = {}
        for start, end, phase in self.spans:
            if not phase.stage or start > t_s:
                continue
            if end <= t_s:
                done[phase.stage].append(end - start)
            else:
                under_way[phase.stage] = t_s - start
        rows = []
        for name in sorted(self.stages):
            inside = round(sum(done[name]) * NS_PER_S)
            values: dict[Metric, Value] = {
                Stage.stage: name,
                Stage.source: "probe",
                Stage.pid: PID,
                Stage.calls: len(done[name]),
                Stage.inclusive_ns: inside,
                Stage.self_ns: inside,
                Stage.in_flight: int(name in under_way),
                Stage.in_flight_ns: under_way.get(name, 0.0) * NS_PER_S,
                Stage.longest_ns: max(done[name], default=0.0) * NS_PER_S,
                Stage.occupied_ns: inside + round(under_way.get(name, 0.0) * NS_PER_S),
            }
            rows.append(Stage.row(f"{ROOT}/{name}", now, values))
        return self._sample(Stage, now, rows)

    def _cgroup(self, now: int, settings: Settings) -> Sample:
        group, key = settings.cgroup, "/app"
        values: dict[Metric, Value] = {
            Cgroup.version: "v2",
            Cgroup.depth: 0,
            Cgroup.quota_cores: group.get("quota_cores", 1.0),
            Cgroup.periods: self.grow(Cgroup.periods, key, 10),
            Cgroup.throttled_periods: self.grow(
                Cgroup.throttled_periods, key, 10 * group.get("throttled_periods", 0.0)
            ),
            Cgroup.throttled_us: self.grow(
                Cgroup.throttled_us, key, 1e6 * group.get("throttled_time", 0.0)
            ),
        }
        return self._sample(Cgroup, now, [Cgroup.row(key, now, values)])
