"""The clock file: one moment shared by a test, the simulated driver and the collector."""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING

from bottletop.model import NS_PER_S

if TYPE_CHECKING:
    from pathlib import Path

_PAGE = struct.Struct("<QQQQ")
_TIME = struct.Struct("<Q")
BOOT_NS = 5_000 * NS_PER_S
WALL_NS = 1_700_000_000 * NS_PER_S


def create_clock(path: Path, start_s: float = 0.0) -> Path:
    """Make a clock file that stands at `start_s` of scenario time."""
    path.write_bytes(_PAGE.pack(round(start_s * NS_PER_S), BOOT_NS, WALL_NS, 0))
    return path


class StepClock:
    """A `bottletop.clock.Clock` over a clock file: it moves when somebody steps it.

    Slow calls of the simulated driver step it too. `drift_s` is how far our monotonic clock has run
    from the one the driver stamps with; `wall_step_s` is how far the wall clock was stepped.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _PAGE.size)
        self.drift_s = 0.0
        self.wall_step_s = 0.0

    @property
    def t_ns(self) -> int:
        """Scenario time in ns."""
        return int(_TIME.unpack_from(self._page)[0])

    def monotonic_ns(self) -> int:
        return BOOT_NS + self.t_ns + round(self.drift_s * NS_PER_S)

    def wall_ns(self) -> int:
        return WALL_NS + self.t_ns + round(self.wall_step_s * NS_PER_S)

    def step(self, seconds: float) -> None:
        """Move scenario time forward."""
        _TIME.pack_into(self._page, 0, self.t_ns + round(seconds * NS_PER_S))
