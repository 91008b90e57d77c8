"""The GPUs of a watch as a report lists them: one line a GPU, one a process on it, and as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from bottletop.model import Absent, Kind, Severity, State, number
from bottletop.tables import (
    Gpu,
    GpuActivity,
    GpuEvent,
    GpuHealth,
    GpuInstance,
    GpuProcess,
    Memory,
)
from bottletop.tables.gpu import HEALTH, OK, UNIFIED, clock_event_text
from bottletop.tables.gpu_health import XID
from bottletop.units import MISSING, bytes_text, value_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from bottletop.model import Metric, Value
    from bottletop.store import View

MIB, GIB = 1 << 20, 1 << 30
MOST_PROCESSES = 8
IDLE_PCT = 5.0
GPU_IDLE = 0x001
DEGRADED = "pcie-link-degraded"
NO_LIST = frozenset({State.DENIED, State.ERROR, State.IMPLAUSIBLE})
"""Reasons for which a list that is empty must not look like no processes."""
SHOWN: tuple[Metric, ...] = (Gpu.util_pct, Gpu.power_w, Gpu.sm_clock_mhz, Gpu.temp_c)


def gpu_lines(view: View, codes: Mapping[str, Collection[str]] | None = None) -> list[str]:
    """One line a GPU: what it is, its main readings, memory and link, as of now; then its notes.

    `codes` are those of the findings about each GPU.
    """
    lines = []
    for key in view.keys(Gpu):
        lines.append(_line(view, key))
        lines += [f"  {note.text}" for note in notes(view, key, (codes or {}).get(key, ()))]
        held = held_text(view, key)
        if held:
            lines.append(f"  clocks held: {held}")
    return lines


def held_text(view: View, key: str) -> str:
    """What holds the clocks at this instant; empty when nothing does, or only idleness."""
    reasons = view.last(Gpu.clock_event_reasons, key)
    bits = int(reasons) & ~GPU_IDLE if isinstance(reasons, (int, float)) else 0
    return clock_event_text(bits) if bits else ""


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


# -- notes ---------------------------------------------------------------------------------------


class Note(NamedTuple):
    """A few words beside the numbers of a GPU; None where nothing is wrong."""

    text: str
    severity: Severity | None = None


def notes(view: View, key: str, codes: Collection[str] = ()) -> tuple[Note, ...]:
    """What is to be said of a GPU beside its numbers, the most telling first.

    Health, the link where `codes`, those of the findings about it, judge it, MIG devices, and why
    there is no list of processes.
    """
    out = [*_health(view, key), *_degraded_link(view, key, codes), *_instances(view, key)]
    listed = view.last(Gpu.processes, key)
    if isinstance(listed, Absent) and listed.state in NO_LIST:
        out.append(Note(f"processes: {listed.state.value}", Severity.WARN))
    slower = number(view.last(Gpu.driver_backoff, key))
    if slower is not None and slower > 1:
        out.append(Note(f"read {slower:.0f} times slower: driver calls are slow"))
    return tuple(out)


def _xids(view: View, key: str) -> list[int]:
    """Xid numbers of the last day, each once, in order."""
    kinds = view.series(GpuEvent.kind, key, GpuEvent.kept_s)
    if not kinds.t_ns:
        return []
    numbers = view.series(GpuEvent.xid, key, GpuEvent.kept_s)
    pairs = zip(kinds.values, numbers.values, strict=True)
    return list(dict.fromkeys(int(xid) for kind, xid in pairs if kind == XID and xid == xid))


def _health(view: View, key: str) -> list[Note]:
    """Errors and repairs in a few words; nothing where all is well."""
    parts, severity = [], Severity.WARN
    action = number(view.last(GpuHealth.recovery_action, key))
    if action:
        parts.append(f"needs {GpuHealth.recovery_action.labels.get(int(action), 'recovery')}")
        severity = Severity.CRIT
    seen = _xids(view, key)
    if seen:
        parts.append(f"Xid {', '.join(map(str, seen[:4]))}")
    errors = number(view.last(GpuHealth.ecc_uncorrected, key))
    if errors:
        parts.append(f"ECC {errors:.0f} uncorrected")
    for metric, text in (
        (GpuHealth.row_remap_failed, "row remap failed"),
        (GpuHealth.row_remap_pending, "row remap pending"),
        (GpuHealth.page_retirement_pending, "page retirement pending"),
    ):
        if view.last(metric, key) == 1:
            parts.append(text)
    return [Note(", ".join(parts), severity)] if parts else []


def _degraded_link(view: View, key: str, codes: Collection[str]) -> list[Note]:
    """The PCIe link, where a finding says that it is below what it can be."""
    if DEGRADED not in codes:
        return []
    have = [number(view.last(metric, key)) for metric in (Gpu.pcie_width, Gpu.pcie_gen)]
    most = [number(view.last(metric, key)) for metric in (Gpu.pcie_width_max, Gpu.pcie_gen_max)]
    if None in have or None in most:
        return [Note("PCIe link degraded", Severity.WARN)]
    told = [f"x{width:.0f} Gen{gen:.0f}" for width, gen in (have, most)]
    return [Note(f"PCIe {told[0]} of {told[1]}", Severity.WARN)]


def _instances(view: View, key: str) -> list[Note]:
    """MIG devices with their memory and activity: a GPU in MIG mode has no utilisation."""
    out: list[Note] = []
    for row in view.keys(GpuInstance):
        if view.text(GpuInstance.gpu, row) != key:
            continue
        name = f"MIG {view.text(GpuInstance.profile, row) or 'device'}"
        parts = []
        used = number(view.last(GpuInstance.mem_used_bytes, row))
        total = number(view.last(GpuInstance.mem_total_bytes, row))
        if used is not None:
            of = "" if total is None else f"/{total / GIB:.1f}"
            parts.append(f"{used / GIB:.1f}{of} GiB")
        active = number(view.last(GpuActivity.sm_pct, row))
        if active is None:
            active = number(view.last(GpuActivity.graphics_pct, row))
        parts.append("activity n/a" if active is None else f"SM {active:.0f} %")
        out.append(Note(f"{name}: {', '.join(parts)}"))
    return out


# -- processes -----------------------------------------------------------------------------------


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
