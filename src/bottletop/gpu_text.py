"""The GPUs of a watch as a report lists them: one line a GPU, one a process on it, and as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bottletop.model import Absent, Kind, State
from bottletop.tables import Gpu, GpuProcess, Memory
from bottletop.tables.gpu import HEALTH, OK, UNIFIED, clock_event_text
from bottletop.units import MISSING, bytes_text, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bottletop.model import Metric, Value
    from bottletop.store import View

MIB, GIB = 1 << 20, 1 << 30
MOST_PROCESSES = 8
IDLE_PCT = 5.0
SHOWN: tuple[Metric, ...] = (Gpu.util_pct, Gpu.power_w, Gpu.sm_clock_mhz, Gpu.temp_c)


def gpu_lines(view: View) -> list[str]:
    """One line a GPU: what it is, its main readings, memory and link, as of now."""
    return [_line(view, key) for key in view.keys(Gpu)]


def _line(view: View, key: str) -> str:
    index = view.last(Gpu.index, key)
    name = f"GPU {index:.0f}" if isinstance(index, (int, float)) else key
    parts = [name]
    model = view.text(Gpu.model, key)
    if model != name:
        parts.append(model or MISSING)
    health = view.last(Gpu.health, key)
    if isinstance(health, (int, float)) and health != OK:
        parts.append(HEALTH.get(int(health), "?"))
    parts += [value_text(view.last(metric, key), metric.unit) for metric in SHOWN]
    parts.append(memory_text(view, key))
    link = link_text(view, key)
    if link:
        parts.append(link)
    return "  ".join((*parts, "(at the end)"))


def memory_text(view: View, key: str) -> str:
    """ "14360 of 16376 MiB"; on parts that share the host's memory, how much that is."""
    used, total = view.last(Gpu.mem_used_bytes, key), view.last(Gpu.mem_total_bytes, key)
    if view.last(Gpu.memory_kind, key) == UNIFIED:
        whole = total if not isinstance(total, Absent) else _host_memory(view)
        size = f" {whole / GIB:.1f} GiB" if isinstance(whole, (int, float)) else ""
        part = f", {bytes_text(used)} used" if isinstance(used, (int, float)) else ""
        return f"memory shared{size} (system memory){part}"
    if isinstance(used, (int, float)) and isinstance(total, (int, float)):
        return f"{used / MIB:.0f} of {total / MIB:.0f} MiB"
    if isinstance(used, (int, float)):
        return f"{used / MIB:.0f} MiB used"
    return f"memory {absent_text(used)}"


def _host_memory(view: View) -> Value:
    return view.last(Memory.total_bytes, "host")


def absent_text(value: Value) -> str:
    """ "n/a" for what the driver does not give; the state where something else is the matter."""
    if not isinstance(value, Absent):
        return ""
    quiet = value.state in (State.UNSUPPORTED, State.NOT_READ, State.NOT_APPLICABLE)
    return "n/a" if quiet or value.state is State.IMPLAUSIBLE else value.state.value


def link_text(view: View, key: str) -> str:
    """ "PCIe Gen1 (max 3, idle) x16"; empty where the link cannot be read.

    An idle GPU lowers its generation by design, so a lower one is only told beside the load.
    """
    gen, width = view.last(Gpu.pcie_gen, key), view.last(Gpu.pcie_width, key)
    if not isinstance(gen, (int, float)) and not isinstance(width, (int, float)):
        return ""
    top, lanes = view.last(Gpu.pcie_gen_max, key), view.last(Gpu.pcie_width_max, key)
    util = view.last(Gpu.util_pct, key)
    idle = isinstance(util, (int, float)) and util < IDLE_PCT
    text = "PCIe"
    if isinstance(gen, (int, float)):
        text += f" Gen{gen:.0f}"
        if isinstance(top, (int, float)) and top > gen:
            text += f" (max {top:.0f}{', idle' if idle else ''})"
    if isinstance(width, (int, float)):
        text += f" x{width:.0f}"
        if isinstance(lanes, (int, float)) and lanes > width:
            text += f" (max x{lanes:.0f})"
    return text


def process_lines(view: View) -> list[str]:
    """The processes with a context on a GPU, those with most memory first."""
    lines = []
    for key in _processes(view)[:MOST_PROCESSES]:
        pid = value_text(view.last(GpuProcess.pid, key), "")
        gpu = view.text(GpuProcess.gpu, key)
        index = view.last(Gpu.index, gpu)
        on = f" on GPU {index:.0f}" if isinstance(index, (int, float)) else ""
        name = view.text(GpuProcess.process, key)
        used = view.last(GpuProcess.mem_bytes, key)
        size = f"{used / MIB:.0f} MiB" if isinstance(used, (int, float)) else absent_text(used)
        sm = view.last(GpuProcess.sm_util_pct, key)
        busy = f", {value_text(sm, '%')}" if isinstance(sm, (int, float)) else ""
        lines.append(f"  pid {pid}{f' {name}' if name else ''}{on}: GPU mem {size}{busy}")
    more = len(_processes(view)) - MOST_PROCESSES
    return [*lines, f"  and {more} more"] if more > 0 else lines


def _processes(view: View) -> list[str]:
    def size(key: str) -> float:
        used = view.last(GpuProcess.mem_bytes, key)
        return used if isinstance(used, (int, float)) else 0.0

    return sorted(view.keys(GpuProcess), key=lambda key: (-size(key), key))


def gpu_documents(view: View) -> list[dict[str, Any]]:
    """Every GPU with every column that was read, for `--json`; what is absent is named apart."""
    return [_document(view, Gpu.columns, key, "gpu") for key in view.keys(Gpu)]


def process_documents(view: View) -> list[dict[str, Any]]:
    """The processes on GPUs, for `--json`."""
    return [_document(view, GpuProcess.columns, key, "key") for key in _processes(view)]


def _document(view: View, columns: tuple[Metric, ...], key: str, named: str) -> dict[str, Any]:
    out: dict[str, Any] = {named: key}
    absent: dict[str, str] = {}
    for metric, value in _read(view, columns, key):
        if isinstance(value, Absent):
            absent[metric.name] = str(value)
            out[metric.name] = None
        elif metric is Gpu.clock_event_reasons and isinstance(value, (int, float)):
            out[metric.name] = clock_event_text(int(value))
        elif metric.kind is Kind.ENUM and isinstance(value, (int, float)):
            out[metric.name] = metric.labels.get(int(value), value)
        else:
            out[metric.name] = value
    if absent:
        out["absent"] = absent
    return out


def _read(view: View, columns: tuple[Metric, ...], key: str) -> Iterator[tuple[Metric, Value]]:
    for metric in columns:
        value = view.last(metric, key)
        if not isinstance(value, Absent) or value.state is not State.NOT_READ:
            yield metric, value
