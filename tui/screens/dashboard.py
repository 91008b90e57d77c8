"""The overview: verdict first, then what it rests on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from textual.screen import Screen

from bottletop.tables import GpuProcess
from bottletop.text import cell_width
from bottletop.tui import bindings
from bottletop.tui.compat import Board
from bottletop.tui.layout import MIN_HEIGHT, MIN_WIDTH, Box, Content, plan, too_small
from bottletop.tui.lines import Line, line
from bottletop.tui.widgets.cores import CorePanel
from bottletop.tui.widgets.disks import DiskPanel
from bottletop.tui.widgets.findings import FindingPanel, reasons
from bottletop.tui.widgets.gpus import GpuPanel
from bottletop.tui.widgets.host import HostPanel
from bottletop.tui.widgets.keys import KeyBar
from bottletop.tui.widgets.log import LogPanel, Tail
from bottletop.tui.widgets.panel import Canvas, Panel
from bottletop.tui.widgets.stages import StagePanel
from bottletop.tui.widgets.threads import ThreadPanel
from bottletop.tui.widgets.transport import TransportPanel
from bottletop.tui.widgets.verdict import VerdictPanel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult
    from textual.events import Click, Resize

    from bottletop.model import Finding, Table
    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import Reading
    from bottletop.tui.shell import BottletopApp

LOOKED_AT: dict[str, frozenset[type[Table]]] = {"gpus": frozenset({GpuProcess})}
"""What a panel that has the whole body shows besides, and is worth reading more often for it."""
SPANS_S = (60.0, 30.0, 300.0, 3600.0)
"""Lengths of the GPU histories, in the order in which z goes through them."""


class TooSmall(Canvas):
    """What is said where nothing useful fits."""

    def lines(self, width: int, height: int) -> Sequence[Line]:
        rows = [
            f"bottletop needs {MIN_WIDTH}x{MIN_HEIGHT}",
            f"this window has {width}x{height}",
        ]
        top = max(0, (height - len(rows)) // 2)
        return [line(width, ())] * top + [line(width, [(row.center(width), "dim")]) for row in rows]


class Overview(Screen[None]):
    """Panels on a board; a plan says which of them are there and where."""

    BINDINGS = [*bindings.OVERVIEW]

    def __init__(self, glyphs: Glyphs, mode: str, log_path: str | None) -> None:
        super().__init__(id="overview")
        self._glyphs = glyphs
        self._mode = mode
        self._tail = Tail(log_path) if log_path else None
        self._solo = ""
        self._log_shown = log_path is not None
        self._content = Content()
        self.findings = FindingPanel(glyphs, id="findings")
        self.host = HostPanel(glyphs, id="host")
        self.gpus = GpuPanel(glyphs, id="gpus")
        self.stages = StagePanel(glyphs, id="stages")
        self.keys = KeyBar(glyphs, ())
        self.log_panel = LogPanel(glyphs, self._tail) if self._tail else None
        self._panels: tuple[Panel, ...] = (
            self.host,
            VerdictPanel(glyphs, id="verdict"),
            self.gpus,
            self.stages,
            CorePanel(glyphs, id="cores"),
            DiskPanel(glyphs, id="disks"),
            ThreadPanel(glyphs, id="threads"),
            self.findings,
            TransportPanel(glyphs, id="transport"),
        )
        extra = [self.log_panel] if self.log_panel else []
        self._small = TooSmall(glyphs, id="small")
        self._board = Board(*self._panels, *extra, self.keys, self._small, id="board")

    @property
    def shell(self) -> BottletopApp:
        """The app, by its own type."""
        return self.app  # type: ignore[return-value]

    def compose(self) -> ComposeResult:
        yield self._board

    # -- what is shown ----------------------------------------------------------------------

    def show(self, reading: Reading) -> None:
        """Hand a reading to every panel that has a place."""
        self._content = Content(
            gpus=len(reading.gpus),
            gpu_trouble=cell_width(reading.gpu_trouble),
            cores=len(reading.cores),
            disks=len(reading.disks),
            stages=len(reading.stages.rows),
            stage_trouble=cell_width(reading.stages.trouble),
            servers=len(reading.stages.servers),
            outside=len(reading.stages.outside),
            findings=len(reading.findings) + len(reasons(reading.unknown)),
            target=reading.target is not None,
            replay=reading.playback is not None,
        )
        self._place()
        for panel in self._panels:
            panel.show(reading)

    def tell_age(self, paused_s: float | None, silent_s: float | None) -> None:
        """Say how old the picture is, where it is not of now."""
        if (paused_s, silent_s) != (self.host.paused_s, self.host.silent_s):
            self.host.paused_s, self.host.silent_s = paused_s, silent_s
            self.host.redraw()

    def follow_log(self) -> None:
        """Show new output of the command, when its pane is open."""
        if self.log_panel is not None and self._log_shown:
            self.log_panel.follow()

    def on_resize(self, event: Resize) -> None:
        del event
        self._place()

    def on_screen_resume(self) -> None:
        self.shell.pump.look_at(LOOKED_AT.get(self._solo, frozenset()))
        reading = self.shell.pump.reading
        if reading is not None:
            self.show(reading)

    def _place(self) -> None:
        width, height = self.size
        placed = replace(
            self._content,
            log=self._log_shown and self.log_panel is not None,
            solo=self._solo,
        )
        self.stages.alone = self._solo == self.stages.id
        boxes = plan(width, height, placed)
        if too_small(width, height):
            boxes = {"small": Box(0, 0, width, height)}
        self.keys.set_hints(
            bindings.hints(self._mode, log=self.log_panel is not None, solo=bool(self._solo))
        )
        self._board.place(boxes)

    # -- what people do ---------------------------------------------------------------------

    def action_cursor(self, step: int) -> None:
        self.findings.move(step)

    def action_explain(self) -> None:
        finding = self.findings.selected()
        if finding is None:
            self.shell.say("no findings to explain")
        else:
            self.shell.explain(finding)

    def on_finding_panel_opened(self, message: FindingPanel.Opened) -> None:
        self.shell.explain(message.finding)

    def on_click(self, event: Click) -> None:
        """A click on a marked GPU opens its worst finding, on another what is known of it."""
        if event.widget is not self.gpus:
            return
        gpu = self.gpus.gpu_at(event.y)
        finding = self._finding_of(gpu.key) if gpu is not None else None
        if finding is not None:
            self.shell.explain(finding)
        elif gpu is not None:
            self.shell.open_gpu(gpu)

    def action_gpu(self) -> None:
        """Open the GPU that is most worth a look."""
        from bottletop.tui.screens.gpu import first_gpu

        reading = self.shell.pump.reading
        gpu = first_gpu(reading.gpus) if reading is not None else None
        if gpu is None:
            self.shell.say("no GPU to show")
        else:
            self.shell.open_gpu(gpu)

    def _finding_of(self, key: str) -> Finding | None:
        reading = self.shell.pump.reading
        for finding in reading.findings if reading else ():
            if finding.active and finding.scope == key:
                return finding
        return None

    def action_solo(self, panel: str) -> None:
        """Give one panel the whole body; the same key again brings the overview back."""
        self._solo = "" if panel == self._solo else panel
        self.shell.pump.look_at(LOOKED_AT.get(self._solo, frozenset()))
        self._place()

    def action_zoom(self) -> None:
        """Go to the next length of the GPU histories."""
        if self.shell.pump.frozen:
            self.shell.say("paused: p lets the picture go on")
            return
        reader = self.shell.pump.reader
        at = SPANS_S.index(reader.history_s) if reader.history_s in SPANS_S else 0
        reader.history_s = SPANS_S[(at + 1) % len(SPANS_S)]
        reading = self.shell.pump.reread()
        if reading is not None:
            self.show(reading)

    def toggle_log(self) -> bool:
        """Show or hide the output pane. Returns False where there is none."""
        if self.log_panel is None:
            return False
        self._log_shown = not self._log_shown
        self._place()
        self.log_panel.follow()
        self.log_panel.redraw()
        return True
