"""Shares the dear work out over time on hosts with many GPUs.

Load and gap budget look back 30 s and the sawtooth detector 120 s, so what they say changes little
from one second to the next. A host with one or two GPUs has all of it renewed at every look; with
more, the GPUs take turns, two a look, and keep their last result meanwhile.

Whose turn it is follows from the time of the look alone, so a recording that is judged again comes
to the same results.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bottletop.model import NS_PER_S
from bottletop.rules.budget import WINDOW_S, gap_budget
from bottletop.rules.demand import stage_uses
from bottletop.rules.load import load
from bottletop.rules.sawtooth import gpu_sawtooth
from bottletop.store import Missing
from bottletop.tables import Gpu

if TYPE_CHECKING:
    from bottletop.rules.budget import GapBudget
    from bottletop.rules.demand import StageUse
    from bottletop.rules.load import Load
    from bottletop.rules.sawtooth import Sawtooth
    from bottletop.store import View

GPUS_A_LOOK = 2
STAGES_A_LOOK = 16
"""With more stages than this they are added up at every other look."""


T = TypeVar("T")


def _same(value: T) -> T:
    return value


class _Kept(NamedTuple):
    t_ns: int
    load: Load
    budget: GapBudget | None
    """None where there is no target to ask why."""
    sawtooth: Sawtooth | None


class Turns:
    """Last results of GPUs whose turn it is not."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._stages: tuple[int, list[StageUse]] = (0, [])

    def lay_out(self, view: View) -> None:
        """Give a fresh view the results that are still good enough."""
        t_ns, uses = self._stages
        odd = view.now_ns // NS_PER_S % 2
        if odd and len(uses) > STAGES_A_LOOK and view.now_ns - t_ns < 1.5 * NS_PER_S:
            view.memo(("stages", WINDOW_S), partial(_same, uses))
        self._stages = (0, [])
        self._lay_out_gpus(view)

    def _lay_out_gpus(self, view: View) -> None:
        gpus = view.keys(Gpu)
        turns = -(-len(gpus) // GPUS_A_LOOK)
        if turns < 2:
            self._kept.clear()
            return
        turn = view.now_ns // NS_PER_S % turns
        oldest_ns = view.now_ns - 2 * turns * NS_PER_S
        for number, gpu in enumerate(gpus):
            kept = self._kept.get(gpu)
            if kept is None or kept.t_ns < oldest_ns or number // GPUS_A_LOOK == turn:
                self._kept.pop(gpu, None)
                continue
            view.memo(("load", gpu, WINDOW_S), partial(_same, kept.load))
            if kept.budget is not None:
                view.memo(("budget", gpu), partial(_same, kept.budget))
            view.memo(("sawtooth", gpu), partial(_same, kept.sawtooth))

    def keep(self, view: View) -> None:
        """Remember what this look worked out anew."""
        if not self._stages[1]:
            self._stages = (view.now_ns, stage_uses(view, WINDOW_S))
        gpus = view.keys(Gpu)
        if len(gpus) <= GPUS_A_LOOK:
            return
        for gpu in gpus:
            if gpu in self._kept:
                continue
            try:
                found, swings = load(view, gpu, WINDOW_S), gpu_sawtooth(view, gpu)
            except Missing:
                continue
            try:
                budget = gap_budget(view, gpu)
            except Missing:
                budget = None
            self._kept[gpu] = _Kept(view.now_ns, found, budget, swings)
