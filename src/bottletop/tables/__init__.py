"""All tables. Declared once; collectors fill them, everything else walks them."""

from __future__ import annotations

from bottletop.model import Metric, Table
from bottletop.tables.gpu import Gpu, GpuClockSample, GpuPowerSample, GpuProcess, GpuUtilSample
from bottletop.tables.gpu_activity import GpuActivity, GpuInstance
from bottletop.tables.gpu_health import GpuEvent, GpuHealth, GpuLink
from bottletop.tables.host import Cgroup, Core, Disk, Memory, Psi
from bottletop.tables.own import Own, SourceHealth
from bottletop.tables.process import HotThread, Process, TargetFile, TargetInfo, Thread
from bottletop.tables.server import Server
from bottletop.tables.stage import Stage, StageTime

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
    Core,
    Disk,
    Memory,
    Psi,
    Cgroup,
    Process,
    Thread,
    HotThread,
    TargetInfo,
    TargetFile,
    Server,
    Stage,
    StageTime,
    Own,
    SourceHealth,
)

BY_NAME: dict[str, type[Table]] = {table.name: table for table in TABLES}


def metric(metric_id: str) -> Metric:
    """Look a metric up by its id, such as "gpu.util_pct". Raises KeyError."""
    table_name, _, column = metric_id.partition(".")
    found: Metric | None = getattr(BY_NAME[table_name], column, None)
    if not isinstance(found, Metric):
        raise KeyError(metric_id)
    return found


__all__ = [
    "BY_NAME",
    "TABLES",
    "Cgroup",
    "Core",
    "Disk",
    "Gpu",
    "GpuActivity",
    "GpuClockSample",
    "GpuEvent",
    "GpuHealth",
    "GpuInstance",
    "GpuLink",
    "GpuPowerSample",
    "GpuProcess",
    "GpuUtilSample",
    "HotThread",
    "Memory",
    "Own",
    "Process",
    "Psi",
    "Server",
    "SourceHealth",
    "Stage",
    "StageTime",
    "TargetFile",
    "TargetInfo",
    "Thread",
    "metric",
]
