"""Pick a process: busiest first, filtered as one types."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input

from bottletop.text import fit
from bottletop.tui import bindings
from bottletop.tui.lines import Line, Span, header, line
from bottletop.tui.widgets.keys import Hint, KeyBar
from bottletop.tui.widgets.panel import Canvas
from bottletop.units import MISSING, age_text, seconds_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult
    from textual.events import Click

    from bottletop.attach import Candidate
    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import Reading

HINTS = (
    Hint("Enter", "attach", "screen.choose", 0),
    Hint("↑ ↓", "select", "screen.move(1)", 1),
    Hint("Esc", "back", "screen.leave", 0),
    Hint("", "type to filter by name, command, user or pid", "screen.move(0)", 3),
)
COLUMNS = (("pid", 8), ("CPU time", 11), ("age", 9), ("threads", 8))
BRIEF_COLUMNS = COLUMNS[:2]
"""Where there is no room for more: the command tells processes apart, not their age."""
COLUMNS_FROM = 76
USER_WIDTH = 10
NAME_WIDTH = 18
NAMES_FROM = 100
"""Width from which the name, which the command begins with, has a column of its own."""


class Candidates(Canvas):
    """The list. The cursor follows the process, not the row."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="candidates")
        self.everything: Sequence[Candidate] = ()
        self.shown: list[Candidate] = []
        self.note = "looking for processes"
        self._filter = ""
        self._chosen: int | None = None

    def offer(self, candidates: Sequence[Candidate]) -> None:
        """Take in the processes that one may pick."""
        self.everything = candidates
        self.note = "" if candidates else "no process that could be attached to"
        self.narrow(self._filter)

    def narrow(self, text: str) -> None:
        """Keep those that every word of `text` is found in."""
        self._filter = text
        words = text.casefold().split()
        self.shown = [item for item in self.everything if _matches(item, words)]
        if not self.shown and self.everything:
            self.note = "nothing matches"
        self.redraw()

    @property
    def chosen(self) -> Candidate | None:
        """The process under the cursor."""
        for item in self.shown:
            if item.pid == self._chosen:
                return item
        return self.shown[0] if self.shown else None

    def move(self, step: int) -> None:
        """Move the cursor."""
        current = self.chosen
        if current is not None:
            at = min(max(self.shown.index(current) + step, 0), len(self.shown) - 1)
            self._chosen = self.shown[at].pid
            self.redraw()

    def lines(self, width: int, height: int) -> Sequence[Line]:
        heads = "".join(f"{name:>{size}}" for name, size in _columns(width))
        count = f"{len(self.shown)} of {len(self.everything)}" if self.everything else ""
        name = fit("name", NAME_WIDTH) + " " if width >= NAMES_FROM else ""
        lead = f"   {fit('user', USER_WIDTH)} {name}command"
        out = [
            header(width, "Processes", [(count, "dim")], rule=self.glyphs.rule),
            line(width, [(f"{heads}{lead}", "dim")]),
        ]
        if not self.shown:
            return [*out, line(width, [(f"   {self.note}", "dim")])]
        room = height - len(out)
        current = self.chosen
        at = self.shown.index(current) if current else 0
        first = max(0, min(at - room + 1, len(self.shown) - room))
        return out + [
            _row(item, width, self.glyphs, selected=item is current)
            for item in self.shown[first : first + room]
        ]

    def on_click(self, event: Click) -> None:
        room = self.size.height - 2
        current = self.chosen
        at = self.shown.index(current) if current else 0
        first = max(0, min(at - room + 1, len(self.shown) - room))
        row = first + event.y - 2
        if event.y >= 2 and row < len(self.shown):
            self._chosen = self.shown[row].pid
            self.redraw()


def _matches(item: Candidate, words: Sequence[str]) -> bool:
    haystack = f"{item.pid} {item.name} {item.command} {item.user}".casefold()
    return all(word in haystack for word in words)


def _columns(width: int) -> tuple[tuple[str, int], ...]:
    return COLUMNS if width >= COLUMNS_FROM else BRIEF_COLUMNS


def _row(item: Candidate, width: int, glyphs: Glyphs, *, selected: bool) -> Line:
    named: list[Span] = [(item.command, "text")]
    if width >= NAMES_FROM:
        named = [(fit(item.name, NAME_WIDTH), "strong"), (f" {item.command}", "dim")]
    age = MISSING if item.age_s is None else age_text(item.age_s)
    values = {
        "pid": (f"{item.pid}", "text"),
        "CPU time": (seconds_text(item.cpu_s), "text"),
        "age": (age, "dim"),
        "threads": (f"{item.threads}", "dim"),
    }
    # The cursor takes the first cell of the first column.
    cells = [(f"{values[name][0]:>{size}}", values[name][1]) for name, size in _columns(width)]
    spans: list[Span] = [
        (glyphs.cursor if selected else " ", "strong"),
        (cells[0][0][1:], cells[0][1]),
        *cells[1:],
        (f"   {fit(item.user, USER_WIDTH)} ", "dim"),
        *named,
    ]
    if selected:
        spans = [(text, f"on-cursor {ink}") for text, ink in spans]
    return line(width, spans, "on-cursor text" if selected else "text")


class PickerScreen(Screen["Candidate | None"]):
    """Dismisses with the picked process, or None."""

    BINDINGS = [
        bindings.key("escape", "leave", "Back", "Pick none.", id="picker.back"),
        bindings.key("up", "move(-1)", "Up", "One up.", id="picker.up", priority=True),
        bindings.key("down", "move(1)", "Down", "One down.", id="picker.down", priority=True),
        bindings.key("pageup", "move(-15)", "Page up", "Up.", id="picker.page-up", priority=True),
        bindings.key(
            "pagedown", "move(15)", "Page down", "Down.", id="picker.page-down", priority=True
        ),
    ]

    class Found(Message):
        """The processes of the host, read off the screen's loop."""

        def __init__(self, candidates: Sequence[Candidate]) -> None:
            super().__init__()
            self.candidates = candidates

    def __init__(self, glyphs: Glyphs, find: Callable[[], Sequence[Candidate]]) -> None:
        super().__init__(id="picker")
        self._find = find
        self.candidates = Candidates(glyphs)
        self._input = Input(placeholder="filter", compact=True, id="filter")
        self._keys = KeyBar(glyphs, HINTS)

    def compose(self) -> ComposeResult:
        yield self._input
        yield self.candidates
        yield self._keys

    def on_mount(self) -> None:
        self._input.focus()
        # A daemon thread of our own: reading another process can hang, and quitting must not wait.
        threading.Thread(target=self._look, name="bottletop-picker", daemon=True).start()

    def _look(self) -> None:
        self.post_message(self.Found(self._find()))

    def on_picker_screen_found(self, message: Found) -> None:
        self.candidates.offer(message.candidates)

    def show(self, reading: Reading) -> None:
        """Readings do not change the list."""

    def on_input_changed(self, event: Input.Changed) -> None:
        self.candidates.narrow(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_choose()

    def action_move(self, step: int) -> None:
        self.candidates.move(step)

    def action_choose(self) -> None:
        if self.candidates.chosen is not None:
            self.dismiss(self.candidates.chosen)

    def action_leave(self) -> None:
        self.dismiss(None)
