"""Processes and threads of the target: who they are, what they used, and what is closed to us."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree, context_for, of_table, only, read_table, target_of

from bottletop.clock import ManualClock
from bottletop.collectors import threads as threads_module
from bottletop.collectors.base import Context
from bottletop.collectors.process import ProcessCollector
from bottletop.collectors.threads import HOT_THREADS
from bottletop.model import NOT_READ, Absent, ProcessId, State, Target, TargetProcess
from bottletop.tables.process import Process, Thread

if TYPE_CHECKING:
    from pathlib import Path

    from bottletop.model import Value

TICK = 10_000_000
IO = {"rchar": 900, "wchar": 5, "syscr": 1, "syscw": 1, "read_bytes": 512, "write_bytes": 256}


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    return HostTree(tmp_path)


def state_of(value: object) -> State:
    assert isinstance(value, Absent)
    return value.state


class Watched:
    """A collector with a clock and a target that a test may change."""

    def __init__(self, tree: HostTree, target: Target) -> None:
        self.clock = ManualClock()
        self.target: Target | None = target
        self.context = Context(self.clock, tree.live, target=lambda: self.target)
        self.collector = ProcessCollector(self.context)

    def after(self, seconds: float) -> dict[str, dict[str, Value]]:
        """Let time pass and give the threads by key."""
        self.clock.advance(seconds)
        return of_table(self.collector.read(), Thread)


def test_a_process_is_described_with_its_counters(tree: HostTree) -> None:
    process = tree.process(
        50,
        parent=40,
        argv=(b"python3", b"serve.py", b"--api-key", b"hunter2", b"--port", b"8000"),
        state="R",
        user=150,
        system=25,
        children=(10, 5),
        faults=(1000, 7),
        threads=(51, 52),
        io=IO,
    )
    row = only(read_table(ProcessCollector(context_for(tree.live, target_of(process))), Process))
    assert (row["pid"], row["parent_pid"], row["threads"], row["is_root"]) == (50, 40, 3, 1)
    assert (row["process"], row["role"], row["state"]) == ("serve.py", "main", 0)
    assert row["command"] == "python3 serve.py --port 8000"
    assert (row["cpu_user_ns"], row["cpu_system_ns"]) == (150 * TICK, 25 * TICK)
    assert row["children_cpu_ns"] == 15 * TICK
    assert (row["minor_faults"], row["major_faults"]) == (1000, 7)
    assert (row["read_bytes"], row["write_bytes"], row["read_chars"]) == (512, 256, 900)
    assert row["device_fds"] == NOT_READ


@pytest.mark.parametrize(
    "comm",
    [b"a b", b"a) R 1 (b", b"two\nlines", b"\x1b[2Jclear", b"\xff\xc3", "モデル".encode()],
)
def test_odd_thread_names_are_shown_clean_and_spoil_no_number(tree: HostTree, comm: bytes) -> None:
    process = tree.process(50)
    tree.thread(process, 50, comm=comm, cpu_ns=123_456_000, user=7, system=3)
    row = only(read_table(ProcessCollector(context_for(tree.live, target_of(process))), Thread))
    assert (row["cpu_ns"], row["user_ns"], row["system_ns"]) == (123_456_000, 7 * TICK, 3 * TICK)
    name = row["thread"]
    assert isinstance(name, str)
    assert name.isprintable()
    assert name


def test_a_thread_has_its_run_queue_delay_and_state(tree: HostTree) -> None:
    process = tree.process(50)
    tree.thread(process, 50, state="D", cpu_ns=5_000_000, wait_ns=7_000_000)
    rows = read_table(ProcessCollector(context_for(tree.live, target_of(process))), Thread)
    row = rows[process.thread_key(50)]
    assert (row["cpu_ns"], row["wait_ns"], row["state"]) == (5_000_000, 7_000_000, 2)
    assert (row["pid"], row["tid"]) == (50, 50)


def test_io_that_is_closed_to_us_is_denied_with_the_command_that_opens_it(
    tree: HostTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As root no file of ours refuses; the real refusal is proven in test_unprivileged.py.
    process = tree.process(50, io=IO)
    watched = Watched(tree, target_of(process))
    real = watched.collector._files.read

    def refuse(path: str, size: int = 4096) -> bytes:
        if path.endswith("/io"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, size)

    files = watched.collector._files
    monkeypatch.setattr(type(files), "read", lambda self, path, size=4096: refuse(path, size))
    row = only(of_table(watched.collector.read(), Process))
    denied = row["read_bytes"]
    assert isinstance(denied, Absent)
    assert denied.state is State.DENIED
    assert "sudo bottletop attach 50" in denied.reason
    assert row["minor_faults"] == 0


def test_without_io_accounting_the_counters_are_unsupported(tree: HostTree) -> None:
    process = tree.process(50)
    row = only(read_table(ProcessCollector(context_for(tree.live, target_of(process))), Process))
    assert state_of(row["read_bytes"]) is State.UNSUPPORTED


def test_members_that_vanish_between_list_and_read_are_left_out(tree: HostTree) -> None:
    root, gone, other = tree.process(50), ProcessId(51, 510), tree.process(52, parent=50)
    rows = read_table(
        ProcessCollector(context_for(tree.live, target_of(root, gone, other))), Process
    )
    assert set(rows) == {root.key, other.key}


def test_threads_that_vanish_between_list_and_read_are_left_out(tree: HostTree) -> None:
    process = tree.process(50, threads=(51, 52))
    tree.remove("proc/50/task/51/stat")
    tree.remove("proc/50/task/52/schedstat")
    tree.remove("proc/50/task/52/stat")
    rows = read_table(ProcessCollector(context_for(tree.live, target_of(process))), Thread)
    assert set(rows) == {process.thread_key(50)}


def test_a_reused_pid_is_not_taken_for_the_process_that_had_it(tree: HostTree) -> None:
    process = tree.process(50, start=100, user=500)
    watched = Watched(tree, target_of(process))
    assert only(of_table(watched.collector.read(), Process))["cpu_user_ns"] == 500 * TICK
    tree.process(50, start=999, user=1)
    samples = watched.collector.read()
    assert of_table(samples, Process) == {}
    assert of_table(samples, Thread) == {}


def test_a_zombie_is_a_row_with_its_state(tree: HostTree) -> None:
    root = tree.process(50)
    dead = tree.process(51, parent=50, argv=(), state="Z")
    row = read_table(ProcessCollector(context_for(tree.live, target_of(root, dead))), Process)
    assert row[dead.key]["state"] == 5
    assert row[dead.key]["command"] == "python3"


def test_a_state_nobody_knows_is_implausible_and_kept(tree: HostTree) -> None:
    process = tree.process(50, state="Q")
    row = only(read_table(ProcessCollector(context_for(tree.live, target_of(process))), Process))
    value = row["state"]
    assert isinstance(value, Absent)
    assert (value.state, value.raw) == (State.IMPLAUSIBLE, "Q")


def test_a_thread_that_ran_is_read_again_and_one_that_slept_keeps_its_values(
    tree: HostTree,
) -> None:
    process = tree.process(50, threads=(51,))
    watched = Watched(tree, target_of(process))
    tree.thread(process, 50, cpu_ns=1_000_000, user=1)
    tree.thread(process, 51, cpu_ns=1_000_000, user=1)
    first = watched.after(1)
    tree.thread(process, 50, cpu_ns=400_000_000, user=40, state="D")
    second = watched.after(1)
    ran, slept = second[process.thread_key(50)], second[process.thread_key(51)]
    assert (ran["cpu_ns"], ran["user_ns"], ran["state"]) == (400_000_000, 40 * TICK, 2)
    assert slept == first[process.thread_key(51)]


def test_a_sleeping_threads_row_carries_the_time_of_this_read(tree: HostTree) -> None:
    process = tree.process(50)
    watched = Watched(tree, target_of(process))
    watched.after(1)
    watched.clock.advance(1)
    (row,) = next(s for s in watched.collector.read() if s.table is Thread).rows
    assert row.t_ns == watched.clock.monotonic_ns()


def test_the_busiest_threads_are_named_and_only_theirs_switches_are_read(tree: HostTree) -> None:
    tids = tuple(range(51, 51 + HOT_THREADS * 2))
    process = tree.process(50, threads=tids)
    watched = Watched(tree, target_of(process))
    watched.after(1)
    for tid in tids:
        # The later the tid, the busier: 51 ran 20 ms in this second, 82 ran 640 ms.
        busy_ns = (tid - 50) * 20_000_000
        tree.thread(process, tid, cpu_ns=busy_ns, switches=(tid, 3))
    watched.after(1)
    hot = watched.context.exchange.hot_threads
    assert [tid for _, tid in hot] == list(reversed(tids))[:HOT_THREADS]
    rows = watched.after(1)
    busiest, idle = rows[process.thread_key(tids[-1])], rows[process.thread_key(50)]
    assert (busiest["voluntary_switches"], busiest["involuntary_switches"]) == (tids[-1], 3)
    assert state_of(idle["voluntary_switches"]) is State.NOT_READ


def test_a_thread_that_fell_asleep_stops_being_hot(tree: HostTree) -> None:
    process = tree.process(50)
    watched = Watched(tree, target_of(process))
    watched.after(1)
    tree.thread(process, 50, cpu_ns=900_000_000)
    watched.after(1)
    assert list(watched.context.exchange.hot_threads) == [(process, 50)]
    for _ in range(10):
        watched.after(1)
    assert not watched.context.exchange.hot_threads


def test_without_schedstat_ticks_are_used_and_the_delay_is_unsupported(tree: HostTree) -> None:
    process = tree.process(50)
    tree.thread(process, 50, user=30, system=12)
    tree.remove("proc/50/task/50/schedstat")
    watched = Watched(tree, target_of(process))
    row = watched.after(1)[process.thread_key(50)]
    assert row["cpu_ns"] == 42 * TICK
    assert state_of(row["wait_ns"]) is State.UNSUPPORTED
    tree.write("proc/50/task/50/stat", (tree.folder / "proc/50/stat").read_bytes())
    assert watched.after(1)[process.thread_key(50)]["cpu_ns"] == 0


@pytest.mark.parametrize(("switch", "expected"), [("1\n", 5 * TICK), ("0\n", None), (None, None)])
def test_block_io_delay_is_a_value_only_where_it_is_accounted(
    tree: HostTree, switch: str | None, expected: int | None
) -> None:
    process = tree.process(50)
    tree.thread(process, 50, block_io=5)
    if switch is not None:
        tree.write("proc/sys/kernel/task_delayacct", switch)
    rows = read_table(ProcessCollector(context_for(tree.live, target_of(process))), Thread)
    value = only(rows)["block_io_ns"]
    if expected is None:
        assert state_of(value) is State.UNSUPPORTED
    else:
        assert value == expected


def test_a_very_large_tree_is_bounded_evenly_and_says_so(
    tree: HostTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads_module, "MAX_THREADS", 20)
    small = tree.process(50, threads=(51,))
    large = tree.process(100, parent=50, threads=tuple(range(101, 140)))
    watched = Watched(tree, target_of(small, large))
    rows = watched.after(1)
    of_large = sorted(key for key in rows if key.startswith("100@"))
    assert len(rows) == 20
    assert {small.thread_key(50), small.thread_key(51)} <= set(rows)
    assert of_large == [large.thread_key(tid) for tid in range(100, 118)]
    assert watched.context.exchange.thread_note == "42 threads; 20 are read"


def test_gpu_device_files_come_from_the_target_collector(tree: HostTree) -> None:
    process = tree.process(50)
    watched = Watched(tree, target_of(process))
    watched.collector.read()
    watched.context.exchange.device_files = {process: 3}
    assert only(of_table(watched.collector.read(), Process))["device_fds"] == 3


def test_a_title_taken_later_replaces_the_command(tree: HostTree) -> None:
    process = tree.process(50)
    watched = Watched(tree, target_of(process))
    assert only(of_table(watched.collector.read(), Process))["command"] == "python3 serve.py"
    tree.process(50, comm=b"VLLM::EngineCor", argv=(b"VLLM::EngineCore",))
    assert only(of_table(watched.collector.read(), Process))["command"] == "VLLM::EngineCore"


def test_roles_follow_the_resolved_tree(tree: HostTree) -> None:
    process = tree.process(50)
    watched = Watched(tree, target_of(process))
    watched.collector.read()
    watched.target = Target(process, "x", (TargetProcess(process, 1, "x", "engine"),))
    assert only(of_table(watched.collector.read(), Process))["role"] == "engine"


def test_detaching_lets_every_descriptor_go(tree: HostTree) -> None:
    process = tree.process(50, threads=(51, 52), io=IO)
    watched = Watched(tree, target_of(process))
    watched.collector.read()
    assert len(watched.collector._files) > 0
    watched.target = None
    assert watched.collector.read() == ()
    assert len(watched.collector._files) == 0
    assert watched.context.exchange.hot_threads == ()


def test_descriptors_of_ended_threads_are_let_go(tree: HostTree) -> None:
    process = tree.process(50, threads=tuple(range(51, 91)), io=IO)
    watched = Watched(tree, target_of(process))
    watched.collector.read()
    many = len(watched.collector._files)
    for tid in range(51, 91):
        tree.remove(f"proc/50/task/{tid}")
    watched.collector.read()
    assert len(watched.collector._files) == many - 40


def test_a_captured_tree_takes_resident_memory_from_status(tree: HostTree) -> None:
    process = tree.process(50, rss_pages=1000)
    row = only(
        read_table(ProcessCollector(context_for(tree.captured, target_of(process))), Process)
    )
    assert row["rss_bytes"] == 4_000 * 1024
