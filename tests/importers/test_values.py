"""Cells of foreign tools: numbers in their units, absent in their own words, never a false zero."""

from __future__ import annotations

import pytest

from bottletop.importers.values import cell
from bottletop.model import Absent, Metric, State
from bottletop.tables import Gpu, GpuHealth, GpuProcess

MIB = 1 << 20


@pytest.mark.parametrize(
    ("metric", "raw", "unit", "expected"),
    [
        (Gpu.util_pct, "97 %", "", 97),
        (Gpu.util_pct, "0", "%", 0),
        (Gpu.power_w, "240.12 W", "", 240.12),
        (Gpu.power_w, "240120 mW", "", 240.12),
        (Gpu.mem_used_bytes, "14360 MiB", "", 14360 * MIB),
        (Gpu.mem_used_bytes, "14360", "MiB", 14360 * MIB),
        (Gpu.mem_used_bytes, "13.5GiB", "", 13.5 * 1024 * MIB),
        (Gpu.sm_clock_mhz, "1.41 GHz", "", 1410),
        (Gpu.temp_c, "35", "", 35),
        (Gpu.temp_c, "35C", "", 35),
        (Gpu.pstate, "P8", "", 8),
        (Gpu.pcie_width, "16x", "", 16),
        (Gpu.clock_event_reasons, "0x0000000000000024", "", 0x24),
        (Gpu.throttle_sw_power_ns, "1500 us", "", 1_500_000),
        (Gpu.fan_pct, "118 %", "", 118),
    ],
)
def test_numbers_are_read_in_their_unit(
    metric: Metric, raw: str, unit: str, expected: float
) -> None:
    assert cell(metric, raw, unit) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("raw", "state"),
    [
        ("[N/A]", State.UNSUPPORTED),
        ("N/A", State.UNSUPPORTED),
        ("[Not Supported]", State.UNSUPPORTED),
        ("-", State.UNSUPPORTED),
        ("ERR!", State.ERROR),
        ("[Unknown Error]", State.ERROR),
        ("[GPU requires reset]", State.LOST),
        ("[GPU is lost]", State.LOST),
        ("[Insufficient Permissions]", State.DENIED),
        ("", State.NOT_READ),
        ("lots", State.ERROR),
        ("12 furlongs", State.ERROR),
        ("0x", State.ERROR),
        ("1e999", State.IMPLAUSIBLE),
    ],
)
def test_what_is_no_number_is_absent_in_its_own_words(raw: str, state: State) -> None:
    value = cell(Gpu.power_w, raw)
    assert isinstance(value, Absent)
    assert value.state is state
    assert not raw or raw.strip("[]") in f"{value.reason} {value.raw}"


@pytest.mark.parametrize(
    ("metric", "raw", "unit"),
    [
        (GpuProcess.mem_bytes, "17179869184 GiB", ""),
        (GpuProcess.mem_bytes, "18446744073709551615", "MiB"),
        (Gpu.power_w, "4294967.295 W", ""),
        (Gpu.util_pct, "1100 %", ""),
        (Gpu.temp_c, "4294967295", "C"),
        (Gpu.pstate, "P32", ""),
        (GpuHealth.ecc_uncorrected, "18446744073709551615", ""),
        (Gpu.sm_clock_mhz, "-5 MHz", ""),
    ],
)
def test_sentinels_are_implausible_and_keep_their_number(
    metric: Metric, raw: str, unit: str
) -> None:
    value = cell(metric, raw, unit)
    assert isinstance(value, Absent)
    assert value.state is State.IMPLAUSIBLE
    assert str(value.raw) == raw


def test_control_characters_do_not_come_through() -> None:
    value = cell(Gpu.power_w, "\x1b[31mbad\x07")
    assert isinstance(value, Absent)
    assert value.reason.isprintable()
