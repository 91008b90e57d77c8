"""The GPUs of one snapshot, with the history that their findings are drawn on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottletop.gpu_text import held_text, memory_text, notes
from bottletop.model import NS_PER_S, Absent, State, Value, number
from bottletop.rings import EMPTY
from bottletop.tables import Gpu, GpuProcess, GpuUtilSample
from bottletop.tables.gpu import ASLEEP, NO_ACCESS, UNIFIED
from bottletop.tui import history, marks
from bottletop.tui.layout import FEW_GPUS
from bottletop.tui.values import per_s
from bottletop.units import value_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bottletop.gpu_text import Note
    from bottletop.model import Finding
    from bottletop.rings import Series
    from bottletop.store import View
    from bottletop.tui.history import Grid
    from bottletop.tui.marks import Mark, Moment

RAW_S = 300
"""Longest history drawn from exact rows; beyond it the store's 1 s means are."""
BUFFER_HOLD_S = 0.6
"""A driver sample stands for at most this long before its stamp: windows are 1/6 s to 1/2 s."""
TICK_HOLD_S = 1.6
UTIL_S = 2.0
"""The utilisation that is shown as a number is the mean of so many seconds."""
HOTTEST_C = 100.0
"""End of the temperature scale: no part names a limit that could be read everywhere."""
_SLACK_S = 3
_TROUBLE_INKS: Mapping[Value, str] = {ASLEEP: "dim", NO_ACCESS: "warn"}
"""Sleeping is no fault, and a GPU that is closed to us is none of the GPU's."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A history beside utilisation, for screens with room for it."""

    name: str
    series: Series
    top: float
    """End of the scale, which begins at zero."""
    shown: str
    limit: str

    def columns(self, on: Grid) -> list[float]:
        """Values in the columns of a grid, NaN where unknown."""
        return history.columns(self.series, on, TICK_HOLD_S)


@dataclass(frozen=True, slots=True)
class GpuPicture:
    """One GPU as the panel shows it."""

    key: str
    index: Value
    model: str
    trouble: str
    """"lost", "stale" or such; empty while it answers."""
    trouble_ink: str
    in_mig: bool
    """In MIG mode: its devices have the utilisation, it has none."""
    util_pct: Value
    power_w: Value
    power_limit_w: Value
    sm_clock_mhz: Value
    sm_clock_max_mhz: Value
    mem_used_bytes: Value
    mem_total_bytes: Value
    temp_c: Value
    mem_util_pct: Value
    pcie_in_bytes_s: float | None
    pcie_out_bytes_s: float | None
    processes: tuple[tuple[int, str, str, Value], ...]
    """(pid, whose number that is, name, device memory) of its processes, the largest first."""
    clocks_held: str
    """What holds the clocks at this instant, empty when nothing does."""
    notes: tuple[Note, ...]
    """What else is to be said of it, the most telling first."""
    fine: Series
    """The driver's own utilisation samples."""
    coarse: Series
    """Utilisation once a tick, where the driver's buffer ran dry, and 1 s means beyond 5 min."""
    moments: tuple[Moment, ...]
    mark: Mark | None
    shared_memory: str = ""
    """"memory shared 121.7 GiB (system memory)" of a part without its own; else empty."""
    signals: tuple[Signal, ...] = ()
    """Power, clock, memory and temperature; read only where there are few GPUs."""

    @property
    def label(self) -> str:
        return f"{self.index:.0f}" if isinstance(self.index, (int, float)) else "?"

    def util_columns(self, on: Grid) -> list[float]:
        """Utilisation in the columns of a grid, NaN where unknown."""
        fine = history.columns(self.fine, on, BUFFER_HOLD_S)
        if all(value == value for value in fine):
            return fine
        return history.merged(fine, history.columns(self.coarse, on, TICK_HOLD_S))


def read_gpus(
    view: View,
    keys: Sequence[str],
    findings: Sequence[Finding],
    marked: Mapping[str, Mark],
    span_s: float,
) -> tuple[GpuPicture, ...]:
    """Every GPU in the driver's order; a lost one keeps its place."""
    processes = _processes(view)
    few = len(keys) <= FEW_GPUS
    gpus = [_gpu(view, key, findings, marked.get(key), processes, span_s, few=few) for key in keys]
    return tuple(sorted(gpus, key=_place))


def _place(gpu: GpuPicture) -> tuple[float, str]:
    return (gpu.index if isinstance(gpu.index, (int, float)) else 1e9, gpu.key)


def _gpu(
    view: View,
    key: str,
    findings: Sequence[Finding],
    mark: Mark | None,
    processes: Mapping[str, tuple[tuple[int, str, str, Value], ...]],
    span_s: float,
    *,
    few: bool,
) -> GpuPicture:
    long = span_s > RAW_S
    coarse = (
        view.trend(Gpu.util_pct, key, span_s)
        if long
        else view.series(Gpu.util_pct, key, span_s + _SLACK_S)
    )
    fine = EMPTY if long else view.series(GpuUtilSample.util_pct, key, span_s + _SLACK_S)
    return GpuPicture(
        key=key,
        index=_kept(view.last(Gpu.index, key)),
        model=_short(view.last(Gpu.model, key)),
        trouble=_trouble(view, key),
        trouble_ink=_TROUBLE_INKS.get(view.last(Gpu.health, key), "crit"),
        in_mig=view.last(Gpu.mig, key) == 1,
        util_pct=_util(view, key),
        power_w=view.last(Gpu.power_w, key),
        power_limit_w=view.last(Gpu.power_limit_w, key),
        sm_clock_mhz=view.last(Gpu.sm_clock_mhz, key),
        sm_clock_max_mhz=_reference_clock(view, key),
        mem_used_bytes=view.last(Gpu.mem_used_bytes, key),
        mem_total_bytes=view.last(Gpu.mem_total_bytes, key),
        temp_c=view.last(Gpu.temp_c, key),
        mem_util_pct=view.last(Gpu.mem_util_pct, key),
        pcie_in_bytes_s=per_s(view, Gpu.pcie_rx_bytes, key),
        pcie_out_bytes_s=per_s(view, Gpu.pcie_tx_bytes, key),
        processes=processes.get(key, ()),
        clocks_held=held_text(view, key),
        notes=notes(view, key, mark.codes if mark is not None else ()),
        fine=fine,
        coarse=coarse,
        moments=() if long else marks.moments(view, key, findings, span_s),
        mark=mark,
        shared_memory=(
            memory_text(view, key) if view.last(Gpu.memory_kind, key) == UNIFIED else ""
        ),
        signals=_signals(view, key, span_s) if few else (),
    )


def _signals(view: View, key: str, span_s: float) -> tuple[Signal, ...]:
    out = []
    for name, metric, limit in (
        ("power", Gpu.power_w, view.last(Gpu.power_limit_w, key)),
        ("SM clock", Gpu.sm_clock_mhz, _reference_clock(view, key)),
        ("memory", Gpu.mem_used_bytes, view.last(Gpu.mem_total_bytes, key)),
        ("temperature", Gpu.temp_c, Absent(State.NOT_APPLICABLE)),
    ):
        if span_s > RAW_S:
            series = view.trend(metric, key, span_s)
        else:
            series = view.series(metric, key, span_s + _SLACK_S)
        known = [value for value in series.values if value == value]
        if not known:
            continue
        bound = number(limit)
        out.append(
            Signal(
                name=name,
                series=series,
                top=max(bound or HOTTEST_C, *known),
                shown=value_text(view.last(metric, key), metric.unit),
                limit="" if bound is None else value_text(bound, metric.unit),
            )
        )
    return tuple(out)


def _kept(value: Value) -> Value:
    """Identity outlives freshness: the place and name of a GPU do not go stale."""
    if isinstance(value, Absent) and value.state is State.STALE and value.raw is not None:
        return value.raw
    return value


def _short(model: Value) -> str:
    name = _kept(model)
    return name.removeprefix("NVIDIA ") if isinstance(name, str) else ""


def _reference_clock(view: View, key: str) -> Value:
    boost = view.last(Gpu.sm_clock_boost_mhz, key)
    return view.last(Gpu.sm_clock_max_mhz, key) if isinstance(boost, Absent) else boost


def _trouble(view: View, key: str) -> str:
    health = view.last(Gpu.health, key)
    if isinstance(health, int) and health:
        return Gpu.health.labels.get(health, "not well")
    util = view.last(Gpu.util_pct, key)
    if isinstance(util, Absent) and util.state in (State.STALE, State.LOST):
        lost = util.state is State.LOST
        return "lost" if lost else f"no reading for {_silent_s(view, key):.0f} s"
    return ""


def _silent_s(view: View, key: str) -> float:
    """Seconds since utilisation was read; rows come meanwhile that say only that it is late."""
    read = view.series(Gpu.util_pct, key, RAW_S).points()
    age_s = (view.now_ns - read[-1][0]) / NS_PER_S if read else view.age_s(Gpu, key)
    return RAW_S if age_s is None else age_s


def _util(view: View, key: str) -> Value:
    """Busy share of the last two seconds from the driver's own samples; its snapshot where the
    buffer has run dry. A snapshot alone sees one window of 1/6 s and can miss all the work."""
    snapshot = view.last(Gpu.util_pct, key)
    window_s = number(view.last(Gpu.sample_interval_s, key))
    values = [v for v in view.series(GpuUtilSample.util_pct, key, UTIL_S).values if v == v]
    if not values or window_s is None or len(values) * window_s < 0.6 * UTIL_S:
        return snapshot
    return sum(values) / len(values)


def _processes(view: View) -> dict[str, tuple[tuple[int, str, str, Value], ...]]:
    """Processes with a context on each GPU."""
    found: dict[str, list[tuple[float, int, str, str, Value]]] = {}
    for key in view.keys(GpuProcess):
        mem = view.last(GpuProcess.mem_bytes, key)
        pid = view.last(GpuProcess.pid, key)
        # In a container the driver's number names nobody here, and says so.
        whose, shown = ("host pid", pid.raw) if isinstance(pid, Absent) else ("pid", pid)
        row = (
            -(number(mem) or 0.0),
            int(shown) if isinstance(shown, (int, float)) else 0,
            whose,
            view.text(GpuProcess.process, key),
            mem,
        )
        found.setdefault(view.text(GpuProcess.gpu, key), []).append(row)
    return {
        gpu: tuple(row[1:] for row in sorted(rows, key=lambda row: row[:2]))
        for gpu, rows in found.items()
    }
