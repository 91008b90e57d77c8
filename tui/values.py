"""Values of a view as the screens take them: a number, or the word for why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.model import Absent, State, Value
from bottletop.store import Missing

if TYPE_CHECKING:
    from bottletop.model import Metric
    from bottletop.store import View

NOW_S = 2.5
"""Look-back of "now" for counters: two ticks and some slack, as one tick alone flickers."""


def per_s(view: View, metric: Metric, key: str, span_s: float = NOW_S) -> float | None:
    """Growth a second of a counter, None where it cannot be told."""
    try:
        return view.growth(metric, key, span_s).per_s
    except Missing:
        return None


def absent_word(value: Value) -> str:
    """The shortest word for why a value is missing; stale, denied and lost look different."""
    if not isinstance(value, Absent):
        return ""
    return {
        State.UNSUPPORTED: "n/a",
        State.DENIED: "denied",
        State.LOST: "lost",
        State.STALE: "stale",
        State.ERROR: "error",
        State.IMPLAUSIBLE: "absurd",
    }.get(value.state, "–")
