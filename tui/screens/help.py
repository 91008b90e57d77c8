"""Keys, signs and words, for the mode that one is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.model import Severity
from bottletop.tui import bindings
from bottletop.tui.inks import SEVERITY_INKS
from bottletop.tui.lines import Line, Span, header, line, wrap
from bottletop.tui.screens.text import TextScreen
from bottletop.tui.widgets.stages import BADGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import Binding

    from bottletop.tui.glyphs import Glyphs

KEY_WIDTH = 18
_NAMES = {
    "question_mark": "?",
    "right_square_bracket": "]",
    "left_square_bracket": "[",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "ctrl+c": "Ctrl-C",
    "ctrl+z": "Ctrl-Z",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
    "enter": "Enter",
    "space": "Space",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "shift+left": "Shift ←",
    "shift+right": "Shift →",
    "home": "Home",
    "end": "End",
}
_SEVERITIES = {
    Severity.INFO: "explains something; nothing to do",
    Severity.ADVICE: "a cheap win, or a pattern that belongs to a cause",
    Severity.WARN: "measurable loss",
    Severity.CRIT: "large loss, errors, or a risk to the hardware",
}
_WORDS = (
    (
        "util %",
        "share of time in which any kernel ran: busy, not efficient. A copy is not a kernel.",
    ),
    (
        "share",
        "a stage's part of one cycle, from one call of the outermost stage to the next; of a "
        "server, of its requests. What no stage accounts for is outside of all stages.",
    ),
    ("src", "where a stage's numbers come from:"),
    *((f"  {short}", f"{meaning}.") for short, meaning in BADGES.items()),
    ("waits %", "share of time a thread was ready to run but had no CPU."),
    ("await", "mean time of a request in the queue and the device."),
    ("– n/a", "not read (yet); the source does not have it. denied, lost, stale, error say why."),
    ("loss", "GPU-seconds a second in which the GPU could have worked; shares are of it."),
)


class HelpScreen(TextScreen):
    """One page, generated from the bindings so that it cannot lag behind them."""

    def __init__(self, glyphs: Glyphs, mode: str) -> None:
        super().__init__(glyphs, id="help")
        self._mode = mode
        self.keys.set_hints(bindings.PAGE_HINTS)

    def content(self, width: int, height: int) -> Sequence[Line]:
        del height
        blank = line(width, ())
        lines = [blank, header(width, "Keys", rule=self.glyphs.rule)]
        for binding in (*bindings.OVERVIEW, *bindings.APP):
            if binding.id == "app.interrupt" or not _applies(binding, self._mode):
                continue
            lines.append(_row(_keys(binding.key), binding.tooltip, width))
        lines += [blank, header(width, "Signs", rule=self.glyphs.rule), *self._signs(width)]
        lines += [blank, header(width, "Words", rule=self.glyphs.rule)]
        for word, meaning in _WORDS:
            lines += _meaning(word, meaning, width)
        return lines

    def _signs(self, width: int) -> list[Line]:
        glyphs = self.glyphs
        out = []
        for severity in sorted(Severity, reverse=True):
            sign = (glyphs.severity[severity], SEVERITY_INKS[severity])
            out.append(_signed([sign], f"{severity.label}: {_SEVERITIES[severity]}", width))
        _, begin, middle, end = glyphs.cycle
        wave = [(begin + middle + end, "advice")]
        out.append(_signed(wave, "one cycle of a GPU that swings between busy and idle", width))
        held = [(glyphs.held, "crit")]
        out.append(_signed(held, "a second in which heat or power held the clock down", width))
        silent = [(glyphs.severity[Severity.WARN], "warn")]
        out.append(_signed(silent, "before a server: it does not answer, and why", width))
        pointer = [(glyphs.pointer, "warn")]
        out.append(_signed(pointer, "the core above is part of a finding", width))
        return out


def _applies(binding: Binding, mode: str) -> bool:
    action = binding.action.partition("(")[0]
    if mode == bindings.REPLAY:
        return action not in bindings.LIVE_ACTIONS
    return action not in bindings.REPLAY_ACTIONS and action != "space"


def _keys(keys: str) -> str:
    return " ".join(_NAMES.get(key, key) for key in keys.split(","))


def _row(keys: str, text: str, width: int) -> Line:
    return line(width, [("   ", "text"), (f"{keys:<{KEY_WIDTH}}", "key"), (text, "text")])


def _signed(sign: list[Span], text: str, width: int) -> Line:
    size = sum(len(part) for part, _ in sign)
    return line(width, [("   ", "text"), *sign, (" " * (KEY_WIDTH - size), "text"), (text, "text")])


def _meaning(word: str, meaning: str, width: int) -> list[Line]:
    rows = wrap(meaning, max(20, width - KEY_WIDTH - 5))
    lead = word
    out = []
    for row in rows:
        out.append(
            line(width, [("   ", "text"), (f"{lead:<{KEY_WIDTH}}", "strong"), (row, "text")])
        )
        lead = ""
    return out
