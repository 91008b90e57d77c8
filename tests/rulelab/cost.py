"""Measures what one evaluation of all rules costs on a large host.

    PYTHONPATH=src:tests python -m rulelab.cost [starved|healthy]

The host has 8 GPUs with driver buffers, 64 cores, and a target of 20 processes with 200 threads and
30 stages; 20 processes are on the GPUs. "starved" makes every GPU a sawtooth with divided gaps,
which is the dearest case; on a "healthy" host most rules see at once that there is nothing.
"""

from __future__ import annotations

import math
import sys
import time
from statistics import median
from typing import TYPE_CHECKING

from bottletop.model import NS_PER_S, Sample
from bottletop.rules.engine import Engine
from bottletop.store import Store
from bottletop.tables import (
    Cgroup,
    Core,
    Disk,
    Gpu,
    GpuProcess,
    GpuUtilSample,
    HotThread,
    Own,
    Process,
    Stage,
    Thread,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bottletop.model import Metric, Row, Table, Value

GPUS, CORES, PROCESSES, THREADS, STAGES, HOT = 8, 64, 20, 200, 30, 16
PERIOD_S = 1.3
START_NS = 10**12


def _phase(t_s: float, offset: float) -> bool:
    """Whether a GPU of the starved host runs at a moment."""
    return math.fmod(t_s / PERIOD_S + offset, 1.0) < 0.45


class Host:
    """A host whose counters follow from the time alone."""

    def __init__(self, starved: bool) -> None:
        self.starved = starved

    def busy(self, gpu: int, t_s: float) -> float:
        if not self.starved:
            return 0.97
        return 1.0 if _phase(t_s, gpu / GPUS / 4) else 0.0

    def samples(self, step: int) -> Iterator[Sample]:
        """What arrives in the 0.2 s that end at `step`."""
        t_s = step / 5
        now = START_NS + round(t_s * NS_PER_S)
        hot = []
        for number in range(HOT):
            share = 0.5 if number else 0.6 if self.starved else 1.0
            values: dict[Metric, Value] = {
                HotThread.cpu_ns: round(share * t_s * 1e9),
                HotThread.wait_ns: round(0.01 * t_s * 1e9),
                HotThread.state: 0,
            }
            hot.append(HotThread.row(self.thread(number), now, values))
        yield self.sample(HotThread, now, hot)
        if step % 5 == 0:
            yield from self.slow(now, t_s)

    def slow(self, now: int, t_s: float) -> Iterator[Sample]:
        yield self.sample(Gpu, now, [self.gpu(index, now, t_s) for index in range(GPUS)])
        utils = []
        for index in range(GPUS):
            for part in range(6):
                at_s = t_s - 1 + (part + 1) / 6
                stamp = START_NS + round(at_s * NS_PER_S)
                values: dict[Metric, Value] = {GpuUtilSample.util_pct: 100 * self.busy(index, at_s)}
                utils.append(GpuUtilSample.row(f"GPU-{index}", stamp, values))
        yield self.sample(GpuUtilSample, now, utils)
        yield self.sample(GpuProcess, now, [self.tenant(number, now) for number in range(20)])
        yield self.sample(
            Core,
            now,
            [Core.row(f"cpu{n}", now, {Core.busy_ns: round(t_s * 3e8)}) for n in range(CORES)],
        )
        yield self.sample(Process, now, [self.process(n, now, t_s) for n in range(PROCESSES)])
        yield self.sample(Thread, now, [self.row(n, now, t_s) for n in range(THREADS)])
        yield self.sample(Stage, now, [self.stage(n, now, t_s) for n in range(STAGES)])
        group: dict[Metric, Value] = {
            Cgroup.periods: round(t_s * 10),
            Cgroup.throttled_periods: 0,
            Cgroup.throttled_us: 0,
        }
        yield self.sample(Cgroup, now, [Cgroup.row("/app", now, group)])
        disk: dict[Metric, Value] = {
            Disk.reads: round(t_s * 100),
            Disk.read_bytes: round(t_s * 1e8),
            Disk.read_ms: round(t_s * 50),
            Disk.busy_ms: round(t_s * 100),
            Disk.queue_ms: round(t_s * 60),
            Disk.rotational: 0,
        }
        yield self.sample(Disk, now, [Disk.row(f"nvme{n}n1", now, disk) for n in range(4)])
        own: dict[Metric, Value] = {Own.cpu_ns: round(t_s * 2e7), Own.nvml_ns: round(t_s * 5e6)}
        yield self.sample(Own, now, [Own.row("bottletop", now, own)])

    @staticmethod
    def sample(table: type[Table], now: int, rows: list[Row]) -> Sample:
        return Sample("cost", table, now, 0, tuple(rows))

    @staticmethod
    def thread(number: int) -> str:
        return f"{1000 + number % PROCESSES}@1/{5000 + number}"

    def gpu(self, index: int, now: int, t_s: float) -> Row:
        values: dict[Metric, Value] = {
            Gpu.index: index,
            Gpu.util_pct: 100 * self.busy(index, t_s),
            Gpu.power_w: 300,
            Gpu.energy_mj: round(t_s * 3e5),
            Gpu.power_limit_w: 350,
            Gpu.power_limit_default_w: 350,
            Gpu.sm_clock_mhz: 1950,
            Gpu.sm_clock_boost_mhz: 1980,
            Gpu.mem_clock_mhz: 2600,
            Gpu.mem_clock_max_mhz: 2600,
            Gpu.clock_event_reasons: 0,
            Gpu.throttle_sw_power_ns: 0,
            Gpu.throttle_sw_thermal_ns: 0,
            Gpu.throttle_hw_thermal_ns: 0,
            Gpu.throttle_power_brake_ns: 0,
            Gpu.temp_c: 60,
            Gpu.pcie_gen_max: 5,
            Gpu.pcie_width: 16,
            Gpu.pcie_rx_bytes: round(t_s * 1e8),
            Gpu.pcie_tx_bytes: round(t_s * 1e7),
            Gpu.sample_interval_s: 1 / 6,
        }
        return Gpu.row(f"GPU-{index}", now, values)

    @staticmethod
    def tenant(number: int, now: int) -> Row:
        gpu, pid = f"GPU-{number % GPUS}", 1000 + number
        values: dict[Metric, Value] = {
            GpuProcess.gpu: gpu,
            GpuProcess.pid: pid,
            GpuProcess.process: "python",
            GpuProcess.sm_util_pct: 30,
        }
        return GpuProcess.row(f"{gpu}/{pid}", now, values)

    @staticmethod
    def process(number: int, now: int, t_s: float) -> Row:
        values: dict[Metric, Value] = {
            Process.pid: 1000 + number,
            Process.parent_pid: 1,
            Process.process: "python",
            Process.read_bytes: round(t_s * 1e4),
            Process.read_chars: round(t_s * 1e4),
            Process.major_faults: 0,
        }
        return Process.row(f"{1000 + number}@1", now, values)

    def row(self, number: int, now: int, t_s: float) -> Row:
        cpu = round(t_s * (5e8 if number < HOT else 1e6))
        values: dict[Metric, Value] = {
            Thread.tid: 5000 + number,
            Thread.thread: "worker",
            Thread.state: 1,
            Thread.cpu_ns: cpu,
            Thread.wait_ns: 0,
            Thread.user_ns: cpu,
            Thread.system_ns: 0,
        }
        return Thread.row(self.thread(number), now, values)

    @staticmethod
    def stage(number: int, now: int, t_s: float) -> Row:
        pid = 1000 + number // 2
        name = "decode" if number % 2 else "forward"
        inside = round(t_s * (0.55 if number % 2 else 0.45) * 1e9)
        values: dict[Metric, Value] = {
            Stage.stage: name,
            Stage.pid: pid,
            Stage.calls: round(t_s / PERIOD_S),
            Stage.inclusive_ns: inside,
            Stage.self_ns: inside,
            Stage.in_flight: number % 2,
            Stage.occupied_ns: inside,
        }
        return Stage.row(f"{pid}@1/{name}", now, values)


def measure(starved: bool, seconds: int = 200, warm_s: int = 130) -> list[float]:
    """CPU seconds of each evaluation after the rings have filled."""
    host, store, engine = Host(starved), Store(), Engine()
    out = []
    for step in range(1, seconds * 5 + 1):
        for sample in host.samples(step):
            store.ingest(sample)
        if step % 5 == 0:
            view = store.view(START_NS + step * NS_PER_S // 5)
            began = time.thread_time()
            engine.evaluate(view)
            if step > warm_s * 5:
                out.append(time.thread_time() - began)
    return out


def _reference_s() -> float:
    """Speed of this machine just now: a busy one makes every figure above larger."""
    began = time.thread_time()
    total = 0
    for number in range(1_000_000):
        total += number
    return time.thread_time() - began


def main() -> None:
    """Print least, median and 95th percentile in milliseconds."""
    for name in sys.argv[1:] or ["healthy", "starved"]:
        taken = sorted(1000 * value for value in measure(starved=name == "starved"))
        p95 = taken[int(0.95 * (len(taken) - 1))]
        print(
            f"{name}: least {taken[0]:.2f} ms, median {median(taken):.2f} ms, p95 {p95:.2f} ms "
            f"(a million additions: {1000 * _reference_s():.0f} ms)"
        )


if __name__ == "__main__":
    main()
