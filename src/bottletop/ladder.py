"""Ways in which a target's stages can be read, best first, and why each is taken or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import Absent
from bottletop.tables import TargetInfo

if TYPE_CHECKING:
    from bottletop.store import View

_RUNGS = (
    ("server metrics", TargetInfo.metrics),
    ("probe", TargetInfo.probe),
    ("stack sampler", TargetInfo.stacks),
)
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
