"""What a GPU's hardware and driver say of their own health, and the links between GPUs."""

from __future__ import annotations

from bottletop.model import Table, counter, enumeration, gauge, text

RECOVERY_ACTION = {
    0: "none",
    1: "GPU reset",
    2: "node reboot",
    3: "drain P2P",
    4: "drain and reset",
    5: "IMEX reset",
    6: "bus reset",
    7: "system reboot",
}
"""NVML field 230: what the driver itself asks for."""
YES_NO = {0: "no", 1: "yes"}
LINK_STATE = {0: "down", 1: "up", 2: "asleep"}
"""Numbers of NVML_NVLINK_STATE_*."""

XID, DOUBLE_BIT_ERROR, ECC_STORM, PAGE_RETIREMENT, POISON, UNAVAILABLE, RECOVERY, OTHER = range(8)
EVENT_KIND = {
    XID: "xid",
    DOUBLE_BIT_ERROR: "double-bit ECC error",
    ECC_STORM: "single-bit ECC error storm",
    PAGE_RETIREMENT: "memory retirement",
    POISON: "poisoned memory",
    UNAVAILABLE: "GPU unavailable",
    RECOVERY: "recovery action changed",
    OTHER: "other",
}


class GpuHealth(Table):
    """Errors, remapped memory, limits; they change by the minute, if at all. Key: GPU UUID."""

    name = "gpu_health"
    entity = "GPU UUID"
    period_s = 10.0

    recovery_action = enumeration(
        RECOVERY_ACTION, "what the driver asks for (field 230); older drivers lack it"
    )
    ecc_corrected = gauge("", "corrected memory errors since the driver loaded")
    ecc_uncorrected = gauge("", "uncorrected memory errors since the driver loaded")
    ecc_corrected_ever = gauge("", "corrected memory errors over the life of the part")
    ecc_uncorrected_ever = gauge("", "uncorrected memory errors over the life of the part")
    rows_remapped_corrected = gauge("", "memory rows remapped for corrected errors")
    rows_remapped_uncorrected = gauge("", "memory rows remapped for uncorrected errors")
    row_remap_pending = enumeration(YES_NO, "a remap waits for a reset; running work is not harmed")
    row_remap_failed = enumeration(YES_NO, "a remap failed: the part is to be replaced")
    pages_retired_corrected = gauge(
        "", "pages retired for repeated corrected errors (before Ampere)"
    )
    pages_retired_uncorrected = gauge("", "pages retired for uncorrected errors (before Ampere)")
    page_retirement_pending = enumeration(YES_NO, "a page retirement waits for a reset")
    pcie_replays = counter("", "PCIe packets sent again; judged by rate, never by being above 0")
    pcie_corrected_errors = counter("", "corrected PCIe errors")
    pcie_fatal_errors = counter("", "uncorrected fatal PCIe errors")
    pcie_recoveries = counter("", "times the link left L0 to recover")
    bar1_total_bytes = gauge("B", "size of the BAR1 window", quantum=4096)
    bar1_used_bytes = gauge("B", "mapped part of BAR1; full breaks peer-to-peer", quantum=4096)
    temp_slowdown_c = gauge("C", "temperature at which the hardware slows down")
    temp_shutdown_c = gauge("C", "temperature at which it shuts down")
    temp_max_c = gauge("C", "highest operating temperature of the die")
    temp_mem_max_c = gauge("C", "highest operating temperature of the memory")
    tlimit_slowdown_c = gauge("C", "T.Limit margin at which it slows down; not a temperature")
    tlimit_shutdown_c = gauge("C", "T.Limit margin at which it shuts down; not a temperature")
    tlimit_max_c = gauge("C", "T.Limit margin of the highest operating temperature")
    tlimit_mem_max_c = gauge("C", "T.Limit margin of the highest memory temperature")
    c2c_links = gauge("", "links between GPU and CPU (Grace)")
    c2c_bytes_per_s = gauge("B/s", "bandwidth of one such link")
    pcie_replay_rollovers = counter("", "times the replay number of the link wrapped: a bad link")
    pcie_nonfatal_errors = counter("", "uncorrected PCIe errors that were not fatal")
    pcie_naks_received = counter("", "PCIe packets that the other side asked for again")
    pcie_naks_sent = counter("", "PCIe packets that the GPU asked for again")
    pcie_receiver_errors = counter("", "PCIe errors below the packet: bad symbols or lost framing")
    pcie_bad_packets = counter("", "PCIe transaction packets that arrived damaged (bad TLP)")
    pcie_bad_link_packets = counter("", "PCIe link packets that arrived damaged (bad DLLP)")
    pcie_lcrc_errors = counter("", "PCIe packets with a bad checksum of the link")
    pcie_unsupported_requests = counter("", "PCIe requests that nobody could answer")


class GpuLink(Table):
    """NVLinks. Key: "UUID/link"."""

    name = "gpu_link"
    entity = "GPU UUID/link"
    period_s = 10.0

    gpu = text("GPU UUID")
    link = gauge("", "number of the link")
    state = enumeration(LINK_STATE, "whether the link is up")
    speed_bytes_per_s = gauge("B/s", "speed of the link in one direction")
    tx_bytes = counter("B", "payload out of the GPU")
    rx_bytes = counter("B", "payload into the GPU")
    replay_errors = counter("", "packets sent again (before Blackwell)")
    recovery_errors = counter("", "link recoveries")
    crc_errors = counter("", "packets with a bad checksum (before Blackwell)")
    recovery_failures = counter("", "recoveries that left the link down (Blackwell and newer)")
    effective_errors = counter("", "errors left after correction (Blackwell and newer)")
    symbol_errors = counter(
        "", "bad symbols received; most are corrected, so judged by rate (Blackwell and newer)"
    )


class GpuEvent(Table):
    """What the driver reported by event (nvmlEventSetWait). Key: GPU UUID."""

    name = "gpu_event"
    entity = "GPU UUID"
    stream = True
    kept_s = 86_400.0

    kind = enumeration(EVENT_KIND, "what happened")
    xid = gauge("", "Xid number, of Xid events")
    bits = gauge("", "event type as the driver gives it")
    gpu_instance = gauge("", "MIG GPU instance, if the event is of one")
    compute_instance = gauge("", "MIG compute instance, if the event is of one")
