"""Tables of the attached process tree.

Keys are "pid@start" and "pid@start/tid", so that a reused pid cannot lie.
"""

from __future__ import annotations

from bottletop.model import Absent, State, Table, Value, counter, enumeration, gauge, text
from bottletop.tables.host import TICK_NS, YES_NO

THREAD_STATES = {
    0: "running",
    1: "sleeping",
    2: "disk wait",
    3: "stopped",
    4: "tracing stop",
    5: "zombie",
    6: "dead",
    7: "idle",
    8: "parked",
}
STATE_LETTERS = {"R": 0, "S": 1, "D": 2, "T": 3, "t": 4, "Z": 5, "X": 6, "x": 6, "I": 7, "P": 8}
"""Field 3 of /proc/PID/stat to `THREAD_STATES`."""


def state_of(letter: str) -> Value:
    """A state letter of the kernel as the tables hold it; a letter nobody knows is implausible."""
    number = STATE_LETTERS.get(letter)
    return Absent.implausible(letter, "no such state is known") if number is None else number


class Process(Table):
    """One row a process of the target's tree a tick."""

    name = "process"
    entity = "pid@start"

    pid = gauge("", "process id on this host")
    parent_pid = gauge("", "parent's pid")
    process = text("command name")
    role = text("what it does in the tree: main, worker, loader-worker, server, launcher ...")
    command = text("program and the flags that are safe to show")
    is_root = enumeration(YES_NO, "the process that was attached to")
    state = enumeration(THREAD_STATES, "state of the main thread")
    cpu_user_ns = counter("ns", "user time of all threads", quantum=TICK_NS)
    cpu_system_ns = counter("ns", "kernel time of all threads", quantum=TICK_NS)
    children_cpu_ns = counter(
        "ns", "CPU time of children that ended and were reaped", quantum=TICK_NS
    )
    rss_bytes = gauge("B", "resident memory", quantum=4096, trend=True)
    threads = gauge("", "threads")
    major_faults = counter("", "faults that had to read from disk")
    minor_faults = counter("", "faults served from memory")
    read_bytes = counter("B", "bytes fetched from storage (/proc/PID/io)")
    write_bytes = counter("B", "bytes sent to storage")
    read_chars = counter("B", "bytes read by system calls; far above read_bytes means page cache")
    device_fds = gauge("", "open GPU device files")


class Thread(Table):
    """One row a thread of the target's tree a tick, from task/TID/stat, schedstat and status."""

    name = "thread"
    entity = "pid@start/tid"

    pid = gauge("", "process id")
    tid = gauge("", "thread id")
    thread = text("thread name (comm)")
    state = enumeration(THREAD_STATES, "state at the moment of reading")
    cpu_ns = counter("ns", "time on CPU (schedstat)", quantum=1000)
    wait_ns = counter(
        "ns", "time runnable but waiting for a CPU (schedstat): saturation", quantum=1000
    )
    user_ns = counter("ns", "user time in ticks; only for the split", quantum=TICK_NS)
    system_ns = counter("ns", "kernel time in ticks; only for the split", quantum=TICK_NS)
    major_faults = counter("", "faults that had to read from disk")
    voluntary_switches = counter(
        "", "times it gave up the CPU to wait; read for the busiest threads"
    )
    involuntary_switches = counter(
        "", "times the CPU was taken from it; read for the busiest threads"
    )
    block_io_ns = counter("ns", "time blocked on storage (delay accounting)", quantum=TICK_NS)


class HotThread(Table):
    """The few busiest threads, five times a second: enough to see what ran in a GPU's gaps."""

    name = "hot_thread"
    entity = "pid@start/tid"
    period_s = 0.2

    cpu_ns = counter("ns", "time on CPU (schedstat)", quantum=1000)
    wait_ns = counter("ns", "time runnable but waiting for a CPU", quantum=1000)
    state = enumeration(THREAD_STATES, "state at the moment of reading")


NOT_PYTHON = Absent(State.NOT_APPLICABLE, "not a Python program")
"""`stacks` of a target in which neither the probe nor the stack sampler can be."""


class TargetInfo(Table):
    """Slow facts about the target as a whole. Key: root process."""

    name = "target"
    entity = "pid@start"
    period_s = 10.0

    process = text("name of the root process")
    cgroup = text("cgroup path")
    container = text("container id or runtime where one is recognised")
    gpus = text("UUIDs of the GPUs whose device files it has open, comma separated; may use fewer")
    visible_devices = text("CUDA_VISIBLE_DEVICES at launch")
    sockets = text("addresses it listens on")
    probe = text("how its stages are read, or why they are not")
    notes = text("what could not be seen and what would unlock it")
    metrics = text("which of its metric pages are read, or why none is")
    stacks = text("how its stacks are sampled, or why they are not")


class TargetFile(Table):
    """Model and data files that the target has open or mapped. Key: path."""

    name = "target_file"
    entity = "path"
    period_s = 10.0

    disk = text("whole disk that holds it, or the network file system")
    filesystem = text("file system type")
    size_bytes = gauge("B", "size", quantum=4096)
    mapped = enumeration(YES_NO, "memory mapped: reads show as faults, not as read calls")
