"""What NVIDIA's Xid numbers mean: who is to look, in what words, and what only follows another.

Meanings follow NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors), as of its 2025 edition;
classes are what the catalogue tells an operator to do first. Numbers that are not listed here are
named as such and never guessed at.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NS_PER_S, Severity

if TYPE_CHECKING:
    from collections.abc import Sequence


class XidClass(enum.Enum):
    """Who has to look."""

    APPLICATION = "application error"
    DEVICE = "device error"
    LINK = "NVLink error"
    RECORD = "for the record only"


class Xid(NamedTuple):
    """One number of the catalogue."""

    kind: XidClass
    meaning: str
    follows: frozenset[int] = frozenset()
    """Soon after one of these it is a consequence of that one, and never the headline."""


ANY = frozenset(range(1, 256))
FAULTS = frozenset({8, 11, 13, 25, 31, 32, 68, 69})
"""Faults of one process's work, after which the driver clears its channels away."""
MEMORY = frozenset({48, 92, 94, 95, 171, 172})

_APP, _DEV, _LINK, _REC = XidClass.APPLICATION, XidClass.DEVICE, XidClass.LINK, XidClass.RECORD

XIDS: dict[int, Xid] = {
    8: Xid(_APP, "a kernel ran past the watchdog's time"),
    11: Xid(_APP, "invalid or corrupted push buffer"),
    13: Xid(_APP, "an exception in a kernel"),
    25: Xid(_APP, "invalid or illegal push buffer"),
    31: Xid(_APP, "a memory page fault: a kernel used a bad address"),
    32: Xid(_APP, "invalid or corrupted push buffer stream"),
    38: Xid(_REC, "driver firmware error"),
    43: Xid(_REC, "work of a process was stopped after a fault", ANY),
    45: Xid(_REC, "work was cleared away, as after another error or a kill", ANY),
    46: Xid(_DEV, "the GPU stopped processing"),
    48: Xid(_DEV, "uncorrectable memory error (double bit)"),
    54: Xid(_DEV, "auxiliary power is not connected"),
    61: Xid(_DEV, "internal micro-controller breakpoint"),
    62: Xid(_DEV, "internal micro-controller halt"),
    63: Xid(_REC, "a bad memory page or row was recorded to be replaced", MEMORY),
    64: Xid(_DEV, "a bad memory page or row could not be recorded", MEMORY),
    68: Xid(_APP, "video decoder exception"),
    69: Xid(_APP, "graphics engine class error"),
    74: Xid(_LINK, "NVLink error"),
    79: Xid(_DEV, "fell off the bus: the driver cannot reach it"),
    92: Xid(_REC, "high rate of corrected memory errors"),
    94: Xid(_APP, "uncorrectable memory error, kept to one process", frozenset({48})),
    95: Xid(_DEV, "uncorrectable memory error, not contained", frozenset({48})),
    109: Xid(_DEV, "context switch timed out", FAULTS),
    110: Xid(_DEV, "security fault"),
    119: Xid(_DEV, "its system processor (GSP) stopped answering"),
    120: Xid(_DEV, "its system processor (GSP) failed"),
    121: Xid(_REC, "corrected error on the link to the CPU (C2C)"),
    136: Xid(_DEV, "its firmware could not be loaded"),
    137: Xid(_APP, "an access over NVLink was refused"),
    140: Xid(_DEV, "unrecovered memory error"),
    143: Xid(_DEV, "its start-up failed"),
    154: Xid(_REC, "the recovery action changed", ANY),
    156: Xid(_REC, "a resource was retired"),
    157: Xid(_REC, "a resource could not be retired"),
    158: Xid(_DEV, "fatal time-out inside the GPU"),
    160: Xid(_REC, "a memory channel was retired"),
    161: Xid(_REC, "a memory channel could not be retired"),
    162: Xid(_REC, "power smoothing was turned off"),
    163: Xid(_REC, "power smoothing ran into a limit"),
    **{number: Xid(_LINK, "NVLink 5 error") for number in (*range(144, 151), 155)},
}

SEVERITIES = {
    XidClass.APPLICATION: Severity.WARN,
    XidClass.DEVICE: Severity.CRIT,
    XidClass.LINK: Severity.CRIT,
    XidClass.RECORD: Severity.INFO,
}
UNKNOWN = Xid(XidClass.DEVICE, "not in our table")
TOGETHER_NS = 60 * NS_PER_S
"""What follows another error comes within this time."""


class Seen(NamedTuple):
    """One report of the driver."""

    t_ns: int
    xid: int


class Told(NamedTuple):
    """The reports of one GPU, sorted into what happened and what came of it."""

    headlines: tuple[int, ...]
    """Numbers that stand for themselves, the worst first, then in order of time."""
    consequences: tuple[int, ...]
    counts: dict[int, int]

    @property
    def severity(self) -> Severity:
        """The worst of the headlines; a number that nobody knows is a warning."""
        return max(severity_of(number) for number in self.headlines)


def severity_of(number: int) -> Severity:
    """How bad one number is where it stands for itself."""
    return SEVERITIES[XIDS[number].kind] if number in XIDS else Severity.WARN


def told_of(reports: Sequence[Seen]) -> Told:
    """Sort the reports of one GPU. Raises ValueError without any.

    A number is a consequence where every time it came it followed, within `TOGETHER_NS`, one that
    it may follow. Where all are, as after a start in mid-story, the earliest stands for them.
    """
    counts: dict[int, int] = {}
    alone: set[int] = set()
    for at, seen in enumerate(reports):
        counts[seen.xid] = counts.get(seen.xid, 0) + 1
        follows = XIDS.get(seen.xid, UNKNOWN).follows - {seen.xid}
        before = [one for one in reports[:at] if seen.t_ns - one.t_ns <= TOGETHER_NS]
        if not any(one.xid in follows for one in before):
            alone.add(seen.xid)
    if not alone:
        raise ValueError("no reports")
    order = list(counts)
    headlines = sorted(alone, key=lambda number: (-severity_of(number), order.index(number)))
    return Told(tuple(headlines), tuple(n for n in order if n not in alone), counts)
