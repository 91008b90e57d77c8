"""Who uses a GPU, as far as the driver says and can be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bottletop.model import Absent, State
from bottletop.tables.gpu import Gpu, GpuProcess

if TYPE_CHECKING:
    from pathlib import Path

    from nvml.host import Reading

    from .conftest import MakeHost

ONE = "GPU-00000000-0000-0000-0000-000000000000"
TWO = "GPU-00000000-0000-0000-0000-000000000001"
SENTINEL = 4294967295


def pids(read: Reading) -> list[object]:
    """PIDs of the rows of a read, in order."""
    return [row.values[GpuProcess.pid.index] for row in read.rows(GpuProcess)]


def test_processes_are_listed_by_gpu_and_pid_with_name_memory_and_share(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    for pid, name in ((101, "python3"), (102, "evil\x1b[2Jname")):
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "comm").write_text(name + "\n")
    host = gpu_host(
        """
        gpu
          busy 80
          process 101 2048 0.75
          process 102 512 0.25
        gpu
          process 101 64 0
        """,
        proc=tmp_path / "proc",
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
