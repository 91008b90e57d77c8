"""The screen of one GPU: its histories, then everything that is known of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bottletop.tables import GpuProcess
from bottletop.tui import bindings, gpu_facts
from bottletop.tui.layout import MOST_ROWS_A_GPU, SIGNAL_ROWS, SIGNALS
from bottletop.tui.lines import Line, line
from bottletop.tui.read_gpu import GpuPicture, read_gpus
from bottletop.tui.screens.text import TextScreen
from bottletop.tui.widgets import gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.model import Table
    from bottletop.snapshot import Snapshot
    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import Reading

LOOKED_AT: frozenset[type[Table]] = frozenset({GpuProcess})
"""What is worth reading more often while this screen is open."""
TALL = 40
"""Height from which all histories stand above the facts."""


class GpuScreen(TextScreen):
    """Follows one GPU; another is a key away. Nothing of it is read while it is not open."""

    BINDINGS = [bindings.NEXT_GPU, bindings.PREVIOUS_GPU, bindings.ZOOM]

    def __init__(self, glyphs: Glyphs, key: str, reading: Reading, snapshot: Snapshot) -> None:
        super().__init__(glyphs, id="gpu")
        self.keys.set_hints(bindings.GPU_HINTS)
        self.key = key
        self._reading = reading
        self._snapshot = snapshot
        self._drawn: tuple[int, int, Sequence[Line]] | None = None
        """Width, height and lines: scrolling, and a paused picture, show what was read once."""

    def on_mount(self) -> None:
        self.shell.pump.look_at(LOOKED_AT)

    def show(self, reading: Reading) -> None:
        snapshot = self.shell.pump.snapshot
        if snapshot is None:
            return
        self._reading, self._snapshot = reading, snapshot
        self._forget()

    def _forget(self) -> None:
        self._drawn = None
        self.page.redraw()

    def action_other_gpu(self, step: int) -> None:
        """Go to the next or previous GPU in the driver's order."""
        order = [gpu.key for gpu in self._reading.gpus]
        if order:
            at = order.index(self.key) if self.key in order else -step
            self.key = order[(at + step) % len(order)]
            self._forget()

    def action_zoom(self) -> None:
        """Go to the next length of the histories."""
        self.shell.overview.action_zoom()
        if self.shell.pump.reading is not None:
            self.show(self.shell.pump.reading)

    def content(self, width: int, height: int) -> Sequence[Line]:
        if self._drawn is None or self._drawn[:2] != (width, height):
            self._drawn = (width, height, self._lines(width, height))
        return self._drawn[2]

    def _lines(self, width: int, height: int) -> list[Line]:
        reading, glyphs = self._reading, self.glyphs
        picture = self._picture()
        rows = 1 + MOST_ROWS_A_GPU + (SIGNALS * SIGNAL_ROWS if height >= TALL else 0)
        alone = replace(reading, gpus=(picture,), gpu_trouble="")
        at = next((n for n, gpu in enumerate(reading.gpus, 1) if gpu.key == self.key), 0)
        count = len(reading.gpus)
        of = f"   {at} of {count}: i goes to the next" if at and count > 1 else ""
        told = [(" ", "text"), (f" GPU {picture.label}", "strong"), (f"  {self.key}{of}", "dim")]
        return [
            line(width, told),
            *gpus.draw(alone, width, rows, glyphs),
            *gpu_facts.facts(self.key, self._snapshot, reading.findings, width, glyphs),
        ]

    def _picture(self) -> GpuPicture:
        """The GPU with all its histories, which the overview leaves out where there are many."""
        reading = self._reading
        marked = {gpu.key: gpu.mark for gpu in reading.gpus if gpu.mark is not None}
        view = self._snapshot.view
        return read_gpus(view, [self.key], reading.findings, marked, reading.history_s)[0]


def first_gpu(gpus: Sequence[GpuPicture]) -> GpuPicture | None:
    """The GPU that is most worth a look: in trouble, else marked worst, else the first."""

    def place(gpu: GpuPicture) -> tuple[bool, int]:
        return (not gpu.trouble, -gpu.mark.severity if gpu.mark is not None else 1)

    return min(gpus, key=place, default=None)
