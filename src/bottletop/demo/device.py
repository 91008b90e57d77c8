"""How the demo's programs use their GPU: the `forward` stage, and the ways to wait inside it.

There is no GPU behind it. A program enters the stage, waits for as long as a forward pass of its
size takes, and leaves, exactly as host code does around a real one. It reads nothing from the
monitor; the monitor's simulated GPU watches the stage from outside.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING

from bottletop.probe import stage

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_S = 0.01
"""Time slice when several programs share the device."""


class Device:
    """Runs forward passes one after another."""

    def __init__(self, spin: bool = False, shared_lock: str = "") -> None:
        self._run: Callable[[float], None] = _spin if spin else time.sleep
        self._lock_fd = -1
        if shared_lock:
            self._lock_fd = os.open(shared_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def forward(self, seconds: float) -> None:
        """One pass that needs the device for `seconds`; longer where others use it meanwhile."""
        with stage("forward"):
            if self._lock_fd < 0:
                self._run(seconds)
                return
            left_s = seconds
            while left_s > 0:
                self._one_slice(min(SLICE_S, left_s))
                left_s -= SLICE_S

    def _one_slice(self, seconds: float) -> None:
        fcntl.flock(self._lock_fd, fcntl.LOCK_EX)
        try:
            self._run(seconds)
        finally:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        # Let the other one have its turn: the lock itself keeps no order.
        time.sleep(SLICE_S / 20)


def _spin(seconds: float) -> None:
    """Poll until done, as CUDA's default wait does where there are enough cores."""
    end_ns = time.monotonic_ns() + round(seconds * 1e9)
    while time.monotonic_ns() < end_ns:
        pass
