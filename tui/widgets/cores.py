"""All logical CPUs at once: one cell a core, so that one pegged core among many is seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.text import fit
from bottletop.tui.history import bar
from bottletop.tui.inks import SEVERITY_INKS
from bottletop.tui.lines import Line, Span, header, line, ranked, runs
from bottletop.tui.widgets.panel import Panel
from bottletop.units import MISSING, percent_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import CorePicture, HostCpu, Reading

LEAD = 6
GROUP = 8
PEGGED = 0.9
"""From here on a core counts as pegged and is drawn in the strong ink."""
MAX_ROWS_A_LINE = 3
FEW = 8
"""Up to this many cores each is written out."""


class CorePanel(Panel):
    """Cores in rows of as many as fit, in groups of eight."""

    def draw(self, reading: Reading, width: int, height: int) -> Sequence[Line]:
        return draw(reading, width, height, self.glyphs)


def draw(reading: Reading, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Draw the grid into `height` lines of `width` cells."""
    cores = reading.cores
    if not cores:
        why = reading.trouble.get("core", "not read yet")
        head = header(width, "Cores", rule=glyphs.rule)
        return [head, line(width, [("   no CPU readings: ", "text"), (why, "dim")])]
    if len(cores) <= FEW and height > 1:
        return [_header(reading, 1, width, glyphs), *_few(cores, width, height - 1, glyphs)]
    a_row, merge = _shape(len(cores), width, height - 1)
    out = [_header(reading, merge, width, glyphs)]
    cells = _merged(cores, merge)
    lines = -(-len(cells) // a_row)
    tall = max(1, min(MAX_ROWS_A_LINE, (height - 1) // lines))
    for start in range(0, len(cells), a_row):
        part = cells[start : start + a_row]
        out.extend(_rows(part, start * merge, tall, width, glyphs))
        if len(out) - 1 + tall * (lines - 1) < height - 1 and any(core.mark for core in part):
            out.append(_pointers(part, width, glyphs))
    return out[:height]


def _few(cores: Sequence[CorePicture], width: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """Each core with its number, a meter and its percentage, side by side in equal columns."""
    columns = -(-len(cores) // max(1, rows))
    room = (width - 2) // columns
    cells = max(2, min(24, room - 14))
    out = []
    for start in range(0, len(cores), columns):
        spans: list[Span] = [(" ", "text")]
        for core in cores[start : start + columns]:
            ink = _ink(core)
            filled = bar(glyphs.meter, round((core.busy or 0) * 1000), cells)
            sign = glyphs.severity[core.mark.severity] if core.mark else " "
            name = fit(core.key.removeprefix("cpu"), 3, right=True)
            spans += line(
                room,
                [
                    (f" {sign}", ink),
                    (f"{name} ", "dim"),
                    (filled, ink),
                    (glyphs.track * (cells - len(filled)), "faint"),
                    (f" {percent_text(core.busy):>5}", "text"),
                ],
            )
        out.append(line(width, spans))
    return out


def _shape(count: int, width: int, rows: int) -> tuple[int, int]:
    """Cores a row, and how many share a cell where all do not fit."""
    most = _most_a_row(width)
    merge = 1
    while -(-count // merge) > most * max(1, rows):
        merge *= 2
    cells = -(-count // merge)
    a_row = GROUP
    while a_row * 2 <= most and a_row < cells:
        a_row *= 2
    # A row of a power of two reads best; where that would need more rows than there are, the
    # widest multiple of a group is taken.
    if -(-cells // a_row) > max(1, rows):
        a_row = most // GROUP * GROUP or most
    return a_row, merge


def _most_a_row(width: int) -> int:
    room = width - LEAD - 1
    return max(GROUP, (room + 1) * GROUP // (GROUP + 1))


def _merged(cores: Sequence[CorePicture], merge: int) -> list[CorePicture]:
    """The busiest of each `merge` neighbours: a mean would hide the pegged one."""
    if merge == 1:
        return list(cores)
    groups = [cores[at : at + merge] for at in range(0, len(cores), merge)]
    return [
        max(group, key=lambda core: (core.mark is not None, core.busy or 0)) for group in groups
    ]


def _header(reading: Reading, merge: int, width: int, glyphs: Glyphs) -> Line:
    trouble = reading.trouble.get("core", "")
    if trouble:
        return header(width, "Cores", [(trouble, "warn")], rule=glyphs.rule)
    pegged = sum((core.busy or 0) >= PEGGED for core in reading.cores)
    facts: list[tuple[int, Sequence[Span]]] = [(0, [(_busy(reading.cpu), "text")])]
    facts[0][1].append((f" of {len(reading.cores)} busy", "dim"))  # type: ignore[attr-defined]
    if pegged:
        facts.append((1, [(f"{pegged}", "strong"), (f" at {percent_text(PEGGED)} or more", "dim")]))
    facts.extend(_split(reading.cpu))
    if merge > 1:
        facts.append((2, [(f"{merge} a cell, the busiest shown", "dim")]))
    return header(width, "Cores", ranked(width - 12, facts, f" {glyphs.dot} "), rule=glyphs.rule)


def _busy(cpu: HostCpu) -> str:
    return MISSING if cpu.busy is None else f"{cpu.busy:.1f}"


def _split(cpu: HostCpu) -> list[tuple[int, Sequence[Span]]]:
    if not cpu.busy:
        return []
    facts: list[tuple[int, Sequence[Span]]] = []
    for rank, name, part in ((3, "system", cpu.system), (4, "steal", cpu.steal)):
        if part is not None and part / cpu.busy >= 0.01:
            facts.append((rank, [(f"{name} ", "dim"), (percent_text(part / cpu.busy), "text")]))
    return facts


def _rows(
    part: Sequence[CorePicture], first: int, tall: int, width: int, glyphs: Glyphs
) -> list[Line]:
    steps = len(glyphs.levels) - 1
    top = tall * steps - 1
    levels = [0 if core.busy is None else 1 + round(core.busy * top) for core in part]
    inks = _spaced([_ink(core) for core in part], "data")
    out = []
    for row in range(tall):
        base = (tall - 1 - row) * steps
        number = f"{first:>{LEAD - 2}}  " if row == tall - 1 else " " * LEAD
        unread = glyphs.dot if row == tall - 1 else " "
        signs = [
            glyphs.levels[min(max(level - base, 0), steps)] if level else unread for level in levels
        ]
        out.append(line(width, [(number, "dim"), *runs(_spaced(signs, " "), inks)]))
    return out


def _spaced(cells: Sequence[str], gap: str) -> list[str]:
    """Cells with a gap after every group."""
    out: list[str] = []
    for at in range(0, len(cells), GROUP):
        if at:
            out.append(gap)
        out.extend(cells[at : at + GROUP])
    return out


def _ink(core: CorePicture) -> str:
    if core.mark is not None:
        return SEVERITY_INKS[core.mark.severity]
    return "strong" if (core.busy or 0) >= PEGGED else "data"


def _pointers(part: Sequence[CorePicture], width: int, glyphs: Glyphs) -> Line:
    signs = _spaced([glyphs.pointer if core.mark else " " for core in part], " ")
    inks = _spaced([_ink(core) if core.mark else "text" for core in part], "text")
    return line(width, [(" " * LEAD, "text"), *runs(signs, inks)])
