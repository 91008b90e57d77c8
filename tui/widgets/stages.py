"""The target's stages as a pipeline: each where it falls in a cycle, as long as it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.model import Severity
from bottletop.serving import server_text
from bottletop.stages import family, is_lagging
from bottletop.tables.stage import PROBE, STACKS
from bottletop.text import fit
from bottletop.tui.history import bar
from bottletop.tui.inks import SEVERITY_INKS
from bottletop.tui.lines import Line, Span, header, line, ranked, spread, width_of, wrap
from bottletop.tui.widgets.panel import Panel
from bottletop.units import MISSING, bytes_text, percent_text, seconds_text, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bottletop.serving import ServerStat
    from bottletop.stages import StageStat
    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.read_stages import Outside, StagePicture, StageReading
    from bottletop.tui.reading import Reading, TargetPicture

NAME_WIDTH = 16
STATE_WIDTH = 10
SHARE_WIDTH = 6
SAMPLED_WIDTH = 8
"""Of a share that is estimated, with its margin."""

COLUMNS = (("mean", 9), ("share", SHARE_WIDTH), ("src ", 5), ("p95", 9), ("calls/s", 8))
IN_FLIGHT = ("in flight", 10)
"""Heads and widths at the right; the last ones are left out first."""

LEAST_OUTSIDE = 0.01
"""Less than this outside of all stages is not said in running text."""

BADGES = {
    "prb": "its probe: every pass is counted",
    "srv": "the server's own metric page; with * it counts a request when it ends, and lags behind",
    "stk": "the stack sampler: an estimate, ± half of its 95 % interval",
}
"""Where a stage's numbers come from, and what that means."""


class StagePanel(Panel):
    """Target line as the head, then its servers, then one line a stage in the order of the
    pipeline."""

    alone = False
    """It has the whole body, and says how it knows."""

    def draw(self, reading: Reading, width: int, height: int) -> Sequence[Line]:
        return draw(reading, width, height, self.glyphs, alone=self.alone)


def draw(
    reading: Reading, width: int, height: int, glyphs: Glyphs, *, alone: bool = False
) -> list[Line]:
    """Draw servers and pipeline into `height` lines of `width` cells."""
    stages, servers = reading.stages.rows, reading.stages.servers
    room = height - 1
    # Stages in running text leave room for one server.
    most = max(room - max(1, len(stages)), min(1, room - 1), 0)
    above = _servers(servers, width, most, glyphs, whole=alone) if servers else []
    room -= len(above)
    if len(stages) > room:
        return [
            _header(reading, width, [], glyphs),
            *above,
            *_flow(reading.stages, width, room, glyphs),
        ]
    columns = _columns(width, stages) if stages else []
    out = [_header(reading, width, columns, glyphs), *above]
    if stages:
        flow = width - NAME_WIDTH - 6 - sum(size for _, size in columns)
        for stage, place in zip(stages, _offsets(stages, flow), strict=True):
            out.append(_row(stage, *place, flow, width, columns, glyphs))
        out += [_outside(rest, width, columns) for rest in reading.stages.outside]
    else:
        out += _trouble(reading, width, height - len(out))
    if alone:
        ways, meanings = _ways(reading, width), _meanings(reading, width)
        out += meanings if len(out) + len(meanings) + len(ways) <= height else []
        out += ways
    return out[:height]


def _servers(
    servers: Sequence[ServerStat], width: int, most: int, glyphs: Glyphs, *, whole: bool
) -> list[Line]:
    """A line for each server, cut where it is too long; all of what it says where it has room."""
    out: list[Line] = []
    for stat in servers:
        lead = f"{stat.engine} {stat.key}"
        rest = server_text(stat).removeprefix(lead)
        warned = not stat.answers
        sign: Span = (glyphs.severity[Severity.WARN], "warn") if warned else (" ", "text")
        told = wrap(lead + rest, width - 4) if whole else [lead + rest]
        spans: list[Span] = [(" ", "text"), sign, (" ", "text"), (lead, "strong")]
        ink = "warn" if warned else "text"
        if told[0].startswith(lead):
            out.append(line(width, [*spans, (told[0].removeprefix(lead), ink)]))
            told = told[1:]
        else:
            out.append(line(width, [*spans[:-1], (told.pop(0), "strong")]))
        out += [line(width, [("     ", "text"), (text, ink)]) for text in told]
    if len(out) > most:
        out = out[:most]
        if not whole and most:
            more = f" {len(servers) - most} more: press 2 "
            out[-1] = spread(width, list(out[-1]), [(more, "dim")])
    return out


def _trouble(reading: Reading, width: int, room: int) -> list[Line]:
    """Why there are no stages."""
    target = reading.target
    running = target is not None and not target.target.gone
    lead = "   no stages: " if running else "   "
    out = []
    for text in wrap(reading.stages.trouble, width - len(lead) - 1, room):
        out.append(line(width, [(lead, "text"), (text, "dim")]))
        lead = " " * len(lead)
    return out


def _outside(rest: Outside, width: int, columns: Sequence[tuple[str, int]]) -> Line:
    """What is missing to the whole cycle."""
    shown = {"share": percent_text(rest.share), "src ": badge(rest.source)}
    cells = "".join(f"{shown.get(head, ''):>{size}}" for head, size in columns)
    return spread(width, [("   outside of all stages", "dim")], [(f"{cells} ", "dim")])


def _meanings(reading: Reading, width: int) -> list[Line]:
    """What the badges of these stages mean."""
    used = {badge(stage.stat.source)[:3] for stage in reading.stages.rows}
    out = [line(width, ())] if used else []
    for short in sorted(used):
        out += _meaning([(f"{short:<{NAME_WIDTH + 1}}", "strong")], BADGES[short], width)
    return out


def _ways(reading: Reading, width: int) -> list[Line]:
    """Every way in which stages can be read, taken or not, and why."""
    if not reading.stages.rungs:
        return []
    out = [line(width, ()), line(width, [("   How its stages are read", "title")])]
    for rung in reading.stages.rungs:
        state = "used" if rung.used else "not used"
        lead = [
            (f"{rung.name:<{NAME_WIDTH + 1}}", "strong" if rung.used else "dim"),
            (f"{state:<{STATE_WIDTH}}", "text" if rung.used else "dim"),
        ]
        out += _meaning(lead, rung.text or "not read yet", width)
    return out


def _meaning(lead: list[Span], text: str, width: int) -> list[Line]:
    size = 3 + width_of(lead)
    rows = wrap(text, width - size - 1)
    first = line(width, [("   ", "text"), *lead, (rows[0], "text")])
    return [first, *(line(width, [(" " * size, "text"), (row, "text")]) for row in rows[1:])]


def badge(source: str) -> str:
    """Four cells for where a stage's numbers come from; `*` marks what lags."""
    short = {PROBE: "prb", STACKS: "stk"}.get(source, "srv")
    return short + ("*" if is_lagging(source) else " ")


def _flow(reading: StageReading, width: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """The pipeline as running text where there is no line for each stage: every share, and the
    time of the longest and the guilty ones."""
    lines: list[list[Span]] = [[]]
    for part in _parts(reading, glyphs):
        if lines[-1] and width_of(lines[-1]) + width_of(part) > width - 4:
            lines.append([])
        lines[-1] += part
    marked = reading.rows[0].mark is not None and not reading.mixed
    leads = [" " if marked else "   ", *["   "] * (len(lines) - 1)]
    out = [
        line(width, [(lead, "text"), *spans])
        for lead, spans in zip(leads, lines[:rows], strict=False)
    ]
    if out and len(lines) > rows:
        out[-1] = spread(width, list(out[-1]), [(" press 2 for all ", "dim")])
    return out


def _parts(reading: StageReading, glyphs: Glyphs) -> Iterator[list[Span]]:
    """One piece a stage, an arrow before each but the first. Stages of another source are a
    pipeline of their own."""
    longest = max(reading.rows, key=lambda stage: stage.stat.share or 0)
    before = ""
    for stage in reading.rows:
        of = family(stage.stat.source)
        part = _part(stage, timed=stage.mark is not None or stage is longest, glyphs=glyphs)
        if of != before and reading.mixed:
            part.insert(0, (f"{badge(stage.stat.source).strip()} ", "dim"))
        if before:
            part.insert(0, (f" {glyphs.arrow if of == before else glyphs.dot} ", "faint"))
        before = of
        yield part
    for rest in reading.outside:
        if rest.share >= LEAST_OUTSIDE:
            yield [(f" {glyphs.dot} ", "faint"), (f"outside {percent_text(rest.share)}", "dim")]


def _part(stage: StagePicture, *, timed: bool, glyphs: Glyphs) -> list[Span]:
    mark = stage.mark
    ink = SEVERITY_INKS[mark.severity] if mark else "text"
    spans: list[Span] = [(f"{glyphs.severity[mark.severity]} ", ink)] if mark else []
    spans.append((stage.stat.name, "strong" if mark else "text"))
    if timed:
        spans.append((f" {_values(stage)['mean']}", ink))
    spans.append((f" {_values(stage)['share']}", ink if mark else "dim"))
    return spans


def _columns(width: int, stages: Sequence[StagePicture]) -> list[tuple[str, int]]:
    columns = [*COLUMNS, IN_FLIGHT]
    if any(stage.stat.margin is not None for stage in stages):
        columns[1] = ("share", SAMPLED_WIDTH)
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
    """Where each stage begins in its source's cycle, and its length, in thousandths of a cell."""
    totals: dict[str, float] = {}
    for stage in stages:
        of = family(stage.stat.source)
        totals[of] = totals.get(of, 0.0) + max(0.0, stage.stat.share or 0.0)
    at = dict.fromkeys(totals, 0.0)
    out = []
    for stage in stages:
        of, share = family(stage.stat.source), max(0.0, stage.stat.share or 0.0)
        total = max(1.0, totals[of])
        out.append((round(at[of] / total * cells * 1000), round(share / total * cells * 1000)))
        at[of] += share
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
        "share": _share_text(stat),
        "src ": badge(stat.source),
        "p95": MISSING if stat.p95_s is None else seconds_text(stat.p95_s),
        "calls/s": value_text(stat.calls_per_s, ""),
        "in flight": value_text(stat.in_flight, ""),
    }


def _share_text(stat: StageStat) -> str:
    """`38 %`, and `38±5 %` where it is an estimate."""
    if stat.share is None or stat.margin is None:
        return percent_text(stat.share)
    return f"{round(stat.share * 100)}±{round(stat.margin * 100)} %"
