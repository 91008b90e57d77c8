"""The answer: what holds it back now, and how much of the lost time each cause takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.model import Severity, VerdictState
from bottletop.text import cell_width, fit
from bottletop.tui.history import bar
from bottletop.tui.inks import STATE_INKS
from bottletop.tui.lines import Line, Span, line, width_of, wrap
from bottletop.tui.widgets.panel import Panel
from bottletop.units import age_text, percent_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.model import Cause
    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import Reading

SHOWN_CAUSES = 2


class VerdictPanel(Panel):
    """The band under the host line. Its ground says how grave it is, its sign and words too."""

    def draw(self, reading: Reading, width: int, height: int) -> Sequence[Line]:
        return draw(reading, width, height, self.glyphs)

    def show(self, reading: Reading) -> None:
        ink = state_ink(reading)
        self.set_class(ink == "crit", "-crit")
        self.set_class(ink == "warn", "-warn")
        super().show(reading)


def state_ink(reading: Reading) -> str:
    """Ink of the state: a bottleneck is as grave as the finding that leads it."""
    verdict = reading.verdict
    if verdict.state in (VerdictState.BOTTLENECK, VerdictState.MIXED) and any(
        finding.active and finding.code == verdict.code and finding.severity is Severity.CRIT
        for finding in reading.findings
    ):
        return "crit"
    return STATE_INKS[verdict.state]


def draw(reading: Reading, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Draw state, sentence and causes; with three lines or more one cause a line where the
    sentence leaves room."""
    verdict = reading.verdict
    ink = state_ink(reading)
    edge: Span = (glyphs.edge, ink)
    state = f" {glyphs.state[verdict.state]} {verdict.state.value.replace('-', ' ').upper()} "
    lead: list[Span] = [edge, (" ", "text"), (state, f"on-badge-{ink}"), ("  ", "text")]
    indent = width_of(lead)
    sentence = wrap(verdict.text, width - indent - 1) or [""]
    body: list[Line] = [line(width, [*lead, (sentence[0], "strong")])]
    rooms = height - (2 if height >= 5 else 0)
    causes = verdict.causes[:SHOWN_CAUSES]
    shown = sentence[1 : max(1, rooms - bool(causes))]
    if shown and len(sentence) > len(shown) + 1:
        shown[-1] = fit(f"{shown[-1]} {sentence[len(shown) + 1]}", width - indent - 1)
    body += [line(width, [edge, (" " * (indent - 1), "text"), (more, "strong")]) for more in shown]
    left = rooms - len(body)
    if causes and left >= len(causes):
        body += [_cause(cause, width, edge, glyphs) for cause in causes]
    elif causes and left:
        body.append(_causes_in_one(causes, width, edge))
    if causes and left > len(causes):
        body += _advice(reading, width, edge, glyphs)
    if left and not causes:
        body.append(line(width, [edge, (f"  {_watched(reading, glyphs)}", "dim")]))
    blank = line(width, [edge])
    if height >= 5:
        body.insert(0, blank)
    return body + [blank] * (height - len(body))


def _advice(reading: Reading, width: int, edge: Span, glyphs: Glyphs) -> list[Line]:
    """What to do about the cause that leads, as much of it as fits on a line."""
    for finding in reading.findings:
        if finding.active and finding.code == reading.verdict.code and finding.advice:
            advice = _sentences(finding.advice, width - 6)
            return [line(width, [edge, (f"  {glyphs.arrow} ", "dim"), (advice, "text")])]
    return []


def _sentences(text: str, width: int) -> str:
    """As many whole sentences as fit; a part of the first where not even that does."""
    kept = ""
    for sentence in text.split(". "):
        longer = f"{kept}. {sentence}" if kept else sentence
        if cell_width(longer) + 1 > width:
            break
        kept = longer
    if not kept:
        return fit(text, width)
    return kept if kept.endswith(".") else f"{kept}."


def _watched(reading: Reading, glyphs: Glyphs) -> str:
    text = f"watched for {age_text(reading.watched_s)}"
    count = len(reading.unknown)
    if count:
        rules = "1 rule" if count == 1 else f"{count} rules"
        text += f" {glyphs.dot} {rules} could not be judged: press 6"
    return text


def _cause(cause: Cause, width: int, edge: Span, glyphs: Glyphs) -> Line:
    cells = max(8, min(40, width // 3))
    filled = bar(glyphs.meter, round(cause.share * 1000), cells)
    return line(
        width,
        [
            edge,
            (f" {percent_text(cause.share):>6}  ", "strong"),
            (filled, "data"),
            (glyphs.track * (cells - len(filled)), "faint"),
            (f"  {cause.code}", "text"),
            (f"  {cause.confidence.label} confidence", "dim"),
        ],
    )


def _causes_in_one(causes: Sequence[Cause], width: int, edge: Span) -> Line:
    spans: list[Span] = [edge, (" ", "text")]
    for cause in causes:
        spans += [(f" {percent_text(cause.share)} ", "strong"), (f"{cause.code}   ", "text")]
    return line(width, spans)
