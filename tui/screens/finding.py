"""The screen that explains one finding, with its evidence plotted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.tui import bindings, curves, explain, plot
from bottletop.tui.lines import Line, line
from bottletop.tui.screens.text import TextScreen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.model import Finding
    from bottletop.snapshot import Snapshot
    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import Reading

BESIDE_WIDTH = 140
"""From here on the plots stand beside the text."""
AIRY = 30
"""Height from which there are blank lines to spare."""
PLOT_ROWS = 12
MIN_PLOT_ROWS = 9


class FindingScreen(TextScreen):
    """Follows one finding; when it has gone from the list, its last state stays and says so."""

    BINDINGS = [bindings.ZOOM]

    def __init__(self, glyphs: Glyphs, finding: Finding, snapshot: Snapshot) -> None:
        super().__init__(glyphs, id="finding")
        self._finding = finding
        self._snapshot = snapshot
        self._gone = False
        self._plots_ready = False
        self._span_s = curves.SPANS_S[0]

    def on_mount(self) -> None:
        # The text appears at once; plots follow, as their library takes 0.1 s to load.
        self.call_after_refresh(self._add_plots)

    def _add_plots(self) -> None:
        self._plots_ready = True
        self.page.redraw()

    def show(self, reading: Reading) -> None:
        snapshot = self.shell.pump.snapshot
        if snapshot is None:
            return
        wanted = (self._finding.code, self._finding.scope)
        found = [item for item in reading.findings if (item.code, item.scope) == wanted]
        self._gone = not found
        if found:
            self._finding, self._snapshot = found[0], snapshot
        self.page.redraw()

    def action_zoom(self) -> None:
        """Go to the next length of the plots."""
        at = curves.SPANS_S.index(self._span_s)
        self._span_s = curves.SPANS_S[(at + 1) % len(curves.SPANS_S)]
        self.page.redraw()

    def content(self, width: int, height: int) -> Sequence[Line]:
        finding, snapshot, glyphs = self._finding, self._snapshot, self.glyphs
        top = [line(width, ()), *explain.head(finding, snapshot, width, glyphs)]
        if self._gone:
            top.append(line(width, [("   no longer reported: this is how it was", "warn")]))
        if width >= BESIDE_WIDTH:
            return [*top, *self._beside(width, height - len(top))]
        airy = height >= AIRY
        text = explain.body(finding, snapshot, width, glyphs, airy=airy)
        rule = explain.about_rule(finding.code, width, glyphs)
        return [*top, *text, *self._plots(width, PLOT_ROWS if airy else MIN_PLOT_ROWS), *rule]

    def _beside(self, width: int, height: int) -> list[Line]:
        left_width = width * 11 // 20
        right_width = width - left_width
        finding, glyphs = self._finding, self.glyphs
        left = explain.body(finding, self._snapshot, left_width, glyphs, airy=True)
        left += explain.about_rule(finding.code, left_width, glyphs)
        shown = max(1, min(curves.MOST, height // MIN_PLOT_ROWS))
        count = max(1, len(self._curves()[:shown]))
        right = [
            line(right_width, ()),
            *self._plots(right_width, max(MIN_PLOT_ROWS, (height - 1) // count)),
        ]
        rows = max(len(left), len(right))
        left += [line(left_width, ())] * (rows - len(left))
        right += [line(right_width, ())] * (rows - len(right))
        return [line(width, [*a, *b]) for a, b in zip(left, right, strict=True)]

    def _curves(self) -> list[plot.Curve]:
        return curves.of_finding(self._finding, self._snapshot, self._span_s)

    def _plots(self, width: int, rows: int) -> list[Line]:
        out: list[Line] = []
        for curve in self._curves():
            if self._plots_ready:
                out += plot.draw(curve, width, rows - 1, self.glyphs)
            else:
                out += [line(width, ())] * (rows - 1)
            out.append(line(width, ()))
        return out
