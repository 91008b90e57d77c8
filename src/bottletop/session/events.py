"""What a recording is made of, in the order in which the live run saw it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bottletop.model import Finding, Judgement, Sample


class Arrived(NamedTuple):
    """A sample, with the number under which the live store took it in."""

    arrival: int
    sample: Sample


class Evaluated(NamedTuple):
    """The rules were judged after sample number `arrival` and before the next one."""

    arrival: int
    judgement: Judgement


class Mark(NamedTuple):
    """Something that happened to the recording or the host: gap, drop, clock_step, user, phase."""

    arrival: int
    """Samples handed over before it."""
    t_ns: int
    kind: str
    text: str


Event = Arrived | Evaluated | Mark


class RecordedFinding(NamedTuple):
    """One finding from its onset to its end, as it stood when it was worst."""

    finding: Finding
    on_ns: int
    off_ns: int | None
    """None when it was still active at the end of the recording."""
    peak_ns: int
