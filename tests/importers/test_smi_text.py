"""The texts of `nvidia-smi -q` and of plain `nvidia-smi`, old and new, whole and broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from importlab import facts, read, state, values

from bottletop.importers import NotImportable
from bottletop.model import State
from bottletop.tables import Gpu, GpuHealth, GpuProcess
from bottletop.tables.gpu import LOST, NO_ACCESS, OK

DATA = Path(__file__).parent / "data"
MIB = 1 << 20


def text(name: str) -> str:
    return (DATA / name).read_text()


def test_a_query_of_a_new_driver() -> None:
    found = read(text("smi-q-580.txt"))
    first, second = facts(found, Gpu)
    assert found.dated
    assert found.format == "nvidia-smi -q"
    assert first.gpu
    assert (first.gpu.index, first.gpu.pci) == (0, "00000000:19:00.0")
    assert first.values[Gpu.power_w] == 300.12
    assert first.values[Gpu.power_instant_w] == 310
    assert first.values[Gpu.power_limit_default_w] == 700
    assert first.values[Gpu.clock_event_reasons] == 0x4
    assert first.values[Gpu.throttle_sw_power_ns] == 12_234_991_553_000
    assert first.values[Gpu.temp_margin_c] == 26
    assert first.values[Gpu.mem_used_bytes] == 70001 * MIB
    assert first.values[Gpu.pcie_width] == 16
    assert second.values[Gpu.index] == 1
    assert Gpu.util_pct not in second.values


def test_the_health_of_a_new_driver() -> None:
    found = read(text("smi-q-580.txt"))
    first, second = facts(found, GpuHealth)
    assert first.values[GpuHealth.recovery_action] == 0
    assert first.values[GpuHealth.ecc_uncorrected] == 1 + 2 + 4
    assert first.values[GpuHealth.ecc_corrected] == 7
    assert first.values[GpuHealth.ecc_uncorrected_ever] == 5
    assert first.values[GpuHealth.rows_remapped_uncorrected] == 2
    assert first.values[GpuHealth.row_remap_failed] == 1
    assert first.values[GpuHealth.tlimit_shutdown_c] == -8
    assert second.values[GpuHealth.recovery_action] == 4
    assert state(second.values[GpuHealth.row_remap_failed]) is State.UNSUPPORTED


def test_a_query_of_an_old_driver() -> None:
    found = read(text("smi-q-390.txt"))
    (fact,) = facts(found, Gpu)
    (health,) = facts(found, GpuHealth)
    assert fact.values[Gpu.power_limit_w] == 140
    assert fact.values[Gpu.power_limit_requested_w] == 149
    assert fact.values[Gpu.clock_event_reasons] == 0x8
    assert not int(str(fact.values[Gpu.clock_event_known])) & 0x40
    assert health.values[GpuHealth.ecc_corrected] == 12
    assert health.values[GpuHealth.ecc_uncorrected_ever] == 3
    assert health.values[GpuHealth.page_retirement_pending] == 1
    assert health.values[GpuHealth.temp_slowdown_c] == 88
    assert GpuHealth.recovery_action not in health.values
    assert values(found, GpuProcess.pid) == [4242]


@pytest.mark.parametrize(
    ("lines", "action"),
    [
        ("    GPU Recovery Action : Reset", 1),
        ("    GPU Recovery Action : Node Reboot", 2),
        ("    GPU Recovery Action : None", 0),
        ("    GPU Reset Status\n        Reset Required : Yes", 1),
        (
            "    GPU Reset Status\n        Reset Required : No\n"
            "        Drain and Reset Recommended : Yes",
            4,
        ),
        ("    GPU Reset Status\n        Reset Required : No", 0),
    ],
)
def test_what_the_driver_asks_for_in_all_its_words(lines: str, action: int) -> None:
    found = read(f"GPU 00000000:CA:00.0\n    ECC Errors : N/A\n{lines}\n")
    assert values(found, GpuHealth.recovery_action) == [action]


def test_an_action_nobody_knows_is_not_taken_for_none() -> None:
    found = read("GPU 00000000:CA:00.0\n    GPU Recovery Action : Replace Rack\n")
    assert state(values(found, GpuHealth.recovery_action)[0]) is State.ERROR


def test_a_part_of_a_query_without_head_or_index() -> None:
    found = read("GPU 00000000:CB:00.0\n    Remapped Rows\n        Pending : No\n")
    (fact,) = facts(found, Gpu)
    assert fact.gpu
    assert fact.gpu.index is None
    assert Gpu.index not in fact.values


def test_a_looped_query_is_a_series() -> None:
    once = text("smi-q-390.txt")
    found = read(once + once.replace("08:00:00", "08:00:05"))
    assert found.format == "nvidia-smi -q (2 snapshots)"
    first, second = facts(found, Gpu)
    assert second.t_s - first.t_s == 5


@pytest.mark.parametrize("cut", range(200, 4000, 333))
def test_a_query_cut_anywhere_is_read_or_refused_in_one_line(cut: int) -> None:
    try:
        found = read(text("smi-q-580.txt")[:cut])
    except NotImportable as error:
        said = str(error)
    else:
        said = ""
        assert facts(found, Gpu)
    assert "\n" not in said


def test_a_table_with_failed_cells() -> None:
    found = read(text("smi-table-525.txt"))
    good, failed, half = facts(found, Gpu)
    assert state(good.values[Gpu.fan_pct]) is State.ERROR
    assert good.values[Gpu.power_w] == 49
    assert good.values[Gpu.mem_total_bytes] == 23028 * MIB
    assert good.values[Gpu.driver] == "525.125.06"
    assert state(failed.values[Gpu.util_pct]) is State.ERROR
    assert state(failed.values[Gpu.mem_used_bytes]) is State.ERROR
    assert state(half.values[Gpu.temp_c]) is State.ERROR
    assert state(half.values[Gpu.power_limit_w]) is State.UNSUPPORTED
    assert half.values[Gpu.health] == OK
    assert values(found, GpuProcess.pid) == [1234, 1235]
    assert values(found, GpuProcess.process) == ["python3", "python"]
    assert not found.doubts


def test_a_table_of_windows() -> None:
    found = read(text("smi-table-windows.txt"))
    (fact,) = facts(found, Gpu)
    assert fact.values[Gpu.util_pct] == 3
    assert fact.values[Gpu.model] == "NVIDIA GeForce RTX 4070 ..."
    assert values(found, GpuProcess.pid) == [4321]
    assert values(found, GpuProcess.process) == ["explorer.exe"]


def test_a_table_of_a_part_without_memory_of_its_own() -> None:
    (fact,) = facts(read(text("smi-table-gb10.txt")), Gpu)
    assert state(fact.values[Gpu.mem_total_bytes]) is State.UNSUPPORTED
    assert fact.values[Gpu.temp_c] == 42


@pytest.mark.parametrize(
    ("line", "health", "pci"),
    [
        ("GPU 0000:C1:00.0: GPU is lost.  Reboot the system", LOST, "00000000:C1:00.0"),
        ("GPU0000:0C:00.0: Unknown Error", NO_ACCESS, "00000000:0C:00.0"),
        ("GPU3: 0000:C1:00.0: Unknown Error", NO_ACCESS, "00000000:C1:00.0"),
    ],
)
def test_a_gpu_that_cannot_be_opened(line: str, health: int, pci: str) -> None:
    (fact,) = read(f"Unable to determine the device handle for {line}").facts
    assert fact.gpu
    assert fact.gpu.pci == pci
    assert fact.values[Gpu.health] == health
    assert state(fact.values[Gpu.util_pct]) in (State.LOST, State.ERROR)


@pytest.mark.parametrize(
    "said",
    [
        "No devices were found",
        "Failed to initialize NVML: Driver/library version mismatch",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    ],
)
def test_a_tool_that_saw_nothing_is_quoted(said: str) -> None:
    with pytest.raises(NotImportable, match=said[:20]):
        read(said)
