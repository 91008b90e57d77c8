"""A live run: schedules, times and isolates collectors, judges once a second, hands out snapshots.

Everything happens on one thread with its own asyncio loop, never the screen's: a stalled terminal
cannot stall sampling. A collector whose calls may block is read in a daemon thread of its own; when
it is late, the others go on without it, and nothing ever waits for it, quitting included.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING

from bottletop.attach import NotAttachable, TargetFinder, identify, successor
from bottletop.clock import anchor
from bottletop.collectors.base import Context, Exchange, RuntimeStats, Ways
from bottletop.model import (
    NO_VERDICT,
    NS_PER_S,
    Judgement,
    Sample,
    Source,
    Target,
)
from bottletop.rules.engine import Engine
from bottletop.snapshot import Snapshot
from bottletop.sources import SourceRunner
from bottletop.store import Store
from bottletop.tables import SourceHealth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bottletop.clock import Clock
    from bottletop.collectors.base import CollectorFactory
    from bottletop.model import ProcessId, Table
    from bottletop.roots import Roots
    from bottletop.rules.base import Limits
    from bottletop.session.writer import Recorder
    from bottletop.snapshot import RecordingStatus

EVALUATE_EVERY_NS = NS_PER_S
GRACE_S = 0.25
"""How long a tick waits for its sources before it judges without the late ones."""
LATE_TICK_S = 0.25
RECORD_PAST_S = 300
STOP_WAIT_S = 1.0
FIND_AGAIN_EVERY_S = 2


class Held:
    """Stands in for a recorder while the past is handed over to it, and passes on what came."""

    def __init__(self) -> None:
        self._calls: list[Callable[[Recorder], None]] = []

    def sample(self, arrival: int, sample: Sample) -> None:
        self._calls.append(lambda recorder: recorder.sample(arrival, sample))

    def evaluated(self, arrival: int, judgement: Judgement) -> None:
        self._calls.append(lambda recorder: recorder.evaluated(arrival, judgement))

    def mark(self, t_ns: int, kind: str, text: str) -> None:
        self._calls.append(lambda recorder: recorder.mark(t_ns, kind, text))

    def release(self, recorder: Recorder) -> None:
        """Hand over all that was held, in order."""
        for call in self._calls:
            call(recorder)


class Runtime:
    """Runs collectors, store, engine and recorder; a `LiveFeed` for screens.

    `start` returns at once; `stop` returns within about `STOP_WAIT_S` whatever the collectors do.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        roots: Roots,
        collectors: Iterable[CollectorFactory],
        limits: Limits,
        host: str,
        root_process: ProcessId | None = None,
        simulated: str = "",
        ways: Ways | None = None,
        follow: str = "",
        recorder_factory: Callable[[str, Runtime], Recorder] | None = None,
    ) -> None:
        self.clock = clock
        self.roots = roots
        self.host = host
        self.simulated = simulated
        self.anchor = anchor(clock)
        self.store = Store()
        self.limits = limits
        self.engine = Engine(limits=limits)
        self.stats = RuntimeStats()
        self._find_target = TargetFinder()
        self._root_process = root_process
        self.follow = follow
        """Name by which the target is found again after it ended; empty lets it end."""
        self._find_again_ns = 0
        self._target: Target | None = None
        self._recorder_factory = recorder_factory
        self._recorder: Recorder | None = None
        self._recorded: RecordingStatus | None = None
        self._recorder_lock = threading.Lock()
        self._tap: Recorder | Held | None = None
        self._tap_lock = threading.Lock()
        self._evaluations: deque[tuple[int, Judgement]] = deque(maxlen=RECORD_PAST_S)
        self._started_ns = clock.monotonic_ns()
        self._exchange = Exchange()
        context = Context(
            clock=clock,
            roots=roots,
            target=lambda: self._target,
            stats=self.stats,
            exchange=self._exchange,
            ways=ways or Ways(),
        )
        self.runners = [SourceRunner(make(context), clock, self._ingest) for make in collectors]
        self._judgement = Judgement(self._started_ns, NO_VERDICT)
        self._generation = 0
        self._snapshot = self._picture()
        self._stop = threading.Event()
        self._asyncio: asyncio.AbstractEventLoop | None = None
        self._nap: asyncio.Future[None] | None = None
        """Pending while the loop waits for its next beat."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None

    # -- life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start sampling in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="bottletop-runtime", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling, close the recording, let collectors go. Never waits for a hung call."""
        self._stop.set()
        if self._asyncio is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                self._asyncio.call_soon_threadsafe(self._wake)
        if self._thread is not None:
            self._thread.join(STOP_WAIT_S)
        self._close_recorder()

    def _run(self) -> None:
        try:
            asyncio.run(self._loop())
        except Exception as error:
            # Kept for whoever started us: a dead sampler must never look like a quiet host.
            self.failure = error
            with self._changed:
                self._changed.notify_all()

    async def _loop(self) -> None:
        self._asyncio = asyncio.get_running_loop()
        for source in self.runners:
            source.open()
        start_ns = due_ns = self.clock.monotonic_ns()
        while not self._stop.is_set():
            if self.clock.monotonic_ns() - due_ns > LATE_TICK_S * NS_PER_S:
                self.stats.late_ticks += 1
            await self.beat(evaluate=(due_ns - start_ns) % EVALUATE_EVERY_NS == 0)
            due_ns = self._next_due_ns(start_ns, due_ns)
            await self._sleep_until(due_ns)
        for source in self.runners:
            source.close()

    def _next_due_ns(self, start_ns: int, due_ns: int) -> int:
        """The next moment of the grid that began at `start_ns`.

        What was missed (a suspend, a starved host) is skipped rather than run in a burst. Without a
        target nothing needs more than one beat a second.
        """
        period_ns = EVALUATE_EVERY_NS
        if self._root_process is not None:
            fastest_s = min(source.period_s for source in self.runners)
            period_ns = min(period_ns, round(fastest_s * NS_PER_S))
        passed_ns = max(due_ns, self.clock.monotonic_ns()) - start_ns
        return start_ns + (passed_ns // period_ns + 1) * period_ns

    async def _sleep_until(self, due_ns: int) -> None:
        while not self._stop.is_set():
            left_s = (due_ns - self.clock.monotonic_ns()) / NS_PER_S
            if left_s <= 0:
                return
            # Not in slices: each time a thread wakes up costs as much as reading a file.
            self._nap = asyncio.get_running_loop().create_future()
            timer = asyncio.get_running_loop().call_later(left_s, self._wake)
            await self._nap
            timer.cancel()

    def _wake(self) -> None:
        if self._nap is not None and not self._nap.done():
            self._nap.set_result(None)

    # -- one beat ---------------------------------------------------------------------------

    async def beat(self, *, evaluate: bool) -> None:
        """Read every source that is due; on a judging beat, judge and publish a picture."""
        if evaluate:
            self._follow_target()
        attached = self._target is not None
        runners = [one for one in self.runners if attached or not one.of_target]
        due = [source for source in runners if source.is_due()]
        away = [asyncio.ensure_future(source.read()) for source in due if source.blocking]
        if away:
            await asyncio.sleep(0)  # let their threads begin before the quick ones are read here
        for source in due:
            if not source.blocking:
                await source.read()
        if away:
            await asyncio.wait(away, timeout=GRACE_S)
        if evaluate:
            self._judge()

    def _follow_target(self) -> None:
        if self._root_process is None:
            return
        self._target = self._find_target(self.roots, self._root_process)
        if self._target.gone and self.follow:
            self._find_again(self._root_process)

    def _find_again(self, ended: ProcessId) -> None:
        """Attach to what was started in place of a target that has ended."""
        now_ns = self.clock.monotonic_ns()
        if now_ns < self._find_again_ns:
            return
        self._find_again_ns = now_ns + FIND_AGAIN_EVERY_S * NS_PER_S
        found = successor(self.roots, self.follow, ended)
        if found is not None:
            self._attach(found)
            self._target = self._find_target(self.roots, found)

    def _ingest(self, sample: Sample) -> None:
        with self._tap_lock:
            arrival = self.store.ingest(sample)
            if self._tap is not None:
                self._tap.sample(arrival, sample)

    def _judge(self) -> None:
        self._ingest(self._health_sample())
        before_ns = self.clock.monotonic_ns()
        judgement = self.engine.evaluate(self.store.view(before_ns))
        self.stats.engine_s = (self.clock.monotonic_ns() - before_ns) / NS_PER_S
        self._judgement = judgement
        with self._tap_lock:
            self._evaluations.append((self.store.arrivals, judgement))
            if self._tap is not None:
                self._tap.evaluated(self.store.arrivals, judgement)
        self._generation += 1
        self._snapshot = self._picture()
        with self._changed:
            self._changed.notify_all()

    def _health_sample(self) -> Sample:
        now_ns = self.clock.monotonic_ns()
        rows = tuple(source.health_row(now_ns) for source in self.runners)
        return Sample("runtime", SourceHealth, now_ns, 0, rows)

    # -- what others see --------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The newest picture. Cheap, never blocks."""
        return self._snapshot

    def wait_for_judgement(self, after: int, timeout_s: float) -> Snapshot:
        """Block until a picture newer than generation `after` is there, or the time is up."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._snapshot.generation > after or self.failure is not None, timeout_s
            )
        return self._snapshot

    def sources(self) -> tuple[Source, ...]:
        """Health of every source right now, late ones with their age."""
        now_ns = self.clock.monotonic_ns()
        return tuple(source.report(now_ns) for source in self.runners)

    def summary(self) -> Judgement:
        """The judgement over the whole watch."""
        return self.engine.summary()

    @property
    def watched_s(self) -> float:
        """Seconds since the run began."""
        return (self.clock.monotonic_ns() - self._started_ns) / NS_PER_S

    def _picture(self) -> Snapshot:
        now_ns = self._judgement.t_ns
        recorder = self._recorder
        return Snapshot(
            generation=self._generation,
            view=self.store.view(now_ns),
            anchor=self.anchor,
            judgement=self._judgement,
            host=self.host,
            sources=self.sources(),
            target=self._target,
            simulated=self.simulated,
            recording=recorder.status() if recorder is not None else None,
            watched_s=(now_ns - self._started_ns) / NS_PER_S,
        )

    # -- what a screen may ask for ----------------------------------------------------------

    def attach(self, pid: int) -> None:
        """Watch another process tree. Raises ValueError with one line that says why not."""
        try:
            root = identify(self.roots, pid)
        except NotAttachable as error:
            raise ValueError(str(error)) from None
        self.follow = ""
        self._attach(root)

    def _attach(self, root: ProcessId) -> None:
        self._find_target = TargetFinder()
        self._root_process = root
        self.engine = Engine(limits=self.limits)
        with self._tap_lock:
            if self._tap is not None:
                # Whoever judges the recording again begins anew here, as this run does.
                self._tap.mark(self.clock.monotonic_ns(), "attach", f"pid {root.pid}")

    def look_at(self, tables: frozenset[type[Table]]) -> None:
        """Tell the collectors which tables are on the screen."""
        self._exchange.on_screen = tables

    def start_recording(self, path: str) -> None:
        """Record to `path`, beginning with what the rings still hold. Raises OSError."""
        if self._recorder_factory is None:
            raise OSError("this run cannot record")
        with self._recorder_lock:
            if self._recorder is not None:
                raise OSError(f"already recording to {self._recorder.status().path}")
            recorder = self._recorder_factory(path, self)
            # The past takes a while to hand over, and sampling must not wait: what comes meanwhile
            # is held, from a moment at which no sample is half taken in.
            held = Held()
            with self._tap_lock:
                self._tap, upto = held, self.store.arrivals
                judged = [item for item in self._evaluations if item[0] <= upto]
            self._hand_past_over(recorder, upto, deque(judged))
            with self._tap_lock:
                held.release(recorder)
                self._tap = self._recorder = recorder

    def _hand_past_over(
        self, recorder: Recorder, upto: int, judged: deque[tuple[int, Judgement]]
    ) -> None:
        since_ns = self.clock.monotonic_ns() - RECORD_PAST_S * NS_PER_S
        for arrival, sample in self.store.recent(since_ns):
            if arrival > upto:
                break
            while judged and judged[0][0] < arrival:
                recorder.evaluated(*judged.popleft())
            recorder.sample(arrival, sample)
        for arrival, judgement in judged:
            recorder.evaluated(arrival, judgement)

    def stop_recording(self) -> str:
        """Close the recording and return its path. Raises OSError where an error ended it."""
        status = self._close_recorder()
        if status is None:
            raise OSError("not recording")
        if status.stopped:
            raise OSError(status.error)
        return status.path

    @property
    def recording(self) -> RecordingStatus | None:
        """Where the recording stands, or how the last one ended."""
        recorder = self._recorder
        return recorder.status() if recorder is not None else self._recorded

    def _close_recorder(self) -> RecordingStatus | None:
        with self._recorder_lock, self._tap_lock:
            recorder, self._recorder, self._tap = self._recorder, None, None
        if recorder is None:
            return None
        recorder.close(STOP_WAIT_S)
        self._recorded = recorder.status()
        return self._recorded
