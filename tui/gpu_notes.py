"""What is to be said of a GPU beside its numbers: health, link, MIG devices, and why a list is not
there. Short lines with an ink, the most telling first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.model import Absent, State
from bottletop.tables import Gpu, GpuActivity, GpuEvent, GpuHealth, GpuInstance
from bottletop.tables.gpu_health import XID
from bottletop.tui.values import number

if TYPE_CHECKING:
    from bottletop.store import View
    from bottletop.tui.marks import Mark

Note = tuple[str, str]
"""Text and ink."""

GIB = 1 << 30
LINK = "pcie-link-degraded"
NO_LIST = frozenset({State.DENIED, State.ERROR, State.IMPLAUSIBLE})
"""Reasons for which a list that is empty must not look like no processes."""


def notes(view: View, key: str, mark: Mark | None) -> tuple[Note, ...]:
    """All notes of one GPU."""
    out = [*_health(view, key), *_link(view, key, mark), *_instances(view, key)]
    listed = view.last(Gpu.processes, key)
    if isinstance(listed, Absent) and listed.state in NO_LIST:
        out.append((f"processes: {listed.state.value}", "warn"))
    slower = number(view.last(Gpu.driver_backoff, key))
    if slower is not None and slower > 1:
        out.append((f"read {slower:.0f} times slower: driver calls are slow", "dim"))
    return tuple(out)


def xids(view: View, key: str) -> list[int]:
    """Xid numbers of the last day, each once, in order."""
    kinds = view.series(GpuEvent.kind, key, GpuEvent.kept_s)
    if not kinds.t_ns:
        return []
    numbers = view.series(GpuEvent.xid, key, GpuEvent.kept_s)
    pairs = zip(kinds.values, numbers.values, strict=True)
    return list(dict.fromkeys(int(xid) for kind, xid in pairs if kind == XID and xid == xid))


def _health(view: View, key: str) -> list[Note]:
    """Errors and repairs in a few words; nothing where all is well."""
    parts, ink = [], "warn"
    action = number(view.last(GpuHealth.recovery_action, key))
    if action:
        parts.append(f"needs {GpuHealth.recovery_action.labels.get(int(action), 'recovery')}")
        ink = "crit"
    seen = xids(view, key)
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
    return [(", ".join(parts), ink)] if parts else []


def _link(view: View, key: str, mark: Mark | None) -> list[Note]:
    """The PCIe link, where a finding says that it is below what it can be."""
    if mark is None or LINK not in mark.codes:
        return []
    have = [number(view.last(metric, key)) for metric in (Gpu.pcie_width, Gpu.pcie_gen)]
    most = [number(view.last(metric, key)) for metric in (Gpu.pcie_width_max, Gpu.pcie_gen_max)]
    if None in have or None in most:
        return [("PCIe link degraded", "warn")]
    told = [f"x{width:.0f} Gen{gen:.0f}" for width, gen in (have, most)]
    return [(f"PCIe {told[0]} of {told[1]}", "warn")]


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
        out.append((f"{name}: {', '.join(parts)}", "text"))
    return out
