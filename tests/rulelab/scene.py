"""A scene: a few lines of TOML that say what a host does, expanded into table rows.

What a GPU, a thread or a stage does follows from one list of phases, so that everything agrees on
one clock as it would on a real host. Rows come at the moments at which real sources would read.

    seconds = 40              how long it is watched
    target = true             false: nothing is attached
    [[phase]]                 one cycle of the main thread, repeated
    s = 0.6                   length; jitter = 0.1 varies it by 10 %, random = true exponentially
    gpu = [1.0]               share of the phase in which each GPU runs a kernel
    cpu = 1.0                 of the main thread, in cores
    blocked = true            the main thread waits for storage
    stage = "decode"          stage under way
    [[thread]]                further threads at a constant rate: name, cpu, blocked, pid
    [gpu]  [cgroup]  [disk.NAME]  [io]  [own]  [processes]     see the classes below
    [cells.0]                 columns of GPU 0 in `gpu` that are not as [gpu] says
    [health.0] [activity.0] [link.0-2]    its columns in `gpu_health` and `gpu_activity`, its link 2
    [[event]]                 at, gpu, kind and xid of a `gpu_event`
    power_w = "!error why"    a cell without a value: the state after the mark, then the reason
    pcie_replays = {per_s=2}  a counter
    without = ["stage"]       tables that cannot be read
    [[change]]                at = 20, then any of the keys above that hold from there on
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bottletop.model import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

START_NS = 1_000 * NS_PER_S

Cells = Mapping[str, Mapping[str, Any]]
"""Columns by name, by GPU number (and link: "0-2")."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of the main thread's cycle."""

    s: float
    gpu: tuple[float, ...] = (0.0,)
    cpu: float = 0.0
    blocked: bool = False
    stage: str = ""
    jitter: float = 0.0
    random: bool = False

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Phase:
        known = dict(raw)
        gpu = known.pop("gpu", 0.0)
        known["gpu"] = tuple(gpu) if isinstance(gpu, list) else (float(gpu),)
        return cls(**known)


@dataclass(frozen=True, slots=True)
class ThreadLine:
    """A thread besides the main one."""

    name: str
    cpu: float = 0.0
    blocked: float = 0.0
    """Share of moments in which it waits for storage."""
    pid: int = 0
    """0: the target's root."""


@dataclass(frozen=True, slots=True)
class GpuLine:
    """What every GPU of the host has besides its utilisation."""

    count: int = 1
    clock_mhz: float = 1980
    boost_mhz: float = 1980
    mem_clock_mhz: float = 2600
    mem_clock_max_mhz: float = 2600
    power_w: float = 300
    idle_w: float = 60
    limit_w: float = 350
    requested_w: float = 350
    default_w: float = 350
    temp_c: float = 60
    limiters: Mapping[str, float] = field(default_factory=dict)
    """Share of busy time in each: power, thermal, hw-thermal, brake."""
    bits: int = 0
    counters: bool = True
    """False: the driver has event bits but no nanosecond counters."""
    buffer: bool = True
    """False: utilisation is polled once a second."""
    window_s: float = 1 / 6
    rx_bytes_per_s: float = 0


@dataclass(frozen=True, slots=True)
class DiskLine:
    """A disk at a steady load."""

    reads_per_s: float = 0
    await_ms: float = 0.1
    queue: float = 0
    busy: float = 0
    bytes_per_s: float = 0
    spins: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that a change may replace."""

    phases: tuple[Phase, ...] = ()
    threads: tuple[ThreadLine, ...] = ()
    gpu: GpuLine = field(default_factory=GpuLine)
    cgroup: Mapping[str, float] = field(default_factory=dict)
    """quota_cores, throttled_periods (share), throttled_time (share of time)."""
    disks: Mapping[str, DiskLine] = field(default_factory=dict)
    read_bytes_per_s: float = 0
    major_faults_per_s: float = 0
    psi: Mapping[str, float] = field(default_factory=dict)
    """Share of time stalled, by "scope/resource"."""
    own: Mapping[str, float] = field(default_factory=dict)
    """driver (share of time), call_s, cpu (cores)."""
    processes: Mapping[str, float] = field(default_factory=dict)
    """Utilisation in percent by "gpu/pid"; pid 0 is the target."""
    cells: Cells = field(default_factory=dict)
    health: Cells = field(default_factory=dict)
    activity: Cells = field(default_factory=dict)
    link: Cells = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def changed(self, raw: Mapping[str, Any]) -> Settings:
        """These settings with what `raw` says in place."""
        known = {name: getattr(self, name) for name in self.__slots__}
        for key, value in raw.items():
            match key:
                case "phase":
                    known["phases"] = tuple(Phase.parse(item) for item in value)
                case "thread":
                    known["threads"] = tuple(ThreadLine(**item) for item in value)
                case "gpu":
                    old = {name: getattr(self.gpu, name) for name in self.gpu.__slots__}
                    known["gpu"] = GpuLine(**(old | value))
                case "disk":
                    known["disks"] = {name: DiskLine(**item) for name, item in value.items()}
                case "io":
                    known["read_bytes_per_s"] = value.get("read_bytes_per_s", 0)
                    known["major_faults_per_s"] = value.get("major_faults_per_s", 0)
                case "without":
                    known["without"] = tuple(value)
                case (
                    "cgroup"
                    | "psi"
                    | "own"
                    | "processes"
                    | "cells"
                    | "health"
                    | "activity"
                    | "link"
                ):
                    known[key] = value
                case _:
                    raise KeyError(f"unknown key {key!r}")
        return Settings(**known)


@dataclass(frozen=True, slots=True)
class Scene:
    """A host and what it does."""

    seconds: float
    target: bool
    seed: int
    settings: Settings
    changes: tuple[tuple[float, Settings], ...]
    events: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Scene:
        """Read a scene. Raises KeyError or TypeError on anything unknown."""
        rest = {
            key: value
            for key, value in raw.items()
            if key not in ("about", "seconds", "target", "seed", "expect", "change", "event")
        }
        settings = Settings().changed(rest)
        changes = []
        latest = settings
        for item in raw.get("change", []):
            latest = latest.changed({k: v for k, v in item.items() if k != "at"})
            changes.append((float(item["at"]), latest))
        return cls(
            float(raw["seconds"]),
            raw.get("target", True),
            raw.get("seed", 1),
            settings,
            tuple(changes),
            tuple(raw.get("event", ())),
        )

    def at(self, t_s: float) -> Settings:
        """The settings in force at a moment."""
        found = self.settings
        for since_s, settings in self.changes:
            if t_s >= since_s:
                found = settings
        return found

    def timeline(self) -> Iterator[tuple[float, float, Phase]]:
        """Phases in order as (start, end, phase), until the scene ends."""
        rng = random.Random(self.seed)
        t_s = 0.0
        while t_s < self.seconds:
            phases = self.at(t_s).phases or (Phase(1.0),)
            for phase in phases:
                length = phase.s
                if phase.random:
                    length = rng.expovariate(1 / phase.s)
                elif phase.jitter:
                    length *= 1 + phase.jitter * (2 * rng.random() - 1)
                end_s = t_s + max(0.001, length)
                yield t_s, end_s, phase
                t_s = end_s
                if self.at(t_s).phases is not phases and self.at(t_s).phases:
                    break
