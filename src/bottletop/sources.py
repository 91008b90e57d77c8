"""One collector under supervision: when it is due, how long it took, what state it is in."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

from bottletop.collectors.base import Unavailable
from bottletop.model import NOT_READ, NS_PER_S, Row, Source, SourceState
from bottletop.tables import SourceHealth
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bottletop.clock import Clock
    from bottletop.collectors.base import Collector
    from bottletop.model import Sample

REOPEN_AFTER_S = 5.0
REOPEN_AT_MOST_S = 60.0


class Lane:
    """A daemon thread that runs one call at a time; a call that never returns blocks only itself.

    Not an executor: executors join their threads at exit, and a driver call may hang for ever.
    """

    def __init__(self, name: str) -> None:
        self._wake = threading.Semaphore(0)
        self._call: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name=f"bottletop-{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            call, self._call = self._call, None
            if call is None:
                return
            call()

    def submit(self, call: Callable[[], Sequence[Sample]]) -> asyncio.Future[Sequence[Sample]]:
        """Run `call` in the thread. The caller sees to it that one call is outstanding at most."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Sequence[Sample]] = loop.create_future()

        def settle(samples: Sequence[Sample] | None, error: Exception | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(samples or ())

        def run() -> None:
            result: Sequence[Sample] | None = None
            failure: Exception | None = None
            try:
                result = call()
            except Exception as error:
                failure = error
            # The loop may be gone by the time a hung call returns.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, result, failure)

        self._call = run
        self._wake.release()
        return future

    def end(self) -> None:
        """Let the thread end after its present call."""
        self._wake.release()


class SourceRunner:
    """Opens, reads and reopens one collector, and keeps its health."""

    def __init__(
        self, collector: Collector, clock: Clock, deliver: Callable[[Sample], None]
    ) -> None:
        self.name = collector.name
        self.period_s = collector.period_s
        self.blocking = collector.blocking
        self.of_target: bool = getattr(collector, "of_target", False)
        self._collector = collector
        self._clock = clock
        self._deliver = deliver
        self._simulated: str = getattr(collector, "simulated", "")
        self._lane: Lane | None = None
        self._is_open = False
        self._busy_since_ns: int | None = None
        self._due_ns = 0
        self._reopen_s = REOPEN_AFTER_S
        self._state = SourceState.OK
        self._reason = "not read yet"
        self._took_s: float | None = None
        self._last_ns: int | None = None
        self._reads = self._failures = self._late = 0

    def open(self) -> None:
        """Start the collector's thread if it needs one; the collector opens at its first read."""
        if self.blocking:
            self._lane = Lane(self.name)

    def close(self) -> None:
        """Let the collector go, unless one of its calls is still out: then nobody waits for it."""
        if self._busy_since_ns is None and self._is_open:
            self._is_open = False
            self._collector.close()
        if self._lane is not None:
            self._lane.end()

    def is_due(self) -> bool:
        """True when its time has come and its previous read is back; counts reads that are late."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._due_ns:
            return False
        if self._busy_since_ns is None:
            return True
        self._late += 1
        self._due_ns = now_ns + round(self.period_s * NS_PER_S)
        return False

    async def read(self) -> None:
        """Read once and deliver; whatever goes wrong becomes this source's state."""
        began_ns = self._clock.monotonic_ns()
        # A little early is on time: the beat that we run on is a hair's breadth uneven.
        self._due_ns = began_ns + round((self.period_s - 0.05) * NS_PER_S)
        self._busy_since_ns = began_ns
        try:
            if self._lane is not None:
                samples = await self._lane.submit(self._open_and_read)
            else:
                samples = self._open_and_read()
        except Unavailable as error:
            self._fail(
                SourceState.DENIED if error.denied else SourceState.UNAVAILABLE, error.reason
            )
            self._retry_slowly(began_ns, error.retry_s)
        except Exception as error:
            # One source's surprise must not end the others; it is shown, not swallowed.
            self._fail(SourceState.FAILED, f"{type(error).__name__}: {error}")
        else:
            self._state = SourceState.SIMULATED if self._simulated else SourceState.OK
            self._reason = self._simulated
            self._reopen_s = REOPEN_AFTER_S
            self._last_ns = self._clock.monotonic_ns()
            for sample in samples:
                self._deliver(sample)
        finally:
            self._busy_since_ns = None
            self._reads += 1
            self._took_s = (self._clock.monotonic_ns() - began_ns) / NS_PER_S

    def _open_and_read(self) -> Sequence[Sample]:
        if not self._is_open:
            self._collector.open()
            self._is_open = True
        return self._collector.read()

    def _fail(self, state: SourceState, reason: str) -> None:
        self._state, self._reason = state, clean(reason, 300)
        self._failures += 1

    def _retry_slowly(self, began_ns: int, retry_s: float | None) -> None:
        if self._is_open:
            self._is_open = False
            self._collector.close()
        self._due_ns = began_ns + round((retry_s or self._reopen_s) * NS_PER_S)
        if retry_s is None:
            self._reopen_s = min(self._reopen_s * 2, REOPEN_AT_MOST_S)

    def report(self, now_ns: int) -> Source:
        """Health as of `now_ns`; a read that is out for more than a period is late."""
        state, reason = self._state, self._reason
        if self._busy_since_ns is not None:
            out_s = (now_ns - self._busy_since_ns) / NS_PER_S
            if out_s > max(self.period_s, 1.0):
                state, reason = SourceState.LATE, f"a read has not returned for {out_s:.0f} s"
        age_s = None if self._last_ns is None else (now_ns - self._last_ns) / NS_PER_S
        return Source(self.name, state, reason, self._took_s, age_s)

    def health_row(self, now_ns: int) -> Row:
        """The same as a row of the `source` table."""
        report = self.report(now_ns)
        return SourceHealth.row(
            self.name,
            now_ns,
            {
                SourceHealth.state: int(report.state),
                SourceHealth.reason: report.reason,
                SourceHealth.took_s: NOT_READ if report.took_s is None else report.took_s,
                SourceHealth.reads: self._reads,
                SourceHealth.failures: self._failures,
                SourceHealth.late: self._late,
            },
        )
