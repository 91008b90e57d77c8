"""What the panels draw, read from one snapshot: plain frozen values, no view, no clock.

Reading is apart from drawing so that a paused or replayed picture keeps what it showed however
often it is drawn, and so that drawing can be tested on its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bottletop.model import NS_PER_S, SourceState, number
from bottletop.tables import Core, Disk, Gpu, Memory, Own, Process, Psi, Thread
from bottletop.tables.process import THREAD_STATES
from bottletop.tui import marks
from bottletop.tui.read_gpu import GpuPicture, read_gpus
from bottletop.tui.read_stages import StageReading, read_stages
from bottletop.tui.values import per_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Finding, Judgement, Metric, Source, Table, Target, Unknown, Verdict
    from bottletop.snapshot import Playback, RecordingStatus, Snapshot
    from bottletop.store import View
    from bottletop.tui.marks import Mark

THREADS_S = 5.0
HOT_THREADS = 12
SPLIT_S = 5.0


@dataclass(frozen=True, slots=True)
class CorePicture:
    key: str
    busy: float | None
    """0 to 1; None when it was not read."""
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class HostCpu:
    """All cores together, in cores."""

    busy: float | None = None
    system: float | None = None
    steal: float | None = None


@dataclass(frozen=True, slots=True)
class DiskPicture:
    key: str
    kind: str
    """Transport, and "spinning" where the kernel says so."""
    holds_target: bool
    read_iops: float | None
    write_iops: float | None
    read_bytes_s: float | None
    write_bytes_s: float | None
    await_ms: float | None
    """Mean time of a request in queue and device; None while nothing completed."""
    queue: float | None
    busy: float | None
    """0 to 1."""
    mark: Mark | None = None

    @property
    def iops(self) -> float:
        return (self.read_iops or 0) + (self.write_iops or 0)


@dataclass(frozen=True, slots=True)
class ThreadPicture:
    key: str
    tid: int
    name: str
    process: str
    cpu: float
    """Cores."""
    wait: float | None
    """Share of the time runnable without a CPU."""
    system: float | None
    """Share of its CPU time spent in the kernel."""
    state: str
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class TargetPicture:
    target: Target
    cpu: float | None
    threads: int | None
    rss_bytes: float | None
    hottest: ThreadPicture | None


@dataclass(frozen=True, slots=True)
class Reading:
    """One moment of the whole dashboard."""

    generation: int
    host: str
    now_ns: int
    wall_ns: int
    watched_s: float
    simulated: str
    verdict: Verdict
    findings: tuple[Finding, ...]
    unknown: tuple[Unknown, ...]
    sources: tuple[Source, ...]
    gpus: tuple[GpuPicture, ...]
    gpu_trouble: str
    """Why there are no GPUs, or that what is shown of them is old; empty when all is well."""
    cores: tuple[CorePicture, ...]
    cpu: HostCpu
    mem_used_bytes: float | None
    mem_total_bytes: float | None
    history_s: float
    """Length of the GPU histories."""
    pressure: Mapping[str, float]
    """Share of the time in which something stalled, by resource."""
    disks: tuple[DiskPicture, ...]
    stages: StageReading
    threads: tuple[ThreadPicture, ...]
    target: TargetPicture | None
    own_cpu: float | None
    own_rss_bytes: float | None
    recording: RecordingStatus | None = None
    playback: Playback | None = None
    trouble: Mapping[str, str] = field(default_factory=dict)
    """Why a table is empty or old, by table name."""

    @property
    def ailing(self) -> tuple[Source, ...]:
        """Sources that are not ok; a simulated one is."""
        well = (SourceState.OK, SourceState.SIMULATED)
        return tuple(source for source in self.sources if source.state not in well)


class Reader:
    """Reads snapshots. Remembers which entities were there, so that silence is not absence."""

    def __init__(self, history_s: float = 60) -> None:
        self.history_s = history_s
        self._known: dict[type[Table], list[str]] = {}
        self._split: tuple[int, tuple[float | None, float | None]] = (0, (None, None))

    def read(self, snapshot: Snapshot) -> Reading:
        """Read everything that the dashboard shows of `snapshot`."""
        view = snapshot.view
        findings = _ordered(snapshot.judgement)
        marked = marks.by_entity(findings)
        trouble = {name: why for name, why in self._trouble(snapshot) if why}
        gpus = read_gpus(view, self.keys(view, Gpu), findings, marked, self.history_s)
        threads = _threads(view, marked)
        host = _memory(view)
        cores = _cores(view, self.keys(view, Core), marked)
        return Reading(
            generation=snapshot.generation,
            host=snapshot.host,
            now_ns=view.now_ns,
            wall_ns=snapshot.anchor.wall_at(view.now_ns),
            watched_s=snapshot.watched_s,
            simulated=snapshot.simulated,
            verdict=snapshot.judgement.verdict,
            findings=findings,
            unknown=snapshot.judgement.unknown,
            sources=snapshot.sources,
            gpus=gpus,
            gpu_trouble=trouble.get("gpu", ""),
            cores=cores,
            cpu=self._host_cpu(view, cores),
            mem_used_bytes=host[0],
            mem_total_bytes=host[1],
            history_s=self.history_s,
            pressure=_pressure(view),
            disks=_disks(view, self.keys(view, Disk), marked),
            stages=read_stages(snapshot, gpus, marked),
            threads=threads,
            target=_target(view, snapshot.target, threads),
            own_cpu=per_s(view, Own.cpu_ns, "bottletop", 5),
            own_rss_bytes=number(view.last(Own.rss_bytes, "bottletop")),
            recording=snapshot.recording,
            playback=snapshot.playback,
            trouble=trouble,
        )

    def _host_cpu(self, view: View, cores: tuple[CorePicture, ...]) -> HostCpu:
        """All cores together. The split is read every few seconds only: two counters of every core
        would be a third of all that is read."""
        busy = [core.busy for core in cores if core.busy is not None]
        read_ns, split = self._split
        if abs(view.now_ns - read_ns) >= SPLIT_S * NS_PER_S:
            keys = [core.key for core in cores]
            split = (_cores_of(view, Core.system_ns, keys), _cores_of(view, Core.steal_ns, keys))
            self._split = (view.now_ns, split)
        return HostCpu(sum(busy) if busy else None, *split)

    def keys(self, view: View, table: type[Table]) -> list[str]:
        """Entities that are there, or that were when the source last answered."""
        alive = view.keys(table)
        if alive:
            self._known[table] = alive
            return alive
        return [key for key in self._known.get(table, []) if view.age_s(table, key) is not None]

    def _trouble(self, snapshot: Snapshot) -> list[tuple[str, str]]:
        """Why tables are empty or old, from the health of the sources that fill them."""
        out = []
        by_name = {source.name: source for source in snapshot.sources}
        for table in (Gpu, Core, Disk):
            if snapshot.view.keys(table):
                continue
            source = by_name.get(table.name)
            known = self._known.get(table, [])
            age_s = snapshot.view.age_s(table, known[0]) if known else None
            out.append((table.name, _why(source, age_s)))
        return out


def _why(source: Source | None, age_s: float | None) -> str:
    reason = source.reason if source is not None else ""
    if age_s is not None:
        return f"no reading for {age_s:.0f} s" + (f": {reason}" if reason else "")
    return reason or "not read yet"


def _ordered(judgement: Judgement) -> tuple[Finding, ...]:
    """What the verdict leads with first, then by severity and loss; ended ones last."""
    causes = [cause.code for cause in judgement.verdict.causes]

    def place(finding: Finding) -> tuple[bool, int, int, float, str, str]:
        lead = causes.index(finding.code) if finding.code in causes else len(causes)
        lost = finding.lost_gpu_s_per_s or 0.0
        order = (-finding.severity, -lost, finding.code, finding.scope)
        return (not finding.active, lead, *order)

    return tuple(sorted(judgement.findings, key=place))


def _cores(view: View, keys: list[str], marked: Mapping[str, Mark]) -> tuple[CorePicture, ...]:
    out = []
    for key in keys:
        busy = per_s(view, Core.busy_ns, key)
        share = None if busy is None else min(1.0, busy / NS_PER_S)
        out.append(CorePicture(key, share, marked.get(key)))
    return tuple(out)


def _cores_of(view: View, metric: Metric, keys: list[str]) -> float | None:
    """A counter of CPU time summed over cores, in cores."""
    rates = [rate for key in keys if (rate := per_s(view, metric, key)) is not None]
    return sum(rates) / NS_PER_S if rates else None


def _memory(view: View) -> tuple[float | None, float | None]:
    total = number(view.last(Memory.total_bytes, "host"))
    available = number(view.last(Memory.available_bytes, "host"))
    used = total - available if total is not None and available is not None else None
    return used, total


def _pressure(view: View) -> dict[str, float]:
    out = {}
    for resource in ("cpu", "io", "memory"):
        stalled = per_s(view, Psi.some_us, f"host/{resource}", 10)
        if stalled is not None:
            out[resource] = min(1.0, stalled / 1e6)
    return out


def _disks(view: View, keys: list[str], marked: Mapping[str, Mark]) -> tuple[DiskPicture, ...]:
    out = [_disk(view, key, marked.get(key)) for key in keys]
    # By what it means, not by how busy: rows that change places every second cannot be read.
    out.sort(key=lambda disk: (disk.mark is None, not disk.holds_target, disk.key))
    return tuple(out)


def _disk(view: View, key: str, mark: Mark | None) -> DiskPicture:
    reads, writes = per_s(view, Disk.reads, key), per_s(view, Disk.writes, key)
    spent_ms = [per_s(view, metric, key) for metric in (Disk.read_ms, Disk.write_ms)]
    done = (reads or 0) + (writes or 0)
    queue = per_s(view, Disk.queue_ms, key)
    busy = per_s(view, Disk.busy_ms, key)
    kind = view.text(Disk.transport, key)
    if view.last(Disk.rotational, key) == 1 and kind in ("sata", "sas", "usb", ""):
        kind = f"{kind} spinning".strip()
    return DiskPicture(
        key=key,
        kind=kind,
        holds_target=view.last(Disk.holds_target, key) == 1,
        read_iops=reads,
        write_iops=writes,
        read_bytes_s=per_s(view, Disk.read_bytes, key),
        write_bytes_s=per_s(view, Disk.write_bytes, key),
        await_ms=sum(ms or 0 for ms in spent_ms) / done if done > 0 else None,
        queue=None if queue is None else queue / 1000,
        busy=None if busy is None else min(1.0, busy / 1000),
        mark=mark,
    )


def _threads(view: View, marked: Mapping[str, Mark]) -> tuple[ThreadPicture, ...]:
    busy = []
    for key in view.keys(Thread):
        cpu = per_s(view, Thread.cpu_ns, key, THREADS_S)
        if cpu is not None:
            busy.append((cpu / NS_PER_S, key))
    busy.sort(reverse=True)
    return tuple(_thread(view, key, cpu, marked.get(key)) for cpu, key in busy[:HOT_THREADS])


def _thread(view: View, key: str, cpu: float, mark: Mark | None) -> ThreadPicture:
    waited = per_s(view, Thread.wait_ns, key, THREADS_S)
    system = per_s(view, Thread.system_ns, key, THREADS_S)
    state = view.last(Thread.state, key)
    process = key.partition("/")[0]
    return ThreadPicture(
        key=key,
        tid=int(number(view.last(Thread.tid, key)) or 0),
        name=view.text(Thread.thread, key),
        process=view.text(Process.process, process),
        cpu=cpu,
        wait=None if waited is None else waited / NS_PER_S,
        system=None if system is None or cpu <= 0 else min(1.0, system / NS_PER_S / cpu),
        state=THREAD_STATES.get(state, "") if isinstance(state, int) else "",
        mark=mark,
    )


def _target(
    view: View, target: Target | None, threads: tuple[ThreadPicture, ...]
) -> TargetPicture | None:
    if target is None:
        return None
    cpu, counted, rss = 0.0, 0, 0.0
    known = False
    for process in target.processes:
        key = process.id.key
        user = per_s(view, Process.cpu_user_ns, key, THREADS_S)
        system = per_s(view, Process.cpu_system_ns, key, THREADS_S)
        if user is not None and system is not None:
            cpu += (user + system) / NS_PER_S
            known = True
        counted += int(number(view.last(Process.threads, key)) or 0)
        rss += number(view.last(Process.rss_bytes, key)) or 0
    return TargetPicture(
        target=target,
        cpu=cpu if known else None,
        threads=counted or None,
        rss_bytes=rss or None,
        hottest=threads[0] if threads else None,
    )
