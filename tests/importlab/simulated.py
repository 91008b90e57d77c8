"""Turns a small series of GPU readings into a scenario of the simulated driver, and judges it.

The series has one row a second and GPU, as `report --from` reads them too; here they go the whole
way of a live run: driver, binding, collector, store, engine, report.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from bottletop.model import Anchor, Source, SourceState
from bottletop.rules.engine import Engine
from bottletop.snapshot import Watch
from bottletop.store import Store
from nvml.clock import BOOT_NS, WALL_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from nvml.host import Host

FIELDS: Mapping[str, tuple[str, float]] = {
    "util_gpu_pct": ("busy", 1),
    "mem_util_pct": ("mem_busy", 1),
    "power_w": ("power", 1),
    "power_limit_w": ("power_limit", 1),
    "power_limit_default_w": ("power_limit_default", 1),
    "sm_mhz": ("sm_clock", 1),
    "sm_max_mhz": ("sm_clock_max", 1),
    "mem_mhz": ("mem_clock", 1),
    "temp_c": ("temp", 1),
    "pstate": ("pstate", 1),
    "pcie_gen_cur": ("pcie_gen", 1),
    "pcie_gen_max": ("pcie_gen_max", 1),
    "pcie_width_cur": ("pcie_width", 1),
    "pcie_width_max": ("pcie_width_max", 1),
    "pcie_rx_mb_s": ("pcie_rx", 1e6),
    "pcie_tx_mb_s": ("pcie_tx", 1e6),
}
FLAGS = {
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
}
SAME = {"sm_max_mhz": ("sm_clock_boost",), "mem_mhz": ("mem_clock_max",)}
FIRST_IS_DEFAULT = "power_limit_w"


def scenario(series: str, *, repeat: bool = False) -> tuple[str, int]:
    """The scenario text of a series in CSV, and its length in seconds.

    After its end the last readings stay, or with `repeat` it begins anew. GPUs below the highest
    index that the series leaves out are idle. A power limit's first value is the card's default.
    """
    by_gpu: dict[int, list[dict[str, str]]] = {}
    for row in csv.DictReader(io.StringIO(series)):
        by_gpu.setdefault(int(row["gpu"]), []).append(row)
    seconds = 1 + max(int(row["t"]) for rows in by_gpu.values() for row in rows)
    again = f" repeat {seconds}" if repeat else ""
    lines = []
    for gpu in range(max(by_gpu) + 1):
        lines += ["gpu", f"  pci 00000000:{0x11 * (gpu + 1):02X}:00.0"]
        lines += _fields(by_gpu.get(gpu, []), again)
    return "\n".join(lines) + "\n", seconds


def _fields(rows: list[dict[str, str]], again: str) -> Iterable[str]:
    for column in rows[0] if rows else ():
        if column not in FIELDS:
            continue
        name, scale = FIELDS[column]
        points = [(int(row["t"]), float(row[column].lstrip("P")) * scale) for row in rows]
        steps = " ".join(f"{t} {value:g}" for t, value in points)
        for field in (name, *SAME.get(column, ())):
            yield f"  {field} step {steps}{again}"
        if column == FIRST_IS_DEFAULT and "power_limit_default_w" not in rows[0]:
            yield f"  power_limit_default {points[0][1]:g}"
            yield f"  power_limit_requested step {steps}{again}"
    flags = [column for column in rows[0] if column in FLAGS] if rows else []
    if flags:
        masks = (sum(FLAGS[f] for f in flags if row[f] == "1") for row in rows)
        steps = " ".join(f"{row['t']} {mask}" for row, mask in zip(rows, masks, strict=True))
        yield f"  reasons step {steps}{again}"


def judge(host: Host, seconds: int, each: Callable[[Watch], None] | None = None) -> Watch:
    """Run a host for so long, judged once a second; `each` sees the watch after every look."""
    store, engine = Store(), Engine()
    host.open()
    watched = None
    for second in range(seconds):
        for sample in host.tick().samples:
            store.ingest(sample)
        watched = _watch(store, engine, second + 1)
        if each is not None:
            each(watched)
    assert watched is not None
    return watched


def _watch(store: Store, engine: Engine, seconds: int) -> Watch:
    now_ns = BOOT_NS + seconds * 1_000_000_000
    view = store.view(now_ns)
    engine.evaluate(view)
    return Watch(
        judgement=engine.summary(),
        view=view,
        anchor=Anchor(BOOT_NS, WALL_NS),
        sources=(Source("gpu", SourceState.OK, "", None, None),),
        target=None,
        watched_s=float(seconds),
    )
