"""A host made of numbers: what a run would sample, tick by tick, the same for the same seed.

It does what recordings get wrong: a source that delivers late, values that are absent for different
reasons, texts that change, processes that come, go and have their pid taken over, driver buffers
that give many rows a read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from bottletop.clock import ManualClock
from bottletop.model import (
    NO_LIMIT,
    NS_PER_S,
    Absent,
    Cause,
    Confidence,
    Evidence,
    Finding,
    Judgement,
    ProcessId,
    Row,
    Sample,
    Severity,
    State,
    Unknown,
    Verdict,
    VerdictState,
)
from bottletop.tables import (
    Cgroup,
    Core,
    Disk,
    Gpu,
    GpuProcess,
    GpuUtilSample,
    HotThread,
    Memory,
    Process,
    Psi,
    SourceHealth,
    Stage,
    TargetInfo,
    Thread,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bottletop.model import Metric, Table, Value

NOT_SUPPORTED = Absent.unsupported("nvmlDeviceGetMarginTemperature: Not Supported")
NO_FAN = Absent.unsupported("no fan")
SENTINEL = Absent.implausible(4294967295, "sentinel")
NO_FREQUENCY = Absent.denied("scaling_cur_freq: permission denied")
MS = 1_000_000


@dataclass
class ScriptedHost:
    """Gives the samples of each tick; `clock` moves one second a tick."""

    gpus: int = 2
    cores: int = 4
    disks: int = 2
    processes: int = 3
    threads_each: int = 3
    stages: int = 3
    seed: int = 1
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.tick = 0
        self.totals: dict[tuple[str, str], float] = {}
        self.late: list[Sample] = []
        self.denied: dict[int, Absent] = {}
        self.ids = [ProcessId(4000 + 7 * at, 900_000 + at) for at in range(self.processes)]

    # -- numbers ----------------------------------------------------------------------------

    def grown(self, key: str, metric: Metric, step: float) -> int:
        """A counter that grows by about `step` a tick."""
        name = (key, metric.id)
        total = self.totals.get(name, self.random.uniform(0, 1e12)) + step * self.random.uniform(
            0.8, 1.2
        )
        self.totals[name] = total
        return int(total)

    @property
    def load(self) -> float:
        """How busy the GPUs are, 0 to 1: a sawtooth with noise."""
        phase = (self.tick % 8) / 8
        return min(1.0, max(0.0, phase + self.random.gauss(0, 0.05)))

    # -- tables -----------------------------------------------------------------------------

    def samples(self) -> Iterator[Sample]:
        """The next tick's samples in the order in which they arrive; moves the clock first."""
        self.clock.advance(1)
        self.tick += 1
        yield from self.late
        self.late = []
        yield self._sample("gpu", Gpu, [self._gpu(at) for at in range(self.gpus)])
        yield self._gpu_buffer()
        yield self._sample("core", Core, [self._core(at) for at in range(self.cores)])
        disk = self._sample("disk", Disk, [self._disk(at) for at in range(self.disks)])
        if self.tick % 5 == 3:
            self.late.append(disk)  # read in time, delivered after the next tick's
        else:
            yield disk
        yield self._sample("memory", Memory, [self._memory()])
        yield self._sample("psi", Psi, [self._psi(name) for name in ("cpu", "io", "memory")])
        yield from self._target()
        yield self._sample("runtime", SourceHealth, [self._health(name) for name in ("gpu", "x")])

    def hot(self) -> Iterator[Sample]:
        """Four more reads of the hot threads within the tick."""
        for _ in range(4):
            yield self._sample("hot_thread", HotThread, [self._hot(at) for at in range(3)])

    def _sample(self, source: str, table: type[Table], rows: list[Row]) -> Sample:
        took_ns = self.random.randrange(100_000, 9_000_000)
        return Sample(source, table, self.clock.monotonic_ns(), took_ns, tuple(rows))

    def _row(self, table: type[Table], key: str, values: dict[Metric, Value]) -> Row:
        return table.row(key, self.clock.monotonic_ns(), values)

    def _gpu(self, at: int) -> Row:
        key, load = f"GPU-{at:08x}-0000", self.load
        lost = self.tick % 97 == 13 and at == 1
        power: Value = 90 + 500 * load + self.random.gauss(0, 4)
        if lost:
            power = Absent(State.LOST, "GPU is lost")
        return self._row(
            Gpu,
            key,
            {
                Gpu.index: at,
                Gpu.model: "NVIDIA H100 80GB HBM3",
                Gpu.provenance: "simulated",
                Gpu.pci_bus_id: f"00000000:{at:02X}:00.0",
                Gpu.driver: "570.86.15",
                Gpu.health: int(lost),
                Gpu.util_pct: 100 * load,
                Gpu.mem_util_pct: 55 * load,
                Gpu.mem_total_bytes: 85_520_809_984,
                Gpu.mem_used_bytes: 70_000_000_000 + self.random.randrange(0, 3) * 2_097_152,
                Gpu.mem_reserved_bytes: 637_534_208,
                Gpu.power_w: power,
                Gpu.power_limit_w: 700.0,
                Gpu.power_limit_requested_w: 700.0,
                Gpu.power_limit_default_w: 700.0,
                Gpu.energy_mj: self.grown(key, Gpu.energy_mj, 300_000),
                Gpu.sm_clock_mhz: 1980 - 15 * self.random.randrange(0, 4),
                Gpu.sm_clock_max_mhz: 1980,
                Gpu.sm_clock_boost_mhz: 1980,
                Gpu.mem_clock_mhz: 2619,
                Gpu.mem_clock_max_mhz: 2619,
                Gpu.clock_event_reasons: 4 if load > 0.95 else 0,
                Gpu.throttle_sw_power_ns: self.grown(key, Gpu.throttle_sw_power_ns, 2e7 * load),
                Gpu.throttle_sw_thermal_ns: 0,
                Gpu.throttle_hw_thermal_ns: 0,
                Gpu.temp_c: 40 + 30 * load,
                Gpu.temp_mem_c: SENTINEL,
                Gpu.temp_margin_c: NOT_SUPPORTED,
                Gpu.fan_pct: NO_FAN,
                Gpu.pstate: 0,
                Gpu.pcie_gen: 5 if load > 0.1 else 1,
                Gpu.pcie_gen_max: 5,
                Gpu.pcie_width: 16,
                Gpu.pcie_width_max: 16,
                Gpu.pcie_rx_bytes: self.grown(key, Gpu.pcie_rx_bytes, 2e9 * load),
                Gpu.pcie_tx_bytes: self.grown(key, Gpu.pcie_tx_bytes, 1e9 * load),
                Gpu.sample_interval_s: 0.1,
                Gpu.stamp_domain: "epoch",
                Gpu.mig: 0,
            },
        )

    def _gpu_buffer(self) -> Sample:
        """Ten driver samples a GPU, stamped by the driver before the read."""
        now_ns = self.clock.monotonic_ns()
        rows = []
        for at in range(self.gpus):
            for back in range(10, 0, -1):
                t_ns = now_ns - back * 100 * MS + self.random.randrange(-3, 3) * 1000
                util = {GpuUtilSample.util_pct: 100 * self.load}
                rows.append(GpuUtilSample.row(f"GPU-{at:08x}-0000", t_ns, util))
        return self._sample("gpu", GpuUtilSample, rows)

    def _core(self, at: int) -> Row:
        key = f"cpu{at}"
        busy = (0.95 if at == 0 else 0.1) * 1e9
        freq: Value = 3000 + 25 * self.random.randrange(0, 30)
        if at == 1:
            freq = NO_FREQUENCY
        return self._row(
            Core,
            key,
            {
                Core.user_ns: self.grown(key, Core.user_ns, busy * 0.8),
                Core.system_ns: self.grown(key, Core.system_ns, busy * 0.2),
                Core.iowait_ns: self.grown(key, Core.iowait_ns, 1e7),
                Core.steal_ns: 0,
                Core.busy_ns: self.grown(key, Core.busy_ns, busy),
                Core.freq_mhz: freq,
            },
        )

    def _disk(self, at: int) -> Row:
        key = f"nvme{at}n1"
        return self._row(
            Disk,
            key,
            {
                Disk.reads: self.grown(key, Disk.reads, 900),
                Disk.writes: self.grown(key, Disk.writes, 40),
                Disk.read_bytes: self.grown(key, Disk.read_bytes, 4e7),
                Disk.write_bytes: self.grown(key, Disk.write_bytes, 1e6),
                Disk.read_ms: self.grown(key, Disk.read_ms, 700),
                Disk.write_ms: self.grown(key, Disk.write_ms, 20),
                Disk.busy_ms: self.grown(key, Disk.busy_ms, 400),
                Disk.queue_ms: self.grown(key, Disk.queue_ms, 800),
                Disk.in_flight: self.random.randrange(0, 4),
                Disk.rotational: 0,
                Disk.transport: "nvme",
                Disk.model: "Сamsung PM9A3 ☃",
                Disk.size_bytes: 3_840_755_982_336,
                Disk.holds_target: int(at == 0),
            },
        )

    def _memory(self) -> Row:
        free = 1024 * self.random.randrange(10**7, 10**7 + 5000)
        return self._row(
            Memory,
            "host",
            {
                Memory.total_bytes: 64 * 2**30,
                Memory.available_bytes: free + 2**30,
                Memory.free_bytes: free,
                Memory.cached_bytes: 20 * 2**30 - free,
                Memory.dirty_bytes: 1024 * self.random.randrange(100, 900),
                Memory.major_faults: self.grown("host", Memory.major_faults, 3),
            },
        )

    def _psi(self, name: str) -> Row:
        key = f"host/{name}"
        return self._row(Psi, key, {Psi.some_us: self.grown(key, Psi.some_us, 900), Psi.full_us: 0})

    def _health(self, name: str) -> Row:
        failing = name == "x" and self.tick % 11 == 5
        return self._row(
            SourceHealth,
            name,
            {
                SourceHealth.state: 4 if failing else 0,
                SourceHealth.reason: f"read failed in tick {self.tick}" if failing else "",
                SourceHealth.took_s: self.random.uniform(0.001, 0.02),
                SourceHealth.reads: self.tick,
                SourceHealth.failures: self.tick // 11,
                SourceHealth.late: 0,
            },
        )

    # -- the target -------------------------------------------------------------------------

    def _churn(self) -> None:
        """A worker ends now and then, and a new one gets its pid with another start time."""
        if self.tick % 17 == 9 and self.processes > 1:
            at = self.random.randrange(1, self.processes)
            self.ids[at] = ProcessId(self.ids[at].pid, 1_000_000 + self.tick)

    def _target(self) -> Iterator[Sample]:
        self._churn()
        alive = self.ids if self.tick % 23 < 20 else self.ids[:-1]
        yield self._sample("process", Process, [self._process(one) for one in alive])
        threads = [
            self._thread(one, one.pid + at) for one in alive for at in range(self.threads_each)
        ]
        yield self._sample("process", Thread, threads)
        yield self._sample("stage", Stage, [self._stage(at) for at in range(self.stages)])
        if self.tick % 10 == 1:
            yield self._sample("target", TargetInfo, [self._info()])
        if self.tick % 5 == 1:
            yield self._sample("cgroup", Cgroup, [self._cgroup()])
            yield self._sample("gpu", GpuProcess, [self._gpu_process(one) for one in alive])

    def _process(self, one: ProcessId) -> Row:
        key, root = one.key, one == self.ids[0]
        return self._row(
            Process,
            key,
            {
                Process.pid: one.pid,
                Process.parent_pid: 1 if root else self.ids[0].pid,
                Process.process: "python3" if root else "pt_data_worker",
                Process.role: "main" if root else "loader-worker",
                Process.command: f"python3 serve.py --port 8000 {'x' * (self.tick % 3)}",
                Process.is_root: int(root),
                Process.state: self.random.randrange(0, 3),
                Process.cpu_user_ns: self.grown(key, Process.cpu_user_ns, 7e8),
                Process.cpu_system_ns: self.grown(key, Process.cpu_system_ns, 5e7),
                Process.children_cpu_ns: 0,
                Process.rss_bytes: 4096 * self.random.randrange(10**6, 10**6 + 200),
                Process.threads: self.threads_each,
                Process.read_bytes: self._denied(one.pid),
                Process.write_bytes: self._denied(one.pid),
                Process.device_fds: 4,
            },
        )

    def _denied(self, pid: int) -> Absent:
        """What is denied is remembered by those who read it, and its reason with it."""
        known = self.denied.get(pid)
        if known is None:
            known = self.denied[pid] = Absent.denied(f"/proc/{pid}/io: permission denied")
        return known

    def _thread(self, one: ProcessId, tid: int) -> Row:
        key = one.thread_key(tid)
        main = tid == one.pid
        return self._row(
            Thread,
            key,
            {
                Thread.pid: one.pid,
                Thread.tid: tid,
                Thread.thread: "python3" if main else f"pool-{tid}",
                Thread.state: 0 if main else 1,
                Thread.cpu_ns: self.grown(key, Thread.cpu_ns, 9e8 if main else 1e5),
                Thread.wait_ns: self.grown(key, Thread.wait_ns, 2e6 if main else 0),
                Thread.user_ns: self.grown(key, Thread.user_ns, 8e8 if main else 0),
                Thread.system_ns: self.grown(key, Thread.system_ns, 1e8 if main else 0),
                Thread.major_faults: 0,
                Thread.voluntary_switches: self.grown(key, Thread.voluntary_switches, 90),
                Thread.involuntary_switches: self.grown(key, Thread.involuntary_switches, 5),
            },
        )

    def _hot(self, at: int) -> Row:
        key = self.ids[0].thread_key(self.ids[0].pid + at)
        self.clock.advance(0.01)
        return self._row(
            HotThread,
            key,
            {
                HotThread.cpu_ns: self.grown(key, HotThread.cpu_ns, 1e8),
                HotThread.wait_ns: self.grown(key, HotThread.wait_ns, 1e5),
                HotThread.state: self.random.randrange(0, 2),
            },
        )

    def _stage(self, at: int) -> Row:
        name = ("preprocess", "forward", "serialise", "tokenise")[at % 4]
        key = f"{self.ids[0].key}/{name}{at // 4 or ''}"
        return self._row(
            Stage,
            key,
            {
                Stage.stage: name,
                Stage.source: "probe",
                Stage.pid: self.ids[0].pid,
                Stage.calls: self.grown(key, Stage.calls, 12),
                Stage.inclusive_ns: self.grown(key, Stage.inclusive_ns, 3e8),
                Stage.self_ns: self.grown(key, Stage.self_ns, 3e8),
                Stage.in_flight: self.random.randrange(0, 2),
                Stage.in_flight_ns: self.random.randrange(0, 10**8),
                Stage.longest_ns: 400_000_000,
            },
        )

    def _info(self) -> Row:
        return self._row(
            TargetInfo,
            self.ids[0].key,
            {
                TargetInfo.process: "python3",
                TargetInfo.cgroup: "/system.slice/serve.service",
                TargetInfo.gpus: "GPU-00000000-0000",
                TargetInfo.sockets: "0.0.0.0:8000",
                TargetInfo.probe: "memfd of pid 4000",
                TargetInfo.notes: "/proc/4000/io: run as the same user",
            },
        )

    def _cgroup(self) -> Row:
        key = "/system.slice/serve.service"
        return self._row(
            Cgroup,
            key,
            {
                Cgroup.version: "v2",
                Cgroup.depth: 0,
                Cgroup.quota_cores: NO_LIMIT,
                Cgroup.usage_us: self.grown(key, Cgroup.usage_us, 9e5),
                Cgroup.memory_max_bytes: Absent(State.NOT_APPLICABLE, "max", "max"),
            },
        )

    def _gpu_process(self, one: ProcessId) -> Row:
        return self._row(
            GpuProcess,
            f"GPU-00000000-0000/{one.pid}",
            {
                GpuProcess.gpu: "GPU-00000000-0000",
                GpuProcess.pid: one.pid,
                GpuProcess.process: "python3",
                GpuProcess.mem_bytes: 4096 * self.random.randrange(10**6, 2 * 10**6),
                GpuProcess.sm_util_pct: 100 * self.load,
            },
        )


def seconds(span_s: float) -> int:
    """Nanoseconds in that many seconds."""
    return round(span_s * NS_PER_S)


def judgement(host: ScriptedHost) -> Judgement:
    """What rules might say of this tick: two findings that come and go, one that cannot tell."""
    now_ns = host.clock.monotonic_ns()
    starved = host.tick % 60 > 15
    findings = tuple(
        Finding(
            code=code,
            severity=severity,
            scope=scope,
            text=f"{scope or 'the target'} waited {host.tick % 40} % of the last 30 s",
            active=starved,
            since_ns=now_ns - seconds(host.tick % 60),
            active_s=float(host.tick % 60),
            lost_gpu_s_per_s=(host.tick % 40) / 40,
            evidence=(
                Evidence("gpu.util_pct", "GPU-00000000-0000", 37.5 + host.tick % 7, "%", 50.0, 30),
                Evidence("thread.cpu_ns", "4000@900000/4000", 0.98, "cores", None, None),
                Evidence("stage.stage", "4000@900000/preprocess", "preprocess", ""),
            ),
            advice="Move the preprocessing off the critical path.",
            refuted_by="GPU utilisation stays low when the preprocess stage is skipped.",
            next_check="py-spy top --pid 4000",
            confidence=Confidence.HIGH,
        )
        for code, severity, scope in (
            ("gpu-starved-cpu", Severity.WARN, ""),
            ("gpu-util-sawtooth", Severity.ADVICE, "GPU-00000000-0000"),
        )
        if starved or host.tick % 60 < 5
    )
    causes = (Cause("gpu-starved-cpu", 0.71, Confidence.HIGH),) if starved else ()
    verdict = Verdict(
        VerdictState.BOTTLENECK if starved else VerdictState.CLEAR,
        "gpu-starved-cpu" if starved else None,
        f"preprocess holds the GPU back {host.tick % 40} %" if starved else "nothing stands out",
        causes,
    )
    unknown = (Unknown("disk-saturated", f"disk.busy_ms: stale: {host.tick % 9} s ago"),)
    return Judgement(now_ns, verdict, findings, unknown)
