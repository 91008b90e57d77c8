"""Counters of a server that may be several processes, any of which may be new.

A scrape of a server with several workers reaches one of them: its counters are lower than those of
the last, and nothing was reset. And a server that restarted counts from zero. Both look the same
unless the page says who answered. Totals here never go back: where it cannot be known what
happened between two pages, nothing is added for the time between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_WORKERS = 64


class Totals:
    """Adds up what each worker's counters have grown by, from the first page on."""

    def __init__(self) -> None:
        self._last: dict[str, dict[str, float]] = {}
        self.total: dict[str, float] = {}
        """By counter name; begins with what the first page said."""
        self.restarts = 0
        """Times that counters went back in a worker that was known."""

    @property
    def workers(self) -> int:
        """Processes that have answered so far, as far as pages tell them apart."""
        return len(self._last)

    def take(self, worker: str, counters: Mapping[str, float]) -> None:
        """Take in the counters of one page."""
        before = self._last.pop(worker, None)
        if before is None and not self._last:
            self.total.update(counters)
        elif before is not None:
            if any(value < before.get(name, 0.0) for name, value in counters.items()):
                self.restarts += 1
            else:
                for name, value in counters.items():
                    grown = value - before.get(name, value)
                    self.total[name] = self.total.get(name, 0.0) + grown
        for name in counters:
            self.total.setdefault(name, 0.0)
        self._last[worker] = dict(counters)
        while len(self._last) > MAX_WORKERS:
            del self._last[next(iter(self._last))]
