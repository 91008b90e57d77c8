"""Leaving an idle GPU alone, so that the kernel can suspend it.

A GPU whose power/control is "auto" is suspended a while after its last use, and every driver call
is a use. So one without work and processes is no longer asked, and what becomes of it is read from
sysfs, which does not wake it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.model import NS_PER_S, Absent, State

if TYPE_CHECKING:
    from bottletop.linux.pci import PciBus
    from bottletop.model import Value

IDLE_S = 60
"""Without work and processes for so long, a GPU is left alone."""
REST_S = 30
"""How long it is given to fall asleep. The kernel's own delay is a few seconds as a rule."""
MOST_IDLE_S = 3600

SUSPENDED = Absent(State.NOT_READ, "asleep: the kernel has suspended it, and a read would wake it")
RESTING = Absent(State.NOT_READ, "idle, and left alone so that the kernel can suspend it")


class Rest:
    """Whether one GPU is left alone. Its runtime power state is looked at each second."""

    def __init__(self, bus: PciBus, address: str) -> None:
        self._bus = bus
        self._address = address
        self._idle_since_ns: int | None = None
        self._since_ns: int | None = None
        self._slept = False
        self._patience_s = IDLE_S

    @property
    def is_on(self) -> bool:
        return self._since_ns is not None

    def observe(self, now_ns: int, *, util_pct: Value, processes: Value) -> None:
        """Take in what a read of the GPU has shown; unknown is not idle."""
        if util_pct != 0 or processes != 0 or not self._bus.may_sleep(self._address):
            self._idle_since_ns = None
            self._patience_s = IDLE_S
        elif self._idle_since_ns is None:
            self._idle_since_ns = now_ns
        elif now_ns - self._idle_since_ns >= self._patience_s * NS_PER_S:
            self._since_ns, self._slept = now_ns, False

    def follow(self, now_ns: int) -> None:
        """Look at the power state, and end the rest where it has: somebody uses it, or it does not
        fall asleep. Then it is tried again after twice as long.
        """
        if self._since_ns is None:
            return
        if self._bus.is_asleep(self._address):
            self._slept = True
        elif self._slept:
            self._patience_s = IDLE_S
            self._end()
        elif now_ns - self._since_ns >= REST_S * NS_PER_S:
            self._patience_s = min(2 * self._patience_s, MOST_IDLE_S)
            self._end()

    def _end(self) -> None:
        self._since_ns = self._idle_since_ns = None
