"""GPUs and drivers that fail: what is said, what is remembered, and that the others live on."""

from __future__ import annotations

from ctypes.util import find_library
from typing import TYPE_CHECKING

import pytest

from bottletop.collectors.base import Unavailable
from bottletop.linux.pci import AMD, INTEL
from bottletop.model import Absent, Kind, State
from bottletop.tables.gpu import LOST, NO_ACCESS, OK, RESET_REQUIRED, Gpu, GpuUtilSample
from nvml.pci import PciTree

if TYPE_CHECKING:
    from pathlib import Path

    from nvml.host import Host

    from .conftest import MakeHost

ONE = "GPU-00000000-0000-0000-0000-000000000000"
TWO = "GPU-00000000-0000-0000-0000-000000000001"


# -- single readings ---------------------------------------------------------------------------


def test_what_is_not_supported_is_absent_and_asked_once(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        gpu
          fail nvmlDeviceGetFanSpeed not-supported
          fail nvmlDeviceGetTemperatureV not-supported
          fail nvmlDeviceGetTemperature not-supported
          fail field:82 not-supported
        gpu
        """
    )
    host.open()
    read = host.ticks(20)[-1]
    for metric in (Gpu.fan_pct, Gpu.temp_c, Gpu.temp_mem_c):
        assert read.absent(metric, ONE).state is State.UNSUPPORTED
        assert read.number(metric, TWO) >= 0
    calls = host.calls()
    assert calls["nvmlDeviceGetTemperature"].calls == 1
    assert calls["nvmlDeviceGetTemperatureV"].calls <= 1 + 20 // 5 + 1
    assert calls["nvmlDeviceGetFanSpeed"].calls <= 1 + 20 // 5 + 1


def test_any_other_error_is_asked_again(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        gpu
          mem_clock 1593
          fail nvmlDeviceGetClockInfo timeout 2.5 5.5
          fail field:185 unknown 2.5 5.5
        """
    )
    host.open()
    reads = host.ticks(7)
    assert [isinstance(read.value(Gpu.mem_clock_mhz, ONE), Absent) for read in reads] == [
        *(False, False),
        *(True, True, True),
        *(False, False),
    ]
    failed = reads[3].absent(Gpu.mem_clock_mhz, ONE)
    assert failed.state is State.ERROR
    assert "imeout" in failed.reason
    assert reads[3].absent(Gpu.power_w, ONE).state is State.ERROR
    assert reads[6].number(Gpu.power_w, ONE) == 70.0


def test_a_reading_that_fails_now_and_then_is_never_shown_as_zero(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  busy 80\n  fail nvmlDeviceGetUtilizationRates unknown every 2 5")
    host.open()
    seen = [read.value(Gpu.util_pct, ONE) for read in host.ticks(20)]
    assert {value for value in seen if not isinstance(value, Absent)} == {80}
    assert sum(isinstance(value, Absent) for value in seen) == 8


def test_all_ones_returned_with_success_are_implausible_everywhere(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  garbage nvmlDeviceGet*")
    host.open()
    read = host.tick()
    (row,) = read.rows(Gpu)
    believed = {
        metric.name: value
        for metric, value in zip(Gpu.columns, row.values, strict=True)
        if metric.kind is not Kind.TEXT and isinstance(value, (int, float))
    }
    # What is left is ours: the place in the list, health, intervals, which call answered.
    assert believed.keys() <= {
        *("index", "health", "mem_info", "processes", "memory_kind", "power_basis"),
        "driver_backoff",
        *("sample_interval_s", "power_interval_s", "clock_interval_s", "stamp_correction_s"),
    }
    assert read.absent(Gpu.util_pct, ONE).state is State.IMPLAUSIBLE
    assert read.absent(Gpu.util_pct, ONE).raw == 4294967295
    assert read.absent(Gpu.energy_mj, ONE).raw == 2**64 - 1
    assert read.absent(Gpu.temp_c, ONE).raw == -1
    samples = read.rows(GpuUtilSample)
    assert samples
    assert all(isinstance(row.values[0], Absent) for row in samples)


def test_garbage_from_one_gpu_leaves_its_neighbour_alone(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  garbage field:*\ngpu\n  power 250")
    host.open()
    read = host.tick()
    assert read.absent(Gpu.power_w, ONE).state is State.IMPLAUSIBLE
    assert read.number(Gpu.power_w, TWO) == 250.0


# -- lost GPUs -----------------------------------------------------------------------------------


def test_a_lost_gpu_is_shown_lost_while_the_others_live_and_comes_back(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  busy 30\ngpu\n  busy 60\n  lost 3.5 12")
    host.open()
    reads = host.ticks(20)
    assert [read.value(Gpu.health, ONE) for read in reads] == [OK] * 20
    assert {read.number(Gpu.util_pct, ONE) for read in reads} == {30}
    health = [read.value(Gpu.health, TWO) for read in reads]
    assert health[:3] == [OK] * 3
    assert set(health[3:11]) == {LOST}
    assert health[16:] == [OK] * 4
    lost = reads[4]
    for metric in (Gpu.util_pct, Gpu.power_w, Gpu.fan_pct, Gpu.pstate, Gpu.mem_used_bytes):
        assert lost.absent(metric, TWO).state is State.LOST
    assert lost.value(Gpu.model, TWO) == "NVIDIA H100 80GB HBM3"
    assert lost.number(Gpu.sm_clock_max_mhz, TWO) == 1980
    assert reads[-1].number(Gpu.util_pct, TWO) == 60


def test_a_lost_gpu_is_not_pestered(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  lost 2")
    host.open()
    host.ticks(5)
    before = sum(stat.calls for stat in host.calls().values())
    host.ticks(20)
    assert sum(stat.calls for stat in host.calls().values()) - before <= 4 * 8


def test_samples_of_a_gpu_that_was_lost_are_not_delivered_twice(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  busy 30\n  lost 3.5 4.5")
    host.open()
    reads = host.ticks(15)
    stamps = [t_ns for read in reads for t_ns, _ in read.series(GpuUtilSample.util_pct, ONE)]
    assert stamps == sorted(set(stamps))
    assert len(stamps) > 60


def test_a_gpu_that_is_lost_from_the_start_keeps_its_place(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  lost 0 8\ngpu\n  busy 60")
    host.open()
    early = host.tick()
    assert early.number(Gpu.index, "index 0") == 0
    assert early.value(Gpu.health, "index 0") == LOST
    assert early.number(Gpu.index, TWO) == 1
    assert early.number(Gpu.util_pct, TWO) == 60
    late = host.ticks(14)[-1]
    assert late.value(Gpu.health, ONE) == OK
    assert late.rows(Gpu, "index 0") == []


def test_a_gpu_found_again_keeps_its_uuid_though_the_list_has_changed(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        order 0 0 1
        order 6 1 0
        gpu
          busy 30
          lost 4.5 8
        gpu
          busy 60
        """
    )
    host.open()
    host.ticks(3)
    last = host.ticks(14)[-1]
    assert last.number(Gpu.util_pct, ONE) == 30
    assert last.number(Gpu.index, ONE) == 1
    assert last.number(Gpu.util_pct, TWO) == 60


def test_reset_required_is_its_own_state(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  fail nvmlDeviceGet[!HUNIC]* reset-required 2.5")
    host.open()
    assert host.ticks(3)[-1].value(Gpu.health, ONE) == RESET_REQUIRED


def test_a_gpu_that_was_reset_is_read_again_and_asked_anew_what_it_supports(
    gpu_host: MakeHost,
) -> None:
    host = gpu_host(
        """
        gpu
          busy 40
          fail nvmlDeviceGetTemperatureV not-supported 0 8
          fail nvmlDeviceGetTemperature not-supported 0 8
          fail nvmlDeviceGet[!HUNIC]* reset-required 2.5 8
        """
    )
    host.open()
    reads = host.ticks(16)
    assert reads[1].absent(Gpu.temp_c, ONE).state is State.UNSUPPORTED
    assert reads[4].value(Gpu.health, ONE) == RESET_REQUIRED
    assert reads[-1].value(Gpu.health, ONE) == OK
    assert reads[-1].number(Gpu.util_pct, ONE) == 40
    assert reads[-1].number(Gpu.temp_c, ONE) == 40


def test_sixteen_gpus_are_all_read_though_half_of_them_fail(gpu_host: MakeHost) -> None:
    failing = {3: "lost 2.5", 7: "garbage nvmlDeviceGet*", 11: "fail field:* unknown"}
    gpus = [f"gpu\n  busy {5 * n}\n  {failing.get(n, '')}" for n in range(16)]
    host = gpu_host("\n".join(gpus))
    host.open()
    read = host.ticks(6)[-1]
    keys = [f"GPU-00000000-0000-0000-0000-{n:012x}" for n in range(16)]
    assert [row.key for row in read.rows(Gpu)] == keys
    for number, key in enumerate(keys):
        assert read.value(Gpu.health, key) == (LOST if number == 3 else OK)
        if number not in (3, 7):
            assert read.number(Gpu.util_pct, key) == 5 * number
    assert read.absent(Gpu.util_pct, keys[7]).state is State.IMPLAUSIBLE


def test_a_gpu_that_may_not_be_opened_says_so(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  fail nvmlDeviceGetHandleByIndex_v2 no-permission\ngpu")
    host.open()
    read = host.tick()
    assert read.value(Gpu.health, "index 0") == NO_ACCESS
    assert read.absent(Gpu.util_pct, "index 0").state is State.DENIED
    assert read.value(Gpu.health, TWO) == OK


# -- driver and library --------------------------------------------------------------------------


def _refusal(host: Host) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        host.open()
    return caught.value


def test_a_mismatch_names_cause_version_and_cure_and_is_over_when_it_is_over(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    version = tmp_path / "proc" / "driver" / "nvidia" / "version"
    version.parent.mkdir(parents=True)
    version.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\n"
    )
    host = gpu_host("fail nvmlInit mismatch 0 9\ngpu", proc=tmp_path / "proc")
    refusal = _refusal(host)
    assert "driver/library version mismatch" in refusal.reason
    assert "535.129.03" in refusal.reason
    assert "reboot" in refusal.reason
    assert not refusal.denied
    host.clock.step(10)
    host.open()
    assert host.tick().value(Gpu.health, ONE) == OK


@pytest.mark.parametrize(
    ("code", "words", "denied"),
    [
        ("not-loaded", "modprobe nvidia", False),
        ("no-permission", "/dev/nvidia", True),
        ("unknown", "container", False),
        ("timeout", "imeout", False),
    ],
)
def test_a_driver_that_does_not_start_says_what_to_do(
    gpu_host: MakeHost, code: str, words: str, denied: bool
) -> None:
    refusal = _refusal(gpu_host(f"fail nvmlInit {code}\ngpu"))
    assert words in refusal.reason
    assert refusal.denied is denied


def test_a_driver_without_gpus_is_unavailable_and_let_go(gpu_host: MakeHost) -> None:
    host = gpu_host("driver 570.1")
    assert "lists no GPU" in _refusal(host).reason
    assert host.calls()["nvmlShutdown"].calls == 1


def test_a_broken_library_is_not_called_missing(gpu_host: MakeHost, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "libnvidia-ml.so.1").write_bytes(b"")
    reason = _refusal(gpu_host("gpu", library=tmp_path / "broken")).reason
    assert "libnvidia-ml.so.1 cannot be loaded" in reason


def test_a_missing_library_names_the_driver_and_the_container(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    host = gpu_host("gpu", library=tmp_path / "empty")
    if find_library("nvidia-ml"):  # a host with a driver of its own: then that one is used
        host.close()
        return
    reason = _refusal(host).reason
    assert "libnvidia-ml.so.1 was not found" in reason
    assert "--gpus all" in reason


NO_DRIVER = "fail nvmlInit not-loaded\ngpu"


def test_a_host_with_gpus_of_others_is_told_so_by_name(gpu_host: MakeHost, tmp_path: Path) -> None:
    tree = PciTree(tmp_path / "sys")
    tree.add("0000:00:02.0", vendor=INTEL, kind=0x030000, driver="i915")
    tree.add("0000:03:00.0", vendor=AMD, kind=0x038000, driver="amdgpu", product="MI210")
    reason = _refusal(gpu_host(NO_DRIVER, sys_root=tree.root)).reason
    assert reason == (
        "Intel GPU 0000:00:02.0 (i915) and AMD GPU 0000:03:00.0 (MI210, amdgpu):"
        " not read by this version; everything else works"
    )


def test_many_gpus_of_others_are_counted(gpu_host: MakeHost, tmp_path: Path) -> None:
    tree = PciTree(tmp_path / "sys")
    for number in range(8):
        tree.add(f"0000:{number:02x}:00.0", vendor=AMD, kind=0x120000, driver="amdgpu")
    reason = _refusal(gpu_host(NO_DRIVER, sys_root=tree.root)).reason
    assert "AMD GPU 0000:01:00.0 (amdgpu) and 6 more: not read" in reason
    assert len(reason) < 200


def test_an_nvidia_gpu_without_its_driver_keeps_the_advice_and_names_who_has_it(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    tree = PciTree(tmp_path / "sys")
    tree.add("0000:00:02.0", vendor=INTEL, kind=0x030000, driver="i915")
    tree.add("0000:1b:00.0", driver="nouveau")
    reason = _refusal(gpu_host(NO_DRIVER, sys_root=tree.root)).reason
    assert "modprobe nvidia" in reason
    assert "NVIDIA GPU 0000:1b:00.0 (nouveau)" in reason
    assert "everything else works" not in reason


def test_a_driver_that_answers_is_used_whatever_else_is_on_the_bus(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    tree = PciTree(tmp_path / "sys")
    tree.add("0000:03:00.0", vendor=AMD, kind=0x038000, driver="amdgpu")
    host = gpu_host("gpu\n  busy 40", sys_root=tree.root)
    host.open()
    assert host.tick().number(Gpu.util_pct, ONE) == 40


def test_a_driver_that_goes_while_it_is_read_can_be_opened_again(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        fail nvml* not-loaded 3.5 8
        gpu
          busy 40
        """
    )
    host.open()
    host.ticks(3)
    host.clock.step(1)
    with pytest.raises(Unavailable, match="not loaded"):
        host.read()
    with pytest.raises(Unavailable, match="not loaded"):
        host.open()
    host.clock.step(5)
    host.open()
    assert host.tick().number(Gpu.util_pct, ONE) == 40
    host.close()
    host.close()


# -- slow and hanging calls ------------------------------------------------------------------------


def test_the_time_that_a_slow_driver_takes_is_our_own_account(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  slow nvmlDeviceGetSamples 4\n  slow nvmlDeviceGetMemoryInfo_v2 30")
    host.open()
    read = host.ticks(3)[-1]
    stats = host.ask("own")
    asked = host.calls()
    assert stats.nvml_ns == sum(stat.ns for stat in asked.values())
    assert stats.nvml_calls == sum(stat.calls for stat in asked.values())
    assert stats.nvml_p95_s == pytest.approx(0.030 + 6 * 0.004)
    sample = read.sample(Gpu)
    assert sample is not None
    assert sample.took_ns == pytest.approx(42e6)


def test_a_call_that_never_returns_holds_nothing_but_its_own_thread(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  hang nvmlDeviceGetMemoryInfo_v2 2.5 100")
    host.open()
    host.ticks(2)
    host.clock.step(1)
    host.ask("begin_read")
    assert host.ask("end_read", 0.2) is None
    assert host.ask("own").nvml_calls > 0  # the process goes on
    host.clock.step(100)
    assert host.ask("end_read", 10.0)


def test_quitting_does_not_wait_for_a_call_that_never_returns(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  hang nvmlDeviceGetMemoryInfo_v2 0.5")
    host.open()
    host.clock.step(1)
    host.ask("begin_read")
    assert host.ask("end_read", 0.1) is None
    assert host.end() == 0
