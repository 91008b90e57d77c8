"""Plays a recording to the same screens, and judges one again.

Replay shows the judgements that were recorded. `judge_again` feeds the recorded samples to the
rules of today in their recorded order, with the recorded thresholds, and looks exactly where the
live run looked: unchanged rules give the judgements of the live run.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from bottletop.model import NS_PER_S, Judgement
from bottletop.rules import RULES
from bottletop.rules.base import Limits
from bottletop.rules.engine import Engine
from bottletop.session.events import Arrived, Evaluated, Mark
from bottletop.session.scene import Scene
from bottletop.snapshot import Playback, Snapshot, Watch
from bottletop.store import RAW_SPAN_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bottletop.clock import Clock
    from bottletop.session.events import Event
    from bottletop.session.reader import Recording

WINDOW_NS = (RAW_SPAN_S + 10) * NS_PER_S
"""How much before a moment is read to show it: what the store of the live run held."""
SLOWEST, FASTEST = 0.1, 64.0
LONGEST_STEP_S = 2.0
"""Playing time that one `advance` makes up at most: a suspended terminal does not jump."""
SETTLE_S = 20.0
"""Beyond the longest window: until the k-of-n histories of a run begun earlier are full."""


class Replay:
    """A `ReplayFeed` of a recording. Time stands still until `play`."""

    def __init__(self, recording: Recording, clock: Clock) -> None:
        self._recording = recording
        self._clock = clock
        self._speed = 1.0
        self._playing = False
        self._turned_ns = clock.monotonic_ns()
        self._generation = 0
        self._marks = tuple((mark.t_ns, mark.kind, mark.text) for mark in recording.marks())
        self._spans = tuple(
            (
                item.on_ns,
                recording.end_ns if item.off_ns is None else item.off_ns,
                int(item.finding.severity),
                item.finding.code,
            )
            for item in recording.findings()
        )
        self._scene = Scene(recording.start_ns)
        self._now_ns = recording.start_ns
        self._events: Iterator[Event] = iter(())
        self._next: Event | None = None
        self._snapshot: Snapshot | None = None
        self.seek(recording.start_ns)

    # -- what screens ask for ---------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The picture at the present moment of the recording."""
        if self._snapshot is None:
            self._snapshot = self._picture()
        return self._snapshot

    def play(self, playing: bool) -> None:
        """Let time run or stand still; at the end, playing begins anew."""
        if playing and self._now_ns >= self._recording.end_ns:
            self.seek(self._recording.start_ns)
        self._playing = playing
        self._turned_ns = self._clock.monotonic_ns()
        self._changed()

    def set_speed(self, speed: float) -> None:
        """Set the speed, 1 for the recording's own, within 0.1 and 64."""
        self.advance()
        self._speed = min(FASTEST, max(SLOWEST, speed))
        self._changed()

    def step(self, count: int) -> None:
        """Move by recorded judgements, back when negative; pauses."""
        self._playing = False
        times = self._recording.evaluation_times
        if count > 0:
            at = bisect_right(times, self._now_ns) + count - 1
        else:
            at = bisect_left(times, self._now_ns) + count
        if at < 0:
            self.seek(self._recording.start_ns)
        elif at >= len(times):
            self.seek(self._recording.end_ns)
        else:
            self.seek(times[at])

    def seek(self, t_ns: int) -> None:
        """Go to a moment of the recording, clamped to its ends."""
        t_ns = min(self._recording.end_ns, max(self._recording.start_ns, t_ns))
        if not self._now_ns <= t_ns <= self._now_ns + WINDOW_NS or self._next is None:
            self._begin_at(t_ns)
        self._move_to(t_ns)
        self._turned_ns = self._clock.monotonic_ns()

    def advance(self) -> None:
        """Let playing time pass; called by whoever draws, before `snapshot`."""
        now_ns = self._clock.monotonic_ns()
        passed_ns = min(now_ns - self._turned_ns, round(LONGEST_STEP_S * NS_PER_S))
        self._turned_ns = now_ns
        if not self._playing or passed_ns <= 0:
            return
        end_ns = self._recording.end_ns
        self._move_to(min(end_ns, self._now_ns + round(passed_ns * self._speed)))
        if self._now_ns >= end_ns:
            self._playing = False

    def close(self) -> None:
        """Let the file go."""
        self._recording.close()

    # -- moving -----------------------------------------------------------------------------

    def _begin_at(self, t_ns: int) -> None:
        """Start over with what the live store held at a moment."""
        since_ns = max(self._recording.start_ns, t_ns - WINDOW_NS)
        self._scene = Scene(self._recording.start_ns)
        judged = self._recording.judgement_at(t_ns)
        if judged is not None:
            self._scene.judgement = judged.judgement
        self._events = self._recording.events(since_ns)
        self._next = next(self._events, None)

    def _move_to(self, t_ns: int) -> None:
        """Deliver everything that had happened by a moment.

        When a sample arrived is not recorded, only after which other; what a late source brings is
        delivered with what it arrived between.
        """
        self._scene.deliver_many(self._until(t_ns))
        self._now_ns = self._scene.now_ns = t_ns
        self._changed()

    def _until(self, t_ns: int) -> Iterator[Event]:
        while self._next is not None and _moment(self._next) <= t_ns:
            yield self._next
            self._next = next(self._events, None)

    def _changed(self) -> None:
        self._generation += 1
        self._snapshot = None

    def _picture(self) -> Snapshot:
        recording, scene = self._recording, self._scene
        return Snapshot(
            generation=self._generation,
            view=scene.view(),
            anchor=recording.anchor,
            judgement=scene.judgement,
            host=str(recording.meta.get("host", "")),
            sources=scene.sources(),
            target=scene.target(),
            simulated=str(recording.meta.get("simulated", "")),
            playback=Playback(
                path=str(recording.path),
                start_ns=recording.start_ns,
                end_ns=recording.end_ns,
                now_ns=self._now_ns,
                playing=self._playing,
                speed=self._speed,
                marks=self._marks,
                finding_spans=self._spans,
                ended_cleanly=recording.ended_cleanly,
            ),
            watched_s=(self._now_ns - recording.start_ns) / NS_PER_S,
        )


def _moment(event: Event) -> int:
    if isinstance(event, Arrived):
        return event.sample.t_ns
    return event.judgement.t_ns if isinstance(event, Evaluated) else event.t_ns


def judge_again(
    recording: Recording,
    limits: Limits | None = None,
    hear: Callable[[Evaluated, Judgement], None] = lambda recorded, judged: None,
) -> Watch:
    """Judge a whole recording with the rules of today.

    Without `limits` the recorded thresholds hold. `hear` is called at every look with what was
    recorded there and what is said now. A recording of a run that had begun earlier is judged from
    where its past covers the longest window; what was active there goes on as recorded.
    """
    limits = limits or Limits(recording.thresholds)
    scene, engine = Scene(recording.start_ns), Engine(limits=limits)
    from_ns, settled_ns = _beginning(recording)
    watched_from_ns = settled_ns or recording.start_ns
    before: Evaluated | None = None
    verdict_ns = 0
    for event in recording.events():
        scene.deliver(event)
        if isinstance(event, Mark) and event.kind == "attach":
            engine = Engine(limits=limits)
        if not isinstance(event, Evaluated) or event.judgement.t_ns < from_ns:
            continue
        t_ns = event.judgement.t_ns
        if before is None or before.judgement.verdict != event.judgement.verdict:
            verdict_ns = t_ns
        judged = engine.evaluate(scene.store.view(t_ns))
        if t_ns < settled_ns:
            engine.resume(event.judgement, verdict_ns)
        else:
            hear(event, judged)
        before = event
    if before is None:
        engine.evaluate(scene.view())
    return Watch(
        judgement=engine.summary(),
        view=scene.view(),
        anchor=recording.anchor,
        sources=scene.sources(),
        target=scene.target(),
        watched_s=(recording.end_ns - watched_from_ns) / NS_PER_S,
        simulated=str(recording.meta.get("simulated", "")),
        origin=str(recording.path),
    )


def _beginning(recording: Recording) -> tuple[int, int]:
    """From when on to look, and until when to take the recorded state over (0: never)."""
    times = recording.evaluation_times
    if not times:
        return 0, 0
    since = recording.meta.get("judged_since_ns")
    first_ns = since if isinstance(since, int) else 0
    if first_ns == 0 or first_ns >= times[0]:
        return first_ns, 0
    settled_ns = times[0] + round((max(rule.window_s for rule in RULES) + SETTLE_S) * NS_PER_S)
    return 0, settled_ns if settled_ns < times[-1] else 0
