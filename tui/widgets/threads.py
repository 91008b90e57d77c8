"""The target's busiest threads: one name says more than a hundred averages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.text import fit
from bottletop.tui.history import bar
from bottletop.tui.inks import SEVERITY_INKS
from bottletop.tui.lines import Line, Span, header, line
from bottletop.tui.widgets.panel import Panel
from bottletop.units import MISSING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import Reading, ThreadPicture

COLUMNS = (("core %", 8), ("waits %", 9), ("kernel %", 10))
NAME_WIDTH = 18
TID_WIDTH = 8
STATE_WIDTH = 10


class ThreadPanel(Panel):
    """One line a thread, busiest first."""

    def draw(self, reading: Reading, width: int, height: int) -> Sequence[Line]:
        return draw(reading, width, height, self.glyphs)


def draw(reading: Reading, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Draw the busiest threads into `height` lines of `width` cells."""
    heads = "".join(f"{name:>{size}}" for name, size in COLUMNS)
    fixed = 3 + TID_WIDTH + NAME_WIDTH + STATE_WIDTH + len(heads)
    meter = max(0, min(30, width - fixed - 2))
    room = width - len(heads) - (meter + 2 if meter else 1)
    lead = header(room, "Threads", rule=glyphs.rule)
    out = [line(width, [*lead, (heads, "dim")])]
    if not reading.threads:
        why = "no process attached: a picks one" if reading.target is None else "none read yet"
        return [*out, line(width, [("   ", "text"), (why, "dim")])]
    rows = reading.threads[: height - 1]
    out += [_row(thread, width, meter, room, glyphs) for thread in rows]
    return out


def _row(thread: ThreadPicture, width: int, meter: int, room: int, glyphs: Glyphs) -> Line:
    mark = thread.mark
    ink = SEVERITY_INKS[mark.severity] if mark else "data"
    sign: Span = (glyphs.severity[mark.severity], ink) if mark else (" ", "text")
    name = fit(thread.name, NAME_WIDTH)
    lead: list[Span] = [
        (" ", "text"),
        sign,
        (" ", "text"),
        (f"{thread.tid:<{TID_WIDTH}}", "dim"),
        (name, "strong" if mark else "text"),
        (fit(thread.state, STATE_WIDTH), "dim"),
    ]
    spans = [
        *line(room, lead),
        (f"{thread.cpu * 100:>8.0f}", ink if mark else "text"),
        (f"{_percent(thread.wait):>9}", "text"),
        (f"{_percent(thread.system):>10}", "text"),
    ]
    if meter:
        filled = bar(glyphs.meter, round(min(1.0, thread.cpu) * 1000), meter)
        track = glyphs.track * (meter - len(filled))
        spans += [(" ", "text"), (filled, ink), (track, "faint")]
    return line(width, spans)


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{share * 100:.0f}"
