"""Series in people's own words: names, units, separators, flags; other tables are left alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from importlab import facts, query, read, state, values

from bottletop.importers import NotImportable
from bottletop.importers.gpu_series import GpuSeries
from bottletop.importers.series_columns import ACCEPTED, RATES, column_of
from bottletop.model import Metric, State
from bottletop.tables import Gpu, GpuHealth

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("util_gpu_pct", Gpu.util_pct),
        ("GPU util (%)", Gpu.util_pct),
        ("util", Gpu.util_pct),
        ("sm", Gpu.util_pct),
        ("sm_mhz", Gpu.sm_clock_mhz),
        ("SM clock [MHz]", Gpu.sm_clock_mhz),
        ("sm_max_mhz", Gpu.sm_clock_max_mhz),
        ("mem_mhz", Gpu.mem_clock_mhz),
        ("mem_util_pct", Gpu.mem_util_pct),
        ("mem_used_mib", Gpu.mem_used_bytes),
        ("power_w", Gpu.power_w),
        ("Power Draw", Gpu.power_w),
        ("limit", Gpu.power_limit_w),
        ("power_limit_w", Gpu.power_limit_w),
        ("temp_c", Gpu.temp_c),
        ("pcie_gen_cur", Gpu.pcie_gen),
        ("pcie_width_max", Gpu.pcie_width_max),
        ("pcie_rx_mb_s", Gpu.pcie_rx_bytes),
        ("pcie_tx [GB/s]", Gpu.pcie_tx_bytes),
        ("ecc_ue", GpuHealth.ecc_uncorrected),
    ],
)
def test_names_that_people_use(name: str, metric: Metric) -> None:
    column = column_of(name)
    assert column is not None
    assert column.metric is metric


def test_the_page_lists_every_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "importing.md").read_text()
    listed = set(re.findall(r"\w+", page))
    assert listed.issuperset([*ACCEPTED, *RATES])


@pytest.mark.parametrize("name", ["loss", "tok_s", "mem", "throughput", "", "%", "gpu clock price"])
def test_names_that_may_be_anything_are_not_guessed(name: str) -> None:
    column = column_of(name)
    assert column is None or column.metric is None


def test_utilisation_as_a_fraction_is_seen_and_said() -> None:
    found = read(query([f"{t},0.9{t},300" for t in range(9)], "t,util,power"))
    assert values(found, Gpu.util_pct)[:3] == [90, 91, 92]
    assert "fraction" in " ".join(found.doubts)
    percent = read(query(["0,0.9,300", "1,0.5,300"], "t,util_pct,power"))
    assert values(percent, Gpu.util_pct) == [1, 0]
    idle = read(query(["0,0,20", "1,1,20"], "t,util,power"))
    assert values(idle, Gpu.util_pct) == [0, 1]


def test_a_decimal_comma_where_commas_do_not_part_cells() -> None:
    found = read("t;util;Power [W]\n0;50;200,5\n")
    assert values(found, Gpu.power_w) == [200.5]


def test_a_table_of_markdown() -> None:
    found = read("| t | gpu | util |\n|---|---|---|\n| 0 | 0 | 85 |\n| 1 | 0 | 86 |\n")
    assert values(found, Gpu.util_pct) == [85, 86]


@pytest.mark.parametrize("separator", [",", ";", "\t", ", ", "|", " ", "   "])
def test_separators(separator: str) -> None:
    lines = ["t,gpu,util,power", "0,0,88,120.5", "1,0,89,121"]
    found = read("\n".join(line.replace(",", separator) for line in lines))
    assert values(found, Gpu.power_w) == [120.5, 121]


def test_times_begin_at_0_and_gpus_may_follow_one_another() -> None:
    found = read(query(["100,0,85", "101,0,85", "100,1,0", "101,1,90"], "timestamp_s,gpu,util"))
    assert [fact.t_s for fact in found.facts] == [0, 1, 0, 1]
    assert found.assumed_s is None
    assert not found.dated


def test_dates_are_dates() -> None:
    found = read(query(["2024-01-16T14:44:16Z,85", "2024-01-16T14:44:17Z,85"], "time,gpu_util"))
    assert found.dated


def test_flags_say_what_they_know_and_no_more() -> None:
    rows = ["0,99,1,0,0", "1,99,0,0,n/a"]
    found = read(query(rows, "t,util,sw_power_cap,hw_thermal,sw_thermal"))
    assert values(found, Gpu.clock_event_reasons) == [0x4, 0]
    assert values(found, Gpu.clock_event_known) == [0x64, 0x44]


@pytest.mark.parametrize(
    ("cell", "mask"),
    [("0x24", 0x24), ("36", 36), ("none", 0), ("SW Power Cap|HW Thermal Slowdown", 0x44)],
)
def test_a_throttle_column_as_mask_or_words(cell: str, mask: int) -> None:
    found = read(query([f"0,99,{cell}"], "t,util,throttle"))
    assert values(found, Gpu.clock_event_reasons) == [mask]


@pytest.mark.parametrize("cell", ["1", "yes", "n/a", "hot"])
def test_a_throttle_column_that_does_not_say_what_is_unknown(cell: str) -> None:
    found = read(query([f"0,99,{cell}"], "t,util,throttle"))
    assert state(values(found, Gpu.clock_event_reasons)[0]) in (State.ERROR, State.UNSUPPORTED)


def test_empty_and_absent_cells_keep_the_row() -> None:
    found = read(query(["0,85,,n/a", "1,,100,50"], "t,util,power_w,temp"))
    assert state(values(found, Gpu.power_w)[0]) is State.NOT_READ
    assert state(values(found, Gpu.temp_c)[0]) is State.UNSUPPORTED
    assert values(found, Gpu.power_w)[1] == 100


def test_rates_and_unused_columns() -> None:
    found = read(query(["0,85,455,7.5"], "t,util,pcie_rx_mb_s,tok_s"))
    assert found.facts[0].rates == {Gpu.pcie_rx_bytes: 455e6}
    assert "tok_s" in " ".join(found.doubts)


@pytest.mark.parametrize(
    ("cell", "key"),
    [
        ("1", "GPU 1"),
        ("gpu1", "GPU 1"),
        ("cuda:1", "GPU 1"),
        ("0000:c1:00.0", "00000000:C1:00.0"),
        ("GPU-12345678", "GPU-12345678"),
    ],
)
def test_gpus_by_any_name(cell: str, key: str) -> None:
    from bottletop.importers.join import Names

    found = read(query([f"0,{cell},85"], "t,gpu,util"))
    gpu = facts(found, Gpu)[0].gpu
    assert gpu is not None
    assert Names([gpu]).key(gpu) == key


@pytest.mark.parametrize(
    "text",
    [
        "step,loss\n1,0.5\n",
        "t,cpu,rss\n0,1,2\n",
        "name,age\nann,3\n",
        "hello\nworld\n",
        '{"util": 5, "gpu": 3}\n',
        "gpu,price,seller\n1,2,3\n",
    ],
)
def test_other_tables_are_not_taken_for_gpus(text: str) -> None:
    assert GpuSeries().recognise(text.splitlines()) == 0
    with pytest.raises(NotImportable, match="no format that can be read"):
        read(text)
