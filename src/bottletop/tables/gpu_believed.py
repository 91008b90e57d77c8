"""What a reading of a GPU may be, whoever read it: the driver, or a log of its tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.model import Absent
from bottletop.tables.gpu import Gpu, GpuClockSample, GpuPowerSample, GpuProcess, GpuUtilSample
from bottletop.tables.gpu_activity import GpuActivity, GpuInstance
from bottletop.tables.gpu_health import GpuHealth, GpuLink

if TYPE_CHECKING:
    from bottletop.model import Metric, Value

_WATTS = (0, 20_000)
_MHZ = (0, 20_000)
_PERCENT = (0, 100)
_CELSIUS = (0, 150)  # all ones read as a signed number is -1
_COUNT64 = (0, 2**63)  # all ones stands for "not available"
_BYTES = (0, 2**50)
_LIMIT = (1, 200)
_MARGIN = (-100, 100)
_ERRORS = (0, 2**32 - 2)  # all ones in 32 or 64 bits stand for "not available"
_BYTES_PER_S = (0, 2**44)
_PCIE_PER_S = (0, 1e12)  # all ones, which are KB, would be four times as much
_ACTIVE = (0, 101)  # a quotient of two counters that are not read in the very same moment

BELIEVED: dict[Metric, tuple[float, float]] = {
    # What is not named again below counts errors.
    **dict.fromkeys((*GpuHealth.columns, *GpuLink.columns), _ERRORS),
    Gpu.util_pct: _PERCENT,
    Gpu.mem_util_pct: _PERCENT,
    Gpu.mem_total_bytes: (1, 2**50),
    Gpu.mem_used_bytes: _BYTES,
    Gpu.mem_reserved_bytes: _BYTES,
    Gpu.power_w: _WATTS,
    Gpu.power_instant_w: _WATTS,
    Gpu.power_module_w: _WATTS,
    Gpu.power_limit_w: _WATTS,
    Gpu.power_limit_requested_w: _WATTS,
    Gpu.power_limit_default_w: _WATTS,
    Gpu.energy_mj: _COUNT64,
    Gpu.sm_clock_mhz: _MHZ,
    Gpu.sm_clock_max_mhz: (1, 20_000),
    Gpu.sm_clock_boost_mhz: (1, 20_000),
    Gpu.mem_clock_mhz: _MHZ,
    Gpu.mem_clock_max_mhz: (1, 20_000),
    Gpu.clock_event_reasons: (0, 2**53),
    Gpu.throttle_sw_power_ns: _COUNT64,
    Gpu.throttle_sw_thermal_ns: _COUNT64,
    Gpu.throttle_hw_thermal_ns: _COUNT64,
    Gpu.throttle_power_brake_ns: _COUNT64,
    Gpu.throttle_sync_boost_ns: _COUNT64,
    Gpu.throttle_board_limit_ns: _COUNT64,
    Gpu.throttle_reliability_ns: _COUNT64,
    Gpu.temp_c: _CELSIUS,
    Gpu.temp_mem_c: (1, 200),  # parts without the sensor answer 0
    Gpu.temp_margin_c: (1, 150),  # 0 and below are answered by parts that are not near a limit
    Gpu.fan_pct: (0, 200),  # the documented scale may pass 100
    Gpu.pstate: (0, 15),  # 32 stands for unknown
    Gpu.mig: (0, 1),
    Gpu.pcie_gen: (1, 10),
    Gpu.pcie_gen_max: (1, 10),
    Gpu.pcie_width: (1, 32),
    Gpu.pcie_width_max: (1, 32),
    Gpu.pcie_rx_bytes: _COUNT64,
    Gpu.pcie_tx_bytes: _COUNT64,
    Gpu.pcie_rx_rate_bytes_per_s: _PCIE_PER_S,
    Gpu.pcie_tx_rate_bytes_per_s: _PCIE_PER_S,
    Gpu.enc_util_pct: _PERCENT,
    Gpu.dec_util_pct: _PERCENT,
    Gpu.jpg_util_pct: _PERCENT,
    Gpu.ofa_util_pct: _PERCENT,
    Gpu.virtualisation: (0, 4),
    GpuUtilSample.util_pct: _PERCENT,
    GpuPowerSample.power_w: _WATTS,
    GpuClockSample.sm_clock_mhz: _MHZ,
    GpuProcess.mem_bytes: _BYTES,
    GpuProcess.sm_util_pct: _PERCENT,
    GpuInstance.gpu_instance: (0, 2**16),
    GpuInstance.compute_instance: (0, 2**16),
    GpuInstance.sm_count: (1, 2**16),
    GpuInstance.mem_total_bytes: (1, 2**50),
    GpuInstance.mem_used_bytes: _BYTES,
    GpuHealth.recovery_action: (0, 7),
    GpuHealth.row_remap_pending: (0, 1),
    GpuHealth.row_remap_failed: (0, 1),
    GpuHealth.page_retirement_pending: (0, 1),
    GpuHealth.bar1_total_bytes: (1, 2**50),
    GpuHealth.bar1_used_bytes: _BYTES,
    **{metric: _LIMIT for metric in GpuHealth.columns if metric.name.startswith("temp_")},
    **{metric: _MARGIN for metric in GpuHealth.columns if metric.name.startswith("tlimit_")},
    GpuHealth.c2c_links: (0, 64),
    GpuHealth.c2c_bytes_per_s: _BYTES_PER_S,
    GpuLink.state: (0, 2),
    GpuLink.speed_bytes_per_s: _BYTES_PER_S,
    GpuLink.tx_bytes: _COUNT64,
    GpuLink.rx_bytes: _COUNT64,
    **{metric: _ACTIVE for metric in GpuActivity.columns if metric.unit == "%"},
    **{metric: _BYTES_PER_S for metric in GpuActivity.columns if metric.unit == "B/s"},
}
"""What a value may be. Drivers return sentinels and garbage with success: 4294967295 W, 1100 %."""


def believed(metric: Metric, raw: float, scale: float = 1) -> Value:
    """Return `raw * scale`, or `Absent.implausible` where no such part could answer that."""
    value = raw * scale if scale != 1 else raw
    low, high = BELIEVED[metric]
    if low <= value <= high:
        return value
    return Absent.implausible(raw, f"not between {low:g} and {high:g} {metric.unit}".rstrip())
