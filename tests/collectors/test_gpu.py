"""What the gpu collector reads from a driver that answers well, and from older and odder ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bottletop.model import State
from bottletop.tables.gpu import (
    LOST,
    OK,
    Gpu,
    GpuClockSample,
    GpuPowerSample,
    GpuUtilSample,
    clock_event_text,
)
from nvml.host import scenario_path

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import MakeHost

SAW = "GPU-aaaaaaaa-0000-4000-8000-000000000001"
STEADY = "GPU-bbbbbbbb-0000-4000-8000-000000000002"
ONE = "GPU-00000000-0000-0000-0000-000000000000"
TWO = "GPU-00000000-0000-0000-0000-000000000001"


def test_two_gpus_are_read_whole(gpu_host: MakeHost) -> None:
    host = gpu_host(scenario_path("two-gpus"), start_s=30.5)
    host.open()
    read = host.read()
    assert [row.key for row in read.rows(Gpu)] == [SAW, STEADY]
    assert read.value(Gpu.model, SAW) == "NVIDIA H100 80GB HBM3"
    assert read.value(Gpu.driver, SAW) == "570.124.06"
    assert read.value(Gpu.pci_bus_id, STEADY) == "00000000:43:00.0"
    assert read.value(Gpu.compute_capability, SAW) == "9.0"
    assert read.value(Gpu.provenance, SAW) == "nvml"
    assert read.value(Gpu.health, SAW) == OK
    assert read.number(Gpu.util_pct, SAW) == 100
    assert read.number(Gpu.mem_util_pct, SAW) == 40
    assert read.number(Gpu.util_pct, STEADY) == 90
    assert read.number(Gpu.power_w, STEADY) == 420.0
    assert read.number(Gpu.temp_c, SAW) == 46
    assert read.number(Gpu.sm_clock_mhz, SAW) == 1980
    assert read.number(Gpu.sm_clock_boost_mhz, SAW) == 1980
    assert read.number(Gpu.pcie_gen, SAW) == read.number(Gpu.pcie_gen_max, SAW) == 5
    assert read.number(Gpu.pcie_width, SAW) == read.number(Gpu.pcie_width_max, SAW) == 16
    assert read.number(Gpu.pcie_rx_bytes, SAW) == pytest.approx(30.5 * 2e9)
    assert read.number(Gpu.pcie_tx_bytes, SAW) == pytest.approx(30.5 * 5e8)
    assert not [cell for row in read.rows(Gpu) for cell in row.values if cell is None]


def test_requested_enforced_and_default_limits_are_told_apart(gpu_host: MakeHost) -> None:
    host = gpu_host(scenario_path("two-gpus"))
    host.open()
    read = host.tick()
    assert read.number(Gpu.power_limit_w, SAW) == 600.0
    assert read.number(Gpu.power_limit_requested_w, SAW) == 650.0
    assert read.number(Gpu.power_limit_default_w, SAW) == 700.0


def test_energy_never_goes_back_and_integrates_the_power(gpu_host: MakeHost) -> None:
    host = gpu_host(scenario_path("two-gpus"), start_s=10)
    host.open()
    energies = [read.number(Gpu.energy_mj, SAW) for read in host.ticks(12, seconds=0.7)]
    assert energies == sorted(energies)
    # 8.4 s from 10 s on: four whole 2 s cycles of 600 J, and 0.4 s at 500 W.
    assert energies[-1] == pytest.approx(10 * 300_000 + 4 * 600_000 + 0.4 * 500_000, abs=2)


def test_throttled_time_is_the_drivers_own_count(gpu_host: MakeHost) -> None:
    # 0.2 s in every 2: bits looked at once a second would see all of it or nothing.
    host = gpu_host(
        """
        gpu
          reasons square 2 0.1 0x24 0x0
        """
    )
    host.open()
    last = host.ticks(20)[-1]
    assert last.number(Gpu.throttle_sw_power_ns, ONE) == pytest.approx(2e9, rel=1e-6)
    assert last.number(Gpu.throttle_sw_thermal_ns, ONE) == pytest.approx(2e9, rel=1e-6)
    assert last.number(Gpu.throttle_hw_thermal_ns, ONE) == 0


def test_a_reason_bit_that_nobody_named_is_kept(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  reasons 0x10004")
    host.open()
    bits = host.tick().number(Gpu.clock_event_reasons, ONE)
    assert bits == 0x10004
    assert clock_event_text(int(bits)) == "software power cap, 0x10000"


def test_memory_v2_keeps_the_drivers_reserve_apart(gpu_host: MakeHost) -> None:
    scenario = "gpu\n  mem_total 81559\n  mem_used 1000\n  mem_reserved 600"
    host = gpu_host(scenario)
    host.open()
    read = host.tick()
    assert read.number(Gpu.mem_used_bytes, ONE) == 1000 * 2**20
    assert read.number(Gpu.mem_reserved_bytes, ONE) == 600 * 2**20
    assert read.value(Gpu.mem_info, ONE) == 2


def test_memory_v1_is_marked_because_it_counts_the_reserve_as_used(gpu_host: MakeHost) -> None:
    scenario = "gpu\n  mem_total 81559\n  mem_used 1000\n  mem_reserved 600"
    host = gpu_host(scenario, without=("nvmlDeviceGetMemoryInfo_v2",))
    host.open()
    read = host.tick()
    assert read.number(Gpu.mem_used_bytes, ONE) == 1600 * 2**20
    assert read.absent(Gpu.mem_reserved_bytes, ONE).state is State.UNSUPPORTED
    assert read.value(Gpu.mem_info, ONE) == 1


OLD_DRIVER = (
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetSamples",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxCustomerBoostClock",
)


def test_an_old_driver_is_read_through_its_older_calls(gpu_host: MakeHost) -> None:
    host = gpu_host(
        """
        gpu
          busy 60
          power 200
          power_limit 300
          reasons square 2 0.5 0x24 0x0
          temp 61
          process 77 100 1
        """,
        without=OLD_DRIVER,
    )
    host.open()
    read = host.ticks(4)[-1]
    assert read.number(Gpu.power_w, ONE) == 200.0
    assert read.number(Gpu.power_limit_w, ONE) == 300.0
    assert read.number(Gpu.energy_mj, ONE) == 800_000
    assert read.number(Gpu.throttle_sw_power_ns, ONE) == 2_000_000_000
    assert read.number(Gpu.throttle_sw_thermal_ns, ONE) == 2_000_000_000
    assert read.number(Gpu.clock_event_reasons, ONE) == 0x24
    assert read.number(Gpu.temp_c, ONE) == 61
    assert read.number(Gpu.processes, ONE) == 1
    for gone in (
        Gpu.throttle_hw_thermal_ns,
        Gpu.pcie_rx_bytes,
        Gpu.temp_margin_c,
        Gpu.mig,
        Gpu.sm_clock_boost_mhz,
    ):
        assert read.absent(gone, ONE).state is State.UNSUPPORTED


def test_fields_that_a_driver_does_not_know_yield_to_their_predecessors(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  fields_up_to 230\n  reasons square 2 0.5 0x60 0x0")
    host.open()
    read = host.ticks(4)[-1]
    assert read.number(Gpu.throttle_sw_thermal_ns, ONE) == 2_000_000_000  # field 75 for 269
    assert read.absent(Gpu.throttle_hw_thermal_ns, ONE).state is State.UNSUPPORTED
    assert "nvmlDeviceGetViolationStatus" not in host.calls()


def test_a_byte_counter_that_wraps_within_a_read_is_not_believed(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  pcie_rx 2e10\n  pcie_counter_bits 32")
    host.open()
    absent = host.tick().absent(Gpu.pcie_rx_bytes, ONE)
    assert absent.state is State.UNSUPPORTED
    assert "32 bits" in absent.reason


def test_mig_says_why_there_is_no_utilisation_and_may_be_switched_off(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  busy 70\n  mig step 0 1 10 0")
    host.open()
    read = host.tick()
    assert read.value(Gpu.mig, ONE) == 1
    absent = read.absent(Gpu.util_pct, ONE)
    assert absent.state is State.UNSUPPORTED
    assert "MIG" in absent.reason
    assert read.rows(GpuUtilSample) == []
    assert read.number(Gpu.power_w, ONE) == 70.0
    assert host.ticks(16)[-1].number(Gpu.util_pct, ONE) == 70


def test_rows_of_every_table_are_stamped_in_order_and_not_in_the_future(gpu_host: MakeHost) -> None:
    host = gpu_host(scenario_path("two-gpus"), start_s=3.3)
    host.open()
    newest: dict[tuple[str, str], int] = {}
    for seconds in (0.4, 1.0, 1.3, 0.2, 1.0, 2.5):
        read = host.tick(seconds)
        for table in (Gpu, GpuUtilSample, GpuPowerSample, GpuClockSample):
            for row in read.rows(table):
                assert newest.get((table.name, row.key), 0) < row.t_ns <= host.clock.monotonic_ns()
                newest[table.name, row.key] = row.t_ns
    assert len(newest) == 8


def test_a_gpu_that_left_the_list_over_a_reopen_stays_shown_as_lost(gpu_host: MakeHost) -> None:
    host = gpu_host("order 0 0 1\norder 10 1\ngpu\n  busy 5\ngpu\n  busy 6")
    host.open()
    host.tick()
    host.clock.step(15)
    host.close()
    host.open()
    read = host.read()
    assert read.number(Gpu.util_pct, TWO) == 6
    assert read.number(Gpu.index, TWO) == 0
    assert read.value(Gpu.health, ONE) == LOST
    assert "no longer lists" in read.absent(Gpu.util_pct, ONE).reason


def test_names_from_the_driver_cannot_act_on_a_terminal(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  name NVIDIA\x1b[2J H100\n  uuid GPU-\x1b]0;x\x07-1")
    host.open()
    (row,) = host.tick().rows(Gpu)
    assert row.key.isprintable()
    assert str(row.values[Gpu.model.index]).isprintable()


def test_a_name_that_is_not_text_costs_only_the_name(gpu_host: MakeHost, tmp_path: Path) -> None:
    scenario = tmp_path / "bytes.scn"
    scenario.write_bytes(b"gpu\n  name \xff\xfe\xfd\n  busy 10\n")
    host = gpu_host(scenario)
    host.open()
    read = host.tick()
    assert read.absent(Gpu.model, ONE).state is State.IMPLAUSIBLE
    assert read.number(Gpu.util_pct, ONE) == 10
