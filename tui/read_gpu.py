"""The GPUs of one snapshot, with the history that their findings are drawn on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottletop.model import Absent, State, Value
from bottletop.rings import EMPTY
from bottletop.tables import Gpu, GpuProcess, GpuUtilSample
from bottletop.tables.gpu import clock_event_text
from bottletop.tui import history, marks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
_SLACK_S = 3


@dataclass(frozen=True, slots=True)
class GpuPicture:
    """One GPU as the panel shows it."""

    key: str
    index: Value
    model: str
    trouble: str
    """"lost", "stale" or such; empty while it answers."""
    util_pct: Value
    power_w: Value
    power_limit_w: Value
    sm_clock_mhz: Value
    sm_clock_max_mhz: Value
    mem_used_bytes: Value
    mem_total_bytes: Value
    temp_c: Value
    clocks_held: str
    """What holds the clocks at this instant, empty when nothing does."""
    fine: Series
    """The driver's own utilisation samples."""
    coarse: Series
    """Utilisation once a tick, where the driver's buffer ran dry, and 1 s means beyond 5 min."""
    moments: tuple[Moment, ...]
    mark: Mark | None

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
    gpus = [_gpu(view, key, findings, marked.get(key), span_s) for key in keys]
    return tuple(sorted(gpus, key=_place))


def _place(gpu: GpuPicture) -> tuple[float, str]:
    return (gpu.index if isinstance(gpu.index, (int, float)) else 1e9, gpu.key)


def _gpu(
    view: View, key: str, findings: Sequence[Finding], mark: Mark | None, span_s: float
) -> GpuPicture:
    long = span_s > RAW_S
    coarse = (
        view.trend(Gpu.util_pct, key, span_s)
        if long
        else view.series(Gpu.util_pct, key, span_s + _SLACK_S)
    )
    fine = EMPTY if long else view.series(GpuUtilSample.util_pct, key, span_s + _SLACK_S)
    reasons = view.last(Gpu.clock_event_reasons, key)
    return GpuPicture(
        key=key,
        index=_kept(view.last(Gpu.index, key)),
        model=_short(view.last(Gpu.model, key)),
        trouble=_trouble(view, key),
        util_pct=view.last(Gpu.util_pct, key),
        power_w=view.last(Gpu.power_w, key),
        power_limit_w=view.last(Gpu.power_limit_w, key),
        sm_clock_mhz=view.last(Gpu.sm_clock_mhz, key),
        sm_clock_max_mhz=_reference_clock(view, key),
        mem_used_bytes=view.last(Gpu.mem_used_bytes, key),
        mem_total_bytes=view.last(Gpu.mem_total_bytes, key),
        temp_c=view.last(Gpu.temp_c, key),
        clocks_held=_held(reasons),
        fine=fine,
        coarse=coarse,
        moments=() if long else marks.moments(view, key, findings, span_s),
        mark=mark,
    )


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
        age_s = view.age_s(Gpu, key)
        return "lost" if util.state is State.LOST else f"no reading for {age_s:.0f} s"
    return ""


def _held(reasons: Value) -> str:
    if not isinstance(reasons, int) or reasons in (0, 1):
        return ""
    return clock_event_text(reasons & ~1)


def processes_on(view: View, key: str) -> int | None:
    """How many processes have a context on the GPU, None when that cannot be seen."""
    names = [name for name in view.keys(GpuProcess) if view.text(GpuProcess.gpu, name) == key]
    return len(names) or None
