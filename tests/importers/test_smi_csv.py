"""Query logs: with and without header, units and stamps, looped, broken, of one GPU or many."""

from __future__ import annotations

import pytest
from importlab import facts, query, read, state, values

from bottletop.importers import NotImportable
from bottletop.model import State
from bottletop.tables import Gpu, GpuHealth, GpuProcess
from bottletop.tables.gpu import LOST, OK, RESET_REQUIRED

MIB = 1 << 20
HEADER = "timestamp, index, utilization.gpu [%], power.draw [W], memory.used [MiB]"
ROW = "2024/01/16 14:44:{s:02d}.977, {gpu}, 97 %, 240.12 W, 512 MiB"


def rows(seconds: int, gpus: int = 1) -> list[str]:
    return [ROW.format(s=s, gpu=gpu) for s in range(seconds) for gpu in range(gpus)]


def test_a_looped_log_of_two_gpus() -> None:
    found = read(query(rows(3, 2), HEADER))
    assert found.format == "nvidia-smi --query-gpu CSV"
    assert found.dated
    assert [fact.gpu.index for fact in found.facts if fact.gpu] == [0, 1] * 3
    assert values(found, Gpu.util_pct) == [97] * 6
    assert values(found, Gpu.mem_used_bytes) == [512 * MIB] * 6
    assert not found.doubts


@pytest.mark.parametrize(
    "header",
    [
        "index, utilization.gpu [%], power.draw [W], clocks.current.sm [MHz]",
        "index, utilization.gpu, power.draw, clocks.sm",
        "index,utilization.gpu [%],power.draw.average [W],clocks.sm [MHz]",
    ],
)
def test_names_with_and_without_units_old_and_new(header: str) -> None:
    found = read(query(["0, 97 %, 240.12 W, 1410 MHz", "0, 97, 240.12, 1410"], header))
    assert values(found, Gpu.power_w) == [240.12, 240.12]
    assert values(found, Gpu.sm_clock_mhz) == [1410, 1410]


def test_one_absent_cell_does_not_lose_the_row() -> None:
    header = "memory.total [MiB], memory.used [MiB], utilization.gpu [%], power.draw [W]"
    found = read(query(["[N/A], [N/A], 0 %, 11.17 W"], header))
    assert state(values(found, Gpu.mem_total_bytes)[0]) is State.UNSUPPORTED
    assert values(found, Gpu.util_pct) == [0]
    assert values(found, Gpu.power_w) == [11.17]


def test_failed_cells_say_what_the_gpu_is() -> None:
    header = "index, temperature.gpu, utilization.gpu [%]"
    lines = ["0, [GPU requires reset], [GPU requires reset]", "1, [GPU is lost], [GPU is lost]"]
    found = read(query([*lines, "2, 74, 100 %", "3, ERR!, [Unknown Error]"], header))
    assert values(found, Gpu.health) == [RESET_REQUIRED, LOST, OK, OK]
    temps = values(found, Gpu.temp_c)
    assert [state(temps[n]) for n in (0, 1, 3)] == [State.LOST, State.LOST, State.ERROR]
    assert temps[2] == 74


def test_lines_of_stderr_and_repeated_headers_and_a_cut_end_are_survived() -> None:
    lines = rows(4)
    lines[1:1] = ["Failed to open nvml, code 3, retrying", HEADER, "", "Ctrl-C"]
    found = read(query(lines, HEADER)[:-8])
    assert len(values(found, Gpu.util_pct)) >= 3
    assert "line that is no row" in " ".join(found.doubts)


def test_a_gpu_that_cannot_be_opened_is_lost_and_the_others_live() -> None:
    said = "Unable to determine the device handle for GPU 0000:C1:00.0: GPU is lost.  Reboot"
    found = read(query([*rows(2, 3), said], HEADER))
    lost = [fact for fact in facts(found, Gpu) if fact.values[Gpu.health] == LOST]
    assert [fact.gpu.pci for fact in lost if fact.gpu] == ["00000000:C1:00.0"]
    assert values(found, Gpu.power_w)[:6] == [240.12] * 6


@pytest.mark.parametrize("name", ["clocks_throttle_reasons", "clocks_event_reasons"])
def test_clock_event_reasons_as_mask_and_as_single_words(name: str) -> None:
    mask = read(query(["0, 0x0000000000000024"], f"index, {name}.active"))
    assert values(mask, Gpu.clock_event_reasons) == [0x24]
    header = f"index, {name}.sw_power_cap, {name}.sw_thermal_slowdown, {name}.hw_slowdown"
    words = read(query(["0, Active, Not Active, [N/A]"], header))
    assert values(words, Gpu.clock_event_reasons) == [0x4]
    assert values(words, Gpu.clock_event_known) == [0x24]


def test_health_columns_go_to_the_health_table() -> None:
    header = (
        "index, ecc.errors.uncorrected.volatile.total, remapped_rows.pending, "
        "remapped_rows.failure, gpu_recovery_action, retired_pages.pending"
    )
    found = read(query(["0, 2, Yes, No, Reset, [N/A]"], header))
    assert values(found, GpuHealth.ecc_uncorrected) == [2]
    assert values(found, GpuHealth.row_remap_pending) == [1]
    assert values(found, GpuHealth.row_remap_failed) == [0]
    assert values(found, GpuHealth.recovery_action) == [1]
    assert state(values(found, GpuHealth.page_retirement_pending)[0]) is State.UNSUPPORTED


def test_the_limit_that_is_asked_for_counts_where_no_enforced_one_is() -> None:
    assert values(read(query(["0, 250.00 W"], "index, power.limit [W]")), Gpu.power_limit_w) == [
        250
    ]
    both = read(query(["0, 250 W, 200 W"], "index, power.limit [W], enforced.power.limit [W]"))
    assert values(both, Gpu.power_limit_w) == [200]
    assert values(both, Gpu.power_limit_requested_w) == [250]


def test_processes_of_a_query_log() -> None:
    header = "gpu_uuid, pid, process_name, used_gpu_memory [MiB]"
    lines = [
        "GPU-1, 79, /usr/bin/python3, [N/A]",
        "GPU-1, 80, /opt/a,b/serve, 1211 MiB",
        "GPU-1, 81, x, 17592186044416 MiB",
        "GPU-1, none, x, 1 MiB",
    ]
    found = read(query(lines, header))
    assert found.format == "nvidia-smi --query-compute-apps CSV"
    assert values(found, GpuProcess.pid) == [79, 80, 81]
    memory = values(found, GpuProcess.mem_bytes)
    assert [state(memory[0]), state(memory[2])] == [State.UNSUPPORTED, State.IMPLAUSIBLE]
    assert memory[1] == 1211 * MIB
    assert values(found, GpuProcess.process) == ["python3", "serve", "x"]


def test_a_log_without_header_is_guessed_from_its_units_and_says_so() -> None:
    lines = [
        f"2024/01/16 14:44:{s:02d}.977, {g}, 9{g} %, 41 %, 240.1{s} W"
        for s in range(4)
        for g in (0, 1)
    ]
    found = read("\n".join(lines))
    assert values(found, Gpu.util_pct) == [90, 91] * 4
    assert values(found, Gpu.index) == [0, 1] * 4
    assert "no header" in " ".join(found.doubts)


def test_bare_numbers_need_to_be_told_what_they_are() -> None:
    bare = "\n".join(["0, 97, 240.12, 1410"] * 3)
    with pytest.raises(NotImportable, match="--columns"):
        read(bare)
    found = read(bare, columns="index,utilization.gpu,power.draw,clocks.sm")
    assert values(found, Gpu.sm_clock_mhz) == [1410] * 3
    with pytest.raises(NotImportable, match="--columns"):
        read(bare, columns="one,two,three,four")


def test_an_echoed_command_line_names_the_columns() -> None:
    asked = "--query-gpu=index,utilization.gpu,power.draw --format=csv,noheader,nounits"
    command = f"+ nvidia-smi {asked} -l 1"
    found = read("\n".join([command, "0, 97, 240.12", "0, 96, 240.50"]))
    assert values(found, Gpu.power_w) == [240.12, 240.5]


def test_without_stamps_the_distance_is_assumed_and_may_be_told() -> None:
    text = query(["0, 97 %, 1 W"] * 3, "index, utilization.gpu [%], power.draw [W]")
    assert read(text).assumed_s == 1.0
    assert [fact.t_s for fact in read(text, every_s=5).facts] == [0, 5, 10]
