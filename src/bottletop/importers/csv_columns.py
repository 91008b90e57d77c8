"""Query names of nvidia-smi and the columns of our tables that they fill.

From `nvidia-smi --help-query-gpu` and `--help-query-compute-apps` of drivers 340 to 610.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottletop.importers.smi_words import LIMITERS, pci_id
from bottletop.importers.values import cell, missing
from bottletop.model import NOT_READ, Absent
from bottletop.tables import Gpu, GpuHealth, GpuProcess
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Metric, Value


class Role(enum.Enum):
    """What part a column takes in a row."""

    VALUE = enum.auto()
    TIME = enum.auto()
    INDEX = enum.auto()
    UUID = enum.auto()
    PCI = enum.auto()
    NAME = enum.auto()
    PID = enum.auto()
    PROCESS_NAME = enum.auto()


YES_NO = {"yes": 1, "no": 0, "pending": 1}
ON_OFF = {"enabled": 1, "disabled": 0}
RECOVERY = {
    "none": 0,
    "reset": 1,
    "gpu reset": 1,
    "reboot": 2,
    "node reboot": 2,
    "drain p2p": 3,
    "drain and reset": 4,
    "imex reset": 5,
    "bus reset": 6,
    "system reboot": 7,
}
"""Words of nvidia-smi for NVML field 230, as numbers of `RECOVERY_ACTION`."""


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One query name."""

    metric: Metric | None = None
    unit: str = ""
    """Unit of the cells where neither header nor cell says it."""
    role: Role = Role.VALUE
    words: Mapping[str, int] | None = None
    """Cells are one of these words."""
    bit: int = 0
    """The cell says Active or Not Active of this clock event reason."""

    def value(self, text: str, unit: str) -> Value:
        """The cell's value; `unit` is the header's."""
        if self.words is not None:
            known = self.words.get(text.strip("[] ").lower())
            return known if known is not None else missing(text) or _strange(text)
        if self.metric in (Gpu.model, Gpu.driver, Gpu.pci_bus_id, Gpu.compute_capability):
            absent = missing(text)
            return absent if absent is not None else pci_id(text) or clean(text, 80) or NOT_READ
        return cell(self.metric, text, unit or self.unit) if self.metric is not None else NOT_READ

    def fits(self, text: str) -> bool:
        """Whether the cell is of the kind that a column other than a value holds."""
        if self.bit:
            return text.lower() in ("active", "not active")
        match self.role:
            case Role.INDEX | Role.PID:
                return text.isdecimal()
            case Role.PCI:
                return bool(pci_id(text))
            case Role.UUID:
                return text.startswith(("GPU-", "MIG-"))
        return True


def _strange(text: str) -> Absent:
    return Absent.error(f'the log says "{clean(text, 40)}"')


COLUMNS: dict[str, Column] = {
    "timestamp": Column(role=Role.TIME),
    "index": Column(Gpu.index, role=Role.INDEX),
    "uuid": Column(role=Role.UUID),
    "name": Column(Gpu.model, role=Role.NAME),
    "pci.bus_id": Column(Gpu.pci_bus_id, role=Role.PCI),
    "driver_version": Column(Gpu.driver),
    "compute_cap": Column(Gpu.compute_capability),
    "count": Column(),
    "serial": Column(),
    "vbios_version": Column(),
    "persistence_mode": Column(),
    "compute_mode": Column(),
    "display_active": Column(),
    "display_mode": Column(),
    "memory.free": Column(unit="MiB"),
    "utilization.gpu": Column(Gpu.util_pct, "%"),
    "utilization.memory": Column(Gpu.mem_util_pct, "%"),
    "utilization.encoder": Column(Gpu.enc_util_pct, "%"),
    "utilization.decoder": Column(Gpu.dec_util_pct, "%"),
    "utilization.jpeg": Column(Gpu.jpg_util_pct, "%"),
    "utilization.ofa": Column(Gpu.ofa_util_pct, "%"),
    "memory.total": Column(Gpu.mem_total_bytes, "MiB"),
    "memory.used": Column(Gpu.mem_used_bytes, "MiB"),
    "memory.reserved": Column(Gpu.mem_reserved_bytes, "MiB"),
    "temperature.gpu": Column(Gpu.temp_c, "C"),
    "temperature.memory": Column(Gpu.temp_mem_c, "C"),
    "temperature.gpu.tlimit": Column(Gpu.temp_margin_c, "C"),
    "power.draw": Column(Gpu.power_w, "W"),
    "power.draw.average": Column(Gpu.power_w, "W"),
    "power.draw.instant": Column(Gpu.power_instant_w, "W"),
    "power.limit": Column(Gpu.power_limit_requested_w, "W"),
    "enforced.power.limit": Column(Gpu.power_limit_w, "W"),
    "power.default_limit": Column(Gpu.power_limit_default_w, "W"),
    "power.min_limit": Column(unit="W"),
    "power.max_limit": Column(unit="W"),
    "power.management": Column(),
    "total_energy_consumption": Column(Gpu.energy_mj, "mJ"),
    "clocks.current.sm": Column(Gpu.sm_clock_mhz, "MHz"),
    "clocks.current.graphics": Column(unit="MHz"),
    "clocks.current.memory": Column(Gpu.mem_clock_mhz, "MHz"),
    "clocks.current.video": Column(unit="MHz"),
    "clocks.max.sm": Column(Gpu.sm_clock_max_mhz, "MHz"),
    "clocks.max.graphics": Column(unit="MHz"),
    "clocks.max.memory": Column(Gpu.mem_clock_max_mhz, "MHz"),
    "clocks.applications.graphics": Column(unit="MHz"),
    "clocks.applications.memory": Column(unit="MHz"),
    "fan.speed": Column(Gpu.fan_pct, "%"),
    "pstate": Column(Gpu.pstate),
    "pcie.link.gen.current": Column(Gpu.pcie_gen),
    "pcie.link.gen.gpucurrent": Column(Gpu.pcie_gen),
    "pcie.link.gen.max": Column(Gpu.pcie_gen_max),
    "pcie.link.gen.gpumax": Column(),
    "pcie.link.gen.hostmax": Column(),
    "pcie.link.width.current": Column(Gpu.pcie_width),
    "pcie.link.width.max": Column(Gpu.pcie_width_max),
    "mig.mode.current": Column(Gpu.mig, words=ON_OFF),
    "gpu_recovery_action": Column(GpuHealth.recovery_action, words=RECOVERY),
    "reset_status.reset_required": Column(GpuHealth.recovery_action, words=YES_NO),
    "ecc.mode.current": Column(),
    "ecc.errors.corrected.volatile.total": Column(GpuHealth.ecc_corrected),
    "ecc.errors.uncorrected.volatile.total": Column(GpuHealth.ecc_uncorrected),
    "ecc.errors.corrected.aggregate.total": Column(GpuHealth.ecc_corrected_ever),
    "ecc.errors.uncorrected.aggregate.total": Column(GpuHealth.ecc_uncorrected_ever),
    "retired_pages.single_bit_ecc.count": Column(GpuHealth.pages_retired_corrected),
    "retired_pages.double_bit.count": Column(GpuHealth.pages_retired_uncorrected),
    "retired_pages.pending": Column(GpuHealth.page_retirement_pending, words=YES_NO),
    "remapped_rows.correctable": Column(GpuHealth.rows_remapped_corrected),
    "remapped_rows.uncorrectable": Column(GpuHealth.rows_remapped_uncorrected),
    "remapped_rows.pending": Column(GpuHealth.row_remap_pending, words=YES_NO),
    "remapped_rows.failure": Column(GpuHealth.row_remap_failed, words=YES_NO),
    "gpu_name": Column(Gpu.model, role=Role.NAME),
    "pid": Column(role=Role.PID),
    "process_name": Column(role=Role.PROCESS_NAME),
    "used_memory": Column(GpuProcess.mem_bytes, "MiB"),
    "gpu_uuid": Column(role=Role.UUID),
    "gpu_bus_id": Column(role=Role.PCI),
    "gpu_serial": Column(),
}
for _family in ("clocks_event_reasons", "clocks_throttle_reasons"):
    COLUMNS[f"{_family}.active"] = Column(Gpu.clock_event_reasons)
    COLUMNS[f"{_family}.supported"] = Column()
    for _name, _bit in LIMITERS.items():
        COLUMNS[f"{_family}.{_name}"] = Column(bit=_bit)
for _name, _metric in {
    "sw_power_cap": Gpu.throttle_sw_power_ns,
    "sw_thermal_slowdown": Gpu.throttle_sw_thermal_ns,
    "hw_thermal_slowdown": Gpu.throttle_hw_thermal_ns,
    "hw_power_brake_slowdown": Gpu.throttle_power_brake_ns,
    "sync_boost": Gpu.throttle_sync_boost_ns,
}.items():
    COLUMNS[f"clocks_event_reasons_counters.{_name}"] = Column(_metric, "us")

NAMES = {
    "clocks.sm": "clocks.current.sm",
    "clocks.gr": "clocks.current.graphics",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "clocks.current.gr": "clocks.current.graphics",
    "clocks.current.mem": "clocks.current.memory",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "clocks.applications.gr": "clocks.applications.graphics",
    "clocks.applications.mem": "clocks.applications.memory",
    "used_gpu_memory": "used_memory",
    "process.name": "process_name",
    "retired_pages.sbe": "retired_pages.single_bit_ecc.count",
    "retired_pages.dbe": "retired_pages.double_bit.count",
    "retired_pages.double_bit_ecc.count": "retired_pages.double_bit.count",
    "recovery_action": "gpu_recovery_action",
}
"""Other names of the same, old and short."""
