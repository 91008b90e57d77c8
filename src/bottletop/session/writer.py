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
from bottletop.session.container import Container, create
from bottletop.session.events import Arrived, Evaluated, Event, Mark
from bottletop.snapshot import RecordingStatus
from bottletop.tables import GpuProcess, HotThread, Process, TargetFile, Thread
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.clock import Clock
    from bottletop.model import Anchor, Judgement, Sample
    from bottletop.session.container import MetaValue

QUEUE_S = 10.0
QUEUE_EVENTS = 100_000
COMMIT_WITHIN_S = 0.25
"""A sample waits this long for the judgement of its tick before it is committed without."""
SHED_FIRST = (Thread, HotThread, Process, GpuProcess, TargetFile)
"""Tables whose rows go first when the disk cannot keep up."""


class Recorder:
    """Records events into a new file. Thread-safe; no method but `flush` and `close` waits.

    Raises FileExistsError where there is a file already, OSError where none can be made; later
    errors end in `status().error`. `anchor` is the run's; `meta` and `thresholds` go into the file.
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
        self._clock = clock or SystemClock()
        self._since_ns = self._clock.monotonic_ns()
        self._changed = threading.Condition()
        self._queue: deque[tuple[int, Event]] = deque()
        self._due = self._closing = False
        self._arrival = 0
        self._handed = self._written = 0
        self._shed_rows: Counter[str] = Counter()
        self._shed_ns = 0
        self._dropped_rows = 0
        self._size_bytes = 0
        self._error = ""
        create(self._path)
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
        """Hand over a sample with its arrival number; numbers grow."""
        with self._changed:
            if arrival > self._arrival:
                self._arrival = arrival
                self._put(Arrived(arrival, sample), due=False)

    def evaluated(self, arrival: int, judgement: Judgement) -> None:
        """Hand over what the rules said when sample number `arrival` was the newest."""
        self._put(Evaluated(arrival, judgement), due=True)

    def mark(self, t_ns: int, kind: str, text: str) -> None:
        """Note something that happened: gap, clock_step, suspend, collector_down, user, phase."""
        self._put(Mark(self._arrival, t_ns, kind, clean(text)), due=True)

    def status(self) -> RecordingStatus:
        """Where the recording stands. Cheap."""
        return RecordingStatus(
            path=str(self._path),
            since_ns=self._since_ns,
            size_bytes=self._size_bytes,
            dropped_rows=self._dropped_rows,
            error=self._error,
        )

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was handed over is committed; False when it is not."""
        with self._changed:
            self._due = True
            self._changed.notify_all()
            handed = self._handed
            return self._changed.wait_for(lambda: self._written >= handed, timeout_s)

    def close(self, timeout_s: float = 1.0) -> None:
        """Seal the file; returns within `timeout_s` whatever the disk does. May be called twice."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            late = f"not closed within {timeout_s:g} s, the disk is slow; readable as it is"
            self._error = self._error or late

    def _put(self, event: Event, *, due: bool) -> None:
        with self._changed:
            if self._closing or not self._thread.is_alive():
                return
            now_ns = self._clock.monotonic_ns()
            self._queue.append((now_ns, event))
            self._handed += 1
            if now_ns - self._queue[0][0] > QUEUE_S * NS_PER_S or len(self._queue) > QUEUE_EVENTS:
                self._shed(now_ns - round(QUEUE_S * NS_PER_S))
            if due or len(self._queue) == 1:
                self._due = self._due or due
                self._changed.notify_all()

    def _shed(self, before_ns: int) -> None:
        """Make room: rows of `SHED_FIRST`, then, if that did not help, all that is too old."""
        kept = deque(item for item in self._queue if not self._drop(item[1], first=True))
        if kept and (kept[0][0] < before_ns or len(kept) > QUEUE_EVENTS):
            middle_ns = kept[len(kept) // 2][0]
            before_ns = middle_ns if len(kept) > QUEUE_EVENTS else before_ns
            kept = deque(
                (queued_ns, event)
                for queued_ns, event in kept
                if queued_ns >= before_ns or not self._drop(event, first=False)
            )
        self._written += len(self._queue) - len(kept)
        self._queue = kept

    def _drop(self, event: Event, *, first: bool) -> bool:
        """Whether the event goes; counts what goes with it."""
        if isinstance(event, Mark):
            return False
        if isinstance(event, Evaluated):
            if not first:
                self._shed_rows["judgement"] += 1
            return not first
        if first and event.sample.table not in SHED_FIRST:
            return False
        rows = len(event.sample.rows)
        self._shed_rows[event.sample.table.name] += rows
        self._dropped_rows += rows
        self._shed_ns = max(self._shed_ns, event.sample.t_ns)
        return True

    # -- the writer's side ------------------------------------------------------------------

    def _run(
        self,
        meta: dict[str, MetaValue],
        thresholds: dict[str, dict[str, float]],
        anchor: Anchor,
        synchronous: str,
    ) -> None:
        container: Container | None = None
        try:
            container = Container(
                self._path,
                meta=meta,
                thresholds=thresholds,
                anchor=anchor,
                clock=self._clock,
                synchronous=synchronous,
            )
            while events := self._take():
                container.write(events)
                self._wrote(container, len(events))
            container.finish()
            self._wrote(container, 0)
        except Exception as error:
            # Whatever it was, the run goes on without its recording, and says why.
            self._stop(container, error)

    def _take(self) -> list[Event]:
        """The next events to commit; none when the recording is being closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            self._changed.wait_for(lambda: self._due or self._closing, COMMIT_WITHIN_S)
            self._due = False
            events = [event for _, event in self._queue]
            self._queue.clear()
            if self._shed_rows:
                lost = ", ".join(f"{name} {rows}" for name, rows in self._shed_rows.items())
                text = f"the disk was too slow: rows dropped: {lost}"
                events.append(Mark(self._arrival, self._shed_ns, "drop", text))
                self._handed += 1
                self._shed_rows.clear()
            return events

    def _wrote(self, container: Container, count: int) -> None:
        size = _size(self._path) + _size(self._path.with_name(self._path.name + "-wal"))
        with self._changed:
            self._written += count
            self._size_bytes = size
            self._dropped_rows += container.dropped_rows
            container.dropped_rows = 0
            if not container.waits_for_disk and not self._error:
                self._error = "slow disk: a power cut may take the last minute"
            self._changed.notify_all()

    def _stop(self, container: Container | None, error: Exception) -> None:
        if container is not None:
            container.abandon()
        known = isinstance(error, (sqlite3.Error, OSError))
        what = str(error) if known else f"{type(error).__name__}: {error}"
        with self._changed:
            self._error = clean(f"recording stopped: {what}")
            self._closing = True
            self._queue.clear()
            self._changed.notify_all()


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
