"""Parts that are not cards with memory of their own, guests, and what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bottletop.model import Absent, State
from bottletop.tables.gpu import (
    COHERENT,
    DEDICATED,
    INSTANT,
    LOST,
    MEAN,
    OK,
    UNIFIED,
    VGPU_GUEST,
    WSL,
    Gpu,
    GpuUtilSample,
)
from bottletop.tables.gpu_health import GpuHealth

if TYPE_CHECKING:
    from pathlib import Path

    from nvml.host import Host, Reading

    from .conftest import MakeHost

ONE = "GPU-00000000-0000-0000-0000-000000000000"

GB10 = """
gpu
  name NVIDIA GB10
  arch 10
  cc 12 1
  addressing 2
  busy 40
  pcie_gen 1
  pcie_gen_max 1
  pcie_width 1
  pcie_width_max 1
  fail nvmlDeviceGetMemoryInfo* not-supported
"""
GH200 = """
gpu
  name NVIDIA GH200 480GB
  arch 9
  addressing 2
  mem_total 97871
  mem_used 40000
  power 400
  power_module 640
  pcie_gen 1
  pcie_gen_max 1
  pcie_width 1
  pcie_width_max 1
  c2c_links 10
  c2c_speed 44712
"""
ORIN = """
gpu
  name Orin (nvgpu)
  arch 7
  cc 8 7
  busy step 0 0 5.5 60 10.5 0
  fail nvmlDeviceGetMemoryInfo* not-supported
  fail nvmlDeviceGetSamples not-supported
  fail nvmlDeviceGetFanSpeed not-supported
"""
MEMINFO = (
    "MemTotal:       127600748 kB\nMemFree:          5000000 kB\nMemAvailable:   118566368 kB\n"
)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc of a host with 121.7 GiB."""
    folder = tmp_path / "proc"
    folder.mkdir()
    (folder / "meminfo").write_text(MEMINFO)
    (folder / "version").write_text("Linux version 6.11.0-1016-nvidia (buildd@bos03) #16\n")
    return folder


def tick(host: Host) -> Reading:
    host.open()
    return host.tick()


# -- memory --------------------------------------------------------------------------------------


def test_a_gb10_works_in_the_hosts_memory_and_says_so(gpu_host: MakeHost, proc: Path) -> None:
    host = gpu_host(GB10, proc=proc)
    read = tick(host)
    assert read.value(Gpu.memory_kind, ONE) == UNIFIED
    assert read.value(Gpu.architecture, ONE) == "Blackwell"
    total = read.number(Gpu.mem_total_bytes, ONE)
    assert total == 127600748 * 1024
    assert f"{total / 2**30:.1f}" == "121.7"
    for metric in (Gpu.mem_used_bytes, Gpu.mem_reserved_bytes, Gpu.mem_info):
        absent = read.absent(metric, ONE)
        assert absent.state is State.NOT_APPLICABLE
        assert "no memory of its own" in absent.reason
    assert read.number(Gpu.util_pct, ONE) == 40
    host.ticks(10)
    assert "nvmlDeviceGetMemoryInfo_v2" not in host.calls()


def test_what_a_gb10_uses_is_what_its_processes_hold_if_all_of_them_say(
    gpu_host: MakeHost, proc: Path
) -> None:
    one, two = "\n  process 77 63931 1", "\n  process 78 - 0 12"
    host = gpu_host(GB10 + one + two, proc=proc)
    read = tick(host)
    assert read.number(Gpu.mem_used_bytes, ONE) == 63931 * 2**20
    later = host.ticks(18)[-1]
    assert later.absent(Gpu.mem_used_bytes, ONE).state is State.NOT_APPLICABLE


def test_a_gb10_whose_driver_answers_a_total_of_its_own_still_shows_the_hosts(
    gpu_host: MakeHost, proc: Path
) -> None:
    scenario = GB10.replace("fail nvmlDeviceGetMemoryInfo* not-supported", "mem_total 4096")
    read = tick(gpu_host(scenario, proc=proc))
    assert read.number(Gpu.mem_total_bytes, ONE) == 127600748 * 1024


def test_a_host_that_does_not_tell_its_memory_leaves_the_total_out(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    read = tick(gpu_host(GB10, proc=tmp_path / "empty"))
    assert read.absent(Gpu.mem_total_bytes, ONE).state is State.ERROR
    assert read.value(Gpu.memory_kind, ONE) == UNIFIED


def test_a_card_whose_memory_fails_is_not_taken_for_one_without(
    gpu_host: MakeHost, proc: Path
) -> None:
    host = gpu_host("gpu\n  fail nvmlDeviceGetMemoryInfo* not-supported", proc=proc)
    read = tick(host)
    assert read.absent(Gpu.mem_total_bytes, ONE).state is State.UNSUPPORTED
    assert read.absent(Gpu.memory_kind, ONE).state is State.UNSUPPORTED


@pytest.mark.parametrize("code", ["unknown", "no-permission", "timeout"])
def test_memory_that_cannot_be_read_now_leaves_a_card_a_card(
    gpu_host: MakeHost, proc: Path, code: str
) -> None:
    read = tick(gpu_host(f"gpu\n  fail nvmlDeviceGetMemoryInfo* {code}", proc=proc))
    assert isinstance(read.value(Gpu.mem_total_bytes, ONE), Absent)
    assert read.value(Gpu.memory_kind, ONE) == DEDICATED


def test_a_lost_gb10_shows_no_memory(gpu_host: MakeHost, proc: Path) -> None:
    host = gpu_host(GB10 + "\n  lost 2.5", proc=proc)
    tick(host)
    lost = host.ticks(3)[-1]
    assert lost.value(Gpu.health, ONE) == LOST
    assert lost.absent(Gpu.mem_total_bytes, ONE).state is State.LOST
    # From the start: nothing is known of it, so nothing is claimed.
    early = tick(gpu_host(GB10 + "\n  lost", proc=proc))
    assert early.absent(Gpu.mem_total_bytes, "index 0").state is State.LOST
    (row,) = early.rows(Gpu)
    assert isinstance(row.values[Gpu.memory_kind.index], Absent)


def test_a_grace_hopper_has_memory_of_its_own_that_the_host_manages(gpu_host: MakeHost) -> None:
    read = tick(gpu_host(GH200))
    assert read.value(Gpu.memory_kind, ONE) == COHERENT
    assert read.number(Gpu.mem_total_bytes, ONE) == 97871 * 2**20
    assert read.number(Gpu.mem_used_bytes, ONE) == 40000 * 2**20
    assert read.number(Gpu.power_w, ONE) == 400
    assert read.number(Gpu.power_module_w, ONE) == 640
    assert read.number(GpuHealth.c2c_links, ONE) == 10
    assert read.number(GpuHealth.c2c_bytes_per_s, ONE) == 44712e6


def test_a_grace_hopper_is_known_by_name_where_the_driver_does_not_tell_addressing(
    gpu_host: MakeHost,
) -> None:
    read = tick(gpu_host(GH200, without=("nvmlDeviceGetAddressingMode",)))
    assert read.value(Gpu.memory_kind, ONE) == COHERENT


@pytest.mark.parametrize("name", ["NVIDIA B200", "NVIDIA H200", "NVIDIA GB100X", "NVIDIA Thorium"])
def test_names_that_only_look_alike_are_cards(gpu_host: MakeHost, name: str) -> None:
    read = tick(gpu_host(f"gpu\n  name {name}\n  addressing 1"))
    assert read.value(Gpu.memory_kind, ONE) == DEDICATED


def test_only_parts_beside_a_cpu_are_asked_for_the_power_of_the_module(gpu_host: MakeHost) -> None:
    read = tick(gpu_host("gpu\n  power_module 900"))
    absent = read.absent(Gpu.power_module_w, ONE)
    assert absent.state is State.NOT_APPLICABLE


# -- the link ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", [GB10, GH200])
def test_the_placeholder_of_a_part_beside_its_cpu_is_no_link(
    gpu_host: MakeHost, proc: Path, scenario: str
) -> None:
    host = gpu_host(scenario, proc=proc)
    tick(host)
    read = host.ticks(6)[-1]
    for metric in (Gpu.pcie_gen, Gpu.pcie_width, Gpu.pcie_gen_max, Gpu.pcie_width_max):
        assert read.absent(metric, ONE).state is State.NOT_APPLICABLE
    assert "nvmlDeviceGetCurrPcieLinkGeneration" not in host.calls()
    assert host.calls()["nvmlDeviceGetMaxPcieLinkGeneration"].calls == 1


def test_a_card_in_a_slot_of_one_lane_has_a_link(gpu_host: MakeHost) -> None:
    slot = "gpu\n  pcie_gen 1\n  pcie_gen_max 1\n  pcie_width 1\n  pcie_width_max 1"
    read = tick(gpu_host(slot))
    assert read.number(Gpu.pcie_gen, ONE) == read.number(Gpu.pcie_width_max, ONE) == 1


def test_a_real_link_of_a_part_beside_its_cpu_is_shown(gpu_host: MakeHost) -> None:
    wide = GH200.replace("pcie_gen_max 1", "pcie_gen_max 5").replace(
        "_width_max 1", "_width_max 16"
    )
    read = tick(gpu_host(wide))
    assert read.number(Gpu.pcie_gen_max, ONE) == 5


# -- zeros that were not measured ----------------------------------------------------------------


def test_zeros_of_a_jetson_are_believed_once_it_has_answered_anything_else(
    gpu_host: MakeHost, proc: Path
) -> None:
    host = gpu_host(ORIN, proc=proc)
    host.open()
    reads = host.ticks(14)
    early = reads[2].absent(Gpu.util_pct, ONE)
    assert early.state is State.IMPLAUSIBLE
    assert early.raw == 0
    assert reads[7].number(Gpu.util_pct, ONE) == 60
    assert reads[13].number(Gpu.util_pct, ONE) == 0
    assert reads[0].value(Gpu.memory_kind, ONE) == UNIFIED


def test_zeros_in_the_buffer_of_a_jetson_are_no_samples_either(
    gpu_host: MakeHost, proc: Path
) -> None:
    host = gpu_host(ORIN.replace("  fail nvmlDeviceGetSamples not-supported\n", ""), proc=proc)
    host.open()
    reads = host.ticks(14)
    assert [row for read in reads[:5] for row in read.rows(GpuUtilSample)] == []
    assert {value for _, value in reads[7].series(GpuUtilSample.util_pct, ONE)} == {60}
    assert {value for _, value in reads[13].series(GpuUtilSample.util_pct, ONE)} == {0}


def test_what_a_jetson_is_not_given_is_said_to_be_because_of_that(
    gpu_host: MakeHost, proc: Path
) -> None:
    read = tick(gpu_host(ORIN, proc=proc))
    assert "Jetson" in read.absent(Gpu.fan_pct, ONE).reason


@pytest.mark.parametrize(("cc", "jetson"), [("10 1", True), ("11 0", True), ("12 0", False)])
def test_jetsons_are_known_by_their_compute_capability(
    gpu_host: MakeHost, proc: Path, cc: str, jetson: bool
) -> None:
    read = tick(gpu_host(f"gpu\n  name NVIDIA\n  arch 10\n  cc {cc}", proc=proc))
    assert (read.value(Gpu.memory_kind, ONE) == UNIFIED) is jetson
    assert isinstance(read.value(Gpu.util_pct, ONE), Absent) is jetson


def test_memory_utilisation_of_nothing_beside_a_busy_gpu_is_not_a_measurement(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host("gpu\n  busy step 0 50 3.5 95 7.5 40\n  mem_busy step 0 0 10.5 20 14.5 0")
    host.open()
    reads = host.ticks(18)
    assert reads[1].number(Gpu.mem_util_pct, ONE) == 0
    for at in (5, 9):
        assert reads[at].absent(Gpu.mem_util_pct, ONE).state is State.UNSUPPORTED
    assert reads[12].number(Gpu.mem_util_pct, ONE) == 20
    assert reads[17].number(Gpu.mem_util_pct, ONE) == 0  # it has shown that it can measure


# -- power ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "fields", "basis"),
    [
        ("arch 5\n  cc 7 0", False, INSTANT),
        ("arch 7\n  cc 8 0", False, INSTANT),  # GA100
        ("arch 7\n  cc 8 6", False, MEAN),
        ("arch 9\n  cc 9 0", True, MEAN),
    ],
)
def test_power_says_whether_it_is_a_mean(
    gpu_host: MakeHost, part: str, fields: bool, basis: int
) -> None:
    lacking = "" if fields else "\n  fail field:185 not-supported\n  fail field:186 not-supported"
    host = gpu_host(f"gpu\n  {part}\n  power step 0 100 0.5 300{lacking}")
    read = tick(host)
    assert read.value(Gpu.power_basis, ONE) == basis
    if basis == INSTANT:
        assert read.value(Gpu.power_instant_w, ONE) == read.value(Gpu.power_w, ONE)
    elif fields:
        assert read.number(Gpu.power_w, ONE) == 200
        assert read.number(Gpu.power_instant_w, ONE) == 300
    else:
        assert read.absent(Gpu.power_instant_w, ONE).state is State.UNSUPPORTED


def test_power_of_an_architecture_that_nobody_names_claims_no_basis(gpu_host: MakeHost) -> None:
    read = tick(gpu_host("gpu\n  arch 0\n  fail field:185 not-supported"))
    assert read.absent(Gpu.power_basis, ONE).state is State.UNSUPPORTED
    assert read.absent(Gpu.architecture, ONE).state is State.UNSUPPORTED


def test_an_architecture_newer_than_us_is_shown_by_number(gpu_host: MakeHost) -> None:
    read = tick(gpu_host("gpu\n  arch 14"))
    assert read.value(Gpu.architecture, ONE) == "architecture 14"


# -- video engines -------------------------------------------------------------------------------


def test_video_engines_are_read_and_may_each_be_missing(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  enc 10\n  dec 100\n  jpg -1\n  ofa 30")
    read = tick(host)
    assert read.number(Gpu.enc_util_pct, ONE) == 10
    assert read.number(Gpu.dec_util_pct, ONE) == 100
    assert read.number(Gpu.ofa_util_pct, ONE) == 30
    assert read.absent(Gpu.jpg_util_pct, ONE).state is State.UNSUPPORTED
    host.ticks(30)
    assert host.calls()["nvmlDeviceGetJpgUtilization"].calls == 1
    assert host.calls()["nvmlDeviceGetDecoderUtilization"].calls == 4


# -- guests --------------------------------------------------------------------------------------

GUEST = """
gpu
  virtualisation 2
  fail nvmlDeviceGetCurrPcieLink* not-supported
  fail nvmlDeviceGetFanSpeed not-supported
  fail field:94 not-supported
  fail nvmlDeviceGetPcieReplayCounter not-supported
"""


def test_a_vgpu_guest_says_that_it_is_one_where_something_is_withheld(gpu_host: MakeHost) -> None:
    read = tick(gpu_host(GUEST))
    assert read.value(Gpu.virtualisation, ONE) == VGPU_GUEST
    for metric in (Gpu.fan_pct, Gpu.pcie_gen, GpuHealth.pcie_replays):
        assert "vGPU guest" in read.absent(metric, ONE).reason
    assert read.value(Gpu.health, ONE) == OK


def test_wsl_is_recognised_by_its_kernel_and_named(gpu_host: MakeHost, proc: Path) -> None:
    (proc / "version").write_text("Linux version 5.15.153.1-microsoft-standard-WSL2 (root@x)\n")
    host = gpu_host(
        """
        gpu
          process 77 100 1
          fail nvmlDeviceGet*RunningProcesses* not-supported
          fail nvmlDeviceGetFanSpeed not-supported
        """,
        proc=proc,
    )
    read = tick(host)
    assert read.value(Gpu.virtualisation, ONE) == WSL
    for metric in (Gpu.fan_pct, Gpu.processes):
        assert "WSL" in read.absent(metric, ONE).reason


def test_a_driver_too_old_to_tell_virtualisation_costs_only_that(gpu_host: MakeHost) -> None:
    read = tick(gpu_host("gpu", without=("nvmlDeviceGetVirtualizationMode",)))
    assert read.absent(Gpu.virtualisation, ONE).state is State.UNSUPPORTED
    assert read.value(Gpu.memory_kind, ONE) == DEDICATED
