"""One finding explained: what is said, on what evidence, what to do, what would refute it."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING

from bottletop.model import NS_PER_S
from bottletop.rules import RULES
from bottletop.text import cell_width, fit
from bottletop.tui.curves import entity_label, metric_words
from bottletop.tui.inks import SEVERITY_INKS
from bottletop.tui.lines import Line, Span, header, line, ranked, width_of, wrap
from bottletop.units import age_text, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.model import Evidence, Finding
    from bottletop.rules.base import Rule
    from bottletop.snapshot import Snapshot
    from bottletop.tui.glyphs import Glyphs

LABEL_WIDTH = 14
_SHORT = {"When it is wrong": "Wrong when"}
GAP = 2
OVER_FROM = 100
"""Width from which there is room for the time that a number was measured over."""
_SHORT = {"When it is wrong": "Wrong when"}
COLUMNS = (("measured", 12), ("threshold", 11), ("over", 8))
_TAIL = sum(size for _, size in COLUMNS)


def head(finding: Finding, snapshot: Snapshot, width: int, glyphs: Glyphs) -> list[Line]:
    """Severity, code, age and the sentence itself."""
    ink = SEVERITY_INKS[finding.severity]
    sign = glyphs.severity[finding.severity]
    began = time.localtime(snapshot.anchor.wall_at(finding.since_ns) / NS_PER_S)
    state = "active" if finding.active else "ended"
    lead: list[Span] = [
        (f" {glyphs.edge}", ink),
        (f" {sign} {finding.severity.label.upper()}  ", ink),
        (finding.code, "strong"),
        ("   ", "text"),
    ]
    facts: list[tuple[int, Sequence[Span]]] = [
        (0, [(f"{state} ", "dim"), (age_text(finding.active_s), "text")]),
        (3, [(f"since {time.strftime('%H:%M:%S', began)}", "dim")]),
        (1, [(f"{finding.confidence.label} confidence", "dim")]),
    ]
    if finding.lost_gpu_s_per_s is not None:
        costs: list[Span] = [
            ("costs ", "dim"),
            (f"{finding.lost_gpu_s_per_s:.2f} GPU-s a second", "text"),
        ]
        facts.append((2, costs))
    room = width - width_of(lead) - 1
    lines = [line(width, [*lead, *ranked(room, facts, f" {glyphs.dot} ")])]
    lines += [
        line(width, [(f" {glyphs.edge} ", ink), (text, "strong")])
        for text in wrap(finding.text, width - 4)
    ]
    return lines


def body(
    finding: Finding, snapshot: Snapshot, width: int, glyphs: Glyphs, *, airy: bool
) -> list[Line]:
    """Evidence, advice, next check, refutation; `airy` puts blank lines between them."""
    blank = line(width, ())
    lines = [blank, *_evidence(finding, snapshot, width, glyphs), blank]
    for label, text, ink in (
        ("Do", finding.advice, "text"),
        ("Check next", finding.next_check, "strong"),
        ("Wrong if", finding.refuted_by, "text"),
    ):
        if text:
            lines += [*_labelled(label, text, width, ink), *([blank] if airy else [])]
    return lines if airy else [*lines, blank]


def about_rule(code: str, width: int, glyphs: Glyphs) -> list[Line]:
    """The rule's own documentation, empty where this version has no such rule."""
    rule = find_rule(code)
    if rule is None:
        return []
    lines = [header(width, "Rule", [(rule.title, "dim")], rule=glyphs.rule)]
    summary, sections = documentation(rule)
    lines += [line(width, [("   ", "text"), (text, "text")]) for text in wrap(summary, width - 4)]
    for title, text in sections:
        if title in ("What to do", "References"):
            continue
        lines.append(line(width, ()))
        lines += _labelled(_SHORT.get(title, title), text, width, "text")
    return lines


def find_rule(code: str) -> Rule | None:
    return next((rule for rule in RULES if rule.code == code), None)


def documentation(rule: Rule) -> tuple[str, list[tuple[str, str]]]:
    """Summary and sections of a rule's docstring: headings stand at the margin, text under them."""
    text = inspect.getdoc(type(rule)) or ""
    first, _, rest = text.partition("\n\n")
    sections: list[tuple[str, str]] = []
    for row in rest.splitlines():
        if row and not row.startswith(" "):
            sections.append((row.strip(), ""))
        elif sections:
            title, so_far = sections[-1]
            sections[-1] = (title, f"{so_far} {row.strip()}".strip())
    return " ".join(first.split()), sections


def _labelled(label: str, text: str, width: int, ink: str) -> list[Line]:
    """A label in the margin and its text beside it, under it where it is narrow."""
    lead = f"   {label:<{LABEL_WIDTH - 1}}"
    if cell_width(lead) > LABEL_WIDTH + 3:
        lead = f"   {label} "
    rows = wrap(text, max(20, width - LABEL_WIDTH - 4)) or [""]
    out = []
    for row in rows:
        out.append(line(width, [(fit(lead, LABEL_WIDTH + 3), "dim"), (row, ink)]))
        lead = ""
    return out


def _evidence(finding: Finding, snapshot: Snapshot, width: int, glyphs: Glyphs) -> list[Line]:
    """One line a measured number: what, of what, how much, held against what, over how long."""
    rows = [_cells(item, snapshot, over=width >= OVER_FROM) for item in finding.evidence]
    heads = ("", "", "measured", "threshold", "over" if width >= OVER_FROM else "")
    sizes = _sizes([heads, *rows], width)
    tail = "".join(
        f"{'':{GAP}}{fit(head, size, right=at == 3)}" if size else ""
        for at, (head, size) in enumerate(zip(heads, sizes, strict=True))
        if at > 1
    )
    lead = header(width - len(tail) - 1, "Evidence", rule=glyphs.rule)
    out = [line(width, [*lead, (tail, "dim")])]
    if not rows:
        return [*out, line(width, [("   none was recorded", "dim")])]
    inks = ("text", "dim", "strong", "text", "dim")
    for row in rows:
        spans: list[Span] = [("   ", "text")]
        for at, (cell, size, ink) in enumerate(zip(row, sizes, inks, strict=True)):
            if size:
                gap = " " * GAP if at else ""
                spans.append((gap + fit(cell, size, right=at == 3), ink))
        out.append(line(width, spans))
    return out


def _cells(item: Evidence, snapshot: Snapshot, *, over: bool) -> tuple[str, str, str, str, str]:
    # A unit may go on in words ("% of lost time explained"); the threshold needs only its sign.
    sign = item.unit.partition(" ")[0]
    return (
        metric_words(item.metric),
        entity_label(snapshot.view, item.metric, item.entity),
        value_text(item.value, item.unit),
        "" if item.threshold is None else value_text(item.threshold, sign),
        age_text(item.span_s) if over and item.span_s is not None else "",
    )


def _sizes(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Widths of the columns: numbers get what they need, names share the rest."""
    sizes = [max(cell_width(row[at]) for row in rows) for at in range(len(rows[0]))]
    sizes[2] = min(sizes[2], max(12, width // 2 - 8))
    room = width - 4 - sum(size + GAP for size in sizes[2:] if size) - GAP
    sizes[0] = min(sizes[0], max(8, room - min(sizes[1], room // 2)))
    sizes[1] = max(0, room - sizes[0])
    return sizes
