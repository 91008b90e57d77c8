"""The characters that pictures are drawn with, chosen once for what the terminal can show.

Three sets: braille (two samples and four levels a cell), blocks (one sample, eight levels) and
ASCII. The Linux console's font lacks braille and most eighths of a block, and a terminal whose
encoding is not UTF-8 shows neither.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from bottletop.model import Severity, VerdictState
from bottletop.text import cell_width

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES = ("braille", "blocks", "ascii")


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs and picture elements. Every sign is one cell wide."""

    name: str
    levels: str
    """Fill of one cell from the bottom, empty first."""
    eighths: str
    """Fill of one cell from the left, empty first; the last is a full cell."""
    meter: str
    """Thin bar from the left, empty first; the last is a full cell."""
    track: str
    """The empty part of a meter."""
    samples_a_cell: int
    """2 where a cell holds two samples side by side (braille)."""
    rule: str
    edge: str
    """Left edge of a highlighted band."""
    dot: str
    """Separator between facts on one line."""
    gap: str
    """A stretch of history without data."""
    cycle: tuple[str, str, str, str]
    """One period of a wave: whole in one cell, first, middle and last cell of a wider one."""
    held: str
    """A second in which a clock was held down."""
    pointer: str
    """Points up at what is marked in the row above."""
    cursor: str
    """Points at the selected row."""
    arrow: str
    recording: str
    playing: str
    paused: str
    head: str
    """Where a replay stands on its track."""
    severity: Mapping[Severity, str]
    state: Mapping[VerdictState, str]
    charset: str = ""
    """Encoding whose characters the terminal can show; empty for all of them."""

    def plain(self, text: str) -> str:
        """Text as this terminal can show it, as wide as before."""
        if not self.charset or text.isascii():
            return text
        return "".join(_shown(char, self.charset) for char in text)


_PLAIN = {
    "…": "~",
    "–": "-",
    "—": "-",
    "°": " ",
    "·": "-",
    "×": "x",
    "±": "~",
    "‖": "=",
    "→": ">",
    "←": "<",
    "↑": "^",
    "↓": "v",
}
"""What stands for the signs of our own texts where they cannot be shown."""


@lru_cache(maxsize=4096)
def _shown(char: str, charset: str) -> str:
    try:
        char.encode(charset)
    except UnicodeEncodeError:
        return _PLAIN.get(char, "?" * cell_width(char))
    return char


_SIGNS = {Severity.INFO: "○", Severity.ADVICE: "◆", Severity.WARN: "▲", Severity.CRIT: "✖"}
_STATES = {
    VerdictState.BOTTLENECK: "▲",
    VerdictState.MIXED: "◆",
    VerdictState.CLEAR: "✔",
    VerdictState.NO_DEMAND: "○",
    VerdictState.CANNOT_TELL: "?",
}

BRAILLE = Glyphs(
    name="braille",
    levels=" ▁▂▃▄▅▆▇█",
    eighths=" ▏▎▍▌▋▊▉█",
    meter=" ╸━",
    track="─",
    samples_a_cell=2,
    rule="─",
    edge="▌",
    dot="·",
    gap=" ",
    cycle=("∿", "╰", "─", "╯"),
    held="▼",
    pointer="▲",
    cursor="▸",
    arrow="→",
    recording="●",
    playing="▶",
    paused="‖",
    head="●",
    severity=_SIGNS,
    state=_STATES,
)

BLOCKS = replace(
    BRAILLE,
    name="blocks",
    samples_a_cell=1,
    cycle=("~", "└", "─", "┘"),
    cursor=">",
    playing="►",
)

CONSOLE = Glyphs(
    name="console",
    levels=" _▄█",
    eighths=" ▌█",
    meter=" ═",
    track="─",
    samples_a_cell=1,
    rule="─",
    edge="█",
    dot="·",
    gap=" ",
    cycle=("~", "└", "─", "┘"),
    held="v",
    pointer="^",
    cursor=">",
    arrow=">",
    recording="*",
    playing=">",
    paused="=",
    head="█",
    severity={Severity.INFO: "i", Severity.ADVICE: "+", Severity.WARN: "!", Severity.CRIT: "X"},
    state={
        VerdictState.BOTTLENECK: "!",
        VerdictState.MIXED: "+",
        VerdictState.CLEAR: "=",
        VerdictState.NO_DEMAND: "o",
        VerdictState.CANNOT_TELL: "?",
    },
    charset="cp437",
)
"""The half blocks and lines of code page 437, which every Linux console font has."""

ASCII = Glyphs(
    name="ascii",
    levels=" .:-=+*#",
    eighths=" -=#",
    meter=" =",
    track=".",
    samples_a_cell=1,
    rule="-",
    edge="|",
    dot="-",
    gap=" ",
    cycle=("~", "\\", "_", "/"),
    held="v",
    pointer="^",
    cursor=">",
    arrow=">",
    recording="*",
    playing=">",
    paused="=",
    head="o",
    severity=CONSOLE.severity,
    state=CONSOLE.state,
    charset="ascii",
)


def choose(wanted: str, encoding: str | None, term: str) -> Glyphs:
    """Pick a set: what was asked for, as far as the terminal's encoding and font allow.

    `wanted` is "auto" or one of `NAMES`; `encoding` is that of the stream the screen is written
    to. Raises ValueError on another name.
    """
    if wanted not in ("auto", *NAMES):
        raise ValueError(f"no glyph set named {wanted!r}: one of auto, {', '.join(NAMES)}")
    if wanted == "ascii" or (encoding or "ascii").lower().replace("-", "") != "utf8":
        return ASCII
    if term == "linux":
        return CONSOLE
    return BLOCKS if wanted == "blocks" else BRAILLE
