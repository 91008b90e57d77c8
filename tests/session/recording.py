"""Makes recordings of the scripted host, and keeps what was handed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.clock import ManualClock, anchor
from bottletop.session.events import Arrived, Evaluated, Event
from bottletop.session.writer import Recorder
from session.scripted import ScriptedHost, judgement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bottletop.clock import Clock

META = {"bottletop": "9.9", "host": "gpu-7", "simulated": "simulated GPU", "answer": 42}
THRESHOLDS = {"gpu-starved-cpu": {"share": 0.25, "idle": 10.0}}


def recorder(
    path: Path,
    host: ScriptedHost,
    *,
    meta: Mapping[str, str | int | float] = META,
    synchronous: str = "FULL",
    clock: Clock | None = None,
) -> Recorder:
    """A recorder for the host's run, on a clock of its own on which no disk is slow."""
    return Recorder(
        path,
        anchor=anchor(host.clock),
        meta=meta,
        thresholds=THRESHOLDS,
        synchronous=synchronous,
        clock=clock or ManualClock(),
    )


def tick(host: ScriptedHost, to: Recorder, arrival: int) -> list[Event]:
    """Hand over one tick; return what it was."""
    events: list[Event] = []
    for sample in [*host.samples(), *host.hot()]:
        arrival += 1
        to.sample(arrival, sample)
        events.append(Arrived(arrival, sample))
    said = judgement(host)
    to.evaluated(arrival, said)
    events.append(Evaluated(arrival, said))
    return events


def ticks(host: ScriptedHost, to: Recorder, count: int, arrival: int = 0) -> list[Event]:
    """Hand over several ticks."""
    events: list[Event] = []
    for _ in range(count):
        events += tick(host, to, arrival)
        arrival = events[-1].arrival
    return events


def record(path: Path, count: int, host: ScriptedHost | None = None) -> list[Event]:
    """A finished recording of so many ticks."""
    host = host or ScriptedHost()
    to = recorder(path, host)
    events = ticks(host, to, count)
    to.close(10)
    assert not to.status().error
    return events
