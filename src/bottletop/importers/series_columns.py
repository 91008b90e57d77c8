"""Column names of GPU time series as people post them, and what each is.

A name is looked up in lower case with everything but letters and digits as underscores; a unit may
be part of the name ("power_w", "mem_used_mib"), stand in brackets ("Power [W]") or behind the
number. `docs/importing.md` prints this list.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from bottletop.importers.smi_words import slug
from bottletop.tables import Gpu, GpuHealth

if TYPE_CHECKING:
    from bottletop.model import Metric

TIME, GPU, UUID, PCI, NAME, REASONS = "time", "gpu", "uuid", "pci", "name", "reasons"


class SeriesColumn(NamedTuple):
    """What a column holds: a part of the row's identity, a gauge, a rate, or a flag."""

    role: str = ""
    metric: Metric | None = None
    unit: str = ""
    rate: float = 0.0
    """Of a counter: what one unit of the column is, a second."""
    bit: int = 0
    """Clock event reason that a 0 or 1 speaks of."""


def _named(column: SeriesColumn, names: str) -> dict[str, SeriesColumn]:
    return dict.fromkeys(names.split(), column)


def _gauges(metric: Metric, unit: str, names: str) -> dict[str, SeriesColumn]:
    return _named(SeriesColumn("", metric, unit), names)


def _flags(bit: int, names: str) -> dict[str, SeriesColumn]:
    return _named(SeriesColumn(bit=bit), names)


ACCEPTED: dict[str, SeriesColumn] = {
    **_named(
        SeriesColumn(TIME),
        "t time timestamp ts t_s time_s timestamp_s sec secs seconds second elapsed elapsed_s "
        "datetime date_time uptime_s offset_s",
    ),
    **_named(SeriesColumn(GPU), "gpu gpu_id gpu_index index idx device dev device_id gpu_idx id"),
    **_named(SeriesColumn(UUID), "uuid gpu_uuid"),
    **_named(SeriesColumn(PCI), "pci pci_bus_id bus_id pci_id gpu_bus_id pci_address"),
    **_named(SeriesColumn(NAME), "name model gpu_name product gpu_model product_name"),
    **_gauges(
        Gpu.util_pct,
        "%",
        "util util_gpu gpu_util utilization utilisation gpu_utilization gpu_utilisation "
        "util_gpu_pct utilization_gpu sm_util gpu_busy busy sm",
    ),
    **_gauges(
        Gpu.mem_util_pct,
        "%",
        "mem_util memory_util util_mem memory_utilization utilization_memory util_memory "
        "mem_util_gpu mem_bw_util",
    ),
    **_gauges(Gpu.power_w, "W", "power power_draw pwr watts gpu_power board_power"),
    **_gauges(
        Gpu.power_limit_w,
        "W",
        "limit power_limit plimit power_cap cap enforced_power_limit pl power_lim",
    ),
    **_gauges(Gpu.power_limit_default_w, "W", "power_limit_default default_power_limit tdp"),
    **_gauges(Gpu.power_limit_requested_w, "W", "power_limit_requested requested_power_limit"),
    **_gauges(Gpu.energy_mj, "mJ", "energy total_energy total_energy_consumption"),
    **_gauges(
        Gpu.sm_clock_mhz,
        "MHz",
        "sm_clock clock sm_clk clock_sm clocks_sm gpu_clock core_clock pclk clk graphics_clock "
        "gr_clock clocks_gr freq sm_freq gpu_freq core",
    ),
    **_gauges(
        Gpu.sm_clock_max_mhz,
        "MHz",
        "sm_max sm_clock_max max_sm_clock clock_max max_clock sm_clk_max gpu_clock_max "
        "clocks_max_sm max_sm clocks_max_gr",
    ),
    **_gauges(Gpu.sm_clock_boost_mhz, "MHz", "sm_boost boost_clock boost max_boost"),
    **_gauges(Gpu.mem_clock_mhz, "MHz", "mem_clock memory_clock mclk mem_clk clock_mem clocks_mem"),
    **_gauges(Gpu.mem_clock_max_mhz, "MHz", "mem_clock_max max_mem_clock mem_max clocks_max_mem"),
    **_gauges(
        Gpu.temp_c,
        "C",
        "temp temperature gpu_temp gtemp temperature_gpu temp_gpu die_temp core_temp",
    ),
    **_gauges(Gpu.temp_mem_c, "C", "mem_temp mtemp temperature_memory temp_mem hbm_temp"),
    **_gauges(Gpu.temp_margin_c, "C", "temp_margin tlimit t_limit margin"),
    **_gauges(Gpu.fan_pct, "%", "fan fan_speed"),
    **_gauges(Gpu.pstate, "", "pstate p_state perf performance_state perf_state"),
    **_gauges(
        Gpu.mem_used_bytes,
        "MiB",
        "mem_used memory_used used_mem used_memory vram_used vram fb fb_used gpu_mem_used gpu_mem",
    ),
    **_gauges(
        Gpu.mem_total_bytes,
        "MiB",
        "mem_total memory_total total_mem total_memory vram_total fb_total gpu_mem_total",
    ),
    **_gauges(
        Gpu.pcie_gen, "", "pcie_gen pcie_gen_cur pcie_gen_current link_gen gen pcie_link_gen"
    ),
    **_gauges(Gpu.pcie_gen_max, "", "pcie_gen_max link_gen_max max_pcie_gen gen_max"),
    **_gauges(
        Gpu.pcie_width,
        "",
        "pcie_width pcie_width_cur pcie_width_current link_width lanes pcie_lanes width",
    ),
    **_gauges(Gpu.pcie_width_max, "", "pcie_width_max link_width_max max_pcie_width width_max"),
    **_gauges(Gpu.enc_util_pct, "%", "enc enc_util encoder util_enc"),
    **_gauges(Gpu.dec_util_pct, "%", "dec dec_util decoder util_dec"),
    **_gauges(GpuHealth.pcie_replays, "", "pcie_replays replays pcie_replay_counter"),
    **_gauges(GpuHealth.ecc_corrected, "", "ecc_corrected ecc_ce sbe sbecc ecc_correctable"),
    **_gauges(GpuHealth.ecc_uncorrected, "", "ecc_uncorrected ecc_ue dbe dbecc ecc_uncorrectable"),
    **_named(
        SeriesColumn(REASONS),
        "throttle throttle_reasons reasons clock_event_reasons clocks_event_reasons event_reasons "
        "clocks_throttle_reasons throttle_reason clocks_event_reasons_active throttle_mask "
        "clocks_throttle_reasons_active",
    ),
    **_flags(0x001, "idle_flag gpu_idle idle throttle_idle"),
    **_flags(0x002, "app_clocks applications_clocks applications_clocks_setting"),
    **_flags(0x004, "sw_power_cap power_capped swpowercap throttle_power sw_power"),
    **_flags(0x008, "hw_slowdown hwslowdown hw_slow"),
    **_flags(0x010, "sync_boost syncboost"),
    **_flags(0x020, "sw_thermal sw_thermal_slowdown throttle_thermal thermal_throttle"),
    **_flags(0x040, "hw_thermal hw_thermal_slowdown"),
    **_flags(0x080, "hw_power_brake power_brake hw_power_brake_slowdown hw_brake"),
    **_flags(0x100, "display_clock display_clock_setting"),
}
BY_UNIT: dict[tuple[str, str], Metric] = {
    ("sm", "MHz"): Gpu.sm_clock_mhz,
    ("gpu", "MHz"): Gpu.sm_clock_mhz,
    ("mem", "MHz"): Gpu.mem_clock_mhz,
    ("memory", "MHz"): Gpu.mem_clock_mhz,
    ("mem_max", "MHz"): Gpu.mem_clock_max_mhz,
    ("gpu", "%"): Gpu.util_pct,
    ("mem", "%"): Gpu.mem_util_pct,
    ("memory", "%"): Gpu.mem_util_pct,
    ("mem", "B"): Gpu.mem_used_bytes,
    ("memory", "B"): Gpu.mem_used_bytes,
    ("gpu", "C"): Gpu.temp_c,
    ("mem", "C"): Gpu.temp_mem_c,
    ("memory", "C"): Gpu.temp_mem_c,
    ("gpu", "W"): Gpu.power_w,
}
"""Names that only their unit makes plain: "sm_mhz" is a clock, a bare "sm" utilisation, as in dmon;
a bare "mem" may be anything."""
RATES: dict[str, Metric] = {
    "rx": Gpu.pcie_rx_bytes,
    "tx": Gpu.pcie_tx_bytes,
    "pcie_rx": Gpu.pcie_rx_bytes,
    "pcie_tx": Gpu.pcie_tx_bytes,
    "rxpci": Gpu.pcie_rx_bytes,
    "txpci": Gpu.pcie_tx_bytes,
    "pcie_rx_throughput": Gpu.pcie_rx_bytes,
    "pcie_tx_throughput": Gpu.pcie_tx_bytes,
    "h2d": Gpu.pcie_rx_bytes,
    "d2h": Gpu.pcie_tx_bytes,
}
"""Bytes a second over PCIe; rx is into the GPU."""
_RATE_UNITS = {
    "b_s": 1.0,
    "bytes_s": 1.0,
    "kb_s": 1e3,
    "kib_s": 1024.0,
    "mb_s": 1e6,
    "mbps": 1e6,
    "mib_s": 1024.0**2,
    "gb_s": 1e9,
    "gib_s": 1024.0**3,
}
_UNITS = {
    "pct": "%",
    "percent": "%",
    "w": "W",
    "mw": "mW",
    "watts": "W",
    "mhz": "MHz",
    "ghz": "GHz",
    "c": "C",
    "degc": "C",
    "celsius": "C",
    "mib": "MiB",
    "mb": "MiB",
    "gib": "GiB",
    "gb": "GiB",
    "bytes": "B",
    "b": "B",
    "mj": "mJ",
    "j": "J",
}
_PLAIN = {"MiB": "B", "GiB": "B", "GHz": "MHz", "mW": "W"}
_BRACKET = re.compile(r"(.*?)\s*[\[(]\s*([^\])]*)\s*[\])]\s*")


def column_of(name: str) -> SeriesColumn | None:
    """What a column of this name holds; None of names nobody listed."""
    match = _BRACKET.fullmatch(name)
    written = slug(match[2].replace("%", "pct")) if match else ""
    plain = slug((match[1] if match else name).replace("%", "pct"))
    if plain in ACCEPTED and not written:
        return ACCEPTED[plain]
    stem, unit = plain, written
    if not unit:
        stem, unit = _unit_at_end(plain)
    if stem in RATES:
        scale = _RATE_UNITS.get(unit.replace("per_s", "s"))
        return SeriesColumn("", RATES[stem], rate=scale) if scale else None
    unit = _UNITS.get(unit, "")
    plainly = BY_UNIT.get((stem, _PLAIN.get(unit, unit)))
    if plainly is not None:
        return SeriesColumn("", plainly, unit)
    known = ACCEPTED.get(stem) or ACCEPTED.get(plain)
    if known is None or known.metric is None or not unit:
        return known
    return known._replace(unit=unit)


def _unit_at_end(plain: str) -> tuple[str, str]:
    for unit in sorted((*_UNITS, *_RATE_UNITS, "mb_per_s", "gb_per_s"), key=len, reverse=True):
        if plain.endswith(f"_{unit}"):
            return plain[: -len(unit) - 1], unit
    return plain, ""
