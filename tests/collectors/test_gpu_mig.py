"""MIG devices: listed, filled, counted, and gone when the partition changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bottletop.clock import ManualClock, anchor
from bottletop.model import Absent, State
from bottletop.session.events import Arrived
from bottletop.session.reader import open_recording
from bottletop.session.writer import Recorder
from bottletop.store import Store
from bottletop.tables.gpu import LOST, Gpu, GpuProcess
from bottletop.tables.gpu_activity import GpuActivity, GpuInstance

if TYPE_CHECKING:
    from pathlib import Path

    from nvml.host import Host, Reading

    from .conftest import MakeHost

ONE = "GPU-00000000-0000-0000-0000-000000000000"
TWO = "GPU-00000000-0000-0000-0000-000000000001"


def mig(line: int, gpu: int = 0) -> str:
    """UUID of the MIG device on that line of a GPU's, from 1 on."""
    return f"MIG-{gpu:08x}-0000-0000-0000-{line:012x}"


def listed(read: Reading) -> list[str] | None:
    """Keys of the MIG devices in a read; None where it brought no listing."""
    return None if read.sample(GpuInstance) is None else [r.key for r in read.rows(GpuInstance)]


def calls(host: Host, function: str) -> int:
    """How often the driver was asked so far."""
    asked = host.calls()
    return asked[function].calls if function in asked else 0


SLICED = """
gpu
  mig 1
  gpm sm 44
  gpm_instance 7 sm 80
  gpm_instance 7 dram 30
  gpm_instance 1 sm 10
  mig_device 7 0 1g.10gb 9728 16 1
  mig_device 1 0 3g.40gb+me 40192 60 3
  process 101 2048 0 instance 7 0
  process 102 512 0 instance 1 0
  process 103 256 0 instance 1 0
gpu
  gpm sm 60
  process 104 64 1
"""


def test_mig_devices_are_listed_with_profile_memory_and_processes(gpu_host: MakeHost) -> None:
    host = gpu_host(SLICED)
    host.open()
    read = host.tick()
    assert listed(read) == [mig(1), mig(2)]
    small = {
        GpuInstance.gpu: ONE,
        GpuInstance.gpu_instance: 7,
        GpuInstance.compute_instance: 0,
        GpuInstance.profile: "1g.10gb",
        GpuInstance.sm_count: 16,
        GpuInstance.mem_total_bytes: 9728 * 2**20,
        GpuInstance.mem_used_bytes: 2048 * 2**20,
        GpuInstance.processes: 1,
    }
    assert {metric: read.value(metric, mig(1)) for metric in small} == small
    assert read.value(GpuInstance.profile, mig(2)) == "3g.40gb+me"
    assert read.value(GpuInstance.processes, mig(2)) == 2
    assert read.value(GpuProcess.instance, f"{ONE}/101") == mig(1)
    assert read.value(GpuProcess.instance, f"{ONE}/103") == mig(2)
    elsewhere = read.absent(GpuProcess.instance, f"{TWO}/104")
    assert elsewhere.state is State.NOT_APPLICABLE


def test_activity_of_a_mig_device_is_that_of_its_gpu_instance(gpu_host: MakeHost) -> None:
    host = gpu_host(SLICED)
    host.open()
    read = host.ticks(2)[-1]
    assert [row.key for row in read.rows(GpuActivity)] == [ONE, mig(1), mig(2), TWO]
    assert read.number(GpuActivity.sm_pct, ONE) == 44
    assert read.number(GpuActivity.sm_pct, mig(1)) == 80
    assert read.number(GpuActivity.dram_pct, mig(1)) == 30
    assert read.number(GpuActivity.sm_pct, mig(2)) == 10
    assert read.value(GpuActivity.gpu, mig(2)) == ONE
    # A link is counted for the GPU, not for a part of it.
    assert read.absent(GpuActivity.pcie_rx_bytes_per_s, mig(1)).state is State.UNSUPPORTED
    assert read.number(GpuActivity.pcie_rx_bytes_per_s, ONE) == 0
    assert "MIG" in read.absent(Gpu.util_pct, ONE).reason


def test_compute_instances_of_one_gpu_instance_do_not_claim_its_activity(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        """
        gpu
          mig 1
          gpm_instance 2 sm 80
          mig_device 2 0 1c.3g.40gb 40192 16 3
          mig_device 2 1 2c.3g.40gb 40192 32 3
        """
    )
    host.open()
    read = host.ticks(2)[-1]
    for line in (1, 2):
        absent = read.absent(GpuActivity.sm_pct, mig(line))
        assert absent.state is State.UNSUPPORTED
        assert "GPU instance 2 as a whole" in absent.reason
    assert calls(host, "nvmlGpmMigSampleGet") == 0


def test_on_ampere_the_devices_are_listed_and_their_activity_says_what_it_would_take(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host("gpu\n  arch 7\n  cc 8 0\n  mig 1\n  mig_device 1 0 1g.5gb 4864 14 1")
    host.open()
    read = host.ticks(2)[0]
    assert read.number(GpuInstance.mem_total_bytes, mig(1)) == 4864 * 2**20
    assert "Hopper" in read.absent(GpuActivity.sm_pct, mig(1)).reason


# -- rights ------------------------------------------------------------------------------------


def test_memory_that_may_not_be_read_is_denied_for_that_device_only(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        gpu
          mig 1
          mig_device 1 0 1g.10gb 9728 16 1
          mig_device 2 0 1g.10gb 9728 16 1
          fail nvmlDeviceGetMemoryInfo_v2/1/0 no-permission
        """
    )
    host.open()
    read = host.tick()
    assert read.absent(GpuInstance.mem_used_bytes, mig(1)).state is State.DENIED
    assert read.absent(GpuInstance.mem_total_bytes, mig(1)).state is State.DENIED
    assert read.number(GpuInstance.mem_used_bytes, mig(2)) == 0
    assert read.value(GpuInstance.profile, mig(1)) == "1g.10gb"


def test_a_container_with_one_mig_device_reads_it_where_the_gpu_is_refused(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        """
        gpu
          mig 1
          gpm_instance 3 sm 70
          mig_device 3 0 1g.10gb 9728 16 1
          process 101 2048 0 instance 3 0
          fail nvmlDeviceGetMigMode no-permission
          fail nvmlDeviceGetMemoryInfo_v2 no-permission
          fail nvmlDeviceGet*RunningProcesses_v3 no-permission
          fail nvmlGpmSampleGet no-permission
        """
    )
    host.open()
    first, second = host.ticks(2)
    assert first.absent(Gpu.mem_used_bytes, ONE).state is State.DENIED
    assert first.number(GpuInstance.mem_used_bytes, mig(1)) == 2048 * 2**20
    assert first.number(GpuInstance.processes, mig(1)) == 1
    assert first.number(Gpu.processes, ONE) == 1
    assert first.value(GpuProcess.instance, f"{ONE}/101") == mig(1)
    assert first.number(GpuProcess.mem_bytes, f"{ONE}/101") == 2048 * 2**20
    assert isinstance(first.value(GpuProcess.sm_util_pct, f"{ONE}/101"), Absent)
    assert second.absent(GpuActivity.sm_pct, ONE).state is State.DENIED
    assert second.number(GpuActivity.sm_pct, mig(1)) == 70


def test_process_lists_of_the_devices_are_read_only_where_the_gpus_own_do_not_tell(
    gpu_host: MakeHost,
) -> None:
    lists = "nvmlDeviceGetComputeRunningProcesses_v3"
    told = gpu_host(SLICED)
    told.open()
    told.tick()
    assert calls(told, lists) == 2
    refused = gpu_host(SLICED.replace("mig 1", f"mig 1\n  fail {lists} no-permission", 1))
    refused.open()
    read = refused.tick()
    assert calls(refused, lists) == 2 + 2
    assert read.number(GpuInstance.processes, mig(2)) == 2
    assert [row.key for row in read.rows(GpuProcess)] == [
        *(f"{ONE}/101", f"{ONE}/102", f"{ONE}/103", f"{TWO}/104")
    ]
    drawing = "nvmlDeviceGetGraphicsRunningProcesses_v3"
    partly = gpu_host(
        SLICED.replace(
            "mig 1",
            f"mig 1\n  fail {drawing} no-permission\n  process 105 8 0 graphics instance 1 0",
            1,
        )
    )
    partly.open()
    read = partly.tick()
    assert read.number(GpuInstance.processes, mig(2)) == 3
    assert read.number(Gpu.processes, ONE) == 4


def test_a_list_that_fails_is_no_device_without_processes(gpu_host: MakeHost) -> None:
    lists = "nvmlDeviceGet*RunningProcesses_v3"
    host = gpu_host(
        SLICED.replace(
            "mig 1", f"mig 1\n  fail {lists} no-permission\n  fail {lists}/7/0 no-permission", 1
        )
    )
    host.open()
    read = host.tick()
    assert read.absent(GpuInstance.processes, mig(1)).state is State.DENIED
    assert read.number(GpuInstance.processes, mig(2)) == 2
    assert read.absent(Gpu.processes, ONE).state is State.DENIED


def test_the_profile_is_made_from_the_attributes_where_the_name_does_not_tell(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        """
        gpu
          mig 1
          mig_device 1 0 1g.10gb 9728 16 1
          mig_device 2 0 3g.40gb 40192 60 3
          mig_device 5 0 1g.10gb 9728 16 1
          fail nvmlDeviceGetName/1/0 unknown
          fail nvmlDeviceGetName/2/0 unknown
          fail nvmlDeviceGetName/5/0 unknown
          fail nvmlDeviceGetAttributes_v2/5/0 no-permission
          fail nvmlDeviceGetGpuInstanceId/5/0 no-permission
          process 101 64 0 instance 5 0
          process 102 64 0 instance 2 0
        """
    )
    host.open()
    read = host.tick()
    assert isinstance(read.value(GpuInstance.processes, mig(3)), Absent)
    assert isinstance(read.value(GpuProcess.instance, f"{ONE}/101"), Absent)
    assert read.absent(GpuActivity.sm_pct, mig(3)).state is State.DENIED
    assert read.number(GpuInstance.processes, mig(2)) == 1
    assert read.value(GpuInstance.profile, mig(1)) == "1g.10gb"
    assert read.value(GpuInstance.profile, mig(2)) == "3g.40gb"
    assert read.absent(GpuInstance.profile, mig(3)).state is State.DENIED
    assert read.absent(GpuInstance.sm_count, mig(3)).state is State.DENIED


# -- other partitions ----------------------------------------------------------------------------


def test_mig_switched_on_and_off_while_watched(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        gpu
          busy 70
          mig step 0 0 7.5 1 20.5 0
          gpm sm 50
          gpm_instance 1 sm 20
          mig_device 1 0 1g.10gb 9728 16 1
        gpu
        """
    )
    host.open()
    before = host.ticks(7)
    assert all(listed(read) is None for read in before)
    on = host.ticks(12)
    assert [mig(1)] in [listed(read) for read in on]
    assert on[-1].number(GpuActivity.sm_pct, mig(1)) == 20
    off = host.ticks(12)
    # One listing says that it is gone, then there is nothing more to list.
    assert [listed(read) for read in off if listed(read) is not None][-1] == []
    assert [row.key for row in off[-1].rows(GpuActivity)] == [ONE, TWO]
    assert off[-1].number(Gpu.util_pct, ONE) == 70
    assert all(listed(read) is None for read in host.ticks(11))
    assert calls(host, "nvmlGpmSampleAlloc") - calls(host, "nvmlGpmSampleFree") == 4


def test_a_new_partition_with_the_same_numbers_is_not_the_old_one_going_on(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        """
        gpu
          mig 1
          gpm_instance 1 sm 20
          gpm_instance 2 sm 30
          mig_device 1 0 1g.10gb 9728 16 1 0 8.5
          mig_device 2 0 1g.10gb 9728 16 1
          mig_device 1 0 2g.20gb 19968 32 2 8.5
        """
    )
    host.open()
    reads = host.ticks(16)
    sets = [keys for keys in map(listed, reads) if keys is not None]
    assert sets[0] == [mig(1), mig(2)]
    assert sets[-1] == [mig(2), mig(3)]
    first = next(i for i, read in enumerate(reads) if read.rows(GpuActivity, mig(3)))
    assert not reads[first].rows(GpuActivity, mig(1))
    assert reads[first].absent(GpuActivity.sm_pct, mig(3)).state is State.NOT_READ
    assert reads[first].number(GpuActivity.sm_pct, mig(2)) == 30  # goes on
    assert reads[first + 1].number(GpuActivity.sm_pct, mig(3)) == 20
    assert reads[-1].value(GpuInstance.profile, mig(3)) == "2g.20gb"
    assert calls(host, "nvmlGpmSampleAlloc") - calls(host, "nvmlGpmSampleFree") == 6


def test_an_instance_that_went_is_noticed_by_its_samples_not_at_the_next_listing(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        """
        gpu
          mig 1
          mig_device 1 0 1g.10gb 9728 16 1 0 6.5
          mig_device 2 0 1g.10gb 9728 16 1
          mig_device 3 0 1g.10gb 9728 16 1 6.5
          process 101 64 0 instance 3 0 6.5
        """
    )
    host.open()
    reads = host.ticks(9)
    assert [i + 1 for i, read in enumerate(reads) if listed(read) is not None] == [1, 6, 8]
    assert reads[6].absent(GpuActivity.sm_pct, mig(1)).state is State.LOST
    assert listed(reads[7]) == [mig(2), mig(3)]
    assert [row.key for row in reads[7].rows(GpuActivity)] == [ONE, mig(2), mig(3)]
    # Whose processes are told at once: no device is shown empty for want of a look.
    assert reads[7].number(GpuInstance.processes, mig(3)) == 1


def test_an_instance_that_is_never_found_costs_one_listing_not_one_a_tick(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        """
        gpu
          mig 1
          gpm_instance 1 sm 20
          mig_device 1 0 1g.10gb 9728 16 1
          fail nvmlGpmMigSampleGet invalid-argument 2.5 8.5
        """
    )
    host.open()
    reads = host.ticks(12)
    assert [i + 1 for i, read in enumerate(reads) if listed(read) is not None] == [1, 4, 9]
    assert reads[5].absent(GpuActivity.sm_pct, mig(1)).state is State.LOST
    assert reads[-1].number(GpuActivity.sm_pct, mig(1)) == 20


def test_a_mode_that_cannot_be_read_for_a_while_is_no_other_mode(gpu_host: MakeHost) -> None:
    host = gpu_host(SLICED.replace("mig 1", "mig 1\n  fail nvmlDeviceGetMigMode timeout 4.5 12", 1))
    host.open()
    reads = host.ticks(20)
    assert {tuple(keys) for keys in map(listed, reads) if keys is not None} == {(mig(1), mig(2))}
    assert reads[6].absent(Gpu.mig, ONE).state is State.ERROR
    assert [read.number(GpuActivity.sm_pct, mig(1)) for read in reads[1:]] == [80] * 19
    assert calls(host, "nvmlGpmSampleAlloc") == 8


@pytest.mark.parametrize("call", ["MaxMigDeviceCount", "MigDeviceHandleByIndex"])
def test_a_listing_that_fails_makes_no_device_go(gpu_host: MakeHost, call: str) -> None:
    host = gpu_host(
        f"""
        gpu
          mig step 0 1 20 0 30 1
          gpm_instance 1 sm 20
          mig_device 1 0 1g.10gb 9728 16 1
          fail nvmlDeviceGet{call} timeout 4.5 7
          fail nvmlDeviceGet{call} timeout 29.5 32
        """
    )
    host.open()
    reads = host.ticks(10)
    assert {tuple(keys) for keys in map(listed, reads) if keys is not None} == {(mig(1),)}
    if call == "MigDeviceHandleByIndex":
        assert reads[5].absent(GpuInstance.mem_used_bytes, mig(1)).state is State.ERROR
    assert reads[6].number(GpuActivity.sm_pct, mig(1)) == 20
    reads = host.ticks(35)
    assert listed(next(read for read in reversed(reads) if listed(read) is not None)) == [mig(1)]


def test_mig_devices_of_a_lost_gpu_are_gone_and_come_back_with_it(gpu_host: MakeHost) -> None:
    host = gpu_host(SLICED.replace("mig 1", "mig 1\n  lost 3.5 10", 1))
    host.open()
    host.ticks(3)
    reads = host.ticks(4)
    assert reads[0].value(Gpu.health, ONE) == LOST
    assert listed(reads[1]) == []
    assert [row.key for row in reads[1].rows(GpuActivity)] == [ONE, TWO]
    reads = host.ticks(12)
    assert [mig(1), mig(2)] in [listed(read) for read in reads]
    assert reads[-1].number(GpuActivity.sm_pct, mig(1)) == 80
    host.close()
    assert calls(host, "nvmlGpmSampleAlloc") == calls(host, "nvmlGpmSampleFree")


# -- cost --------------------------------------------------------------------------------------


def test_seven_devices_cost_two_calls_each_a_tick_and_a_few_a_listing(gpu_host: MakeHost) -> None:
    devices = "".join(f"  mig_device {n} 0 1g.10gb 9728 16 1\n" for n in range(7))
    host = gpu_host(f"gpu\n  mig 1\n{devices}  process 7 10 0 instance 3 0\n")
    host.open()
    host.ticks(5)
    before = {name: stat.calls for name, stat in host.calls().items()}
    assert listed(host.tick()) == [mig(line) for line in range(1, 8)]
    host.ticks(9)
    asked = {name: stat.calls - before.get(name, 0) for name, stat in host.calls().items()}
    assert asked["nvmlGpmMigSampleGet"] == 7 * 10
    assert asked["nvmlGpmMetricsGet"] == (7 + 1) * 10
    for listing in ("MigDeviceHandleByIndex", "UUID", "MemoryInfo_v2"):
        own = 10 if listing == "MemoryInfo_v2" else 0
        assert asked[f"nvmlDeviceGet{listing}"] == 7 * 2 + own
    for once in (
        "Attributes_v2",
        "GpuInstanceId",
        "ComputeInstanceId",
        "Name",
        "MaxMigDeviceCount",
    ):
        assert asked[f"nvmlDeviceGet{once}"] == 0
    assert asked["nvmlDeviceGetComputeRunningProcesses_v3"] == 2


# -- what becomes of it --------------------------------------------------------------------------


@pytest.fixture
def watched(gpu_host: MakeHost) -> list[Reading]:
    """Reads of a host whose partition changes while it is watched."""
    host = gpu_host(
        """
        gpu
          mig 1
          gpm sm linear 0 0 20 100
          gpm_instance 1 sm 20
          gpm_instance 2 sm square 4 0.5 90 10
          gpm dram 250
          mig_device 1 0 1g.10gb 9728 16 1 0 8.5
          mig_device 2 0 1g.10gb 9728 16 1
          mig_device 1 0 2g.20gb 19968 32 2 8.5
          process 101 2048 0 instance 2 0
        gpu
          arch 8
          cc 8 9
        """
    )
    host.open()
    return host.ticks(16)


def test_rows_of_mig_devices_come_back_from_a_recording(
    watched: list[Reading], tmp_path: Path
) -> None:
    clock = ManualClock()
    path = tmp_path / "mig.btrec"
    recorder = Recorder(path, anchor=anchor(clock), meta={}, thresholds={}, clock=clock)
    samples = [sample for read in watched for sample in read.samples]
    for number, sample in enumerate(samples, 1):
        recorder.sample(number, sample)
    recorder.close(10)
    assert not recorder.status().error
    with open_recording(path) as recording:
        found = [event.sample for event in recording.events() if isinstance(event, Arrived)]
    assert found == samples
    assert any(sample.table is GpuInstance and len(sample.rows) == 2 for sample in found)


def test_the_store_keeps_what_is_there_alive_and_no_more(watched: list[Reading]) -> None:
    store = Store()
    for read in watched:
        for sample in read.samples:
            store.ingest(sample)
    last = watched[-1].samples[0].t_ns
    view = store.view(last)
    assert view.keys(GpuInstance) == [mig(2), mig(3)]
    assert sorted(view.keys(GpuActivity)) == sorted([ONE, TWO, mig(2), mig(3)])
    assert view.last(GpuActivity.sm_pct, mig(3)) == 20
    assert view.mean(GpuActivity.sm_pct, mig(2), 8) == pytest.approx(50)
    refused = view.last(GpuActivity.sm_pct, TWO)
    assert isinstance(refused, Absent)
    assert "Hopper" in refused.reason
