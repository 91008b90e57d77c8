"""Plays a scene through the real store and engine."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottletop.clock import ManualClock
from bottletop.model import NS_PER_S
from bottletop.rules.engine import Engine
from bottletop.store import Store
from rulelab.rows import Rows
from rulelab.scene import START_NS, Scene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from bottletop.model import Judgement
    from bottletop.store import View


@dataclass(frozen=True, slots=True)
class Played:
    """What the engine said of a scene."""

    judgements: tuple[Judgement, ...]
    summary: Judgement
    view: View
    """The store at the end."""

    def onset_s(self, code: str) -> float | None:
        """Seconds after the start at which a finding was first shown; None: never."""
        for judgement in self.judgements:
            if any(finding.code == code for finding in judgement.findings):
                return (judgement.t_ns - START_NS) / NS_PER_S
        return None

    @property
    def codes(self) -> set[str]:
        """Codes of all findings that were active at any time."""
        return {finding.code for finding in self.summary.findings}


def read_scene(path: Path) -> dict[str, Any]:
    """A scene file as plain data."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def looks(scene: Scene) -> Iterator[tuple[Store, int]]:
    """Feed a scene into a store; yields at every moment at which the rules would be evaluated."""
    store = Store()
    clock = ManualClock(START_NS)
    for sample in Rows(scene).samples():
        if sample is not None:
            store.ingest(sample)
            continue
        clock.advance(1.0)
        yield store, clock.monotonic_ns()


def play(raw: dict[str, Any], engine: Engine | None = None) -> Played:
    """Judge a scene once a second from its start to its end."""
    engine = engine or Engine()
    judgements = []
    store, now_ns = Store(), START_NS
    for store, now_ns in looks(Scene.parse(raw)):
        judgements.append(engine.evaluate(store.view(now_ns)))
    return Played(tuple(judgements), engine.summary(), store.view(now_ns))
