"""When the rows of a log happened, and which of them belong to one reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.importers import stamps

if TYPE_CHECKING:
    from collections.abc import Hashable

_SAME_READING_S = 0.03
"""Rows without any name of a GPU that come this close to one another were read in one go."""


class Moments:
    """Gives every row its time.

    With stamps a row has its own; times of day go on over midnight and begin at 0. Without any, the
    rows of one reading share a moment: a new one begins when an entity comes again, `every_s` after
    the one before. Which distance that was is not in the file; the default is stated with the
    result.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._seen: set[Hashable] = set()
        self._reading = 0
        self._place = 0
        self._before_s = 0.0
        self.now_s = 0.0
        self.dated = False
        self._clock: tuple[float, float] | None = None
        """Times of day of the first row and of the newest, days added."""

    @property
    def assumed_s(self) -> float | None:
        """The distance that was assumed; None where stamps told, or there was one reading."""
        known = self.dated or self._clock is not None or self._reading == 0
        return None if known else self._every_s

    def at(self, stamp: str, who: Hashable) -> tuple[float, int]:
        """Time of the next row, which is about `who`, and its place among those of its reading."""
        wall = self._stamped(stamp) if stamp else None
        again = who in self._seen
        if wall is not None and again and 0 <= wall - self._before_s < _SAME_READING_S:
            again = False  # another card that the log gives no name to
        if again:
            self._seen.clear()
            self._reading += 1
            self._place = 0
        if wall is not None:
            self._before_s = wall
            self.now_s = max(self.now_s, wall)
        else:
            self.now_s = self._after(again)
        self._seen.add(who)
        place, self._place = self._place, self._place + 1
        return self.now_s if wall is None else wall, place

    def _stamped(self, stamp: str) -> float | None:
        wall = stamps.wall_s(stamp)
        if wall is not None:
            self.dated = True
            return wall
        clock = stamps.clock_s(stamp)
        if clock is None:
            return None
        first, newest = self._clock or (clock, clock)
        days = newest // stamps.DAY_S
        if newest - days * stamps.DAY_S - clock > stamps.DAY_S / 2:
            days += 1
        newest = clock + days * stamps.DAY_S
        self._clock = (first, newest)
        return newest - first

    def _after(self, again: bool) -> float:
        return self.now_s + self._every_s if again else self.now_s
