"""A made-up host that fills a real store, so that screens can be looked at and tested without one.

The rows are plausible, not random: the GPUs that the target uses follow its forward stage, one
thread and its core are busy while they wait, and one other GPU is too hot.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import astuple, dataclass, field, replace
from functools import lru_cache
from math import sin
from typing import TYPE_CHECKING

from bottletop.clock import ManualClock, anchor
from bottletop.model import (
    NO_VERDICT,
    NS_PER_S,
    Absent,
    Cause,
    Confidence,
    Evidence,
    Finding,
    Judgement,
    ProcessId,
    Sample,
    Severity,
    Source,
    SourceState,
    State,
    Table,
    Target,
    TargetProcess,
    Unknown,
    Verdict,
    VerdictState,
)
from bottletop.snapshot import Playback, RecordingStatus, Snapshot
from bottletop.store import Store
from bottletop.tables import (
    Core,
    Disk,
    Gpu,
    GpuProcess,
    GpuUtilSample,
    Memory,
    Own,
    Process,
    Psi,
    Server,
    Stage,
    TargetInfo,
    Thread,
)
from bottletop.tables.server import ANSWERS, BUSY
from bottletop.tables.stage import AT_REQUEST_END, PROBE, STACKS

if TYPE_CHECKING:
    from bottletop.model import Metric, Row, Table, Value

ROOT = ProcessId(4242, 77_001)
WORKER = ProcessId(4251, 77_105)
GIB = 1 << 30
CYCLE = (("preprocess", 1.46), ("h2d", 0.14), ("forward", 0.72), ("postprocess", 0.08))
"""Stages of one request in order, with their seconds."""
CYCLE_S = sum(seconds for _, seconds in CYCLE)
FORWARD_FROM_S = CYCLE[0][1] + CYCLE[1][1]
FORWARD_TO_S = FORWARD_FROM_S + CYCLE[2][1]
GUILTY_CORE = 17
HOT_GPU = 5


def gpu_key(index: int) -> str:
    return f"GPU-{index:08x}-0000-4000-8000-00000000beef"


@dataclass
class Shape:
    """What the made-up host has."""

    gpus: int = 8
    gpus_of_target: int = 4
    cores: int = 64
    disks: int = 4
    target: bool = True
    stages: bool = True
    target_name: str = "python3"
    thread_name: str = "preprocess"
    lost_gpu: int | None = None
    no_gpu_reason: str = ""
    findings: bool = True
    simulated: str = ""
    source: str = PROBE
    """What the stages are read by: the probe or the stack sampler."""
    servers: int = 0
    """Metric pages that answer, each with stages of its own."""
    busy_servers: int = 0
    """Metric pages that do not."""
    rungs: bool = False
    """Whether it is said how the stages are read."""


@dataclass
class Host:
    """Fills a store second by second."""

    shape: Shape = field(default_factory=Shape)
    clock: ManualClock = field(
        default_factory=lambda: ManualClock(wall_ns=1_786_000_000 * NS_PER_S)
    )
    store: Store = field(default_factory=Store)
    seconds: int = 0
    counters: dict[tuple[str, str], float] = field(default_factory=dict)
    silent: set[type[Table]] = field(default_factory=set)
    """Tables whose source has stopped answering."""

    def run(self, seconds: int) -> Host:
        """Let `seconds` seconds pass with one tick each."""
        for _ in range(seconds):
            self.clock.advance(1)
            self.seconds += 1
            self._tick()
        return self

    # -- one tick ---------------------------------------------------------------------------

    def _tick(self) -> None:
        self._gpus()
        self._cores()
        self._disks()
        self._memory()
        if self.shape.target:
            self._target()
        self._own()

    def _grow(self, metric: Metric, key: str, by: float) -> float:
        total = self.counters.get((metric.id, key), 0.0) + by
        self.counters[metric.id, key] = total
        return total

    def _put(self, table: type[Table], rows: list[Row]) -> None:
        if table not in self.silent:
            now_ns = self.clock.monotonic_ns()
            self.store.ingest(Sample("synthetic", table, now_ns, 400_000, tuple(rows)))

    def _row(self, table: type[Table], key: str, values: dict[Metric, Value]) -> Row:
        return table.row(key, self.clock.monotonic_ns(), values)

    def _wave(self, key: float, low: float, high: float) -> float:
        """A calm deterministic wander between two bounds."""
        phase = sin(self.seconds / (7 + key % 5) + key) + 0.4 * sin(self.seconds / 2.3 + 3 * key)
        return low + (high - low) * (phase + 1.4) / 2.8

    @staticmethod
    def forward_busy(t_s: float) -> float:
        """1 while the target's forward stage runs."""
        return 1.0 if FORWARD_FROM_S <= t_s % CYCLE_S < FORWARD_TO_S else 0.0

    def util_at(self, index: int, t_s: float) -> float:
        if index < self.shape.gpus_of_target:
            return 98.0 * self.forward_busy(t_s + index * 0.05)
        if index == HOT_GPU:
            return 97.0
        return 62 + 20 * sin(t_s / 9 + index) if index == 4 else 0.0

    def _gpus(self) -> None:
        if self.shape.no_gpu_reason:
            return
        now_s = self.clock.monotonic_ns() / NS_PER_S
        for index in range(self.shape.gpus):
            if index == self.shape.lost_gpu and self.seconds > 60:
                continue
            fine = [now_s - 1 + (step + 1) / 6 for step in range(6)]
            self._put(
                GpuUtilSample,
                [
                    GpuUtilSample.row(
                        gpu_key(index),
                        round(t * NS_PER_S),
                        {GpuUtilSample.util_pct: self.util_at(index, t)},
                    )
                    for t in fine
                ],
            )
        self._put(Gpu, [self._gpu_row(index, now_s) for index in range(self.shape.gpus)])
        if self.shape.target:
            self._put(GpuProcess, [self._gpu_process(i) for i in range(self.shape.gpus_of_target)])

    def _gpu_process(self, index: int) -> Row:
        return self._row(
            GpuProcess,
            f"{gpu_key(index)}/{ROOT.pid}",
            {
                GpuProcess.gpu: gpu_key(index),
                GpuProcess.pid: ROOT.pid,
                GpuProcess.process: self.shape.target_name,
                GpuProcess.mem_bytes: 60 * GIB,
                GpuProcess.sm_util_pct: 30,
            },
        )

    def _gpu_row(self, index: int, now_s: float) -> Row:
        key = gpu_key(index)
        name: dict[Metric, Value] = {
            Gpu.index: index,
            Gpu.model: "NVIDIA H100 80GB HBM3",
            Gpu.provenance: "simulated" if self.shape.simulated else "nvml",
            Gpu.driver: "580.95.05",
        }
        if index == self.shape.lost_gpu and self.seconds > 60:
            lost = Absent(State.LOST, "GPU is lost")
            return self._row(
                Gpu,
                key,
                {**dict.fromkeys(Gpu.columns, lost), **name, Gpu.health: 1},
            )
        util = sum(self.util_at(index, now_s - 1 + step / 20) for step in range(20)) / 20
        hot = index == HOT_GPU and 30 < self.seconds % 90 < 60
        clock = 1290 if hot else 1980 if util > 1 else 345
        power = 71 + 5.9 * util * clock / 1980
        used = (61.2 if index < self.shape.gpus_of_target else 74.1 if util else 0.6) * GIB
        return self._row(
            Gpu,
            key,
            {
                **name,
                Gpu.health: 0,
                Gpu.util_pct: util,
                Gpu.mem_util_pct: util * 0.4,
                Gpu.mem_total_bytes: 80 * GIB,
                Gpu.mem_used_bytes: used,
                Gpu.power_w: power,
                Gpu.power_limit_w: 700,
                Gpu.power_limit_requested_w: 700,
                Gpu.power_limit_default_w: 700,
                Gpu.energy_mj: self._grow(Gpu.energy_mj, key, power * 1000),
                Gpu.sm_clock_mhz: clock,
                Gpu.sm_clock_max_mhz: 1980,
                Gpu.sm_clock_boost_mhz: 1980,
                Gpu.mem_clock_mhz: 2619,
                Gpu.mem_clock_max_mhz: 2619,
                Gpu.clock_event_reasons: 0x20 if hot else 0 if util else 1,
                Gpu.throttle_sw_power_ns: 0,
                Gpu.throttle_sw_thermal_ns: self._grow(
                    Gpu.throttle_sw_thermal_ns, key, 8e8 if hot else 0
                ),
                Gpu.throttle_hw_thermal_ns: 0,
                Gpu.throttle_power_brake_ns: 0,
                Gpu.temp_c: 87 if hot else 74 if index == HOT_GPU else 41 + util * 0.2,
                Gpu.temp_mem_c: 76,
                Gpu.fan_pct: Absent.unsupported("passively cooled"),
                Gpu.pstate: 0,
                Gpu.pcie_rx_bytes: self._grow(Gpu.pcie_rx_bytes, key, util * 11e6),
                Gpu.pcie_tx_bytes: self._grow(Gpu.pcie_tx_bytes, key, util * 4e5),
                Gpu.sample_interval_s: 1 / 6,
            },
        )

    def _cores(self) -> None:
        rows = []
        for number in range(self.shape.cores):
            key = f"cpu{number}"
            busy = 0.97 if number == GUILTY_CORE % self.shape.cores else self._wave(number, 0, 0.3)
            if number % 16 == 3:
                busy = self._wave(number, 0.2, 0.7)
            rows.append(
                self._row(
                    Core,
                    key,
                    {
                        Core.user_ns: self._grow(Core.user_ns, key, busy * 0.85e9),
                        Core.system_ns: self._grow(Core.system_ns, key, busy * 0.15e9),
                        Core.iowait_ns: self._grow(Core.iowait_ns, key, 2e7),
                        Core.steal_ns: 0,
                        Core.busy_ns: self._grow(Core.busy_ns, key, busy * 1e9),
                        Core.freq_mhz: 3400,
                    },
                )
            )
        self._put(Core, rows)

    def _disks(self) -> None:
        kinds = (
            ("nvme0n1", "nvme", "Samsung PM9A3", 0, 1),
            ("nvme1n1", "nvme", "Samsung PM9A3", 0, 0),
            ("sda", "sata", "Micron 5300", 0, 0),
            ("sdb", "sas", "Seagate Exos", 1, 0),
        )
        rows = []
        for number, (name, transport, model, spinning, holds) in enumerate(
            kinds[: self.shape.disks]
        ):
            reads = (2140.0, 12.0, 0.0, 3.0)[number] * self._wave(number, 0.8, 1.1)
            writes = (61.0, 140.0, 4.0, 0.0)[number]
            read_bytes, write_bytes = reads * 118_000, writes * 16_384
            rows.append(
                self._row(
                    Disk,
                    name,
                    {
                        Disk.reads: self._grow(Disk.reads, name, reads),
                        Disk.writes: self._grow(Disk.writes, name, writes),
                        Disk.read_bytes: self._grow(Disk.read_bytes, name, read_bytes),
                        Disk.write_bytes: self._grow(Disk.write_bytes, name, write_bytes),
                        Disk.read_ms: self._grow(Disk.read_ms, name, reads * 0.31),
                        Disk.write_ms: self._grow(Disk.write_ms, name, writes * 0.05),
                        Disk.busy_ms: self._grow(
                            Disk.busy_ms, name, min(1000, reads * 0.19 + writes * 0.4)
                        ),
                        Disk.queue_ms: self._grow(Disk.queue_ms, name, reads * 0.31),
                        Disk.in_flight: number == 0,
                        Disk.rotational: spinning,
                        Disk.transport: transport,
                        Disk.model: model,
                        Disk.size_bytes: 3840 * 10**9,
                        Disk.holds_target: holds if self.shape.target else 0,
                    },
                )
            )
        self._put(Disk, rows)

    def _memory(self) -> None:
        self._put(
            Memory,
            [
                self._row(
                    Memory,
                    "host",
                    {
                        Memory.total_bytes: 503 * GIB,
                        Memory.available_bytes: (291 + self._wave(1, 0, 2)) * GIB,
                        Memory.free_bytes: 120 * GIB,
                        Memory.cached_bytes: 170 * GIB,
                        Memory.swap_total_bytes: 0,
                        Memory.swap_free_bytes: 0,
                        Memory.major_faults: self._grow(Memory.major_faults, "host", 3),
                    },
                )
            ],
        )
        rows = []
        for key, share in (("host/cpu", 0.04), ("host/io", 0.11), ("host/memory", 0.0)):
            some = self._grow(Psi.some_us, key, share * 1e6)
            rows.append(self._row(Psi, key, {Psi.some_us: some, Psi.full_us: some * 0.6}))
        self._put(Psi, rows)

    def _own(self) -> None:
        self._put(
            Own,
            [
                self._row(
                    Own,
                    "bottletop",
                    {
                        Own.cpu_ns: self._grow(Own.cpu_ns, "bottletop", 2.1e7),
                        Own.rss_bytes: 61 << 20,
                        Own.threads: 6,
                        Own.nvml_ns: self._grow(Own.nvml_ns, "bottletop", 4.2e6),
                        Own.nvml_calls: 400,
                        Own.late_ticks: 0,
                        Own.engine_s: 0.0017,
                    },
                )
            ],
        )

    # -- the target -------------------------------------------------------------------------

    def _target(self) -> None:
        rows, threads = [], []
        for process, role, busy in ((ROOT, "main", 1.32), (WORKER, "loader-worker", 0.08)):
            rows.append(
                self._row(
                    Process,
                    process.key,
                    {
                        Process.pid: process.pid,
                        Process.parent_pid: 4000 if process is ROOT else ROOT.pid,
                        Process.process: self.shape.target_name,
                        Process.role: role,
                        Process.command: "python3 serve.py --model resnet50",
                        Process.is_root: process is ROOT,
                        Process.state: 0,
                        Process.cpu_user_ns: self._grow(
                            Process.cpu_user_ns, process.key, busy * 0.93e9
                        ),
                        Process.cpu_system_ns: self._grow(
                            Process.cpu_system_ns, process.key, busy * 0.07e9
                        ),
                        Process.children_cpu_ns: 0,
                        Process.rss_bytes: 14 * GIB,
                        Process.threads: 41,
                        Process.major_faults: 12,
                        Process.read_bytes: self._grow(Process.read_bytes, process.key, 24e6),
                        Process.write_bytes: 0,
                    },
                )
            )
        for tid, name, busy, state in (
            (4250, self.shape.thread_name, 0.98, 0),
            (4242, "python3", 0.21, 1),
            (4260, "cuda-EvtHandlr", 0.05, 1),
            (4251, "pt_data_worker", 0.08, 1),
        ):
            owner = WORKER if tid == WORKER.pid else ROOT
            key = owner.thread_key(tid)
            threads.append(
                self._row(
                    Thread,
                    key,
                    {
                        Thread.pid: owner.pid,
                        Thread.tid: tid,
                        Thread.thread: name,
                        Thread.state: state,
                        Thread.cpu_ns: self._grow(Thread.cpu_ns, key, busy * 1e9),
                        Thread.wait_ns: self._grow(Thread.wait_ns, key, 0.02e9),
                        Thread.user_ns: self._grow(Thread.user_ns, key, busy * 0.95e9),
                        Thread.system_ns: self._grow(Thread.system_ns, key, busy * 0.05e9),
                    },
                )
            )
        self._put(Process, rows)
        self._put(Thread, threads)
        rows = self._stages() if self.shape.stages else []
        for number in range(self.shape.servers):
            rows += self._server_stages(f"127.0.0.1:{8000 + number}")
        self._put(Stage, rows)
        self._put(Server, self._servers())
        if self.shape.rungs:
            self._put(TargetInfo, [self._row(TargetInfo, ROOT.key, self._rungs())])

    def _rungs(self) -> dict[Metric, Value]:
        """How the stages are read, and why not in other ways."""
        probed = self.shape.stages and self.shape.source == PROBE
        sampled = self.shape.stages and self.shape.source == STACKS
        unneeded = Absent(State.NOT_APPLICABLE, "not needed: its probe tells more")
        refused = Absent.denied(
            "kernel.yama.ptrace_scope=1 lets only its parents read its memory: "
            f"sudo bottletop attach {ROOT.pid}"
        )
        no_page = Absent(State.NOT_APPLICABLE, "it listens on no socket")
        no_probe = Absent(State.NOT_APPLICABLE, "no stage has run: mark them with bottletop.probe")
        page = "vLLM at http://127.0.0.1:8000/metrics"
        return {
            TargetInfo.process: self.shape.target_name,
            TargetInfo.metrics: page if self.shape.servers else no_page,
            TargetInfo.probe: "probe in 1 of 2 processes" if probed else no_probe,
            TargetInfo.stacks: "py-spy, non-blocking, pid 4242, 50 Hz"
            if sampled
            else unneeded
            if probed
            else refused,
        }

    def _servers(self) -> list[Row]:
        rows = []
        for number in range(self.shape.servers + self.shape.busy_servers):
            key = f"127.0.0.1:{8000 + number}"
            named: dict[Metric, Value] = {
                Server.engine: "vLLM",
                Server.url: f"http://{key}/metrics",
                Server.state: ANSWERS,
                Server.running: 24,
                Server.waiting: 7 + number,
                Server.kv_used_pct: 83.5,
                Server.requests: self._grow(Server.requests, key, 3),
                Server.prompt_tokens: self._grow(Server.prompt_tokens, key, 2100),
                Server.generation_tokens: self._grow(Server.generation_tokens, key, 640),
                Server.ttft_ns: self._grow(Server.ttft_ns, key, 3 * 0.41e9),
                Server.ttft_count: self._grow(Server.ttft_count, key, 3),
            }
            if number >= self.shape.servers:
                silence = dict.fromkeys(Server.columns, Absent(State.STALE, "busy"))
                named = silence | {Server.engine: "vLLM", Server.state: BUSY}
            rows.append(self._row(Server, key, named))
        return rows

    def _server_stages(self, address: str) -> list[Row]:
        """Three stages of requests that overlap; what they took is known once they have ended."""
        rows = []
        for name, seconds in (("queue", 0.3), ("prefill", 0.11), ("decode", 1.9)):
            key = f"{ROOT.key}/{name} ({address})"
            spent_ns = self._grow(Stage.inclusive_ns, key, 3 * seconds * NS_PER_S)
            values: dict[Metric, Value] = dict.fromkeys(Stage.columns, Absent.unsupported())
            values |= {
                Stage.stage: name,
                Stage.source: f"vLLM metrics{AT_REQUEST_END}",
                Stage.pid: ROOT.pid,
                Stage.calls: self._grow(Stage.calls, key, 3),
                Stage.inclusive_ns: spent_ns,
                Stage.self_ns: spent_ns,
                Stage.occupied_ns: spent_ns,
                Stage.gone: 0,
            }
            rows.append(self._row(Stage, key, values))
        return rows

    def _stages(self) -> list[Row]:
        if self.shape.source == STACKS:
            return self._sampled_stages()
        now_s = self.clock.monotonic_ns() / NS_PER_S
        calls, into_s = divmod(now_s, CYCLE_S)
        rows = []
        begins_s = 0.0
        for name, seconds in CYCLE:
            inside_s = min(max(into_s - begins_s, 0.0), seconds)
            under_way = 0 < inside_s < seconds
            done = int(calls) + (into_s >= begins_s + seconds)
            begins_s += seconds
            rows.append(
                self._row(
                    Stage,
                    f"{ROOT.key}/{name}",
                    {
                        Stage.stage: name,
                        Stage.source: PROBE,
                        Stage.pid: ROOT.pid,
                        Stage.calls: done,
                        Stage.inclusive_ns: done * seconds * NS_PER_S,
                        Stage.self_ns: done * seconds * NS_PER_S,
                        Stage.occupied_ns: (int(calls) * seconds + inside_s) * NS_PER_S,
                        Stage.in_flight: int(under_way),
                        Stage.in_flight_ns: inside_s * NS_PER_S if under_way else 0,
                        Stage.longest_ns: seconds * 1.21 * NS_PER_S,
                        Stage.gone: 0,
                    },
                )
            )
        return rows

    def _sampled_stages(self) -> list[Row]:
        """Two stages in 50 stacks a second; an eighth of the time is in neither."""
        rows = []
        for name, share in (("tokenize", 0.375), ("forward", 0.5)):
            key = f"{ROOT.key}/{name} (stacks)"
            spent_ns = self._grow(Stage.inclusive_ns, key, share * NS_PER_S)
            values: dict[Metric, Value] = dict.fromkeys(Stage.columns, Absent.unsupported())
            values |= {
                Stage.stage: name,
                Stage.source: STACKS,
                Stage.pid: ROOT.pid,
                Stage.inclusive_ns: spent_ns,
                Stage.self_ns: spent_ns,
                Stage.occupied_ns: spent_ns,
                Stage.gone: 0,
                Stage.samples: self._grow(Stage.samples, key, 50 * share),
            }
            rows.append(self._row(Stage, key, values))
        return rows

    # -- what is said about it --------------------------------------------------------------

    def target(self) -> Target | None:
        if not self.shape.target:
            return None
        name = self.shape.target_name
        return Target(
            ROOT,
            name,
            (
                TargetProcess(ROOT, 4000, name, "main"),
                TargetProcess(WORKER, ROOT.pid, name, "loader-worker"),
            ),
        )

    def judgement(self) -> Judgement:
        now_ns = self.clock.monotonic_ns()
        if self.seconds < 5:
            return Judgement(now_ns, NO_VERDICT)
        if not self.shape.findings:
            verdict = Verdict(VerdictState.CLEAR, None, "nothing holds the GPUs back")
            return Judgement(now_ns, verdict)
        verdict = Verdict(
            VerdictState.BOTTLENECK,
            "gpu-starved-cpu",
            "GPUs 0-3 wait for the CPU: one thread (preprocess, 98 % of a core) feeds all four",
            (
                Cause("gpu-starved-cpu", 0.72, Confidence.HIGH, ROOT.key),
                Cause("thermal-throttle", 0.14, Confidence.MEDIUM, gpu_key(HOT_GPU)),
            ),
        )
        unknown = (Unknown("cgroup-cpu-throttled", "cgroup.periods: never read"),)
        return Judgement(now_ns, verdict, findings(now_ns, self.shape), unknown)

    def sources(self) -> tuple[Source, ...]:
        ok = SourceState.OK
        gpu = Source("gpu", ok, "", 0.0042, 0.3)
        if self.shape.no_gpu_reason:
            gpu = Source("gpu", SourceState.UNAVAILABLE, self.shape.no_gpu_reason, None, None)
        elif Gpu in self.silent:
            gpu = Source("gpu", SourceState.LATE, "no answer from the driver", None, 9.0)
        names = ("core", "disk", "memory", "psi", "process", "stage", "self")
        late = Source(
            "psi-target", SourceState.DENIED, "needs read access to the cgroup", None, None
        )
        return (gpu, *(Source(name, ok, "", 0.0004, 0.4) for name in names), late)

    def snapshot(
        self, recording: RecordingStatus | None = None, playback: Playback | None = None
    ) -> Snapshot:
        """The picture at this moment."""
        return Snapshot(
            generation=self.seconds + 1,
            view=self.store.view(self.clock.monotonic_ns()),
            anchor=anchor(self.clock),
            judgement=self.judgement(),
            host="gpu-node-07",
            sources=self.sources(),
            target=self.target(),
            simulated=self.shape.simulated,
            recording=recording,
            playback=playback,
            watched_s=float(self.seconds),
        )


SETTLED_S = 150


@lru_cache(maxsize=32)
def _settled(*shape: object) -> Host:
    return Host(Shape(*shape)).run(SETTLED_S)  # type: ignore[arg-type]


def settled(shape: Shape | None = None) -> Host:
    """A host after 150 s. Made once a shape and copied, as running it takes ten times as long."""
    return deepcopy(_settled(*astuple(shape or Shape())))


def findings(now_ns: int, shape: Shape) -> tuple[Finding, ...]:
    """Findings that agree with the rows."""
    thread = ROOT.thread_key(4250)
    starved = Finding(
        code="gpu-starved-cpu",
        severity=Severity.WARN,
        scope=gpu_key(0),
        text=f"GPU 0 idle 70 % of the time while thread {shape.thread_name} ran at 98 % of a core",
        active=True,
        since_ns=now_ns - 94 * NS_PER_S,
        active_s=94,
        lost_gpu_s_per_s=2.8,
        evidence=(
            Evidence("gpu.util_pct", gpu_key(0), 30.0, "%", 80.0, 30),
            Evidence("thread.cpu_ns", thread, 98.0, "%", 60.0, 30),
            Evidence("stage.inclusive_ns", f"{ROOT.key}/preprocess", 63.0, "%", 30.0, 30),
        ),
        advice="Move preprocessing off the request thread: worker processes with at least two "
        "batches of prefetch, or decode on the GPU. A larger batch helps where latency allows.",
        refuted_by="The thread stays this busy while the GPU is busy too: then it is polling for "
        "the GPU, not feeding it.",
        next_check="py-spy record --nonblocking --pid 4242 --duration 10",
        confidence=Confidence.HIGH,
    )
    hot = gpu_key(HOT_GPU)
    out = [
        starved,
        replace(
            starved,
            code="gpu-util-sawtooth",
            severity=Severity.ADVICE,
            text="GPU 0 swings between 0 and 98 % every 2.4 s (24 regular cycles in 60 s)",
            evidence=(Evidence("gpu_util_sample.util_pct", gpu_key(0), 2.4, "s", None, 60),),
            lost_gpu_s_per_s=None,
            confidence=Confidence.MEDIUM,
        ),
        Finding(
            "thermal-throttle",
            Severity.CRIT,
            hot,
            "GPU 5 held back by heat 31 % of the time: 1290 of 1980 MHz at 87 °C",
            active=True,
            since_ns=now_ns - 41 * NS_PER_S,
            active_s=41,
            lost_gpu_s_per_s=0.35,
            evidence=(
                Evidence("gpu.throttle_sw_thermal_ns", hot, 31.0, "%", 5.0, 30),
                Evidence("gpu.sm_clock_mhz", hot, 1290.0, "MHz", 1881.0, 30),
                Evidence("gpu.temp_c", hot, 87.0, "C", None, 30),
            ),
            advice="Look at airflow, inlet temperature and fans of this slot.",
            refuted_by="The throttle counters stand still while the clock stays low.",
            next_check="nvidia-smi -q -d PERFORMANCE,TEMPERATURE -i 5",
            confidence=Confidence.MEDIUM,
        ),
        replace(
            starved,
            code="preprocess-on-critical-path",
            severity=Severity.ADVICE,
            scope=ROOT.key,
            text="preprocess takes 63 % of the cycle and overlaps with nothing",
            evidence=(
                Evidence("stage.inclusive_ns", f"{ROOT.key}/preprocess", 63.0, "%", 30.0, 30),
            ),
            lost_gpu_s_per_s=None,
        ),
    ]
    if not shape.target:
        out = [finding for finding in out if finding.scope == hot]
    return tuple(out)


class LiveHost:
    """A `LiveFeed` of a made-up host. `refuse` makes every request fail with its words."""

    def __init__(self, host: Host, *, refuse: str = "") -> None:
        self.host = host
        self.refuse = refuse
        self.recording: RecordingStatus | None = None
        self.attached: list[int] = []
        self.looked_at: frozenset[type[Table]] = frozenset()
        self._bumped = 0

    def snapshot(self) -> Snapshot:
        made = self.host.snapshot(recording=self.recording)
        return replace(made, generation=made.generation + self._bumped)

    def attach(self, pid: int) -> None:
        if self.refuse:
            raise ValueError(self.refuse)
        self.attached.append(pid)

    def look_at(self, tables: frozenset[type[Table]]) -> None:
        self.looked_at = tables

    def start_recording(self, path: str) -> None:
        if self.refuse:
            raise OSError(self.refuse)
        self.recording = RecordingStatus(path, self.host.clock.monotonic_ns(), 12 << 20, 0)
        self._bumped += 1

    def stop_recording(self) -> str:
        assert self.recording is not None
        path, self.recording = self.recording.path, None
        self._bumped += 1
        return path


class RecordedHost:
    """A `ReplayFeed` over a made-up host that is run anew to every moment asked for."""

    LENGTH_S = 150
    FIRST_S = 30
    """Seconds that had passed when the recording began."""

    def __init__(self, shape: Shape | None = None, at_s: int = 90) -> None:
        self._shape = shape or Shape()
        self._at_s = at_s
        self._generation = 0
        self._playing = False
        self._speed = 1.0
        self.host = self._run()

    def _run(self) -> Host:
        elapsed_s = self.FIRST_S + self._at_s
        if elapsed_s >= SETTLED_S:
            return settled(self._shape).run(elapsed_s - SETTLED_S)
        return Host(deepcopy(self._shape)).run(elapsed_s)

    def snapshot(self) -> Snapshot:
        start_ns = self.host.clock.monotonic_ns() - self._at_s * NS_PER_S

        def span(on_s: int, off_s: int, severity: Severity, code: str) -> tuple[int, int, int, str]:
            return (start_ns + on_s * NS_PER_S, start_ns + off_s * NS_PER_S, int(severity), code)

        playback = Playback(
            path="/var/tmp/gpu-node-07-20260806.btrec",
            start_ns=start_ns,
            end_ns=start_ns + self.LENGTH_S * NS_PER_S,
            now_ns=start_ns + self._at_s * NS_PER_S,
            playing=self._playing,
            speed=self._speed,
            finding_spans=(
                span(20, 80, Severity.WARN, "gpu-starved-cpu"),
                span(35, 70, Severity.ADVICE, "gpu-util-sawtooth"),
                span(100, 118, Severity.CRIT, "thermal-throttle"),
            ),
        )
        made = self.host.snapshot(playback=playback)
        return replace(made, generation=self._generation)

    @property
    def at_s(self) -> int:
        return self._at_s

    def play(self, playing: bool) -> None:
        self._playing = playing
        self._generation += 1

    def set_speed(self, speed: float) -> None:
        self._speed = speed
        self._generation += 1

    def step(self, count: int) -> None:
        self._playing = False
        self._go(self._at_s + count)

    def seek(self, t_ns: int) -> None:
        start_ns = self.host.clock.monotonic_ns() - self._at_s * NS_PER_S
        self._go(round((t_ns - start_ns) / NS_PER_S))

    def advance(self) -> None:
        """Time stands still unless a test steps it."""

    def _go(self, at_s: int) -> None:
        self._at_s = min(max(at_s, 0), self.LENGTH_S)
        self.host = self._run()
        self._generation += 1
