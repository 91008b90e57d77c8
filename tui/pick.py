"""The process picker on its own: when a name on the command line fits several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App

from bottletop.model import ProcessId
from bottletop.tui import bindings, themes
from bottletop.tui.screens.picker import PickerScreen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.attach import Candidate
    from bottletop.tui.glyphs import Glyphs


class PickApp(App[ProcessId]):
    """Returns the picked process, or None."""

    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [
        bindings.key("ctrl+c", "quit", "Quit", "Pick none.", id="app.interrupt", priority=True)
    ]

    def __init__(self, candidates: Sequence[Candidate], *, glyphs: Glyphs, theme: str) -> None:
        super().__init__(ansi_color=True if theme == themes.ANSI.name else None)
        for known in themes.THEMES:
            self.register_theme(known)
        self.theme = theme
        self._candidates = candidates
        self._glyphs = glyphs

    def on_mount(self) -> None:
        self.push_screen(PickerScreen(self._glyphs, lambda: self._candidates), self._picked)

    def _picked(self, candidate: Candidate | None) -> None:
        self.exit(candidate.id if candidate is not None else None)
