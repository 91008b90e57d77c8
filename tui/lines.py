"""Lines of text with inks, before they become anything of Textual's.

A line is a tuple of (text, ink name) spans that together fill its width exactly. Panels are drawn
into lines by plain functions, which is what their tests look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.text import cell_width, fit, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Span = tuple[str, str]
Line = tuple[Span, ...]

PLAIN = "text"


def line(width: int, spans: Iterable[Span], fill: str = PLAIN) -> Line:
    """Join spans into one line of exactly `width` cells, neighbours of one ink merged.

    Blank text takes the ink before it: fewer colour changes are fewer bytes to the terminal.
    """
    merged: list[Span] = []
    used = 0
    for text, ink in spans:
        if not text:
            continue
        size = cell_width(text)
        if used + size > width:
            text = fit(text, width - used)
            size = width - used
            if not text:
                break
        used += size
        if merged and (merged[-1][1] == ink or (text.isspace() and _unmarked(ink, merged[-1][1]))):
            merged[-1] = (merged[-1][0] + text, merged[-1][1])
        else:
            merged.append((text, ink))
    if used < width:
        pad = " " * (width - used)
        if merged and _unmarked(fill, merged[-1][1]):
            merged[-1] = (merged[-1][0] + pad, merged[-1][1])
        else:
            merged.append((pad, fill))
    return tuple(merged)


def runs(chars: Sequence[str], inks: Sequence[str]) -> list[Span]:
    """Characters that each have an ink, neighbours of one ink joined."""
    out: list[Span] = []
    start = 0
    for at in range(1, len(chars) + 1):
        if at == len(chars) or inks[at] != inks[start]:
            out.append(("".join(chars[start:at]), inks[start]))
            start = at
    return out


def _unmarked(ink: str, before: str) -> bool:
    """Whether a blank of one ink looks the same in the other: neither shows a background."""
    return not ink.startswith("on-") and not before.startswith("on-")


def text_of(drawn: Line) -> str:
    """The characters of a line."""
    return "".join(text for text, _ in drawn)


def width_of(spans: Iterable[Span]) -> int:
    """Cells that spans take."""
    return sum(cell_width(text) for text, _ in spans)


def spread(
    width: int, left: Sequence[Span], right: Sequence[Span], *, fill: str = PLAIN, pad: str = " "
) -> Line:
    """Left spans, filling, right spans; the left gives way where both do not fit."""
    tail = width_of(right)
    if tail > width:
        return line(width, right, fill)
    head = line(width - tail, left) if width_of(left) > width - tail else tuple(left)
    middle = width - tail - width_of(head)
    return line(width, [*head, (pad * middle, fill), *right], fill)


def ranked(width: int, facts: Sequence[tuple[int, Sequence[Span]]], gap: str) -> list[Span]:
    """As many facts as fit, in their order, the ones of highest rank number dropped first."""
    kept = list(facts)
    while kept:
        used = sum(width_of(spans) for _, spans in kept) + len(gap) * (len(kept) - 1)
        if used <= width:
            break
        worst = max(rank for rank, _ in kept)
        last = max(index for index, (rank, _) in enumerate(kept) if rank == worst)
        del kept[last]
    out: list[Span] = []
    for number, (_, spans) in enumerate(kept):
        if number:
            out.append((gap, "faint"))
        out.extend(spans)
    return out


def header(
    width: int,
    title: str,
    facts: Sequence[Span] = (),
    right: Sequence[Span] = (),
    *,
    rule: str = "─",
    focused: bool = False,
) -> Line:
    """Head line of a panel: title, facts, a rule, and column heads or facts at the right."""
    lead: list[Span] = [(" ", PLAIN), (title, "title-focus" if focused else "title"), (" ", PLAIN)]
    if facts:
        lead += [(" ", PLAIN), *facts, (" ", PLAIN)]
    tail: list[Span] = [(" ", PLAIN), *right, (" ", PLAIN)] if right else [(rule, "faint")]
    free = width - width_of(tail)
    if width_of(lead) > free:
        lead = list(line(max(0, free), lead))
    return spread(width, lead, tail, fill="faint", pad=rule)


def wrap(text: str, width: int, most: int = 0) -> list[str]:
    """Break a text into lines of at most `width` cells at spaces; a longer word is cut up, and a
    number keeps its unit. Of more than `most` lines the last is cut."""
    out: list[str] = []
    current = ""
    for word in words(text):
        while cell_width(word) > width:
            room = width
            if current:
                out.append(current)
                current = ""
            head = ""
            for char in word:
                if cell_width(head + char) > room:
                    break
                head += char
            if not head:
                return [*out, fit(word, width)]
            out.append(head)
            word = word[len(head) :]
        joined = f"{current} {word}" if current else word
        if cell_width(joined) <= width:
            current = joined
        else:
            out.append(current)
            current = word
    if current:
        out.append(current)
    if most and len(out) > most:
        out[most - 1 :] = [fit(f"{out[most - 1]} {out[most]}", width)]
    return out
