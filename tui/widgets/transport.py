"""Where a replay stands: recorded time, track, findings along it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bottletop.model import NS_PER_S, Severity
from bottletop.tui.inks import SEVERITY_INKS
from bottletop.tui.lines import Line, Span, line, spread, width_of
from bottletop.tui.widgets.panel import Panel
from bottletop.units import number_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.events import Click

    from bottletop.snapshot import Playback
    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import Reading

MARGIN = 3
"""Cells left and right of the track."""


class TransportPanel(Panel):
    """State and recorded time, the track with its head, and the findings under it."""

    def draw(self, reading: Reading, width: int, height: int) -> Sequence[Line]:
        playback = reading.playback
        if playback is None:
            return []
        return draw(reading, playback, width, height, self.glyphs)

    def time_at(self, x: int) -> int | None:
        """The recorded moment under column `x` of the track."""
        playback = self.reading.playback if self.reading else None
        cells = self.size.width - 2 * MARGIN
        if playback is None or cells < 2 or not 0 <= x - MARGIN < cells:
            return None
        length_ns = playback.end_ns - playback.start_ns
        return playback.start_ns + length_ns * (x - MARGIN) // (cells - 1)

    async def on_click(self, event: Click) -> None:
        t_ns = self.time_at(event.x)
        if t_ns is not None and event.y >= 1:
            await self.run_action(f"app.seek_to({t_ns})")


def draw(
    reading: Reading, playback: Playback, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """Draw two lines, or three where findings get a line of their own."""
    cells = max(4, width - 2 * MARGIN)
    track = _track(playback, cells, glyphs)
    if height < 3:
        # The findings are the track: a second line would push a panel off a small screen.
        return [
            _state(reading, playback, width, glyphs),
            _line(_overlay(playback, track, cells, glyphs), width),
        ]
    return [
        _state(reading, playback, width, glyphs),
        _line(track, width),
        _line(_findings(playback, cells, glyphs), width),
    ][:height]


def _line(cells: Sequence[Span], width: int) -> Line:
    return line(width, [(" " * MARGIN, "text"), *cells])


def _state(reading: Reading, playback: Playback, width: int, glyphs: Glyphs) -> Line:
    sign = glyphs.playing if playback.playing else glyphs.paused
    word = "playing" if playback.playing else "paused"
    recorded = time.localtime(reading.wall_ns / NS_PER_S)
    left: list[Span] = [
        (" ", "text"),
        (f"{sign} ", "strong"),
        (f"{word} {number_text(playback.speed)}× ", "text"),
        (" recorded ", "dim"),
        (time.strftime("%Y-%m-%d %H:%M:%S", recorded), "strong"),
        (f" {time.strftime('%Z', recorded)}", "dim"),
    ]
    at = clock(playback.now_ns - playback.start_ns)
    total = clock(playback.end_ns - playback.start_ns)
    right: list[Span] = [(at, "strong"), (f" of {total} ", "dim")]
    name = f"{playback.path.rpartition('/')[2]}   "
    if not playback.ended_cleanly:
        right.insert(0, ("cut off   ", "warn"))
    if width_of(left) + width_of(right) + len(name) + 4 <= width:
        right.insert(0, (name, "dim"))
    return spread(width, left, right)


def clock(ns: int) -> str:
    """A distance in a recording as [h:]mm:ss."""
    seconds = max(0, ns) // NS_PER_S
    hours, minutes = seconds // 3600, seconds // 60 % 60
    tail = f"{minutes:02d}:{seconds % 60:02d}"
    return f"{hours}:{tail}" if hours else tail


def _cell(playback: Playback, t_ns: int, cells: int) -> int:
    length_ns = max(1, playback.end_ns - playback.start_ns)
    return min(cells - 1, max(0, round((t_ns - playback.start_ns) * (cells - 1) / length_ns)))


def _track(playback: Playback, cells: int, glyphs: Glyphs) -> list[Span]:
    head = _cell(playback, playback.now_ns, cells)
    return [
        (glyphs.rule * head, "data"),
        (glyphs.head, "strong"),
        (glyphs.rule * (cells - head - 1), "faint"),
    ]


def _severities(playback: Playback, cells: int) -> list[Severity | None]:
    """The worst severity in each cell of the track."""
    out: list[Severity | None] = [None] * cells
    for on_ns, off_ns, severity, _code in playback.finding_spans:
        first, last = _cell(playback, on_ns, cells), _cell(playback, off_ns, cells)
        for at in range(first, last + 1):
            current = out[at]
            if current is None or current < severity:
                out[at] = Severity(severity)
    return out


def _findings(playback: Playback, cells: int, glyphs: Glyphs) -> list[Span]:
    """A bar for each stretch with findings, its sign where it begins or changes."""
    out: list[Span] = []
    before: Severity | None = None
    for severity in _severities(playback, cells):
        if severity is None:
            out.append((" ", "text"))
        else:
            sign = glyphs.meter[-1] if severity is before else glyphs.severity[severity]
            out.append((sign, SEVERITY_INKS[severity]))
        before = severity
    return out


def _overlay(playback: Playback, track: Sequence[Span], cells: int, glyphs: Glyphs) -> list[Span]:
    head = _cell(playback, playback.now_ns, cells)
    plain = [(char, ink) for text, ink in track for char in text]
    for at, span in enumerate(_findings(playback, cells, glyphs)):
        if span[0] != " " and at != head:
            plain[at] = span
    return plain
