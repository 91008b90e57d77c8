"""Rules: one file a rule, or one tight family.

`RULES` is explicit and its order is the order of judgement: what explains comes first, since it
mutes what would misread the same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.rules.cgroup_cpu_throttled import CgroupCpuThrottled
from bottletop.rules.clocks_held_low import ClocksHeldLow
from bottletop.rules.decode_bound import DecodeBound
from bottletop.rules.disk_saturated import DiskSaturated
from bottletop.rules.gpu_busy_low_efficiency import BusyLowEfficiency
from bottletop.rules.gpu_contended import GpuContended
from bottletop.rules.gpu_idle_no_demand import IdleNoDemand
from bottletop.rules.gpu_starved_cpu import StarvedCpu
from bottletop.rules.gpu_starved_external import StarvedExternal
from bottletop.rules.gpu_starved_io import StarvedIo
from bottletop.rules.gpu_util_sawtooth import UtilSawtooth
from bottletop.rules.h2d_bound import H2dBound
from bottletop.rules.link_errors import LinkErrors
from bottletop.rules.memory_health import MemoryHealth
from bottletop.rules.observer_effect import ObserverEffect
from bottletop.rules.pcie_link_degraded import PcieLinkDegraded
from bottletop.rules.power import (
    PowerBrake,
    PowerCapAtLimit,
    PowerCapBelowLimit,
    PowerLimitLowered,
)
from bottletop.rules.preprocess_on_critical_path import PreprocessOnCriticalPath
from bottletop.rules.recovery_required import RecoveryRequired
from bottletop.rules.sensor_implausible import SensorImplausible
from bottletop.rules.spin_wait_benign import SpinWaitBenign
from bottletop.rules.thermal_throttle import ThermalThrottle
from bottletop.rules.xid_event import XidEvent

if TYPE_CHECKING:
    from bottletop.rules.base import Rule

RULES: tuple[Rule, ...] = (
    RecoveryRequired(),
    XidEvent(),
    MemoryHealth(),
    LinkErrors(),
    SensorImplausible(),
    IdleNoDemand(),
    SpinWaitBenign(),
    ThermalThrottle(),
    PowerBrake(),
    PowerLimitLowered(),
    PowerCapBelowLimit(),
    PowerCapAtLimit(),
    ClocksHeldLow(),
    GpuContended(),
    CgroupCpuThrottled(),
    StarvedCpu(),
    StarvedIo(),
    H2dBound(),
    StarvedExternal(),
    UtilSawtooth(),
    BusyLowEfficiency(),
    DecodeBound(),
    PcieLinkDegraded(),
    PreprocessOnCriticalPath(),
    DiskSaturated(),
    ObserverEffect(),
)
