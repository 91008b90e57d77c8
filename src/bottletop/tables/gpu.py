"""GPU tables. Vendor neutral: whatever fills them says so in `provenance`. Keys are GPU UUIDs."""

from __future__ import annotations

from bottletop.model import Table, counter, enumeration, gauge, text

OK, LOST, RESET_REQUIRED, NO_ACCESS, ASLEEP = range(5)
HEALTH = {
    OK: "ok",
    LOST: "lost",
    RESET_REQUIRED: "reset required",
    NO_ACCESS: "no access",
    ASLEEP: "asleep",
}
DEDICATED, UNIFIED, COHERENT = range(3)
MEMORY_KIND = {DEDICATED: "dedicated", UNIFIED: "unified", COHERENT: "coherent"}
VGPU_GUEST, WSL = 2, 5
VIRTUALISATION = {
    0: "none",
    1: "passthrough",
    VGPU_GUEST: "vgpu guest",
    3: "vgpu host",
    4: "vsga host",
    WSL: "wsl",
}
"""Numbers of NVML's nvmlGpuVirtualizationMode_t, and ours for a Windows host's driver."""
INSTANT, MEAN = range(2)
POWER_BASIS = {INSTANT: "instant", MEAN: "1 s mean"}
COMPUTE, GRAPHICS, MPS = range(3)
PROCESS_KIND = {COMPUTE: "compute", GRAPHICS: "graphics", MPS: "mps"}
ON_OFF = {0: "off", 1: "on"}
MEMORY_INFO = {1: "v1", 2: "v2"}

CLOCK_EVENT_REASONS = {
    0x001: "gpu idle",
    0x002: "applications clocks setting",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
    0x100: "display clock setting",
    0x200: "board limit",
    0x400: "reliability limit",
}
"""Bits of `Gpu.clock_event_reasons` (NVML nvmlClocksEventReason*)."""


def clock_event_text(bits: int) -> str:
    """Name every known bit; bits nobody named are shown as hex, never dropped."""
    names = [name for bit, name in CLOCK_EVENT_REASONS.items() if bits & bit]
    rest = bits & ~sum(CLOCK_EVENT_REASONS)
    if rest:
        names.append(hex(rest))
    return ", ".join(names) or "none"


class Gpu(Table):
    """One row a GPU a tick."""

    name = "gpu"
    entity = "GPU UUID"

    index = gauge("", "position in the driver's list; may change over a reset, the UUID does not")
    model = text("product name (nvmlDeviceGetName)")
    provenance = text('what filled the row, such as "nvml", "simulated" or "imported"')
    pci_bus_id = text("PCI address")
    driver = text("driver version")
    health = enumeration(HEALTH, "lost and reset-required GPUs stay listed, their values absent")
    util_pct = gauge(
        "%",
        "share of the driver's last window in which a kernel ran; says busy, not efficient",
        trend=True,
    )
    mem_util_pct = gauge("%", "share of the window in which device memory was read or written")
    mem_total_bytes = gauge("B", "device memory", quantum=4096)
    mem_used_bytes = gauge(
        "B", "allocated device memory without the driver's reserve", quantum=4096, trend=True
    )
    mem_reserved_bytes = gauge(
        "B", "device memory that the driver keeps (memory info v2)", quantum=4096
    )
    power_w = gauge(
        "W",
        "board power as the driver reports it: 1 s average on most parts",
        quantum=0.1,
        trend=True,
    )
    power_limit_w = gauge("W", "enforced limit: the lowest of all limiters", quantum=0.1)
    power_limit_requested_w = gauge(
        "W",
        "limit set by software; above the enforced one, something out of band caps",
        quantum=0.1,
    )
    power_limit_default_w = gauge("W", "the card's own default limit", quantum=0.1)
    energy_mj = counter(
        "mJ", "energy since the driver loaded: mean power over any span without aliasing"
    )
    sm_clock_mhz = gauge("MHz", "SM clock now", trend=True)
    sm_clock_max_mhz = gauge("MHz", "highest SM clock of the part; may be out of reach")
    sm_clock_boost_mhz = gauge(
        "MHz", "customer boost maximum: the reference clock where it is known"
    )
    mem_clock_mhz = gauge("MHz", "memory clock now")
    mem_clock_max_mhz = gauge("MHz", "highest memory clock")
    clock_event_reasons = gauge("", "bit mask of why clocks are not higher, at this instant")
    throttle_sw_power_ns = counter("ns", "time limited by the software power cap")
    throttle_sw_thermal_ns = counter("ns", "time limited by software thermal slowdown")
    throttle_hw_thermal_ns = counter("ns", "time limited by hardware thermal slowdown")
    throttle_power_brake_ns = counter("ns", "time limited by the external power brake")
    throttle_sync_boost_ns = counter("ns", "time limited by a sync boost peer")
    throttle_board_limit_ns = counter("ns", "time limited by a board limit")
    throttle_reliability_ns = counter("ns", "time limited by the reliability limit")
    temp_c = gauge("C", "die temperature", trend=True)
    temp_mem_c = gauge("C", "memory temperature")
    temp_margin_c = gauge(
        "C", "distance to the nearest slowdown; values of 0 and below are not trusted"
    )
    fan_pct = gauge("%", "intended fan speed, not a measured one")
    pstate = gauge("", "performance state, 0 fastest; never judged alone")
    pcie_gen = gauge("", "link generation now; drops when idle by design")
    pcie_gen_max = gauge("", "link generation that card and slot allow")
    pcie_width = gauge("", "link lanes now")
    pcie_width_max = gauge("", "link lanes that card and slot allow")
    pcie_rx_bytes = counter("B", "bytes into the GPU over PCIe (host to device)")
    pcie_tx_bytes = counter("B", "bytes out of the GPU over PCIe (device to host)")
    sample_interval_s = gauge(
        "s",
        "calibrated distance of the utilisation samples: the driver's window where it buffers,"
        " our period where it does not",
        quantum=0.001,
    )
    stamp_domain = text(
        "clock of the driver's buffer stamps, boot or epoch; polled where it keeps no buffer"
    )
    mig = enumeration(
        ON_OFF, "MIG mode; utilisation of a MIG-enabled GPU is not available from here"
    )
    power_interval_s = gauge("s", "calibrated distance of the power samples", quantum=0.001)
    clock_interval_s = gauge("s", "calibrated distance of the clock samples", quantum=0.001)
    stamp_correction_s = gauge(
        "s",
        "what was added to the buffer stamps where the driver's clock had drifted from ours",
        quantum=0.001,
    )
    mem_info = enumeration(
        MEMORY_INFO, "which memory call answered; v1 counts the driver's reserve as used"
    )
    processes = gauge("", "processes with a context on it; absent says why there is no list")
    compute_capability = text('CUDA compute capability, such as "9.0"')
    power_instant_w = gauge(
        "W", "board power of this instant, where the driver tells it from the mean", quantum=0.1
    )
    power_module_w = gauge("W", "power of GPU and CPU together on a Grace module", quantum=0.1)
    enc_util_pct = gauge(
        "%", "video encoder utilisation over the driver's last window; looked at every 10 s"
    )
    dec_util_pct = gauge(
        "%", "video decoder utilisation: full beside idle SMs, decoding limits a video pipeline"
    )
    jpg_util_pct = gauge("%", "JPEG decoder utilisation")
    ofa_util_pct = gauge("%", "optical flow accelerator utilisation")
    memory_kind = enumeration(
        MEMORY_KIND,
        "dedicated; unified: the host's own memory, so the total is the host's and what is used is"
        " what the GPU's processes hold;"
        " coherent: device memory that the operating system manages as a NUMA node",
    )
    virtualisation = enumeration(VIRTUALISATION, "what the driver says of being virtualised")
    architecture = text("architecture name, such as Hopper")
    driver_backoff = gauge(
        "",
        "how many times rarer than asked it is read, since driver calls are slow; 1 is as asked",
    )
    clock_event_known = gauge(
        "",
        "bits of clock_event_reasons that whatever fills the row can tell; absent: all of them",
    )
    power_basis = enumeration(
        POWER_BASIS,
        "what power_w is: GA100 (A100) and parts before Ampere answer this instant, all others the"
        " mean of a second; the same number of watts is another statistic",
    )
    pcie_rx_rate_bytes_per_s = gauge(
        "B/s",
        "into the GPU during 20 ms, looked at once a minute at most: says that bytes moved, nothing"
        " of the mean; only where neither byte counters nor GPM are there",
    )
    pcie_tx_rate_bytes_per_s = gauge(
        "B/s", "out of the GPU during 20 ms, as pcie_rx_rate_bytes_per_s"
    )


class GpuUtilSample(Table):
    """The driver's own utilisation samples, with the driver's stamps mapped to our clock.

    A stamp marks the end of its averaging window (nvmlDeviceGetSamples, GPU_UTILIZATION).
    """

    name = "gpu_util_sample"
    entity = "GPU UUID"
    stream = True

    util_pct = gauge("%", "busy share of one driver window")


class GpuPowerSample(Table):
    """The driver's own power samples (nvmlDeviceGetSamples, TOTAL_POWER)."""

    name = "gpu_power_sample"
    entity = "GPU UUID"
    stream = True

    power_w = gauge("W", "board power", quantum=0.1)


class GpuClockSample(Table):
    """The driver's own SM clock samples (nvmlDeviceGetSamples, PROCESSOR_CLK)."""

    name = "gpu_clock_sample"
    entity = "GPU UUID"
    stream = True

    sm_clock_mhz = gauge("MHz", "SM clock")


class GpuProcess(Table):
    """Processes with a context on a GPU. Key: "UUID/pid", the pid as the driver gives it."""

    name = "gpu_process"
    entity = "GPU UUID/pid"
    period_s = 5.0

    gpu = text("GPU UUID")
    pid = gauge(
        "",
        "host pid; absent, with the number kept, in a container that has pids of its own",
    )
    process = text("process name where it can be read")
    mem_bytes = gauge("B", "device memory of this process", quantum=4096)
    sm_util_pct = gauge("%", "share of the last sampling period in which its kernels ran")
    kind = enumeration(PROCESS_KIND, "the kind of context that it holds")
    namespace_pid = gauge("", "its pid in its own PID namespace: what its container's logs say")
    instance = text("MIG device UUID that it runs on, where MIG is on")
