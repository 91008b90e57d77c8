"""The child of `nvml.host.Host`: does with the collectors what the parent asks for."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from bottletop.collectors import COLLECTORS
from bottletop.collectors.base import Context, Exchange, RuntimeStats
from bottletop.roots import Roots
from nvml.clock import StepClock
from nvml.host import receive, send

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.model import Sample


class Child:
    """The collectors that talk to the driver, and the things a test may ask of them."""

    def __init__(self, clock_path: str, proc: str, sys_: str) -> None:
        self.clock = StepClock(Path(clock_path))
        self.stats = RuntimeStats()
        self.exchange = Exchange()
        roots = Roots(proc=proc, sys=sys_) if proc else Roots(sys=sys_)
        context = Context(self.clock, roots, stats=self.stats, exchange=self.exchange)
        made = [make(context) for make in COLLECTORS]
        self.collectors = {one.name: one for one in made if one.name.startswith("gpu")}
        self._reader: threading.Thread | None = None
        self._read: Sequence[Sample] | None = None

    def open(self, source: str) -> None:
        self.collectors[source].open()

    def close(self, source: str) -> None:
        self.collectors[source].close()

    def read(self, source: str) -> Sequence[Sample]:
        return self.collectors[source].read()

    def exchanged(self) -> Exchange:
        """What the collectors told one another."""
        return self.exchange

    def tell(self, name: str, value: object) -> None:
        """Write a field of the exchange, as its writer would."""
        setattr(self.exchange, name, value)

    def begin_read(self) -> None:
        """Read `gpu` in a daemon thread, as the runtime does with blocking collectors."""

        def run() -> None:
            self._read = self.collectors["gpu"].read()

        self._reader = threading.Thread(target=run, daemon=True)
        self._reader.start()

    def end_read(self, patience_s: float) -> Sequence[Sample] | None:
        """What that read brought; None while it has not returned."""
        assert self._reader is not None
        self._reader.join(patience_s)
        return self._read

    def own(self) -> RuntimeStats:
        return self.stats

    def skew(self, drift_s: float, wall_step_s: float) -> None:
        """Set our clocks apart from those that the driver stamps with."""
        self.clock.drift_s, self.clock.wall_step_s = drift_s, wall_step_s


def main() -> None:
    # The answers own standard output; a stray print must not break them.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    child = Child(*sys.argv[1:])
    while True:
        try:
            what, args = receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            send(answers, (getattr(child, what)(*args), None))
        except Exception as error:  # whatever it is, the test is to see it
            send(answers, (None, error))


if __name__ == "__main__":
    main()
