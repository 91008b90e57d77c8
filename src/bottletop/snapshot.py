"""What screens and reports read: one immutable picture of a moment, live or replayed.

Whoever produces snapshots (the runtime or a replay) is a `Feed`; nothing above needs to know which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from bottletop.model import Anchor, Judgement, Source, Table, Target
    from bottletop.store import View


@dataclass(frozen=True, slots=True)
class RecordingStatus:
    """State of the recording of a live run."""

    path: str
    since_ns: int
    size_bytes: int
    dropped_rows: int
    error: str = ""
    """Why it stopped or degraded; never silent."""
    stopped: bool = False
    """An error ended it: nothing more is written."""


@dataclass(frozen=True, slots=True)
class Playback:
    """Where a replay stands. Times are monotonic ns of the recording."""

    path: str
    start_ns: int
    end_ns: int
    now_ns: int
    playing: bool
    speed: float
    marks: tuple[tuple[int, str, str], ...] = ()
    """(t_ns, kind, text): gaps, clock steps, drops, user notes."""
    finding_spans: tuple[tuple[int, int, int, str], ...] = ()
    """(on_ns, off_ns, severity, code) of every recorded finding, in order of onset."""
    ended_cleanly: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything known at one moment. `generation` grows with every change of content."""

    generation: int
    view: View
    anchor: Anchor
    judgement: Judgement
    host: str
    sources: tuple[Source, ...]
    target: Target | None = None
    simulated: str = ""
    """Says what is not real, such as "simulated GPU"; empty on a real host."""
    recording: RecordingStatus | None = None
    playback: Playback | None = None
    watched_s: float = 0.0

    @property
    def now_ns(self) -> int:
        """Monotonic moment of the picture."""
        return self.view.now_ns


class ReadFile(NamedTuple):
    """One file of foreign evidence, as reports list it."""

    name: str
    format: str
    """What it was taken for."""
    readings: int = 0
    """Of the entity that has most."""
    span_s: float = 0.0
    assumed_s: float | None = None
    """Distance of readings that was assumed, since the file does not tell it."""
    doubts: tuple[str, ...] = ()
    """What of it could not be read, and what was guessed."""
    limits: tuple[str, ...] = ()
    """What sampling of its kind cannot show."""
    refused: str = ""
    """Why it was not used at all."""

    @property
    def period_s(self) -> float | None:
        """Mean distance of its readings; None of a single one."""
        return self.span_s / (self.readings - 1) if self.readings > 1 else None


@dataclass(frozen=True, slots=True)
class Watch:
    """A finished watch: what was judged over all of it, and the last look at the store."""

    judgement: Judgement
    view: View
    anchor: Anchor
    sources: tuple[Source, ...]
    target: Target | None
    watched_s: float
    simulated: str = ""
    origin: str = ""
    """The recording or the files that were judged; empty for a live watch."""
    dated: bool = True
    """The anchor's wall clock means something; logs without dates have none."""
    files: tuple[ReadFile, ...] = ()
    """Foreign evidence that was judged."""
    notes: tuple[str, ...] = ()
    """What was assumed of it as a whole."""


class Feed(Protocol):
    """A source of snapshots. Reading one is cheap and never blocks."""

    def snapshot(self) -> Snapshot: ...


class LiveFeed(Feed, Protocol):
    """What a live run lets a screen do besides reading."""

    def attach(self, pid: int) -> None:
        """Attach to another process. Raises ValueError with one line that says why not."""

    def look_at(self, tables: frozenset[type[Table]]) -> None:
        """Tell which tables are on the screen, besides those that always are."""

    def start_recording(self, path: str) -> None:
        """Record from now on, beginning with what the rings still hold. Raises OSError."""

    def stop_recording(self) -> str:
        """Close the recording and return its path."""


class ReplayFeed(Feed, Protocol):
    """What a replay lets a screen do besides reading."""

    def play(self, playing: bool) -> None: ...

    def set_speed(self, speed: float) -> None: ...

    def step(self, count: int) -> None:
        """Move by recorded evaluations, back when negative; pauses."""

    def seek(self, t_ns: int) -> None:
        """Go to a moment of the recording, clamped to its ends."""

    def advance(self) -> None:
        """Let playing time pass; called by whoever draws, before `snapshot`."""
