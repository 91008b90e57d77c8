"""How busy a GPU was, from the finest source there is.

The driver's own sample buffer covers time without holes; where it is missing, the polled
utilisation stands in, which sees one averaging window a read and nothing between two reads.
"""

from __future__ import annotations

from array import array
from itertools import accumulate, chain
from operator import mul, sub
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NS_PER_S, Absent
from bottletop.rings import Series
from bottletop.store import Missing
from bottletop.tables import Gpu, GpuUtilSample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.model import Metric
    from bottletop.store import View

NEEDS: tuple[Metric, ...] = (GpuUtilSample.util_pct, Gpu.util_pct, Gpu.sample_interval_s)

DEFAULT_WINDOW_S = 1 / 6
"""Shortest averaging window that NVML documents; used until the buffer's interval is calibrated."""
ACTIVE_PCT = 5.0
"""Utilisation from which a GPU counts as used at all."""
COLD_LOOK_BACK_S = 120.0
HOLE_WINDOWS = 1.6
"""Distance of neighbouring samples, in windows, from which one is missing between them."""


class UtilSeries(NamedTuple):
    """Utilisation samples of one GPU, each covering `window_s` up to its stamp."""

    series: Series
    window_s: float
    buffered: bool


class Load(NamedTuple):
    """How busy one GPU was over a span that is covered by samples."""

    samples: UtilSeries
    since_ns: int
    """Where the judged span begins: start-up, before the GPU was first used, is left out."""
    span_s: float
    busy: float
    """Mean share of time in which a kernel ran, 0 to 1."""


def util_samples(view: View, gpu: str, span_s: float) -> UtilSeries:
    """Utilisation of `gpu` over the last `span_s` seconds. Raises `Missing`."""
    return view.memo(("util", gpu, span_s), lambda: _util_samples(view, gpu, span_s))


def _util_samples(view: View, gpu: str, span_s: float) -> UtilSeries:
    age_s = view.age_s(GpuUtilSample, gpu)
    if age_s is not None and age_s <= 2.5 * GpuUtilSample.period_s:
        interval = view.last(Gpu.sample_interval_s, gpu)
        window_s = interval if isinstance(interval, (int, float)) else 0.0
        samples = _without_nan(view.series(GpuUtilSample.util_pct, gpu, span_s))
        if len(samples.t_ns) > 1:
            window_s = window_s or DEFAULT_WINDOW_S
            return UtilSeries(fill_holes(samples, window_s), window_s, buffered=True)
    latest = view.last(Gpu.util_pct, gpu)
    if isinstance(latest, Absent):
        raise Missing(Gpu.util_pct, gpu, str(latest))
    polled = _without_nan(view.series(Gpu.util_pct, gpu, span_s))
    return UtilSeries(polled, view.period_s(Gpu), buffered=False)


def _without_nan(series: Series) -> Series:
    total = sum(series.values)
    if total == total:
        return series
    points = series.points()
    return Series(array("q", [t for t, _ in points]), array("d", [v for _, v in points]))


def fill_holes(series: Series, window_s: float) -> Series:
    """Put samples where a buffer ran dry: it does while a GPU idles, so the lower end holds.

    A hole between two busy samples (a late read) therefore counts as busy as its calmer end.
    """
    times, values = series
    window_ns = round(window_s * NS_PER_S)
    count = len(times)
    if count < 2 or (times[-1] - times[0]) < (count - 1) * window_ns * 1.02:
        return series
    out_t, out_v = array("q", times[:1]), array("d", values[:1])
    widest = HOLE_WINDOWS * window_ns
    for index in range(1, count):
        hole_ns = times[index] - times[index - 1]
        if hole_ns > widest:
            calm = min(values[index - 1], values[index])
            missing = round(hole_ns / window_ns) - 1
            for step in range(1, missing + 1):
                out_t.append(times[index - 1] + hole_ns * step // (missing + 1))
                out_v.append(calm)
        out_t.append(times[index])
        out_v.append(values[index])
    return Series(out_t, out_v)


def load(view: View, gpu: str, span_s: float, *, at_least_s: float = 0.0) -> Load:
    """Mean load of `gpu` over the last `span_s` seconds or the part of it that is covered.

    Raises `Missing` when there is nothing to read or less than `at_least_s` seconds of it.
    """
    found = view.memo(("load", gpu, span_s), lambda: _load(view, gpu, span_s))
    metric = GpuUtilSample.util_pct if found.samples.buffered else Gpu.util_pct
    at_least_s = view.reach_s(metric.table, at_least_s)
    if found.span_s < at_least_s:
        reason = f"needs {at_least_s:.0f} s of readings, has {found.span_s:.0f} s"
        raise Missing(metric, gpu, reason)
    return found


def _load(view: View, gpu: str, span_s: float) -> Load:
    samples = util_samples(view, gpu, span_s)
    table = GpuUtilSample if samples.buffered else Gpu
    since_ns = view.now_ns - round(view.reach_s(table, span_s) * NS_PER_S)
    times, values = samples.series
    if not times:
        raise Missing(Gpu.util_pct, gpu, "no reading in the window")
    start = _first_use(view, gpu, samples)
    if start:
        times, values = times[start:], values[start:]
        samples = samples._replace(series=Series(times, values))
    begin_ns = max(since_ns, times[0] - round(samples.window_s * NS_PER_S))
    span_ns = max(1, times[-1] - begin_ns)
    stamps = times.tolist()
    widths = map(sub, stamps, chain((begin_ns,), stamps))
    busy = sum(map(mul, values, widths)) / span_ns / 100
    return Load(samples, begin_ns, span_ns / NS_PER_S, min(1.0, max(0.0, busy)))


def _first_use(view: View, gpu: str, samples: UtilSeries) -> int:
    """Index of the first busy sample, if the GPU was unused for two minutes before it, else 0.

    Loading a model is not starvation. Where the GPU is not used at all, nothing is left out.
    """
    times, values = samples.series
    if values[0] >= ACTIVE_PCT:
        return 0
    first = next((i for i, value in enumerate(values) if value >= ACTIVE_PCT), 0)
    if first == 0:
        return 0
    metric = GpuUtilSample.util_pct if samples.buffered else Gpu.util_pct
    before = view.series(metric, gpu, COLD_LOOK_BACK_S)
    used = any(
        value >= ACTIVE_PCT
        for t_ns, value in zip(before.t_ns, before.values, strict=True)
        if t_ns < times[0]
    )
    return 0 if used else first


def means_over(samples: UtilSeries, edges: Sequence[int]) -> list[float]:
    """Mean utilisation (0 to 1) between neighbouring `edges`, none of them past the samples."""
    times, values = samples.series.t_ns.tolist(), samples.series.values.tolist()
    starts = chain((times[0] - round(samples.window_s * NS_PER_S),), times)
    area = list(accumulate(map(mul, values, map(sub, times, starts))))
    out = []
    at, last = 0, len(times) - 1
    before_ns, before = 0, 0.0
    for edge in edges:
        while at < last and times[at] < edge:
            at += 1
        below = area[at] - values[at] * (times[at] - edge)
        if before_ns:
            out.append((below - before) / (edge - before_ns) / 100)
        before_ns, before = edge, below
    return out
