"""From a feed to readings: polled by the screen's timer, quiet while nothing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from bottletop.model import NS_PER_S
from bottletop.tui.reading import Reader

if TYPE_CHECKING:
    from bottletop.clock import Clock
    from bottletop.model import Table
    from bottletop.snapshot import Feed, LiveFeed, ReplayFeed, Snapshot
    from bottletop.tui.reading import Reading

POLL_S = 0.2
SILENT_S = 4.0
"""A live feed without a new picture for this long is said to be silent: four ticks."""


class Pump:
    """Polls one feed. `reading` is what is on the screen; a frozen pump keeps it.

    Freezing is the screen's: sampling, judging and recording go on.
    """

    def __init__(self, feed: Feed, clock: Clock, *, replay: bool) -> None:
        self._feed = feed
        self._clock = clock
        self._replay = replay
        self._generation: int | None = None
        self._changed_ns = clock.monotonic_ns()
        self._frozen_ns: int | None = None
        self.reader = Reader()
        self.snapshot: Snapshot | None = None
        self.reading: Reading | None = None

    @property
    def live(self) -> LiveFeed:
        """The feed as a live one; the caller knows that it is."""
        return cast("LiveFeed", self._feed)

    @property
    def replay(self) -> ReplayFeed:
        """The feed as a replay; the caller knows that it is."""
        return cast("ReplayFeed", self._feed)

    def look_at(self, tables: frozenset[type[Table]]) -> None:
        """Tell a live feed what is looked at."""
        if not self._replay:
            self.live.look_at(tables)

    def poll(self) -> Reading | None:
        """The newest reading where it differs from the one on the screen, else None."""
        if self._replay:
            self.replay.advance()
        if self._frozen_ns is not None:
            return None
        snapshot = self._feed.snapshot()
        if snapshot.generation == self._generation:
            return None
        self._generation = snapshot.generation
        self._changed_ns = self._clock.monotonic_ns()
        return self._read(snapshot)

    def reread(self) -> Reading | None:
        """Read the picture on the screen again, after a change of how it is read."""
        return None if self.snapshot is None else self._read(self.snapshot)

    def _read(self, snapshot: Snapshot) -> Reading:
        self.snapshot = snapshot
        self.reading = self.reader.read(snapshot)
        return self.reading

    @property
    def frozen(self) -> bool:
        return self._frozen_ns is not None

    def freeze(self, frozen: bool) -> None:
        """Keep the picture on the screen, or let it go on."""
        self._frozen_ns = self._clock.monotonic_ns() if frozen else None
        if not frozen:
            self._generation = None

    @property
    def frozen_s(self) -> float | None:
        """Age of a frozen picture, None while it is live."""
        if self._frozen_ns is None:
            return None
        return (self._clock.monotonic_ns() - self._frozen_ns) / NS_PER_S

    @property
    def silent_s(self) -> float | None:
        """How long a live feed has brought nothing new, None while that is no news."""
        if self._replay or self.frozen:
            return None
        quiet_s = (self._clock.monotonic_ns() - self._changed_ns) / NS_PER_S
        return quiet_s if quiet_s >= SILENT_S else None
