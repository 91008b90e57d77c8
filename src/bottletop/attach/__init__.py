"""From what a person types (a pid, a name) to the process tree that is watched."""

from __future__ import annotations

from bottletop.attach.candidates import (
    Candidate,
    identify,
    identify_child,
    list_processes,
    resolve,
    successor,
)
from bottletop.attach.errors import NoSuchProcess, NotAttachable, NotPermitted
from bottletop.attach.tree import TargetFinder, find_target

__all__ = [
    "Candidate",
    "NoSuchProcess",
    "NotAttachable",
    "NotPermitted",
    "TargetFinder",
    "find_target",
    "identify",
    "identify_child",
    "list_processes",
    "resolve",
    "successor",
]
