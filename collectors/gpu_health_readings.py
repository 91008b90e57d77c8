"""Which NVML call or field fills which column of `gpu_health` and `gpu_link`.

Fields come in one batch a GPU with those of its links; calls are left to what no field gives. Ids
are the numbers of nvml.h (NVML_FI_*).
"""

from __future__ import annotations

from bottletop.collectors.gpu_readings import (
    ADA,
    AMPERE,
    ONCE,
    Call,
    Field,
    Reading,
)
from bottletop.tables.gpu_health import GpuHealth, GpuLink

CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1
SHUTDOWN, SLOWDOWN, MEM_MAX, GPU_MAX = range(4)
"""Thresholds of nvmlDeviceGetTemperatureThreshold."""

MEGA = 1e6
KIB = 1024
LINK_COUNT = Field(91)
LINK_STATE = Call("nvmlDeviceGetNvLinkState")
MAX_LINKS = 36
"""NVML_NVLINK_MAX_LINKS."""

MARGINS = {
    GpuHealth.tlimit_shutdown_c: 193,
    GpuHealth.tlimit_slowdown_c: 194,
    GpuHealth.tlimit_mem_max_c: 195,
    GpuHealth.tlimit_max_c: 196,
}
_MARGINS = "from Ada on drivers state T.Limit margins, which are no temperatures"
_TEMPERATURES = "T.Limit margins came with Ada; older parts state temperatures"
_PAGES = "from Ampere on memory rows are remapped instead"
_ROWS = "rows are remapped from Ampere on; older parts retire pages"


def _ecc(kind: int, counter: int) -> tuple[Call, ...]:
    return (Call("nvmlDeviceGetTotalEccErrors", (kind, counter)),)


def _rows(place: int) -> tuple[Call, ...]:
    return (Call("nvmlDeviceGetRemappedRows", (), place),)


HEALTH_FIELDS = (
    Reading(GpuHealth.recovery_action, (), (Field(230),)),
    Reading(GpuHealth.ecc_corrected, _ecc(CORRECTED, VOLATILE), (Field(3),)),
    Reading(GpuHealth.ecc_uncorrected, _ecc(UNCORRECTED, VOLATILE), (Field(4),)),
    Reading(GpuHealth.ecc_corrected_ever, _ecc(CORRECTED, AGGREGATE), (Field(5),)),
    Reading(GpuHealth.ecc_uncorrected_ever, _ecc(UNCORRECTED, AGGREGATE), (Field(6),)),
    Reading(
        GpuHealth.rows_remapped_corrected, _rows(0), (Field(142),), since=AMPERE, instead=_ROWS
    ),
    Reading(
        GpuHealth.rows_remapped_uncorrected, _rows(1), (Field(143),), since=AMPERE, instead=_ROWS
    ),
    Reading(GpuHealth.row_remap_pending, _rows(2), (Field(144),), since=AMPERE, instead=_ROWS),
    Reading(GpuHealth.row_remap_failed, _rows(3), (Field(145),), since=AMPERE, instead=_ROWS),
    # nvmlDeviceGetRetiredPages is no fallback: the binding makes an array of what the driver says.
    Reading(GpuHealth.pages_retired_corrected, (), (Field(29),), before=AMPERE, instead=_PAGES),
    Reading(GpuHealth.pages_retired_uncorrected, (), (Field(30),), before=AMPERE, instead=_PAGES),
    Reading(
        GpuHealth.page_retirement_pending,
        (Call("nvmlDeviceGetRetiredPagesPendingStatus"),),
        (Field(31),),
        before=AMPERE,
        instead=_PAGES,
    ),
    Reading(GpuHealth.pcie_replays, (Call("nvmlDeviceGetPcieReplayCounter"),), (Field(94),)),
    Reading(GpuHealth.pcie_replay_rollovers, (), (Field(95),)),
    Reading(GpuHealth.pcie_recoveries, (), (Field(169),)),
    Reading(GpuHealth.pcie_corrected_errors, (), (Field(173),)),
    Reading(GpuHealth.pcie_naks_received, (), (Field(174),)),
    Reading(GpuHealth.pcie_receiver_errors, (), (Field(175),)),
    Reading(GpuHealth.pcie_bad_packets, (), (Field(176),)),
    Reading(GpuHealth.pcie_naks_sent, (), (Field(177),)),
    Reading(GpuHealth.pcie_bad_link_packets, (), (Field(178),)),
    Reading(GpuHealth.pcie_nonfatal_errors, (), (Field(179),)),
    Reading(GpuHealth.pcie_fatal_errors, (), (Field(180),)),
    Reading(GpuHealth.pcie_unsupported_requests, (), (Field(181),)),
    Reading(GpuHealth.pcie_lcrc_errors, (), (Field(182),)),
    *(
        Reading(metric, (), (Field(field_id),), since=ADA, instead=_TEMPERATURES, signed=True)
        for metric, field_id in MARGINS.items()
    ),
    Reading(GpuHealth.c2c_links, (), (Field(170),)),
    Reading(GpuHealth.c2c_bytes_per_s, (), (Field(172),), MEGA),
)

HEALTH_CALLS = (
    Reading(GpuHealth.bar1_total_bytes, (Call("nvmlDeviceGetBAR1MemoryInfo", (), "bar1Total"),)),
    Reading(GpuHealth.bar1_used_bytes, (Call("nvmlDeviceGetBAR1MemoryInfo", (), "bar1Used"),)),
)

THRESHOLDS = tuple(
    Reading(
        metric,
        (Call("nvmlDeviceGetTemperatureThreshold", (threshold,)),),
        every_s=ONCE,
        before=ADA,
        instead=_MARGINS,
    )
    for metric, threshold in (
        (GpuHealth.temp_shutdown_c, SHUTDOWN),
        (GpuHealth.temp_slowdown_c, SLOWDOWN),
        (GpuHealth.temp_mem_max_c, MEM_MAX),
        (GpuHealth.temp_max_c, GPU_MAX),
    )
)

LINK_FIELDS = (
    Reading(GpuLink.state, (), (Field(165),)),
    Reading(GpuLink.speed_bytes_per_s, (), (Field(164),), MEGA),
    # 138 and 139 count KiB, 202 and 204 (NVLink 5) bytes.
    Reading(GpuLink.tx_bytes, (), (Field(138, scale=KIB), Field(202)), wide=True),
    Reading(GpuLink.rx_bytes, (), (Field(139, scale=KIB), Field(204)), wide=True),
    # 161-163 are not supported from Blackwell on; 213-221 came with it.
    Reading(GpuLink.replay_errors, (), (Field(161),)),
    Reading(GpuLink.recovery_errors, (), (Field(162), Field(215))),
    Reading(GpuLink.crc_errors, (), (Field(163),)),
    Reading(GpuLink.recovery_failures, (), (Field(214),)),
    Reading(GpuLink.effective_errors, (), (Field(219),)),
    Reading(GpuLink.symbol_errors, (), (Field(221),)),
)
"""Of one link; the scope is its number."""


def of_link(link: int) -> tuple[Reading, ...]:
    """The readings of one link."""
    return tuple(
        reading._replace(fields=tuple(field._replace(scope=link) for field in reading.fields))
        for reading in LINK_FIELDS
    )
