"""Every use of something that Textual does not promise to keep, and only here.

Checked against Textual 8.2; what each relies on is said where it is used.
"""

from __future__ import annotations

import contextlib
import os
import sys
import termios
from typing import TYPE_CHECKING

from textual._ansi_sequences import SYNC_END, SYNC_START
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import ANSIToTruecolor
from textual.geometry import Offset, Region, Spacing
from textual.layout import Layout, WidgetPlacement
from textual.widget import Widget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.app import App
    from textual.driver import Driver
    from textual.filter import LineFilter
    from textual.geometry import Size
    from textual.screen import Screen
    from textual.strip import Strip

    from bottletop.tui.layout import Box

RESTORE = (
    "\x1b[?2026l"  # end of synchronised output
    "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"  # mouse
    "\x1b[?2004l\x1b[?1004l\x1b[?2048l"  # paste, focus, resize reports
    "\x1b[<u"  # keyboard protocol
    "\x1b[?7h\x1b[?1049l\x1b[?25h\x1b[0m"  # wrap, main screen, cursor, colours
)
"""Undoes everything that Textual's Linux driver switches on."""


class FrameDriver(LinuxDriver):
    """Hands each synchronised frame over in one piece.

    Textual queues the begin, the content and the end of a frame one by one, and each wakes the
    thread that writes to the terminal: thrice the switches between threads, once a frame needed.
    """

    _frame: list[str] | None = None

    def write(self, data: str) -> None:
        if self._frame is not None:
            self._frame.append(data)
            if data != SYNC_END:
                return
            data, self._frame = "".join(self._frame), None
        elif data == SYNC_START:
            self._frame = [data]
            return
        super().write(data)


def whole_frames(chosen: type[Driver]) -> type[Driver]:
    """The driver to use in place of the one that Textual chose."""
    return FrameDriver if chosen is LinuxDriver else chosen


class PlanLayout(Layout):
    """Places children where a plan says; children that the plan leaves out are not shown."""

    name = "plan"

    def __init__(self) -> None:
        self.plan: Mapping[str, Box] = {}

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> list[WidgetPlacement]:
        del parent, greedy, size
        placements = []
        for child in children:
            box = self.plan.get(child.id or "")
            if box is not None:
                region = Region(box.x, box.y, box.width, box.height)
                placements.append(WidgetPlacement(region, Offset(), Spacing(), child))
        return placements


class Board(Widget):
    """A container whose children are placed by a plan instead of by CSS.

    Overrides `Widget.layout`, which CSS can only set to one of the layouts known by name.
    """

    DEFAULT_CSS = "Board { width: 100%; height: 100%; }"
    BLANK = True

    def __init__(self, *children: Widget, id: str | None = None) -> None:  # noqa: A002
        self._plan_layout = PlanLayout()
        super().__init__(*children, id=id)

    @property
    def layout(self) -> Layout:
        return self._plan_layout

    def place(self, plan: Mapping[str, Box]) -> None:
        """Lay the children out anew where the plan differs from the one in force."""
        if plan != self._plan_layout.plan:
            self._plan_layout.plan = plan
            # A refresh drops the arrangements kept by the ancestors, not our own.
            self._clear_arrangement_cache()
            self.refresh(layout=True)


class BareWidget(Widget):
    """A widget without borders, padding or opacity, painted straight from `render_line`.

    Overrides `Widget.render_lines`, which sends every line through the box model: measured at half
    the cost of a frame, and here there is no box. Line filters (NO_COLOR) are applied by whoever
    makes the strips, once a strip.
    """

    def render_lines(self, crop: Region) -> list[Strip]:
        strips = [self.render_line(y) for y in crop.line_range]
        x1, x2 = crop.column_span
        if (x1, x2) != (0, self.size.width):
            strips = [strip.crop(x1, x2) for strip in strips]
        return strips

    def strip_filters(self) -> list[LineFilter]:
        """Filters that our strips need: they never carry the ANSI colours that one converts."""
        filters = self.app.get_line_filters()
        return [each for each in filters if not isinstance(each, ANSIToTruecolor)]


def screen_strips(screen: Screen[object]) -> list[Strip]:
    """The screen as it would be painted, line by line."""
    return screen._compositor.render_strips()


def screen_text(app: App[object]) -> str:
    """The characters on the screen, trailing blanks left out."""
    return "\n".join(strip.text.rstrip() for strip in screen_strips(app.screen)) + "\n"


def is_painted(app: App[object]) -> bool:
    """Whether nothing waits to be laid out or repainted: what tests and pictures wait for."""
    screen = app.screen
    return not (screen._layout_required or screen._repaint_required or screen._dirty_widgets)


def restore_terminal(attributes: list[object] | None) -> None:
    """Put the terminal back in order without the driver, for when it is stuck.

    Never blocks: what a stalled terminal does not take is dropped.
    """
    with contextlib.suppress(OSError, termios.error, ValueError):
        fd = sys.__stderr__.fileno() if sys.__stderr__ else 2
        os.set_blocking(fd, False)
        os.write(fd, RESTORE.encode())
        if attributes is not None:
            termios.tcsetattr(0, termios.TCSANOW, attributes)  # type: ignore[arg-type]


def terminal_attributes() -> list[object] | None:
    """Line settings of the terminal as they are now, None where there are none."""
    try:
        return list(termios.tcgetattr(0))
    except (OSError, termios.error):
        return None
