"""The last line: the keys that matter here, each also a thing to click."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bottletop.tui.lines import Line, Span, line, ranked
from bottletop.tui.widgets.panel import Canvas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.events import Click

    from bottletop.tui.glyphs import Glyphs

GAP = "  "


class Hint(NamedTuple):
    """A key as it is shown. Hints of high rank give way first where it is narrow."""

    key: str
    label: str
    action: str
    rank: int = 5


class KeyBar(Canvas):
    """One line of hints. Messages take its place for a while."""

    def __init__(self, glyphs: Glyphs, hints: Sequence[Hint], *, id: str = "keys") -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self._hints = tuple(hints)
        self._said: tuple[str, str] | None = None

    def set_hints(self, hints: Sequence[Hint]) -> None:
        """Show other keys."""
        if tuple(hints) != self._hints:
            self._hints = tuple(hints)
            self.redraw()

    def say(self, text: str, ink: str = "text") -> None:
        """Show a message in place of the keys until `hush`."""
        self._said = (text, ink)
        self.redraw()

    def hush(self) -> None:
        """Show the keys again."""
        self._said = None
        self.redraw()

    def lines(self, width: int, height: int) -> Sequence[Line]:
        del height
        if self._said is not None:
            return [line(width, [(" ", "text"), self._said])]
        return [line(width, [(" ", "text"), *ranked(width - 2, _facts(self._hints), GAP)])]

    async def on_click(self, event: Click) -> None:
        x = 1
        for hint in self._shown():
            size = len(hint.key) + 1 + len(hint.label)
            if x <= event.x < x + size:
                await self.run_action(hint.action)
                return
            x += size + len(GAP)

    def _shown(self) -> list[Hint]:
        text = "".join(text for text, _ in ranked(self.size.width - 2, _facts(self._hints), GAP))
        return [hint for hint in self._hints if f"{hint.key} {hint.label}" in text]


def _facts(hints: Sequence[Hint]) -> list[tuple[int, Sequence[Span]]]:
    return [(hint.rank, [(hint.key, "key"), (f" {hint.label}", "dim")]) for hint in hints]
