"""Histories with axes for the detail screens, drawn by plotext, turned into lines with inks.

plotext is imported when the first plot is drawn (0.1 s, 10 MiB). Its figure is one global object,
so a plot is cleared, set up, built and converted in one go, on the screen's thread only. Where it
is missing, or the terminal has no braille, the picture comes from our own canvas.
"""

from __future__ import annotations

import importlib
import math
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bottletop.model import NS_PER_S
from bottletop.tui import history
from bottletop.tui.lines import Line, Span, line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.rings import Series
    from bottletop.tui.glyphs import Glyphs

DATA, LIMIT, AXIS, TICKS = 1, 2, 3, 4
"""Colour numbers given to plotext, which come back in its output and stand for our inks."""
_INKS = {DATA: "data", LIMIT: "warn", AXIS: "faint", TICKS: "dim"}
_SGR = re.compile("\x1b\\[([0-9;]*)m")
AXIS_WIDTH = 7


@dataclass(frozen=True, slots=True)
class Curve:
    """One history to plot: values in `unit` against the recording's or the host's clock."""

    title: str
    unit: str
    series: Series
    threshold: float | None
    low: float
    high: float
    now_ns: int
    span_s: float
    wall_ns: int
    """Wall time of `now_ns`."""

    def label_at(self, before_s: float) -> str:
        """Wall time of a moment before now."""
        return time.strftime("%H:%M:%S", time.localtime(self.wall_ns / NS_PER_S - before_s))


def draw(curve: Curve, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Title line and plot, `height` lines of `width` cells in all."""
    title = _title(curve, width)
    room = height - 1
    if room < 4 or width < 30:
        return [title]
    plotext = _plotext() if glyphs.samples_a_cell == 2 else None
    if plotext is None:
        return [title, *_own(curve, width, room, glyphs)]
    return [title, *from_sgr(_built(plotext, curve, width - 1, room), width)]


def _title(curve: Curve, width: int) -> Line:
    spans: list[Span] = [(" ", "text"), (curve.title, "strong"), (f", {curve.unit}", "dim")]
    if curve.threshold is not None:
        spans += [("   threshold ", "dim"), (f"{curve.threshold:g}", "warn")]
    return line(width, spans)


def _plotext() -> Any:
    try:
        module = importlib.import_module("plotext")
    except ImportError:
        return None
    # Without this a plot is clipped to the size of the real terminal, as plotext finds it.
    module.terminal.limit(False, False)
    return module


def _built(plotext: Any, curve: Curve, width: int, height: int) -> str:
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    figure.canvas("default")
    figure.axes(False)
    for axis in ("x", "y"):
        figure.axes(True, pixel=AXIS, axis=axis, side=0)
        figure.ruler(axis).pixel(TICKS)
    marker = plotext.marker("braille", pixel=DATA)
    for xs, ys in _runs(curve):
        figure.draw(figure.signal(xs, ys, marker=marker).lines())
    if curve.threshold is not None and curve.low <= curve.threshold <= curve.high:
        figure.line(curve.threshold, "h", pixel=LIMIT, style="dotted")
    figure.ruler("x").lim(-curve.span_s, 0)
    figure.ruler("y").lim(curve.low, curve.high)
    marks = [-curve.span_s * part / 4 for part in range(4, -1, -1)]
    figure.ruler("x").ticks(marks, [curve.label_at(-at) for at in marks])
    levels = [curve.low, (curve.low + curve.high) / 2, curve.high]
    figure.ruler("y").ticks(levels, [f"{number(level):>{AXIS_WIDTH - 1}}" for level in levels])
    return str(figure.build().string())


def _runs(curve: Curve) -> list[tuple[list[float], list[float]]]:
    """Stretches without gaps: a line across missing data would be made up."""
    runs: list[tuple[list[float], list[float]]] = []
    broken = True
    for t_ns, value in zip(curve.series.t_ns, curve.series.values, strict=True):
        if math.isnan(value):
            broken = True
            continue
        if broken:
            runs.append(([], []))
            broken = False
        runs[-1][0].append((t_ns - curve.now_ns) / NS_PER_S)
        runs[-1][1].append(value)
    return runs


def number(value: float) -> str:
    """A tick label of at most six characters."""
    for scale, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= scale:
            return f"{value / (1e3 if sign == 'k' else scale):.3g}{sign}"
    return f"{value:.4g}"


def from_sgr(text: str, width: int) -> list[Line]:
    """Lines of text with 256-colour codes as lines with inks.

    Own splitter: `Text.from_ansi` takes ten times as long as the plot's own conversion to text.
    """
    out = []
    for row in text.rstrip("\n").split("\n"):
        spans: list[Span] = [(" ", "text")]
        ink = "text"
        parts = _SGR.split(row)
        for at, part in enumerate(parts):
            if at % 2:
                ink = _ink(part, ink)
            elif part:
                spans.append((part, ink))
        out.append(line(width, spans))
    return out


def _ink(code: str, current: str) -> str:
    if code in ("", "0"):
        return "text"
    if code.startswith("38;5;"):
        return _INKS.get(int(code[5:]), "text")
    return current


def _own(curve: Curve, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """The same picture without plotext: filled area, scale at the left, times below."""
    cells = max(1, width - AXIS_WIDTH - 2)
    on = history.grid(curve.now_ns, curve.span_s, cells * glyphs.samples_a_cell)
    values = history.columns(curve.series, on, 1.5)
    rows = history.area(values, height - 1, glyphs, curve.low, curve.high)
    limit_row = -1
    if curve.threshold is not None and curve.high > curve.low:
        part = (curve.threshold - curve.low) / (curve.high - curve.low)
        limit_row = height - 2 - min(height - 2, max(0, int(part * (height - 1))))
    out = []
    labels = {0: curve.high, (height - 2) // 2: (curve.low + curve.high) / 2, height - 2: curve.low}
    for row, picture in enumerate(rows):
        label = number(labels[row]) if row in labels else ""
        spans: list[Span] = [(f"{label:>{AXIS_WIDTH}} ", "dim")]
        if row == limit_row:
            spans += [
                (char if char != " " else glyphs.rule, "data" if char != " " else "warn")
                for char in picture
            ]
        else:
            spans.append((picture, "data"))
        out.append(line(width, spans))
    ends = curve.label_at(curve.span_s), curve.label_at(0)
    gap = " " * max(1, cells - len(ends[0]) - len(ends[1]))
    out.append(line(width, [(" " * (AXIS_WIDTH + 1) + ends[0] + gap + ends[1], "dim")]))
    return out


def span_of(values: Sequence[float], unit: str, threshold: float | None) -> tuple[float, float]:
    """Scale of a plot: percent from 0 to 100, everything else from zero to just above the most."""
    known = [value for value in values if value == value]
    if threshold is not None:
        known.append(threshold)
    top = max(known, default=1.0)
    low = min(0.0, *known) if known else 0.0
    if unit == "%":
        return low, max(100.0, math.ceil(top / 50) * 50)
    if top <= 0:
        return low, 1.0
    step = 10 ** math.floor(math.log10(top))
    return low, math.ceil(top * 1.02 / step * 2) / 2 * step
