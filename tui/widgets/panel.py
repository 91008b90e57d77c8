"""The base of everything that is drawn: lines in, strips out, only changed lines repainted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip

from bottletop.tui.compat import BareWidget
from bottletop.tui.inks import Inks
from bottletop.tui.lines import Line, line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import Reading


class Canvas(BareWidget):
    """Lines in, strips out. Subclasses implement `lines` and call `redraw` when they may differ.

    Measured reason: one widget of strips costs a third of the same lines as Content, and a line
    that did not change costs nothing at all.
    """

    ALLOW_SELECT = False
    can_focus = False

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self.glyphs = glyphs
        self.auto_links = False
        self._drawn: list[Line] = []
        self._strips: list[Strip | None] = []
        self._inks: Inks | None = None

    def lines(self, width: int, height: int) -> Sequence[Line] | None:
        """Draw into at most `height` lines of exactly `width` cells; None: nothing to show yet."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw again and repaint the lines that differ."""
        width, height = self.size
        if width <= 0 or height <= 0:
            return
        lines = self.lines(width, height)
        if lines is None:
            return
        blank = line(width, ())
        drawn = [*lines[:height], *([blank] * (height - len(lines)))]
        if len(drawn) != len(self._drawn):
            self._drawn, self._strips = drawn, [None] * len(drawn)
            self.refresh()
            return
        dirty = [
            y for y, (old, new) in enumerate(zip(self._drawn, drawn, strict=True)) if old != new
        ]
        self._drawn = drawn
        for y in dirty:
            self._strips[y] = None
        if dirty:
            self.refresh(*(Region(0, y, width, 1) for y in dirty))

    def on_resize(self) -> None:
        self._drawn = []
        self.redraw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._inks = None
        self._strips = [None] * len(self._drawn)

    @property
    def inks(self) -> Inks:
        """Inks on this widget's own ground."""
        if self._inks is None:
            app = self.app
            self._inks = Inks(
                self.visual_style.rich_style, app.theme_variables, ansi=app.native_ansi_color
            )
        return self._inks

    def render_line(self, y: int) -> Strip:
        if y >= len(self._drawn):
            return Strip.blank(self.size.width, self.inks["text"])
        strip = self._strips[y]
        if strip is None:
            strip = self._strips[y] = self._strip(self._drawn[y])
        return strip

    def _strip(self, drawn: Line) -> Strip:
        inks = self.inks
        plain = self.glyphs.plain
        segments = [Segment(plain(text), inks[ink]) for text, ink in drawn]
        strip = Strip(segments, self.size.width)
        for each in self.strip_filters():
            strip = strip.apply_filter(each, self.background_colors[1])
        return strip


class Panel(Canvas):
    """A canvas that draws a reading."""

    reading: Reading | None = None

    def draw(self, reading: Reading, width: int, height: int) -> Sequence[Line]:
        """Draw `reading` into at most `height` lines of exactly `width` cells."""
        raise NotImplementedError

    def show(self, reading: Reading) -> None:
        """Take in a new reading and repaint what differs."""
        self.reading = reading
        self.redraw()

    def lines(self, width: int, height: int) -> Sequence[Line] | None:
        return None if self.reading is None else self.draw(self.reading, width, height)
