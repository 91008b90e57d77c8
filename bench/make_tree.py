"""Writes the files of a big made-up host, for `--root DIR` and for measuring what reading it costs.

    python bench/make_tree.py DIR                      64 CPUs, 8 NVMe disks, 20 target processes
    python bench/make_tree.py DIR --move               the same, counters move once a second
    python bench/make_tree.py DIR --measure            CPU time of each host collector a tick

Prints the pid of the target's root process. The files are made up, their formats are Linux's.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from hosttree import HostTree

from bottletop.attach import TargetFinder
from bottletop.clock import SystemClock
from bottletop.collectors import COLLECTORS
from bottletop.collectors.base import Context, Unavailable
from bottletop.collectors.files import FileCollector

if TYPE_CHECKING:
    from bottletop.model import ProcessId

ROOT_PID = 4000
FIRST_OTHER_PID = 300
INTERRUPTS = 1500


@dataclass
class Shape:
    """How big the host is."""

    cores: int = 64
    disks: int = 8
    processes: int = 20
    threads: int = 16
    """Threads of each target process; one in four runs."""
    others: int = 300
    """Processes that are no part of the target."""


@dataclass
class Host:
    """The tree and the time that has passed on it."""

    tree: HostTree
    shape: Shape
    seconds: float = 0.0
    members: list[ProcessId] = field(default_factory=list)

    def move(self, seconds: float) -> None:
        """Let time pass: half of the CPUs and a quarter of the threads are busy."""
        self.seconds += seconds
        self._cpus()
        self._disks()
        self._memory()
        self._group()
        for process in self.members:
            self._process(process)

    def write_all(self) -> None:
        """Write everything, what never moves included."""
        self.tree.write("proc/sys/kernel/hostname", "gpu-host\n")
        self.tree.write("proc/sys/kernel/task_delayacct", "0\n")
        for number in range(self.shape.cores):
            folder = f"sys/devices/system/cpu/cpu{number}/cpufreq"
            self.tree.write(f"{folder}/scaling_cur_freq", f"{2_400_000 + number * 1000}\n")
        self._disk_facts()
        for pid in range(FIRST_OTHER_PID, FIRST_OTHER_PID + self.shape.others):
            self.tree.process(pid, comm=b"daemon", argv=(b"/usr/sbin/daemon", b"-n"))
        self.tree.process(1, parent=0, comm=b"systemd", argv=(b"/sbin/init",), start=1)
        self._target_facts()
        self.move(1.0)

    # -- what moves -------------------------------------------------------------------------------

    def _cpus(self) -> None:
        ticks = int(self.seconds * 100)
        lines = [f"cpu  {ticks} 0 {ticks} {ticks} 0 0 0 0 0 0"]
        for number in range(self.shape.cores):
            busy = ticks * 9 // 10 if number % 2 else ticks // 20
            lines.append(f"cpu{number} {busy} 0 {busy // 10} {ticks} 3 0 {busy // 50} 0 0 0")
        lines.append("intr 9021833 " + " ".join(["0"] * INTERRUPTS))
        self.tree.write("proc/stat", "\n".join([*lines, "ctxt 1", "btime 1", "processes 1", ""]))

    def _disks(self) -> None:
        lines = []
        for number in range(self.shape.disks):
            count = int(self.seconds * 1000 * (number + 1))
            counters = f"{count} 0 {count * 8} {count // 5} {count // 9} 0 {count} 5 3 {count // 7}"
            for minor, name in enumerate((f"nvme{number}n1", f"nvme{number}n1p1")):
                lines.append(
                    f" 259 {number * 8 + minor} {name} {counters} {count // 3} 0 0 0 0 0 0"
                )
        self.tree.write("proc/diskstats", "\n".join([*lines, ""]))

    def _memory(self) -> None:
        faults = int(self.seconds * 40)
        parts = {"Total": 500, "Free": 60, "Available": 310}
        lines = [f"Mem{name}: {millions}000000 kB" for name, millions in parts.items()]
        lines += [f"{name}: 120000000 kB" for name in ("Buffers", "Cached", "Shmem")]
        lines += ["Dirty: 4096 kB", "SwapTotal: 0 kB", "SwapFree: 0 kB"]
        rest = [f"Other{number}: {number} kB" for number in range(45)]
        self.tree.write("proc/meminfo", "\n".join([*lines, *rest, ""]))
        zones = [f"nr_zone_{number} {number}" for number in range(170)]
        moving = [f"pgmajfault {faults}", "pswpin 0", "pswpout 0"]
        self.tree.write("proc/vmstat", "\n".join([*zones, *moving, ""]))
        micros = int(self.seconds * 20_000)
        for name in ("cpu", "io", "memory"):
            line = f"avg10=1.00 avg60=1.00 avg300=1.00 total={micros}"
            self.tree.write(f"proc/pressure/{name}", f"some {line}\nfull {line}\n")
        self.tree.write("proc/uptime", f"{1000 + self.seconds:.2f} 0.00\n")

    def _group(self) -> None:
        periods = int(self.seconds * 10)
        folder = "sys/fs/cgroup/kubepods.slice/pod1.slice/box.scope"
        self.tree.write(
            f"{folder}/cpu.stat",
            f"usage_usec {periods * 90_000}\nuser_usec 1\nsystem_usec 1\nnr_periods {periods}\n"
            f"nr_throttled {periods // 50}\nthrottled_usec {periods * 100}\n",
        )
        self.tree.write(f"{folder}/memory.current", f"{64 << 30}\n")
        micros = int(self.seconds * 9_000)
        for name in ("cpu", "io", "memory"):
            line = f"avg10=1.00 avg60=1.00 avg300=1.00 total={micros}"
            self.tree.write(f"{folder}/{name}.pressure", f"some {line}\nfull {line}\n")

    def _process(self, process: ProcessId) -> None:
        ticks = int(self.seconds * 100)
        index = process.pid - ROOT_PID
        self.tree.process(
            process.pid,
            parent=1 if index == 0 else ROOT_PID if index < 4 else ROOT_PID + 1 + index % 3,
            comm=b"vllm" if index == 0 else b"VLLM::Worker_TP",
            argv=(b"python3", b"/opt/vllm", b"serve", b"Qwen/Qwen3-8B", b"-tp", b"8")
            if index == 0
            else (b"VLLM::EngineCore",)
            if index == 1
            else (b"VLLM::Worker_TP%d" % index,),
            start=process.start_ticks,
            user=ticks * 2,
            system=ticks // 4,
            faults=(ticks * 3, ticks // 100),
            rss_pages=500_000,
            threads=[],
            io={"rchar": ticks * 5000, "wchar": 9, "read_bytes": ticks * 4096, "write_bytes": 0},
        )
        line = self.tree.folder / f"proc/{process.pid}/stat"
        fields = line.read_bytes().split(b" ")
        fields[-33] = str(self.shape.threads).encode()
        line.write_bytes(b" ".join(fields))
        for number in range(self.shape.threads):
            runs = number % 4 == 0
            self.tree.thread(
                process,
                process.pid if number == 0 else 100_000 + index * 1000 + number,
                comm=b"pool-worker",
                state="R" if runs else "S",
                cpu_ns=int(self.seconds * 3e8 / (number + 1)) if runs else 5_000_000,
                wait_ns=int(self.seconds * 1e6) if runs else 1000,
                user=ticks // 4 if runs else 0,
                switches=(ticks, ticks // 3),
            )

    # -- what does not ----------------------------------------------------------------------------

    def _disk_facts(self) -> None:
        for number in range(self.shape.disks):
            device = f"sys/devices/pci0000:00/0000:00:0{number}.0/nvme/nvme{number}/nvme{number}n1"
            self.tree.write(f"{device}/queue/rotational", "0\n")
            self.tree.write(f"{device}/size", "7501476528\n")
            self.tree.write(f"{device}/device/model", "Made-up NVMe 3.84TB\n")
            self.tree.write(f"{device}/nvme{number}n1p1/partition", "1\n")
            self.tree.link(f"sys/block/nvme{number}n1", f"../../{device}")
            for minor, path in enumerate((device, f"{device}/nvme{number}n1p1")):
                self.tree.link(f"sys/dev/block/259:{number * 8 + minor}", f"../../../{path}")

    def _target_facts(self) -> None:
        group = "/kubepods.slice/pod1.slice/box.scope"
        mounts = "22 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n"
        mounts += "23 22 259:9 / /models rw - xfs /dev/nvme1n1p1 rw\n"
        self.tree.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
        self.tree.write(f"sys/fs/cgroup{group}/cgroup.events", "populated 1\nfrozen 0\n")
        self.tree.write(f"sys/fs/cgroup{group}/cpu.max", "3200000 100000\n")
        self.tree.write(f"sys/fs/cgroup{group}/memory.max", f"{256 << 30}\n")
        self.tree.write(f"sys/fs/cgroup{group}/memory.stat", "anon 1\nfile 4096\n")
        self.tree.write("proc/1/mountinfo", mounts)
        self.members = [
            self.tree.process(ROOT_PID + number, start=5000 + number)
            for number in range(self.shape.processes)
        ]
        for process in self.members:
            folder = f"proc/{process.pid}"
            self.tree.write(f"{folder}/cgroup", f"0::{group}\n")
            self.tree.write(f"{folder}/mountinfo", mounts)
            self.tree.write(f"{folder}/environ", b"PATH=/bin\0CUDA_VISIBLE_DEVICES=0,1,2,3\0")
            for descriptor in range(60):
                shard = f"/models/shard-{descriptor:05}.safetensors"
                link = shard if descriptor < 8 else f"socket:[{process.pid * 100 + descriptor}]"
                self.tree.open_file(
                    process.pid, descriptor, link, info="flags:\t0100000\nmnt_id:\t23\n"
                )
        row = "0: 00000000:1F40 00000000:0000 0A 0:0 0:0 0 0 0 {} 1 0 100 0 0 10 0\n"
        self.tree.write(f"proc/{ROOT_PID}/net/tcp", "head\n" + row.format(ROOT_PID * 100 + 10))


def make_tree(folder: Path, shape: Shape | None = None) -> Host:
    """Write a host under `folder`, which must not exist or be empty."""
    host = Host(HostTree(folder), shape or Shape())
    host.write_all()
    return host


def measure(host: Host, ticks: int = 30) -> None:
    """Print CPU milliseconds a tick of every host collector, with the counters moving."""
    find, root = TargetFinder(), host.members[0]
    roots = host.tree.captured
    spent: dict[str, list[int]] = {"(tree)": []}
    target = find(roots, root)
    context = Context(SystemClock(), roots, target=lambda: target)
    made = [make(context) for make in COLLECTORS]
    collectors = []
    for collector in made:
        if isinstance(collector, FileCollector):
            try:
                collector.open()
            except Unavailable as error:
                print(f"{collector.name}: {error}")
                continue
            collectors.append(collector)
    for _ in range(ticks):
        host.move(1.0)
        began = time.process_time_ns()
        target = find(roots, root)
        spent["(tree)"].append(time.process_time_ns() - began)
        for collector in collectors:
            began = time.process_time_ns()
            collector.read()
            spent.setdefault(collector.name, []).append(time.process_time_ns() - began)
    for name, costs in spent.items():
        steady = sorted(costs[2:])
        middle, worst = steady[len(steady) // 2] / 1e6, steady[-1] / 1e6
        print(f"{name:12} median {middle:7.3f} ms  max {worst:7.3f}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder to write the host to")
    parser.add_argument("--move", action="store_true", help="let counters move until interrupted")
    parser.add_argument("--measure", action="store_true", help="measure the host collectors")
    for name, default in vars(Shape()).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    shape = Shape(**{name: getattr(arguments, name) for name in vars(Shape())})
    host = make_tree(arguments.folder, shape)
    print(ROOT_PID, flush=True)
    if arguments.measure:
        measure(host)
    while arguments.move:
        time.sleep(1.0)
        host.move(1.0)


if __name__ == "__main__":
    main()
