"""Who uses a GPU, as far as the driver says and can be believed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hosttree import stat_line

from bottletop.model import Absent, State
from bottletop.tables.gpu import COMPUTE, GRAPHICS, MPS, Gpu, GpuProcess

if TYPE_CHECKING:
    from pathlib import Path

    from nvml.host import Reading

    from .conftest import MakeHost

ONE = "GPU-00000000-0000-0000-0000-000000000000"
TWO = "GPU-00000000-0000-0000-0000-000000000001"
SENTINEL = 4294967295


def add_process(
    proc: Path, pid: int, name: bytes, *, start: int = 7, inside: tuple[int, ...] = ()
) -> None:
    """A process as /proc shows it; `inside` are its PIDs in the namespaces within."""
    folder = proc / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stat").write_bytes(stat_line(pid, name, start=start))
    (folder / "comm").write_bytes(name + b"\n")
    numbers = "\t".join(map(str, (pid, *inside)))
    (folder / "status").write_text(f"Name:\tx\nPid:\t{pid}\nNSpid:\t{numbers}\nThreads:\t1\n")


def namespace(proc: Path, inode: int) -> None:
    """Have the reader of this /proc live in that PID namespace."""
    (proc / "self/ns").mkdir(parents=True)
    os.symlink(f"pid:[{inode}]", proc / "self/ns/pid")


def pids(read: Reading) -> list[object]:
    """PIDs of the rows of a read, in order."""
    return [row.values[GpuProcess.pid.index] for row in read.rows(GpuProcess)]


def test_processes_are_listed_by_gpu_and_pid_with_name_memory_and_share(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 101, b"python3")
    add_process(proc, 102, b"evil\x1b[2Jname")
    host = gpu_host(
        """
        gpu
          busy 80
          process 101 2048 0.75
          process 102 512 0.25
        gpu
          process 101 64 0
        """,
        proc=proc,
    )
    host.open()
    host.tick()
    read = host.ticks(5)[-1]
    assert pids(read) == [101, 102, 101]
    assert read.value(GpuProcess.gpu, f"{TWO}/101") == TWO
    assert read.value(GpuProcess.process, f"{ONE}/101") == "python3"
    assert "\x1b" not in str(read.value(GpuProcess.process, f"{ONE}/102"))
    assert read.number(GpuProcess.mem_bytes, f"{ONE}/101") == 2048 * 2**20
    assert read.number(GpuProcess.sm_util_pct, f"{ONE}/101") == 60
    assert read.number(GpuProcess.sm_util_pct, f"{ONE}/102") == 20
    assert read.number(GpuProcess.sm_util_pct, f"{TWO}/101") == 0
    assert read.number(Gpu.processes, ONE) == 2


def test_utilisation_is_the_mean_since_the_list_before_not_the_last_window(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host("gpu\n  busy square 5 0.4 100 0 0.1\n  process 7 10 1")
    host.open()
    host.tick()
    read = host.ticks(5)[-1]
    assert read.number(GpuProcess.sm_util_pct, f"{ONE}/7") == 40


def test_the_list_is_read_every_five_seconds_at_most(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  process 7 10 1\ngpu\n  process 8 10 1")
    host.open()
    listed = [index for index, read in enumerate(host.ticks(21)) if read.sample(GpuProcess)]
    assert listed == [0, 5, 10, 15, 20]
    assert host.calls()["nvmlDeviceGetComputeRunningProcesses_v3"].calls == 2 * len(listed)


def test_a_process_that_ended_is_gone_from_the_next_list(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  process 7 10 0 0 3\n  process 8 10 0")
    host.open()
    assert pids(host.tick()) == [7, 8]
    assert pids(host.ticks(5)[-1]) == [8]


def test_a_denied_list_is_denied_and_not_empty(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        gpu
          busy 50
          process 7 10 1
          fail nvmlDeviceGetComputeRunningProcesses* no-permission
        gpu
          process 8 10 0
        """
    )
    host.open()
    host.tick()
    read = host.ticks(5)[-1]
    assert read.absent(Gpu.processes, ONE).state is State.DENIED
    assert read.number(Gpu.processes, TWO) == 1
    # Who ran is still known from the utilisation records; how much memory is not.
    assert read.number(GpuProcess.sm_util_pct, f"{ONE}/7") == 50
    assert isinstance(read.value(GpuProcess.mem_bytes, f"{ONE}/7"), Absent)


def test_a_denied_list_with_nobody_running_brings_no_rows_and_says_why(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  process 7 10 0\n  fail nvmlDeviceGetComputeRunning* no-permission")
    host.open()
    read = host.tick()
    assert pids(read) == []
    assert read.absent(Gpu.processes, ONE).state is State.DENIED


def test_denied_utilisation_is_not_zero(gpu_host: MakeHost) -> None:
    host = gpu_host(
        "gpu\n  busy 50\n  process 7 10 1\n  fail nvmlDeviceGetProcessUtilization no-permission"
    )
    host.open()
    value = host.tick().absent(GpuProcess.sm_util_pct, f"{ONE}/7")
    assert value.state is State.DENIED


@pytest.mark.parametrize("pid", [0, SENTINEL])
def test_an_impossible_pid_is_dropped_and_the_count_is_doubted(
    gpu_host: MakeHost, pid: int
) -> None:
    host = gpu_host(f"gpu\n  process 7 10 0\n  process {pid} 10 0")
    host.open()
    read = host.tick()
    assert pids(read) == [7]
    absent = read.absent(Gpu.processes, ONE)
    assert absent.state is State.IMPLAUSIBLE
    assert absent.raw == pid


def test_records_of_another_length_are_read_through_the_older_call(gpu_host: MakeHost) -> None:
    scenario = (
        "gpu\n  process_struct_bytes 32\n  process 7 10 0\n  process 8 20 0\n  process 9 30 0"
    )
    host = gpu_host(scenario)
    host.open()
    read = host.tick()
    assert pids(read) == [7, 8, 9]
    assert read.number(GpuProcess.mem_bytes, f"{ONE}/9") == 30 * 2**20


def test_records_of_another_length_without_an_older_call_are_doubted(gpu_host: MakeHost) -> None:
    scenario = (
        "gpu\n  process_struct_bytes 32\n  process 7 10 0\n  process 8 20 0\n  process 9 30 0"
    )
    host = gpu_host(scenario, without=("nvmlDeviceGetComputeRunningProcesses_v2",))
    host.open()
    read = host.tick()
    assert read.absent(Gpu.processes, ONE).state is State.IMPLAUSIBLE
    assert pids(read) == [7]


def test_memory_that_the_driver_does_not_tell_is_absent(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  process 7 - 0")
    host.open()
    value = host.tick().absent(GpuProcess.mem_bytes, f"{ONE}/7")
    assert value.state is State.UNSUPPORTED


def test_absurd_utilisation_of_a_process_is_ignored(gpu_host: MakeHost) -> None:
    host = gpu_host(
        "gpu\n  busy 50\n  process 7 10 1\n  garbage nvmlDeviceGetProcessUtilization 3.5 4.5"
    )
    host.open()
    host.tick()
    read = host.ticks(5)[-1]
    assert read.number(GpuProcess.sm_util_pct, f"{ONE}/7") == pytest.approx(40)


def test_with_mig_there_is_no_utilisation_by_process(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  busy 50\n  mig 1\n  process 7 10 1 instance 1 0")
    host.open()
    assert host.tick().absent(GpuProcess.sm_util_pct, f"{ONE}/7").state is State.UNSUPPORTED


def test_more_processes_than_expected_are_all_read(gpu_host: MakeHost) -> None:
    many = "\n".join(f"  process {1000 + n} 1 0.01" for n in range(90))
    host = gpu_host(f"gpu\n  busy 100\n{many}")
    host.open()
    host.tick()
    read = host.ticks(5)[-1]
    assert pids(read) == [1000 + n for n in range(90)]
    assert read.number(GpuProcess.sm_util_pct, f"{ONE}/1089") == 1


# -- kinds ---------------------------------------------------------------------------------------


def test_drawing_and_mps_processes_are_listed_with_their_kind_and_each_once(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        """
        gpu
          process 9 300 0
          process 7 10 0 graphics
          process 9 20 0 graphics
          process 8 40 0 mps
        """
    )
    host.open()
    read = host.tick()
    assert pids(read) == [7, 8, 9]
    kinds = [read.value(GpuProcess.kind, f"{ONE}/{pid}") for pid in (7, 8, 9)]
    assert kinds == [GRAPHICS, MPS, COMPUTE]
    assert read.number(GpuProcess.mem_bytes, f"{ONE}/9") == 300 * 2**20
    assert read.number(Gpu.processes, ONE) == 3
    assert read.absent(GpuProcess.instance, f"{ONE}/9").state is State.NOT_APPLICABLE


def test_lists_that_a_gpu_does_not_have_are_asked_for_once_and_take_nothing_away(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        """
        gpu
          process 7 10 0
          fail nvmlDeviceGetGraphicsRunningProcesses* not-supported
        """,
        without=("nvmlDeviceGetMPSComputeRunningProcesses_v3",),
    )
    host.open()
    reads = host.ticks(11)
    assert {read.number(Gpu.processes, ONE) for read in reads} == {1}
    calls = host.calls()
    assert calls["nvmlDeviceGetComputeRunningProcesses_v3"].calls == 3
    assert calls["nvmlDeviceGetGraphicsRunningProcesses_v3"].calls == 1


def test_a_denied_list_among_others_makes_the_count_unknown_but_hides_nobody(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        "gpu\n  process 7 10 0\n  fail nvmlDeviceGetGraphicsRunningProcesses* no-permission"
    )
    host.open()
    read = host.tick()
    assert pids(read) == [7]
    assert read.absent(Gpu.processes, ONE).state is State.DENIED


def test_who_only_ran_and_is_in_no_list_has_no_kind(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        gpu
          busy 50
          process 7 10 1
          fail nvmlDeviceGet*RunningProcesses* no-permission
        """
    )
    host.open()
    host.tick()
    absent = host.ticks(5)[-1].absent(GpuProcess.kind, f"{ONE}/7")
    assert absent.state is State.NOT_APPLICABLE


# -- whose numbers they are ----------------------------------------------------------------------


def test_a_process_in_a_container_has_the_number_of_its_own_logs(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    proc = tmp_path / "proc"
    namespace(proc, 4026531836)
    add_process(proc, 101, b"python3", inside=(23, 7))
    add_process(proc, 102, b"python3")
    host = gpu_host("gpu\n  process 101 1 0\n  process 102 1 0", proc=proc)
    host.open()
    read = host.tick()
    assert read.number(GpuProcess.namespace_pid, f"{ONE}/101") == 7
    assert read.number(GpuProcess.namespace_pid, f"{ONE}/102") == 102


def test_a_number_used_again_is_not_taken_for_the_process_before(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 101, b"first", inside=(7,))
    host = gpu_host("gpu\n  process 101 1 0", proc=proc)
    host.open()
    assert host.tick().number(GpuProcess.namespace_pid, f"{ONE}/101") == 7
    add_process(proc, 101, b"second", start=8, inside=(9,))
    read = host.ticks(5)[-1]
    assert read.value(GpuProcess.process, f"{ONE}/101") == "second"
    assert read.number(GpuProcess.namespace_pid, f"{ONE}/101") == 9


def test_inside_a_container_no_process_of_the_same_number_is_named(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    proc = tmp_path / "proc"
    namespace(proc, 4026532177)
    add_process(proc, 101, b"innocent")
    host = gpu_host("gpu\n  busy 50\n  process 101 64 1", proc=proc)
    host.open()
    host.tick()
    read = host.ticks(5)[-1]
    key = f"{ONE}/101"
    pid = read.absent(GpuProcess.pid, key)
    assert (pid.state, pid.raw) == (State.UNSUPPORTED, 101)
    name = read.absent(GpuProcess.process, key)
    assert "--pid=host" in name.reason
    assert read.absent(GpuProcess.namespace_pid, key).state is State.UNSUPPORTED
    # What the driver knows of it stays.
    assert read.number(GpuProcess.mem_bytes, key) == 64 * 2**20
    assert read.number(GpuProcess.sm_util_pct, key) == 50


def test_inside_a_container_the_hosts_proc_names_processes_truly(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    proc = tmp_path / "host-proc"
    namespace(proc, 4026532177)
    add_process(proc, 2, b"kthreadd")
    add_process(proc, 101, b"python3", inside=(7,))
    host = gpu_host("gpu\n  process 101 64 0", proc=proc)
    host.open()
    read = host.tick()
    assert read.number(GpuProcess.pid, f"{ONE}/101") == 101
    assert read.value(GpuProcess.process, f"{ONE}/101") == "python3"
    assert read.number(GpuProcess.namespace_pid, f"{ONE}/101") == 7


def test_a_process_that_ends_before_it_is_looked_at_is_shown_as_gone(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 1, b"systemd")
    host = gpu_host("gpu\n  process 101 64 0", proc=proc)
    host.open()
    read = host.tick()
    gone = read.absent(GpuProcess.process, f"{ONE}/101")
    assert gone.state is State.LOST
    assert "ended" in gone.reason
    assert read.number(GpuProcess.pid, f"{ONE}/101") == 101
    assert read.number(GpuProcess.mem_bytes, f"{ONE}/101") == 64 * 2**20


def test_a_proc_that_hides_others_is_denied_and_nobody_is_called_gone(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    host = gpu_host("gpu\n  process 101 64 0", proc=proc)
    host.open()
    hidden = host.tick().absent(GpuProcess.process, f"{ONE}/101")
    assert hidden.state is State.DENIED
    assert "hidepid" in hidden.reason


@pytest.mark.parametrize("stat", [b"", b"101 (x", b"\xff\xfe", b"101 (x) S 1"])
def test_a_torn_line_costs_the_name_only(gpu_host: MakeHost, tmp_path: Path, stat: bytes) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 101, b"x")
    (proc / "101/stat").write_bytes(stat)
    host = gpu_host("gpu\n  process 101 64 0", proc=proc)
    host.open()
    read = host.tick()
    assert read.absent(GpuProcess.process, f"{ONE}/101").state is State.ERROR
    assert read.number(GpuProcess.mem_bytes, f"{ONE}/101") == 64 * 2**20


def test_an_old_kernel_without_nspid_costs_that_number_only(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 101, b"python3")
    (proc / "101/status").write_text("Name:\tx\nPid:\t101\n")
    host = gpu_host("gpu\n  process 101 64 0", proc=proc)
    host.open()
    read = host.tick()
    assert read.value(GpuProcess.process, f"{ONE}/101") == "python3"
    assert read.absent(GpuProcess.namespace_pid, f"{ONE}/101").state is State.UNSUPPORTED


# -- cadence -------------------------------------------------------------------------------------


def test_while_a_screen_shows_them_the_lists_are_read_every_two_seconds(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host("gpu\n  process 7 10 1")
    host.open()

    def listed(ticks: int) -> list[int]:
        reads = host.ticks(ticks)
        return [index for index, read in enumerate(reads) if read.sample(GpuProcess)]

    assert listed(4) == [0]
    host.ask("tell", "on_screen", frozenset({GpuProcess}))
    assert listed(6) == [0, 2, 4]
    host.ask("tell", "on_screen", frozenset())
    assert listed(10) == [3, 8]
