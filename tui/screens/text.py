"""A screen of lines that scrolls: the base of the screens that explain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.screen import Screen

from bottletop.tui import bindings
from bottletop.tui.lines import Line, spread
from bottletop.tui.widgets.keys import KeyBar
from bottletop.tui.widgets.panel import Canvas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.app import ComposeResult
    from textual.events import MouseScrollDown, MouseScrollUp

    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import Reading
    from bottletop.tui.shell import BottletopApp


class Page(Canvas):
    """Lines longer than the screen, with a place in them."""

    def __init__(
        self,
        glyphs: Glyphs,
        content: Callable[[int, int], Sequence[Line]],
        *,
        id: str,  # noqa: A002
    ) -> None:
        super().__init__(glyphs, id=id)
        self._content = content
        self._top = 0

    def lines(self, width: int, height: int) -> Sequence[Line]:
        content = self._content(width, height)
        hidden = max(0, len(content) - height)
        self._top = min(self._top, hidden)
        shown = list(content[self._top : self._top + height])
        if hidden and self._top < hidden and shown:
            # The last line gives way to a sign that there is more.
            more = f"{hidden - self._top + 1} more lines below "
            shown[-1] = spread(width, [], [(more, "dim")])
        return shown

    def scroll_by(self, rows: int) -> None:
        """Move by lines, within the content."""
        self._top = max(0, self._top + rows)
        self.redraw()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self.scroll_by(3)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self.scroll_by(-3)


class TextScreen(Screen[None]):
    """One page over the keys. Subclasses implement `content`."""

    BINDINGS = [bindings.BACK, *bindings.SCROLL]

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.glyphs = glyphs
        self.page = Page(glyphs, self.content, id="page")
        self.keys = KeyBar(glyphs, bindings.DETAIL_HINTS)

    @property
    def shell(self) -> BottletopApp:
        """The app, by its own type."""
        return self.app  # type: ignore[return-value]

    def compose(self) -> ComposeResult:
        yield self.page
        yield self.keys

    def content(self, width: int, height: int) -> Sequence[Line]:
        """All lines, however many; `height` is what is seen of them at once."""
        raise NotImplementedError

    def show(self, reading: Reading) -> None:
        """A new reading arrived; pages that do not depend on it ignore it."""

    def action_scroll(self, rows: int) -> None:
        self.page.scroll_by(rows)

    def action_page(self, pages: int) -> None:
        self.page.scroll_by(pages * max(1, self.page.size.height - 2))

    async def action_dismiss(self, result: None = None) -> None:
        del result
        self.dismiss()
