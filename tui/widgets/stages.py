"""The target's stages as a pipeline: each where it falls in a cycle, as long as it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.text import fit
from bottletop.tui.history import bar
from bottletop.tui.inks import SEVERITY_INKS
from bottletop.tui.lines import Line, Span, header, line, ranked, spread, width_of, wrap
from bottletop.tui.widgets.panel import Panel
from bottletop.units import MISSING, bytes_text, percent_text, seconds_text, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import Reading, StagePicture, TargetPicture

NAME_WIDTH = 16

COLUMNS = (("mean", 9), ("share", 6), ("p95", 9), ("calls/s", 8), ("in flight", 10))
"""Heads and widths at the right; the last ones are left out first."""


class StagePanel(Panel):
    """Target line as the head, then one line a stage in the order of the pipeline."""

    def draw(self, reading: Reading, width: int, height: int) -> Sequence[Line]:
        return draw(reading, width, height, self.glyphs)


def draw(reading: Reading, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Draw the pipeline into `height` lines of `width` cells."""
    rows = height - 1
    if len(reading.stages) > rows:
        return [_header(reading, width, [], glyphs), *_flow(reading.stages, width, rows, glyphs)]
    columns = _columns(width) if reading.stages else []
    out = [_header(reading, width, columns, glyphs)]
    if not reading.stages:
        target = reading.target
        running = target is not None and not target.target.gone
        lead = "   no stages: " if running else "   "
        for text in wrap(reading.stage_trouble, width - len(lead) - 1)[: height - 1]:
            out.append(line(width, [(lead, "text"), (text, "dim")]))
            lead = " " * len(lead)
        return out
    flow = width - NAME_WIDTH - 6 - sum(size for _, size in columns)
    for stage, (start, length) in zip(reading.stages, _offsets(reading.stages, flow), strict=True):
        out.append(_row(stage, start, length, flow, width, columns, glyphs))
    return out


def _flow(stages: Sequence[StagePicture], width: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """The pipeline as running text where there is no line for each stage: every share, and the
    time of the longest and the guilty ones."""
    longest = max(stages, key=lambda stage: stage.stat.share or 0)
    lines: list[list[Span]] = [[]]
    for number, stage in enumerate(stages):
        part = _part(stage, timed=stage.mark is not None or stage is longest, glyphs=glyphs)
        if number:
            part.insert(0, (f" {glyphs.arrow} ", "faint"))
        if lines[-1] and width_of(lines[-1]) + width_of(part) > width - 4:
            lines.append([])
        lines[-1] += part
    leads = [" " if stages[0].mark else "   ", *["   "] * (len(lines) - 1)]
    out = [
        line(width, [(lead, "text"), *spans])
        for lead, spans in zip(leads, lines[:rows], strict=False)
    ]
    if len(lines) > rows:
        out[-1] = spread(width, list(out[-1]), [(" press 2 for all ", "dim")])
    return out


def _part(stage: StagePicture, *, timed: bool, glyphs: Glyphs) -> list[Span]:
    mark = stage.mark
    ink = SEVERITY_INKS[mark.severity] if mark else "text"
    spans: list[Span] = [(f"{glyphs.severity[mark.severity]} ", ink)] if mark else []
    spans.append((stage.stat.name, "strong" if mark else "text"))
    if timed:
        spans.append((f" {_values(stage)['mean']}", ink))
    spans.append((f" {percent_text(stage.stat.share)}", ink if mark else "dim"))
    return spans


def _columns(width: int) -> list[tuple[str, int]]:
    columns = list(COLUMNS)
    while len(columns) > 2 and width - NAME_WIDTH - 6 - sum(size for _, size in columns) < 21:
        columns.pop()
    return columns


def _header(
    reading: Reading, width: int, columns: Sequence[tuple[str, int]], glyphs: Glyphs
) -> Line:
    heads = "".join(f"{name:>{size}}" for name, size in columns)
    room = width - len(heads) - 1 if heads else width
    target = reading.target
    if target is None:
        return header(width, "Target", [("none attached", "dim")], rule=glyphs.rule)
    name = target.target.name or "target"
    facts = ranked(room - len(name) - 6, _facts(target), f" {glyphs.dot} ")
    head = header(room, name, facts, rule=glyphs.rule)
    return line(width, [*head, (heads, "dim")])


def _facts(target: TargetPicture) -> list[tuple[int, Sequence[Span]]]:
    facts: list[tuple[int, Sequence[Span]]] = [(0, [(f"pid {target.target.root.pid}", "dim")])]
    if target.target.gone:
        return [*facts, (0, [("has ended", "warn")])]
    if target.cpu is not None:
        facts.append((1, [(f"{target.cpu:.1f} cores", "dim")]))
    hottest = target.hottest
    if hottest is not None:
        ink = SEVERITY_INKS[hottest.mark.severity] if hottest.mark else "dim"
        facts.append((3, [("hottest ", "dim"), (f"{fit(hottest.name, 14).strip()} ", "dim")]))
        facts[-1][1].append((percent_text(hottest.cpu), ink))  # type: ignore[attr-defined]
    count = len(target.target.processes)
    if count > 1:
        facts.append((4, [(f"{count} processes", "dim")]))
    if target.threads is not None:
        count = target.threads
        facts.append((5, [("1 thread" if count == 1 else f"{count} threads", "dim")]))
    if target.rss_bytes is not None:
        facts.append((6, [(bytes_text(target.rss_bytes), "dim")]))
    return facts


def _offsets(stages: Sequence[StagePicture], cells: int) -> list[tuple[int, int]]:
    """Where each stage begins in the cycle and how long it is, in thousandths of a cell."""
    shares = [max(0.0, stage.stat.share or 0.0) for stage in stages]
    total = max(1.0, sum(shares))
    at = 0.0
    out = []
    for share in shares:
        out.append((round(at / total * cells * 1000), round(share / total * cells * 1000)))
        at += share
    return out


def _row(
    stage: StagePicture,
    start: int,
    length: int,
    flow: int,
    width: int,
    columns: Sequence[tuple[str, int]],
    glyphs: Glyphs,
) -> Line:
    mark = stage.mark
    ink = SEVERITY_INKS[mark.severity] if mark else "data"
    sign: Span = (glyphs.severity[mark.severity], ink) if mark else (" ", "text")
    before = min(flow - 1, start // 1000)
    room = flow - before
    filled = bar(glyphs.eighths, round(length / room), room) if length else ""
    after = flow - before - len(filled)
    name = fit(stage.stat.name, NAME_WIDTH)
    spans: list[Span] = [
        (" ", "text"),
        sign,
        (" ", "text"),
        (name, "strong" if mark else "text"),
        (" ", "text"),
        (" " * before, "text"),
        (filled, ink),
        (" " * (after + 1), "text"),
    ]
    shown = _values(stage)
    for number, (head, size) in enumerate(columns):
        text = shown[head]
        strong = number == 1 and mark is not None
        spans.append((f"{text:>{size}}", ink if strong else "text" if number < 2 else "dim"))
    return line(width, spans)


def _values(stage: StagePicture) -> dict[str, str]:
    stat = stage.stat
    return {
        "mean": MISSING if stat.mean_s is None else seconds_text(stat.mean_s),
        "share": percent_text(stat.share),
        "p95": MISSING if stat.p95_s is None else seconds_text(stat.p95_s),
        "calls/s": value_text(stat.calls_per_s, ""),
        "in flight": value_text(stat.in_flight, ""),
    }
