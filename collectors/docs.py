"""The table of GPU signals in docs/collectors.md, written from what the collectors read.

`python -m bottletop.collectors.docs docs/collectors.md` rewrites the part between its two marks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bottletop.collectors.gpu import LOOKED_AT_PERIOD_S
from bottletop.collectors.gpu_activity import COUNTED
from bottletop.collectors.gpu_health_readings import (
    HEALTH_CALLS,
    HEALTH_FIELDS,
    LINK_FIELDS,
    THRESHOLDS,
)
from bottletop.collectors.gpu_part import ARCHITECTURES
from bottletop.collectors.gpu_readings import (
    CALL_READINGS,
    EACH_READ,
    FIELD_READINGS,
    ONCE,
    RARE_PERIOD_S,
    SLOW_PERIOD_S,
    STATIC_READINGS,
)
from bottletop.collectors.gpu_throughput import LOOKS
from bottletop.tables.gpu import (
    Gpu,
    GpuClockSample,
    GpuPowerSample,
    GpuProcess,
    GpuUtilSample,
)
from bottletop.tables.gpu_activity import GpuActivity, GpuInstance
from bottletop.tables.gpu_health import GpuEvent, GpuHealth, GpuLink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bottletop.collectors.gpu_readings import Call, Field, Reading
    from bottletop.model import Metric, Table

BEGIN = "<!-- written by `python -m bottletop.collectors.docs`; a test compares -->"
END = "<!-- end of what is written -->"

TABLES: tuple[type[Table], ...] = (
    Gpu,
    GpuUtilSample,
    GpuPowerSample,
    GpuClockSample,
    GpuProcess,
    GpuActivity,
    GpuInstance,
    GpuHealth,
    GpuLink,
    GpuEvent,
)


class Signal(NamedTuple):
    """Columns that come from something else than a `Reading`."""

    metrics: tuple[Metric, ...]
    source: str
    every: str
    absent: str = ""


TIERS = {
    ONCE: "static: once",
    EACH_READ: "fast: each read",
    SLOW_PERIOD_S: f"slow: {SLOW_PERIOD_S} s",
    RARE_PERIOD_S: f"rare: {RARE_PERIOD_S} s",
}
EACH = TIERS[EACH_READ]
SLOWLY = TIERS[SLOW_PERIOD_S]
AT_OPEN = "static: when the GPU is opened"
OURS = "ours"
LISTED = f"slow: {GpuProcess.period_s:g} s, {LOOKED_AT_PERIOD_S} s while it is looked at"
INSTANCES = f"slow: {GpuInstance.period_s:g} s"

NOTES: dict[Metric, str] = {
    Gpu.power_w: "most SoCs and some laptops do not measure it",
    Gpu.energy_mj: "before Volta",
    Gpu.temp_mem_c: "most GeForce parts have no sensor",
    Gpu.temp_margin_c: "0 and below, which parts have answered that were near no limit",
    Gpu.fan_pct: "passive cards",
    Gpu.throttle_hw_thermal_ns: "drivers before 570",
    Gpu.throttle_power_brake_ns: "drivers before 570",
    Gpu.power_instant_w: "drivers without the field; where power_w is instant it is that",
    Gpu.pcie_gen: "parts beside their CPU whose link is a placeholder",
    Gpu.pcie_width: "as pcie_gen",
    Gpu.pcie_gen_max: "as pcie_gen",
    Gpu.pcie_width_max: "as pcie_gen",
    Gpu.enc_util_pct: "MIG is on; there is no such engine",
    Gpu.dec_util_pct: "MIG is on; there is no such engine",
    Gpu.jpg_util_pct: "MIG is on; there is no such engine",
    Gpu.ofa_util_pct: "MIG is on; there is no such engine",
    Gpu.pcie_rx_rate_bytes_per_s: "byte counters answer; the part sits beside its CPU",
    Gpu.pcie_tx_rate_bytes_per_s: "byte counters answer; the part sits beside its CPU",
    GpuHealth.recovery_action: "older drivers, of which nothing is concluded",
    GpuHealth.ecc_corrected: "ECC is off or there is none; MIG is on",
    GpuHealth.ecc_uncorrected: "ECC is off or there is none; MIG is on",
    GpuHealth.ecc_corrected_ever: "ECC is off or there is none",
    GpuHealth.ecc_uncorrected_ever: "ECC is off or there is none",
    GpuHealth.rows_remapped_corrected: "MIG instances exist",
    GpuHealth.rows_remapped_uncorrected: "MIG instances exist",
    GpuHealth.row_remap_pending: "MIG instances exist",
    GpuHealth.row_remap_failed: "MIG instances exist",
    GpuHealth.c2c_links: "no Grace CPU beside it",
    GpuHealth.c2c_bytes_per_s: "no Grace CPU beside it",
    GpuLink.replay_errors: "from Blackwell on",
    GpuLink.crc_errors: "from Blackwell on",
    GpuLink.recovery_failures: "before Blackwell",
    GpuLink.effective_errors: "before Blackwell",
    GpuLink.symbol_errors: "before Blackwell",
}
"""When the driver refuses what is asked, as far as headers, manuals and issues say."""

SIGNALS = (
    Signal((Gpu.index,), "nvmlDeviceGetIndex", AT_OPEN, "the place in the driver's list"),
    Signal((Gpu.model,), "nvmlDeviceGetName", AT_OPEN),
    Signal((Gpu.provenance, Gpu.health), OURS, EACH),
    Signal(
        (Gpu.sm_clock_mhz,),
        "newest of nvmlDeviceGetSamples PROCESSOR_CLK, else nvmlDeviceGetClockInfo(1)",
        EACH,
    ),
    Signal((Gpu.pci_bus_id,), "nvmlDeviceGetPciInfo", AT_OPEN),
    Signal((Gpu.driver,), "nvmlSystemGetDriverVersion", AT_OPEN),
    Signal((Gpu.compute_capability,), "nvmlDeviceGetCudaComputeCapability", AT_OPEN),
    Signal((Gpu.architecture,), "nvmlDeviceGetArchitecture", AT_OPEN),
    Signal(
        (Gpu.memory_kind,),
        "compute capability, name, nvmlDeviceGetAddressingMode",
        AT_OPEN,
        "memory is refused and nothing says that the part shares the host's",
    ),
    Signal(
        (Gpu.virtualisation,), "/proc/version for WSL, nvmlDeviceGetVirtualizationMode", AT_OPEN
    ),
    Signal(
        (Gpu.power_basis,),
        "whether field 185 answers, else the architecture",
        AT_OPEN,
        "the architecture is not known",
    ),
    Signal(
        (Gpu.util_pct,),
        "nvmlDeviceGetUtilizationRates",
        EACH,
        "MIG is on; a Jetson has answered nothing but 0",
    ),
    Signal(
        (Gpu.mem_util_pct,),
        "nvmlDeviceGetUtilizationRates",
        EACH,
        "as util_pct; it was 0 beside a busy GPU and never anything else",
    ),
    Signal(
        (Gpu.mem_total_bytes,),
        "nvmlDeviceGetMemoryInfo v2, else v1; of unified parts MemTotal of /proc/meminfo",
        EACH,
    ),
    Signal(
        (Gpu.mem_used_bytes,),
        "nvmlDeviceGetMemoryInfo v2, else v1; of unified parts the sum over its processes",
        EACH,
        "a unified part has no process, or one that does not say what it holds",
    ),
    Signal(
        (Gpu.mem_reserved_bytes, Gpu.mem_info),
        "nvmlDeviceGetMemoryInfo v2, else v1",
        EACH,
        "unified parts have no memory of their own; v1 counts the reserve as used",
    ),
    Signal((Gpu.mig,), "nvmlDeviceGetMigMode", SLOWLY),
    Signal(
        (Gpu.processes,),
        "length of the three process lists",
        LISTED,
        "the driver gives no list, or records without a possible PID",
    ),
    Signal(
        (
            Gpu.sample_interval_s,
            Gpu.power_interval_s,
            Gpu.clock_interval_s,
            Gpu.stamp_domain,
            Gpu.stamp_correction_s,
        ),
        "calibrated on the samples of nvmlDeviceGetSamples",
        EACH,
        "too few samples yet",
    ),
    Signal((Gpu.driver_backoff,), OURS, EACH),
    Signal((Gpu.clock_event_known,), "only by imported logs", "", "all bits can be told"),
    *(
        Signal(
            (metric,),
            f"nvmlDeviceGetSamples, {kind}",
            "fast: each read, all that is new",
            "the driver keeps no such buffer: then the value of the read itself",
        )
        for metric, kind in (
            (GpuUtilSample.util_pct, "GPU_UTILIZATION"),
            (GpuPowerSample.power_w, "TOTAL_POWER"),
            (GpuClockSample.sm_clock_mhz, "PROCESSOR_CLK"),
        )
    ),
    Signal(
        (GpuProcess.gpu, GpuProcess.pid, GpuProcess.mem_bytes, GpuProcess.kind),
        "nvmlDeviceGetComputeRunningProcesses, its graphics and MPS twins",
        LISTED,
        "WSL and some guests have no list; all ones stand for an unknown size",
    ),
    Signal(
        (GpuProcess.process, GpuProcess.namespace_pid),
        "/proc/PID of the host's PID",
        LISTED,
        "it ended, or its /proc is that of another container",
    ),
    Signal(
        (GpuProcess.sm_util_pct,),
        "nvmlDeviceGetProcessUtilization, mean since the list before",
        EACH,
        "MIG is on",
    ),
    Signal((GpuProcess.instance,), "instance ids of the process list", LISTED, "MIG is off"),
    Signal((GpuActivity.gpu, GpuActivity.interval_s), OURS, EACH),
    Signal(
        (
            GpuInstance.gpu,
            GpuInstance.gpu_instance,
            GpuInstance.compute_instance,
            GpuInstance.profile,
            GpuInstance.sm_count,
        ),
        "nvmlDeviceGetMigDeviceHandleByIndex, then ids, name and attributes of the handle",
        f"{INSTANCES}; facts once a device",
        "MIG is off: no row",
    ),
    Signal(
        (GpuInstance.mem_total_bytes, GpuInstance.mem_used_bytes),
        "nvmlDeviceGetMemoryInfo of the MIG device",
        INSTANCES,
        "the driver denies it",
    ),
    Signal(
        (GpuInstance.processes,),
        "process lists of the GPU by instance ids, else of the MIG device",
        INSTANCES,
        "both are denied",
    ),
    Signal((GpuLink.gpu, GpuLink.link), "field 91, else nvmlDeviceGetNvLinkState", AT_OPEN),
    Signal(
        GpuEvent.columns,
        "nvmlEventSetWait, never waiting",
        EACH,
        "nothing before bottletop started is delivered",
    ),
)


def rows(table: type[Table]) -> Iterator[tuple[str, str, str, str, str]]:
    """(column, source, unit, period, when absent) of every column of a table, in its order.

    Raises KeyError for a column of which nobody has said where it comes from.
    """
    known = dict(told())
    for metric in table.columns:
        source, every, absent = known[metric]
        yield metric.name, source, metric.unit, every, absent


def told() -> Iterator[tuple[Metric, tuple[str, str, str]]]:
    """(source, period, when absent) by column."""
    for reading in (*FIELD_READINGS, *CALL_READINGS, *STATIC_READINGS, *LOOKS):
        yield reading.metric, (_source(reading), _every(reading.every_s), _absent(reading))
    for reading in (*HEALTH_FIELDS, *HEALTH_CALLS):
        yield reading.metric, (_source(reading), _every(RARE_PERIOD_S), _absent(reading))
    for reading in THRESHOLDS:
        yield reading.metric, (_source(reading), _every(ONCE), _absent(reading))
    for reading in LINK_FIELDS:
        source = f"{_source(reading)}, scope the link"
        yield reading.metric, (source, _every(RARE_PERIOD_S), _absent(reading))
    for counted in COUNTED:
        ids = counted.ids
        numbers = f"{ids[0]}" if len(ids) == 1 else f"{ids[0]}-{ids[-1]}, their mean"
        absent = "; ".join(filter(None, ("before Hopper; the driver denies it", counted.lacking)))
        yield counted.metric, (f"GPM metric {numbers}", EACH, absent)
    for signal in SIGNALS:
        for metric in signal.metrics:
            yield metric, (signal.source, signal.every, signal.absent)


def _source(reading: Reading) -> str:
    fields = " or ".join(_field(field) for field in reading.fields)
    calls = " or ".join(_call(call) for call in reading.calls)
    return f"field {fields}, else {calls}" if fields and calls else calls or f"field {fields}"


def _field(field: Field) -> str:
    return f"{field.id} scope {field.scope}" if field.scope else f"{field.id}"


def _call(call: Call) -> str:
    args = ", ".join(str(arg) for arg in call.args)
    return f"{call.function}({args})" if args else call.function


def _every(every_s: int) -> str:
    return TIERS.get(every_s, f"{every_s} s")


def _absent(reading: Reading) -> str:
    why = [reading.instead] if reading.instead else []
    if reading.before in ARCHITECTURES and not reading.instead:
        why.append(f"from {ARCHITECTURES[reading.before]} on")
    if reading.wide:
        why.append("the driver counts in 32 bits")
    if reading.metric in NOTES:
        why.append(NOTES[reading.metric])
    return "; ".join(why)


def markdown() -> str:
    """All tables."""
    parts = []
    for table in TABLES:
        parts.append(f"### `{table.name}`\n")
        parts.append("| column | from | unit | how often | absent when |\n|---|---|---|---|---|")
        parts.extend(f"| {' | '.join(_cells(row))} |" for row in _merged(rows(table)))
        parts.append("")
    return "\n".join(parts)


def _merged(
    found: Iterable[tuple[str, str, str, str, str]],
) -> Iterator[tuple[Sequence[str], str, str, str, str]]:
    """Neighbours that differ in their name only share a line."""
    names: list[str] = []
    before: tuple[str, ...] = ()
    for name, *rest in found:
        if names and tuple(rest) != before:
            yield names, *before  # type: ignore[misc]
            names = []
        names.append(name)
        before = tuple(rest)
    yield names, *before  # type: ignore[misc]


def _cells(row: tuple[Sequence[str], str, str, str, str]) -> list[str]:
    names, *rest = row
    return [", ".join(f"`{name}`" for name in names), *rest]


def inserted(page: str) -> str:
    """The page with what stands between its marks replaced. Raises ValueError without marks."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no {BEGIN if not begin else END}")
    return f"{head}{BEGIN}\n\n{markdown()}\n{END}{tail}"


if __name__ == "__main__":
    import sys

    path = Path(sys.argv[1])
    path.write_text(inserted(path.read_text(encoding="utf-8")), encoding="utf-8")
