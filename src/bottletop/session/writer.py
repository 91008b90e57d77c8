"""Records a live run. The caller hands over events and never waits; a thread writes them.

A tick is committed when its judgement arrives, so kill -9 takes at most the tick under way. When
the disk cannot keep up for ten seconds the oldest rows are dropped, those of threads and processes
first, and a `drop` mark says so. An error ends the recording, never the run; `status` carries the
reason.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING

from bottletop.clock import SystemClock
from bottletop.model import NS_PER_S
from bottletop.session.container import Container
from bottletop.session.events import Arrived, Evaluated, Event, Mark
from bottletop.session.newfile import create, discard
from bottletop.snapshot import RecordingStatus
from bottletop.tables import GpuProcess, HotThread, Process, TargetFile, Thread
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.clock import Clock
    from bottletop.model import Anchor, Judgement, Sample
    from bottletop.session.container import MetaValue

QUEUE_NS = 10 * NS_PER_S
"""How far the writer may be behind before rows of `SHED_FIRST` are dropped; at twice that, all that
is older than this."""
QUEUE_EVENTS = 100_000
COMMIT_WITHIN_NS = NS_PER_S // 4
"""A sample that has waited this long for its tick's judgement is committed with the next one."""
SHED_FIRST = (Thread, HotThread, Process, GpuProcess, TargetFile)
"""Tables whose rows go first when the disk cannot keep up."""


class _Flush(threading.Event):
    """Set by the writer once all that was queued before it is committed."""


_Queued = tuple[int, Event | _Flush]


class Recorder:
    """Records into a new file. No method but `flush` and `close` waits; none raises.

    Samples and judgements come from one thread; marks, `status` and `close` from any, signal
    handlers included. The constructor raises FileExistsError where there is a file already, and
    OSError where none can be made; later errors end in `status().error`. `anchor` is the run's;
    `meta` and `thresholds` (by rule and name) go into the file.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        anchor: Anchor,
        meta: Mapping[str, MetaValue],
        thresholds: Mapping[str, Mapping[str, float]],
        synchronous: str = "FULL",
        clock: Clock | None = None,
    ) -> None:
        self._path = Path(path).absolute()
        self._files = str(self._path), f"{self._path}-wal"
        self._clock = clock or SystemClock()
        self._since_ns = self._clock.monotonic_ns()
        self._queue: deque[_Queued] = deque()
        self._taking = threading.RLock()
        """Held by whoever takes out of the queue; putting in needs no lock."""
        self._due = threading.Event()
        self._closing = False
        self._arrival = 0
        self._shed_rows: Counter[str] = Counter()
        self._shed_ns = 0
        self._shed_next_ns = 0
        self._dropped_rows = 0
        self._size_bytes = 0
        self._error = ""
        self._stopped = False
        self._made = create(self._path)
        self._thread = threading.Thread(
            target=self._run,
            args=(dict(meta), {code: dict(of) for code, of in thresholds.items()}, anchor),
            kwargs={"synchronous": synchronous},
            name="bottletop-recorder",
            daemon=True,
        )
        self._thread.start()

    # -- the caller's side ------------------------------------------------------------------

    def sample(self, arrival: int, sample: Sample) -> None:
        """Hand over a sample with its arrival number; numbers that do not grow are ignored."""
        if arrival > self._arrival:
            self._arrival = arrival
            self._put(Arrived(arrival, sample))

    def evaluated(self, arrival: int, judgement: Judgement) -> None:
        """Hand over what the rules said when sample number `arrival` was the newest."""
        self._put(Evaluated(arrival, judgement))
        self._due.set()

    def mark(self, t_ns: int, kind: str, text: str) -> None:
        """Note something that happened: gap, clock_step, suspend, collector_down, user, phase."""
        self._put(Mark(self._arrival, t_ns, kind, clean(text)))
        self._due.set()

    def status(self) -> RecordingStatus:
        """Where the recording stands. Cheap."""
        return RecordingStatus(
            path=str(self._path),
            since_ns=self._since_ns,
            size_bytes=self._size_bytes,
            dropped_rows=self._dropped_rows,
            error=self._error,
            stopped=self._stopped,
        )

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was handed over is committed; False when it is not."""
        if self._closing:
            return False
        flush = _Flush()
        self._put(flush)
        self._due.set()
        return flush.wait(timeout_s) and not self._closing

    def close(self, timeout_s: float = 1.0) -> None:
        """Seal the file; returns within `timeout_s` whatever the disk does. May be called twice."""
        self._closing = True
        self._due.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive() and not self._error:
            self._error = f"not closed within {timeout_s:g} s, the disk is slow; readable as it is"

    def _put(self, event: Event | _Flush) -> None:
        if self._closing:
            return
        now_ns = self._clock.monotonic_ns()
        self._queue.append((now_ns, event))
        try:
            waited_ns = now_ns - self._queue[0][0]
        except IndexError:
            return  # the writer has just taken it
        if waited_ns > COMMIT_WITHIN_NS:
            self._due.set()
            behind = waited_ns > QUEUE_NS and now_ns >= self._shed_next_ns
            if behind or len(self._queue) > QUEUE_EVENTS:
                self._shed_next_ns = now_ns + QUEUE_NS // 4
                with self._taking:
                    self._shed(now_ns)

    def _shed(self, now_ns: int) -> None:
        """Make room: old rows of `SHED_FIRST`, then, if that did not help, all that is too old."""
        items = [self._queue.popleft() for _ in range(len(self._queue))]
        crowded = len(items) > QUEUE_EVENTS
        items = self._without(items, now_ns if crowded else now_ns - QUEUE_NS // 2, first=True)
        if crowded and len(items) > QUEUE_EVENTS // 2:
            items = self._without(items, items[len(items) // 2][0], first=False)
        elif items and items[0][0] < now_ns - 2 * QUEUE_NS:
            items = self._without(items, now_ns - QUEUE_NS, first=False)
        self._queue.extendleft(reversed(items))

    def _without(self, items: list[_Queued], before_ns: int, *, first: bool) -> list[_Queued]:
        return [
            (queued_ns, event)
            for queued_ns, event in items
            if queued_ns >= before_ns or not self._drop(event, first=first)
        ]

    def _drop(self, event: Event | _Flush, *, first: bool) -> bool:
        """Whether the event goes; counts what goes with it."""
        if isinstance(event, Arrived):
            if first and event.sample.table not in SHED_FIRST:
                return False
            rows = len(event.sample.rows)
            self._shed_rows[event.sample.table.name] += rows
            self._dropped_rows += rows
            self._shed_ns = max(self._shed_ns, event.sample.t_ns)
            return True
        if isinstance(event, Evaluated) and not first:
            self._shed_rows["judgement"] += 1
            self._shed_ns = max(self._shed_ns, event.judgement.t_ns)
            return True
        return False

    # -- the writer's side ------------------------------------------------------------------

    def _run(
        self,
        meta: dict[str, MetaValue],
        thresholds: dict[str, dict[str, float]],
        anchor: Anchor,
        synchronous: str,
    ) -> None:
        container: Container | None = None
        taken: list[Event | _Flush] = []
        try:
            container = Container(
                self._path,
                self._made,
                meta=meta,
                thresholds=thresholds,
                anchor=anchor,
                clock=self._clock,
                synchronous=synchronous,
            )
            closing = False
            while not closing:
                self._due.wait()
                self._due.clear()
                closing = self._closing
                taken = self._take()
                self._write(container, taken)
            container.finish()
            self._note(container)
        except Exception as error:
            # Whatever it was, the run goes on without its recording, and says why.
            self._stop(container, error, taken)

    def _take(self) -> list[Event | _Flush]:
        """All that is queued now."""
        with self._taking:
            events = [self._queue.popleft()[1] for _ in range(len(self._queue))]
            if self._shed_rows:
                lost = ", ".join(f"{name} {rows}" for name, rows in self._shed_rows.items())
                text = f"the disk was too slow: rows dropped: {lost}"
                events.append(Mark(self._arrival, self._shed_ns, "drop", text))
                self._shed_rows.clear()
        return events

    def _write(self, container: Container, taken: list[Event | _Flush]) -> None:
        events = [event for event in taken if not isinstance(event, _Flush)]
        if events:
            container.write(events)
            self._note(container)
        for event in taken:
            if isinstance(event, _Flush):
                event.set()

    def _note(self, container: Container) -> None:
        """Let `status` know what the file has come to."""
        self._size_bytes = sum(map(_size, self._files))
        self._dropped_rows += container.dropped_rows
        container.dropped_rows = 0
        if not container.waits_for_disk and not self._error:
            self._error = "slow disk: a power cut may take the last minute"

    def _stop(
        self, container: Container | None, error: Exception, taken: list[Event | _Flush]
    ) -> None:
        known = isinstance(error, (sqlite3.Error, OSError))
        what = str(error) if known else f"{type(error).__name__}: {error}"
        self._error = clean(f"recording stopped: {what}")
        self._stopped = self._closing = True
        if container is None:
            discard(self._path, self._made)
        else:
            container.abandon()
        for event in taken + self._take():
            if isinstance(event, _Flush):
                event.set()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
