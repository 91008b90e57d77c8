"""The output of a command that was started from here, read from its log file."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING

from bottletop.text import clean
from bottletop.tui.lines import Line, header, line, wrap
from bottletop.tui.widgets.panel import Canvas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.tui.glyphs import Glyphs

MAX_READ_BYTES = 64 << 10
MAX_LINES = 500


class Tail:
    """The last lines of a growing file. Reads are bounded; what is skipped is said."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.lines: deque[str] = deque(maxlen=MAX_LINES)
        self.error = ""
        self._offset = 0
        self._partial = b""

    def read(self) -> bool:
        """Read what was added. Returns whether anything changed."""
        try:
            with open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._offset:
                    self._offset, self._partial = 0, b""
                if size - self._offset > MAX_READ_BYTES:
                    skipped = size - MAX_READ_BYTES - self._offset
                    self.lines.append(f"[{skipped} bytes not shown]")
                    self._offset, self._partial = size - MAX_READ_BYTES, b""
                file.seek(self._offset)
                added = file.read(MAX_READ_BYTES)
        except OSError as error:
            before, self.error = self.error, error.strerror or str(error)
            return before != self.error
        self.error = ""
        if not added:
            return False
        self._offset += len(added)
        *whole, self._partial = (self._partial + added).split(b"\n")
        self._partial = self._partial[-MAX_READ_BYTES:]
        # A progress bar rewrites its line with carriage returns: its last state is worth a line.
        self.lines.extend(clean(raw.rstrip(b"\r").rpartition(b"\r")[2]) for raw in whole)
        return True

    @property
    def shown(self) -> list[str]:
        """Whole lines and the one that is being written."""
        rest = clean(self._partial.rpartition(b"\r")[2])
        return [*self.lines, rest] if rest else list(self.lines)


class LogPanel(Canvas):
    """The newest lines that fit."""

    def __init__(self, glyphs: Glyphs, tail: Tail, *, id: str = "log") -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self.tail = tail

    def follow(self) -> None:
        """Look for new output."""
        if self.tail.read():
            self.redraw()

    def lines(self, width: int, height: int) -> Sequence[Line]:
        facts = [(self.tail.path, "dim")]
        if self.tail.error:
            facts.append((f" {self.tail.error}", "warn"))
        wrapped: list[str] = []
        for text in self.tail.shown[-height:]:
            wrapped.extend(wrap(text, max(1, width - 4)) or [""])
        room = max(0, height - 1)
        body = wrapped[-room:] if room else []
        return [
            header(width, "Output", facts, rule=self.glyphs.rule),
            *(line(width, [("   ", "text"), (text, "text")]) for text in body),
        ]
