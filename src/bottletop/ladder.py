"""Ways in which a target's stages can be read, best first, and why each is taken or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import Absent, State
from bottletop.tables import TargetInfo
from bottletop.tables.process import NOT_PYTHON

if TYPE_CHECKING:
    from bottletop.store import View

_RUNGS = (
    ("server metrics", TargetInfo.metrics),
    ("probe", TargetInfo.probe),
    ("stack sampler", TargetInfo.stacks),
)
_UNLOCKABLE = (State.DENIED, State.ERROR, State.UNSUPPORTED)
"""What stands in the way of a rung and may be taken out of it, what is easiest first."""
PROC = "threads, files and sockets of the kernel's /proc, always"


class Rung(NamedTuple):
    """One way into the target."""

    name: str
    used: bool
    text: str
    """How it is read or, where it is not, why, with what would unlock it."""


def ladder(view: View) -> list[Rung]:
    """The rungs for the attached target; empty while nothing is attached."""
    keys = view.keys(TargetInfo)
    if not keys:
        return []
    rungs = []
    for name, metric in _RUNGS:
        said = view.last(metric, keys[0])
        used = not isinstance(said, Absent)
        rungs.append(Rung(name, used, said.reason if isinstance(said, Absent) else str(said)))
    return [*rungs, Rung("/proc", True, PROC)]


def hint(view: View) -> str:
    """What comes nearest to stages where there are none yet; empty where no rung knows.

    A sampler that is still counting comes before what is refused, broken or not installed.
    """
    keys = view.keys(TargetInfo)
    if not keys:
        return ""
    counting = view.last(TargetInfo.stacks, keys[0])
    if isinstance(counting, str):
        return counting
    said = [view.last(metric, keys[0]) for _, metric in _RUNGS]
    for state in _UNLOCKABLE:
        for one in said:
            if isinstance(one, Absent) and one.state is state and one.reason:
                return one.reason
    if counting == NOT_PYTHON:
        return "; ".join(one.reason for one in (NOT_PYTHON, said[0]) if isinstance(one, Absent))
    return ""
