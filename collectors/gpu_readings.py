"""Which NVML call or field fills which column, how often, and which answers are believed.

Field ids are the numbers of nvml.h (NVML_FI_*), written out because older bindings lack the newer
names. docs/collectors.md is written from these tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bottletop.tables.gpu import Gpu

if TYPE_CHECKING:
    from bottletop.model import Metric

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
