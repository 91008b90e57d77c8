"""Which NVML call or field fills which column, how often, and which answers are believed.

Field ids are the numbers of nvml.h (NVML_FI_*), written out because older bindings lack the newer
names. docs/collectors.md is written from these tables.
"""

from __future__ import annotations

from typing import NamedTuple

from bottletop.model import Absent, Metric, Value
from bottletop.tables.gpu import Gpu, GpuClockSample, GpuPowerSample, GpuProcess, GpuUtilSample
from bottletop.tables.gpu_activity import GpuActivity, GpuInstance
from bottletop.tables.gpu_health import GpuHealth, GpuLink

ONCE, EACH_READ, SLOW_PERIOD_S, RARE_PERIOD_S = 0, 1, 5, 10
"""How often something is asked, in seconds: what moves at each read; limits, link, temperature and
P-state slowly; errors, the fan and the video engines rarely; what never changes once."""

TEMPERATURE_GPU = 0
CLOCK_SM, CLOCK_MEM = 1, 2
MODULE = 1
AMPERE, ADA, HOPPER = 7, 8, 9
"""Numbers of nvmlDeviceGetArchitecture at which the driver's interface changes."""


class Call(NamedTuple):
    """A function of the binding, its arguments after the handle, and the part that is wanted."""

    function: str
    args: tuple[int, ...] = ()
    part: str | int = ""
    """Attribute or place in what it returns; empty where that is the value itself."""


class Field(NamedTuple):
    """A field id in a scope, and a factor for its raw number beside that of the reading."""

    id: int
    scope: int = 0
    scale: float = 1


class Reading(NamedTuple):
    """One column: fields and calls, best first, and what a raw number is multiplied by."""

    metric: Metric
    calls: tuple[Call, ...]
    fields: tuple[Field, ...] = ()
    scale: float = 1
    every_s: int = EACH_READ
    since: int = 0
    """First architecture that is asked; others are told `instead`."""
    before: int = 1 << 30
    """First architecture that is no longer asked."""
    instead: str = ""
    """Why there is nothing to ask of the other architectures."""
    wide: bool = False
    """Whether a counter of 32 bits would wrap faster than it is read."""

    signed: bool = False
    beside_cpu: bool = False
    """Whether only parts that sit on one module with their CPU are asked."""

    def concerns(self, architecture: int | None, *, beside_cpu: bool = False) -> bool:
        """Whether such parts are asked. One of an architecture that nobody knows is asked all."""
        known = architecture is None or self.since <= architecture < self.before
        return known and (beside_cpu or not self.beside_cpu)


MILLI = 0.001

FIELD_READINGS = (
    # Field 185 and nvmlDeviceGetPowerUsage give the same 1 s mean from Ampere on; GA100 (A100) and
    # older lack the field, and the call is then instantaneous.
    Reading(Gpu.power_w, (Call("nvmlDeviceGetPowerUsage"),), (Field(185),), MILLI),
    Reading(Gpu.power_instant_w, (), (Field(186),), MILLI),
    # Scope 1 is the module. Grace counts the CPU in, whose share of the limit the GPU lacks.
    Reading(
        Gpu.power_module_w,
        (),
        (Field(186, MODULE), Field(185, MODULE)),
        MILLI,
        instead="no CPU of NVIDIA on its module",
        beside_cpu=True,
    ),
    Reading(Gpu.energy_mj, (Call("nvmlDeviceGetTotalEnergyConsumption"),), (Field(83), Field(191))),
    # 269-271 came with the 570 drivers. The violation calls are deprecated in NVML 13 and go in
    # CUDA 14; their THERMAL policy counts the software slowdown.
    Reading(
        Gpu.throttle_sw_power_ns,
        (Call("nvmlDeviceGetViolationStatus", (0,), "violationTime"),),
        (Field(74),),
    ),
    Reading(
        Gpu.throttle_sw_thermal_ns,
        (Call("nvmlDeviceGetViolationStatus", (1,), "violationTime"),),
        (Field(269), Field(75)),
    ),
    Reading(
        Gpu.throttle_sync_boost_ns,
        (Call("nvmlDeviceGetViolationStatus", (2,), "violationTime"),),
        (Field(76),),
    ),
    Reading(
        Gpu.throttle_board_limit_ns,
        (Call("nvmlDeviceGetViolationStatus", (3,), "violationTime"),),
        (Field(77),),
    ),
    Reading(
        Gpu.throttle_reliability_ns,
        (Call("nvmlDeviceGetViolationStatus", (5,), "violationTime"),),
        (Field(79),),
    ),
    Reading(Gpu.throttle_hw_thermal_ns, (), (Field(270),)),
    Reading(Gpu.throttle_power_brake_ns, (), (Field(271),)),
    Reading(Gpu.temp_mem_c, (), (Field(82),)),
    # nvmlDeviceGetPcieThroughput is no fallback: it blocks for 20 ms a direction (gpu_throughput).
    Reading(Gpu.pcie_tx_bytes, (), (Field(197),), wide=True),
    Reading(Gpu.pcie_rx_bytes, (), (Field(198),), wide=True),
    Reading(
        Gpu.power_limit_w,
        (Call("nvmlDeviceGetEnforcedPowerLimit"),),
        (Field(190),),
        MILLI,
        every_s=SLOW_PERIOD_S,
    ),
    Reading(
        Gpu.power_limit_requested_w,
        (Call("nvmlDeviceGetPowerManagementLimit"),),
        (Field(192),),
        MILLI,
        every_s=SLOW_PERIOD_S,
    ),
    Reading(
        Gpu.power_limit_default_w,
        (Call("nvmlDeviceGetPowerManagementDefaultLimit"),),
        (Field(189),),
        MILLI,
        every_s=SLOW_PERIOD_S,
    ),
)

SM_CLOCK = Reading(Gpu.sm_clock_mhz, (Call("nvmlDeviceGetClockInfo", (CLOCK_SM,)),))
"""Asked only where the driver's buffer of the same clock has nothing new."""

CALL_READINGS = (
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
        every_s=SLOW_PERIOD_S,
    ),
    Reading(Gpu.temp_margin_c, (Call("nvmlDeviceGetMarginTemperature"),), every_s=RARE_PERIOD_S),
    Reading(Gpu.pstate, (Call("nvmlDeviceGetPerformanceState"),), every_s=SLOW_PERIOD_S),
    Reading(Gpu.pcie_gen, (Call("nvmlDeviceGetCurrPcieLinkGeneration"),), every_s=SLOW_PERIOD_S),
    Reading(Gpu.pcie_width, (Call("nvmlDeviceGetCurrPcieLinkWidth"),), every_s=SLOW_PERIOD_S),
    Reading(Gpu.fan_pct, (Call("nvmlDeviceGetFanSpeed"),), every_s=RARE_PERIOD_S),
    Reading(
        Gpu.enc_util_pct, (Call("nvmlDeviceGetEncoderUtilization", (), 0),), every_s=RARE_PERIOD_S
    ),
    Reading(
        Gpu.dec_util_pct, (Call("nvmlDeviceGetDecoderUtilization", (), 0),), every_s=RARE_PERIOD_S
    ),
    Reading(Gpu.jpg_util_pct, (Call("nvmlDeviceGetJpgUtilization", (), 0),), every_s=RARE_PERIOD_S),
    Reading(Gpu.ofa_util_pct, (Call("nvmlDeviceGetOfaUtilization", (), 0),), every_s=RARE_PERIOD_S),
)

STATIC_READINGS = (
    Reading(Gpu.sm_clock_max_mhz, (Call("nvmlDeviceGetMaxClockInfo", (CLOCK_SM,)),), every_s=ONCE),
    Reading(
        Gpu.sm_clock_boost_mhz,
        (Call("nvmlDeviceGetMaxCustomerBoostClock", (CLOCK_SM,)),),
        every_s=ONCE,
    ),
    Reading(
        Gpu.mem_clock_max_mhz, (Call("nvmlDeviceGetMaxClockInfo", (CLOCK_MEM,)),), every_s=ONCE
    ),
    Reading(Gpu.pcie_gen_max, (Call("nvmlDeviceGetMaxPcieLinkGeneration"),), every_s=ONCE),
    Reading(Gpu.pcie_width_max, (Call("nvmlDeviceGetMaxPcieLinkWidth"),), every_s=ONCE),
)

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
