"""One clock for everything: CLOCK_MONOTONIC nanoseconds, tied to the wall by an anchor."""

from __future__ import annotations

import time
from typing import Protocol

from bottletop.model import NS_PER_S, Anchor


class Clock(Protocol):
    """Where time comes from. Injected, so that tests step it and replay owns it."""

    def monotonic_ns(self) -> int: ...

    def wall_ns(self) -> int: ...


class SystemClock:
    """The host's clocks."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, start_ns: int = 1_000 * NS_PER_S, wall_ns: int = 1_700_000_000 * NS_PER_S):
        self._mono_ns = start_ns
        self._wall_ns = wall_ns

    def monotonic_ns(self) -> int:
        return self._mono_ns

    def wall_ns(self) -> int:
        return self._wall_ns

    def advance(self, seconds: float) -> None:
        """Move both clocks forward by `seconds`."""
        step_ns = round(seconds * NS_PER_S)
        if step_ns < 0:
            raise ValueError("a monotonic clock does not go back")
        self._mono_ns += step_ns
        self._wall_ns += step_ns

    def seek(self, mono_ns: int, wall_ns: int) -> None:
        """Set both clocks; replay uses it, so it may go back."""
        self._mono_ns, self._wall_ns = mono_ns, wall_ns


def anchor(clock: Clock) -> Anchor:
    """Read both clocks as close together as Python allows."""
    before = clock.monotonic_ns()
    wall = clock.wall_ns()
    return Anchor((before + clock.monotonic_ns()) // 2, wall)
