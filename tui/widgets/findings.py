"""What the rules say, worst first; the selected one opens with Enter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

from bottletop.text import fit
from bottletop.tui.curves import metric_words
from bottletop.tui.inks import SEVERITY_INKS
from bottletop.tui.lines import Line, Span, header, line, wrap
from bottletop.tui.widgets.panel import Panel
from bottletop.units import age_text, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.events import Click

    from bottletop.model import Finding, Unknown
    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import Reading

CODE_WIDTH = 28
TEXT_WIDTH = 90
AGE_WIDTH = 8
CODE_FROM = 100
"""Width from which codes have a column of their own, and evidence too."""
EVIDENCE_FROM = 160


class FindingPanel(Panel):
    """A list with a cursor that follows the finding, not the row."""

    class Opened(Message):
        """A finding was clicked."""

        def __init__(self, finding: Finding) -> None:
            super().__init__()
            self.finding = finding

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self.chosen: tuple[str, str] | None = None
        """Code and scope of the selected finding."""

    def draw(self, reading: Reading, width: int, height: int) -> Sequence[Line]:
        return draw(reading, width, height, self.glyphs, self.selected())

    def selected(self) -> Finding | None:
        """The finding under the cursor: the chosen one, else the worst."""
        findings = self.reading.findings if self.reading else ()
        for finding in findings:
            if (finding.code, finding.scope) == self.chosen:
                return finding
        return findings[0] if findings else None

    def move(self, step: int) -> None:
        """Move the cursor."""
        findings = self.reading.findings if self.reading else ()
        current = self.selected()
        if current is None:
            return
        at = min(max(findings.index(current) + step, 0), len(findings) - 1)
        self.chosen = (findings[at].code, findings[at].scope)
        self.redraw()

    def on_click(self, event: Click) -> None:
        reading = self.reading
        if reading is None or event.y < 1:
            return
        room = self.size.height - 1
        rows = rows_each(reading.findings, self.size.width, room)
        first = _first_shown(reading.findings, self.selected(), room // rows)
        at = first + (event.y - 1) // rows
        if at < len(reading.findings):
            finding = reading.findings[at]
            self.chosen = (finding.code, finding.scope)
            self.post_message(self.Opened(finding))


def rows_each(findings: Sequence[Finding], width: int, room: int) -> int:
    """Lines a finding takes: one where there is a column for everything or little room, else the
    sentence and the evidence get lines of their own."""
    if width >= EVIDENCE_FROM or not findings:
        return 1
    most = 2 if width >= CODE_FROM else 3
    return max(1, min(most, room // len(findings)))


def draw(
    reading: Reading, width: int, height: int, glyphs: Glyphs, selected: Finding | None
) -> list[Line]:
    """Draw findings, then what could not be judged, into `height` lines of `width` cells."""
    findings = reading.findings
    active = sum(finding.active for finding in findings)
    facts: list[Span] = [(f"{active} active" if active else "none", "dim")]
    if reading.unknown:
        facts.append((f" {glyphs.dot} {len(reading.unknown)} not judged", "dim"))
    out = [header(width, "Findings", facts, rule=glyphs.rule)]
    room = height - 1
    rows = rows_each(findings, width, room)
    first = _first_shown(findings, selected, room // rows)
    for finding in findings[first : first + room // rows]:
        out.extend(_lines(finding, width, rows, glyphs, selected=finding is selected))
    if not findings:
        out.append(line(width, [("   nothing to report", "dim")]))
    out += _unjudged(reading.unknown, width, height - len(out))
    return out


def reasons(unknown: Sequence[Unknown]) -> dict[str, list[str]]:
    """What is missing and the codes of the rules that it is missing for."""
    found: dict[str, list[str]] = {}
    for one in unknown:
        found.setdefault(one.missing, []).append(one.code)
    return found


def _unjudged(unknown: Sequence[Unknown], width: int, room: int) -> list[Line]:
    """Each reason once: in full and with its rules, without them, or cut to a line each."""
    groups = list(reasons(unknown).items())
    drawn: list[Line] = []
    for most, named in ((room, True), (room, False), (1, False)):
        drawn = [row for group in groups for row in _reason(*group, width, most, named=named)]
        if len(drawn) <= room:
            break
    return drawn[:room]


def _reason(
    missing: str, codes: Sequence[str], width: int, most: int, *, named: bool
) -> list[Line]:
    head = codes[0] if len(codes) == 1 else f"{len(codes)} rules"
    beside = width - CODE_WIDTH - 6
    rows = wrap(f"not judged: {missing}", beside, most)
    if named and len(codes) > 1:
        rows += wrap(", ".join(codes), beside)
    leads = [f"   ? {fit(head, CODE_WIDTH)}", *[" " * (CODE_WIDTH + 5)] * (len(rows) - 1)]
    return [
        line(width, [(lead, "dim"), (fit(text, beside), "dim")])
        for lead, text in zip(leads, rows, strict=True)
    ]


def _evidence(finding: Finding, glyphs: Glyphs) -> str:
    """The measured numbers, each with its threshold, as far as there is room."""
    parts = []
    for item in finding.evidence:
        measured = f"{metric_words(item.metric)} {value_text(item.value, item.unit)}"
        if item.threshold is not None:
            measured += f" ({value_text(item.threshold, item.unit.partition(' ')[0])})"
        parts.append(measured)
    return f" {glyphs.dot} ".join(parts)


def _first_shown(findings: Sequence[Finding], selected: Finding | None, room: int) -> int:
    if selected is None or len(findings) <= room:
        return 0
    return max(0, min(findings.index(selected) - room + 1, len(findings) - room))


def _lines(
    finding: Finding, width: int, rows: int, glyphs: Glyphs, *, selected: bool
) -> list[Line]:
    ink = SEVERITY_INKS[finding.severity] if finding.active else "dim"
    text_ink = "text" if finding.active else "dim"
    sign: Span = (glyphs.severity[finding.severity], ink)
    lead: list[Span] = [(glyphs.cursor if selected else " ", "strong"), sign, (" ", "text")]
    age = age_text(finding.active_s) if finding.active else "ended"
    tail: list[Span] = [(f"{age:>{AGE_WIDTH}}", "dim"), (" ", "text")]
    room = width - 4 - AGE_WIDTH
    evidence = _evidence(finding, glyphs)
    lines: list[list[Span]]
    if (rows == 1 and width >= CODE_FROM) or rows == 2:
        code = CODE_WIDTH if width >= CODE_FROM else 0
        beside = room - code - TEXT_WIDTH if width >= EVIDENCE_FROM else 0
        first = [
            *lead,
            (fit(finding.code, code), ink),
            (fit(finding.text, room - code - beside), text_ink),
            (fit(evidence, beside), "dim"),
            *tail,
        ]
        lines = [first, [(" " * (3 + code), "text"), (fit(evidence, width - code - 4), "dim")]]
    elif rows == 1:
        # On a narrow screen the sentence says more than the code; Enter names the code.
        lines = [[*lead, (fit(finding.text, room), text_ink), *tail]]
    else:
        lines = [
            [*lead, (fit(finding.code, room), ink), *tail],
            [("   ", "text"), (fit(finding.text, width - 4), text_ink)],
            [("   ", "text"), (fit(evidence, width - 4), "dim")],
        ]
    return [_selected(spans, width) if selected else line(width, spans) for spans in lines[:rows]]


def _selected(spans: Sequence[Span], width: int) -> Line:
    return line(width, [(text, f"on-cursor {ink}") for text, ink in spans], "on-cursor text")
