"""Which NVML call or field fills which column of `gpu`, and which answers are believed.

Field ids are the numbers of nvml.h (NVML_FI_*), written out because older bindings lack the newer
names. Tiers: what moves is read each tick; limits, links and the fan every `SLOW_PERIOD_S`.
"""

from __future__ import annotations

from typing import NamedTuple

from bottletop.model import Absent, Metric, Value
from bottletop.tables.gpu import Gpu, GpuClockSample, GpuPowerSample, GpuProcess, GpuUtilSample
from bottletop.tables.gpu_activity import GpuActivity, GpuInstance

SLOW_PERIOD_S = 5

TEMPERATURE_GPU = 0
CLOCK_SM, CLOCK_MEM = 1, 2


class Call(NamedTuple):
    """A function of the binding, its arguments after the handle, and the part that is wanted."""

    function: str
    args: tuple[int, ...] = ()
    attribute: str = ""


class Reading(NamedTuple):
    """One column: field ids and calls, best first, and what a raw number is multiplied by."""

    metric: Metric
    calls: tuple[Call, ...]
    fields: tuple[int, ...] = ()
    scale: float = 1
    slow: bool = False


MILLI = 0.001

FIELD_READINGS = (
    # Field 185 and nvmlDeviceGetPowerUsage give the same 1 s mean from Ampere on; GA100 (A100) and
    # older lack the field, and the call is then instantaneous.
    Reading(Gpu.power_w, (Call("nvmlDeviceGetPowerUsage"),), (185,), MILLI),
    Reading(Gpu.energy_mj, (Call("nvmlDeviceGetTotalEnergyConsumption"),), (83, 191)),
    # 269-271 came with the 570 drivers. The violation calls are deprecated in NVML 13 and go in
    # CUDA 14; their THERMAL policy counts the software slowdown.
    Reading(
        Gpu.throttle_sw_power_ns,
        (Call("nvmlDeviceGetViolationStatus", (0,), "violationTime"),),
        (74,),
    ),
    Reading(
        Gpu.throttle_sw_thermal_ns,
        (Call("nvmlDeviceGetViolationStatus", (1,), "violationTime"),),
        (269, 75),
    ),
    Reading(
        Gpu.throttle_sync_boost_ns,
        (Call("nvmlDeviceGetViolationStatus", (2,), "violationTime"),),
        (76,),
    ),
    Reading(
        Gpu.throttle_board_limit_ns,
        (Call("nvmlDeviceGetViolationStatus", (3,), "violationTime"),),
        (77,),
    ),
    Reading(
        Gpu.throttle_reliability_ns,
        (Call("nvmlDeviceGetViolationStatus", (5,), "violationTime"),),
        (79,),
    ),
    Reading(Gpu.throttle_hw_thermal_ns, (), (270,)),
    Reading(Gpu.throttle_power_brake_ns, (), (271,)),
    Reading(Gpu.temp_mem_c, (), (82,)),
    # nvmlDeviceGetPcieThroughput is no fallback: it blocks for 20 ms a direction.
    Reading(Gpu.pcie_tx_bytes, (), (197,)),
    Reading(Gpu.pcie_rx_bytes, (), (198,)),
    Reading(
        Gpu.power_limit_w, (Call("nvmlDeviceGetEnforcedPowerLimit"),), (190,), MILLI, slow=True
    ),
    Reading(
        Gpu.power_limit_requested_w,
        (Call("nvmlDeviceGetPowerManagementLimit"),),
        (192,),
        MILLI,
        slow=True,
    ),
    Reading(
        Gpu.power_limit_default_w,
        (Call("nvmlDeviceGetPowerManagementDefaultLimit"),),
        (189,),
        MILLI,
        slow=True,
    ),
)

CALL_READINGS = (
    Reading(Gpu.sm_clock_mhz, (Call("nvmlDeviceGetClockInfo", (CLOCK_SM,)),)),
    Reading(Gpu.mem_clock_mhz, (Call("nvmlDeviceGetClockInfo", (CLOCK_MEM,)),)),
    Reading(
        Gpu.clock_event_reasons,
        (
            Call("nvmlDeviceGetCurrentClocksEventReasons"),
            Call("nvmlDeviceGetCurrentClocksThrottleReasons"),  # its name before driver 535
        ),
    ),
    Reading(
        Gpu.temp_c,
        (
            Call("nvmlDeviceGetTemperatureV", (TEMPERATURE_GPU,)),
            Call("nvmlDeviceGetTemperature", (TEMPERATURE_GPU,)),
        ),
    ),
    Reading(Gpu.temp_margin_c, (Call("nvmlDeviceGetMarginTemperature"),), slow=True),
    Reading(Gpu.fan_pct, (Call("nvmlDeviceGetFanSpeed"),), slow=True),
    Reading(Gpu.pstate, (Call("nvmlDeviceGetPerformanceState"),), slow=True),
    Reading(Gpu.pcie_gen, (Call("nvmlDeviceGetCurrPcieLinkGeneration"),), slow=True),
    Reading(Gpu.pcie_width, (Call("nvmlDeviceGetCurrPcieLinkWidth"),), slow=True),
)

STATIC_READINGS = (
    Reading(Gpu.sm_clock_max_mhz, (Call("nvmlDeviceGetMaxClockInfo", (CLOCK_SM,)),)),
    Reading(Gpu.sm_clock_boost_mhz, (Call("nvmlDeviceGetMaxCustomerBoostClock", (CLOCK_SM,)),)),
    Reading(Gpu.mem_clock_max_mhz, (Call("nvmlDeviceGetMaxClockInfo", (CLOCK_MEM,)),)),
    Reading(Gpu.pcie_gen_max, (Call("nvmlDeviceGetMaxPcieLinkGeneration"),)),
    Reading(Gpu.pcie_width_max, (Call("nvmlDeviceGetMaxPcieLinkWidth"),)),
)

_WATTS = (0, 20_000)
_MHZ = (0, 20_000)
_PERCENT = (0, 100)
_CELSIUS = (0, 150)  # all ones read as a signed number is -1
_COUNT64 = (0, 2**63)  # all ones stands for "not available"
_BYTES = (0, 2**50)
_BYTES_PER_S = (0, 2**44)
_ACTIVE = (0, 101)  # a quotient of two counters that are not read in the very same moment

BELIEVED: dict[Metric, tuple[float, float]] = {
    Gpu.util_pct: _PERCENT,
    Gpu.mem_util_pct: _PERCENT,
    Gpu.mem_total_bytes: (1, 2**50),
    Gpu.mem_used_bytes: _BYTES,
    Gpu.mem_reserved_bytes: _BYTES,
    Gpu.power_w: _WATTS,
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
