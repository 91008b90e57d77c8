"""What inside a GPU was busy (GPM, Hopper and newer), and its MIG instances."""

from __future__ import annotations

from bottletop.model import Table, gauge, text


class GpuActivity(Table):
    """Activity between two GPM samples (nvmlGpmMetricsGet). Key: UUID of a GPU or a MIG device.

    Unlike `Gpu.util_pct`, which says whether a kernel ran at all, these say how much of the part
    worked. Absent before Hopper.
    """

    name = "gpu_activity"
    entity = "GPU or MIG device UUID"

    gpu = text("UUID of the GPU; the key itself unless the row is of a MIG device")
    interval_s = gauge("s", "time between the two samples", quantum=0.001)
    graphics_pct = gauge("%", "time in which a compute or graphics context was active", quantum=0.1)
    sm_pct = gauge("%", "share of SMs that had a warp, mean over the interval", quantum=0.1)
    occupancy_pct = gauge("%", "resident warps of the warps that the SMs can hold", quantum=0.1)
    tensor_pct = gauge("%", "cycles in which a tensor pipe was busy", quantum=0.1)
    fp64_pct = gauge("%", "cycles in which the FP64 pipe was busy", quantum=0.1)
    fp32_pct = gauge("%", "cycles in which the FP32 pipe was busy", quantum=0.1)
    fp16_pct = gauge("%", "cycles in which the FP16 pipe was busy", quantum=0.1)
    integer_pct = gauge("%", "cycles in which the integer pipe was busy", quantum=0.1)
    dram_pct = gauge(
        "%", "memory bandwidth used of the peak; about 80 is the practical top", quantum=0.1
    )
    pcie_tx_bytes_per_s = gauge("B/s", "out of the GPU over PCIe (device to host)", quantum=1024)
    pcie_rx_bytes_per_s = gauge("B/s", "into the GPU over PCIe (host to device)", quantum=1024)
    nvlink_tx_bytes_per_s = gauge("B/s", "out of the GPU over all NVLinks", quantum=1024)
    nvlink_rx_bytes_per_s = gauge("B/s", "into the GPU over all NVLinks", quantum=1024)
    c2c_tx_bytes_per_s = gauge("B/s", "out of the GPU over the link to its CPU", quantum=1024)
    c2c_rx_bytes_per_s = gauge("B/s", "into the GPU over the link to its CPU", quantum=1024)
    decoder_pct = gauge("%", "mean utilisation of the video decoders", quantum=0.1)
    context_switch_pct = gauge(
        "%", "time spent in switching contexts: evidence of time slicing", quantum=0.1
    )


class GpuInstance(Table):
    """MIG devices. Key: MIG device UUID. Their activity is in `gpu_activity` under the same key."""

    name = "gpu_instance"
    entity = "MIG device UUID"
    period_s = 5.0

    gpu = text("GPU UUID")
    gpu_instance = gauge("", "GPU instance id")
    compute_instance = gauge("", "compute instance id")
    profile = text('name of the MIG device, such as "1g.10gb"')
    sm_count = gauge("", "streaming multiprocessors of the instance")
    mem_total_bytes = gauge("B", "memory of the instance", quantum=4096)
    mem_used_bytes = gauge("B", "allocated memory of the instance", quantum=4096)
    processes = gauge("", "processes with a context on it; absent says why there is no list")
