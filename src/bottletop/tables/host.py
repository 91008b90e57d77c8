"""Host tables: cores, disks, memory, pressure."""

from __future__ import annotations

from bottletop.model import Table, counter, enumeration, gauge, text

YES_NO = {0: "no", 1: "yes"}
TICK_NS = 10_000_000


class Core(Table):
    """One row a logical CPU a tick, from /proc/stat and cpufreq. Key: "cpu3"."""

    name = "core"
    entity = "logical CPU"

    user_ns = counter("ns", "user and nice time, guests not counted twice", quantum=TICK_NS)
    system_ns = counter("ns", "kernel time with interrupts", quantum=TICK_NS)
    iowait_ns = counter(
        "ns", "idle with I/O pending; documented as unreliable, never a cause", quantum=TICK_NS
    )
    steal_ns = counter("ns", "time taken by the hypervisor", quantum=TICK_NS)
    busy_ns = counter("ns", "user + system + steal", quantum=TICK_NS)
    freq_mhz = gauge(
        "MHz", "scaling_cur_freq, read in turn: a few seconds old on big hosts", quantum=25
    )


class Disk(Table):
    """One row a whole disk a tick, from /proc/diskstats and /sys/block. Key: kernel name."""

    name = "disk"
    entity = "block device"

    reads = counter("", "reads completed")
    writes = counter("", "writes completed")
    read_bytes = counter("B", "bytes read from the device", quantum=512)
    write_bytes = counter("B", "bytes written to the device", quantum=512)
    read_ms = counter("ms", "time that reads spent in queue and device")
    write_ms = counter("ms", "time that writes spent in queue and device")
    busy_ms = counter(
        "ms", "time with a request in flight; 100 % is not saturation on parallel devices"
    )
    queue_ms = counter("ms", "requests in flight integrated over time: its rate is the queue depth")
    in_flight = gauge("", "requests in flight now")
    rotational = enumeration(YES_NO, "spinning disk; virtual disks often say so wrongly")
    transport = text("nvme, sata, sas, usb, virtio, mmc, dm, md, loop")
    model = text("model string of the device")
    size_bytes = gauge("B", "capacity", quantum=512)
    holds_target = enumeration(YES_NO, "an open file of the target lies on this disk")


class Memory(Table):
    """Host memory from /proc/meminfo and /proc/vmstat. Key: "host"."""

    name = "memory"
    entity = "host"

    total_bytes = gauge("B", "MemTotal", quantum=1024)
    available_bytes = gauge("B", "MemAvailable: what can be had without swapping", quantum=1024)
    free_bytes = gauge("B", "MemFree", quantum=1024)
    cached_bytes = gauge("B", "page cache and buffers", quantum=1024)
    dirty_bytes = gauge("B", "waiting for writeback", quantum=1024)
    shmem_bytes = gauge("B", "tmpfs and shared memory", quantum=1024)
    swap_total_bytes = gauge("B", "SwapTotal", quantum=1024)
    swap_free_bytes = gauge("B", "SwapFree", quantum=1024)
    major_faults = counter("", "pages read from disk on access (pgmajfault)")
    swap_in_pages = counter("", "pswpin")
    swap_out_pages = counter("", "pswpout")


class Psi(Table):
    """Pressure stall totals. Key: "host/cpu", "host/io", "host/memory", "target/io" ..."""

    name = "psi"
    entity = "scope/resource"

    some_us = counter("us", "time in which at least one task stalled")
    full_us = counter(
        "us", "time in which all tasks stalled at once; meaningless for cpu host-wide"
    )


class Cgroup(Table):
    """The target's cgroup and its ancestors with limits. Key: cgroup path."""

    name = "cgroup"
    entity = "cgroup path"

    version = text("v1, v2 or hybrid")
    depth = gauge("", "0 is the target's own group; a parent's quota throttles too")
    quota_cores = gauge("cores", "CPU quota over period", quantum=0.001)
    cpuset_cores = gauge("cores", "CPUs that the cpuset allows")
    periods = counter("", "enforcement periods (nr_periods)")
    throttled_periods = counter("", "periods in which the quota ran out (nr_throttled)")
    throttled_us = counter("us", "throttled time summed over run queues; may exceed wall time")
    usage_us = counter("us", "CPU time used")
    memory_bytes = gauge("B", "memory in use", quantum=4096)
    memory_max_bytes = gauge("B", "memory limit", quantum=4096)
    memory_file_bytes = gauge("B", "page cache charged to the group, read every 10 s", quantum=4096)
    oom_kills = counter("", "processes killed by the group's out-of-memory handler")
