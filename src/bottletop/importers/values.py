"""Cells as tools print them: numbers with units, and the many words for "there is none"."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from bottletop.model import Absent, State, Value
from bottletop.tables.gpu_believed import BELIEVED
from bottletop.text import clean

if TYPE_CHECKING:
    from bottletop.model import Metric

_ABSENT: dict[str, State] = {
    "": State.NOT_READ,
    "-": State.UNSUPPORTED,
    "--": State.UNSUPPORTED,
    "n/a": State.UNSUPPORTED,
    "na": State.UNSUPPORTED,
    "nan": State.UNSUPPORTED,
    "none": State.UNSUPPORTED,
    "null": State.UNSUPPORTED,
    "not supported": State.UNSUPPORTED,
    "not available": State.UNSUPPORTED,
    "not found": State.UNSUPPORTED,
    "no data": State.UNSUPPORTED,
    "disabled": State.UNSUPPORTED,
    "insufficient permissions": State.DENIED,
    "no permission": State.DENIED,
    "err!": State.ERROR,
    "err": State.ERROR,
    "error": State.ERROR,
    "unknown error": State.ERROR,
    "unknown": State.ERROR,
    "timeout": State.ERROR,
    "gpu is lost": State.LOST,
    "gpu requires reset": State.LOST,
}
LOST_WORDS = "gpu is lost"
RESET_WORDS = "gpu requires reset"

_NUMBER = re.compile(
    r"\s*(?P<sign>[PpXx]?)(?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?"
    r"|\.\d+))\s*(?P<unit>[%A-Za-zµ°][A-Za-z/%()]*)?\s*"
)
_SCALES: dict[str, dict[str, float]] = {
    "%": {"%": 1, "": 1},
    "W": {"w": 1, "": 1, "mw": 1e-3, "kw": 1e3},
    "MHz": {"mhz": 1, "": 1, "ghz": 1e3, "khz": 1e-3},
    "C": {"c": 1, "": 1, "°c": 1},
    "B": {
        "b": 1,
        "bytes": 1,
        "kib": 2**10,
        "kb": 2**10,
        "mib": 2**20,
        "mb": 2**20,
        "gib": 2**30,
        "gb": 2**30,
        "tib": 2**40,
    },
    "B/s": {"b/s": 1, "kb/s": 1e3, "kib/s": 2**10, "mb/s": 1e6, "mib/s": 2**20, "gb/s": 1e9},
    "ns": {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    "mJ": {"mj": 1, "": 1, "j": 1e3},
    "": {"": 1, "x": 1},
}
"""By the unit of a metric: what one of a printed unit is in it. nvidia-smi's MB are MiB."""
_BELIEVED: dict[str, tuple[float, float]] = {
    "%": (0, 100),
    "W": (0, 20_000),
    "MHz": (0, 20_000),
    "C": (-60, 200),
    "B": (0, 2**50),
    "B/s": (0, 2**45),
}
_COUNT = (0.0, float(2**63 - 1))


def missing(raw: str) -> Absent | None:
    """The absent value that `raw` stands for, in the tool's own words; None where it is a value."""
    words = raw.strip()
    state = _ABSENT.get(words.strip("[]").strip().lower())
    if state is None:
        return None
    if state is State.NOT_READ:
        return Absent(State.NOT_READ, "empty in the log")
    return Absent(state, f'the log says "{clean(words, 40)}"')


def cell(metric: Metric, raw: str, unit: str = "") -> Value:
    """`raw` as a value of `metric`; `unit` is what the column's header says it is in.

    What is no number in a unit we know is an error in its own words; what no part could answer is
    implausible, with the raw number kept.
    """
    absent = missing(raw)
    if absent is not None:
        return absent
    match = _NUMBER.fullmatch(raw)
    scales = _SCALES.get(metric.unit, _SCALES[""])
    if match is None:
        return Absent.error(f'the log says "{clean(raw, 40)}"')
    written = (match["unit"] or unit).lower().strip("()")
    scale = scales.get(written)
    if scale is None:
        return Absent.error(f'unknown unit in "{clean(raw, 40)}"')
    digits = match["number"].replace("_", "")
    try:
        number = float(int(digits, 16)) if "x" in digits.lower() else float(digits)
    except (ValueError, OverflowError):
        return Absent.error(f'the log says "{clean(raw, 40)}"')
    return believed(metric, number * scale, raw)


def believed(metric: Metric, value: float, raw: str | float = "") -> Value:
    """`value`, or `Absent.implausible`: tools print sentinels, 17179869184 GiB, as numbers."""
    low, high = BELIEVED.get(metric) or _BELIEVED.get(metric.unit, _COUNT)
    if math.isfinite(value) and low <= value <= high:
        return round(value) if metric.quantum == 1 and metric.unit != "W" else value
    shown = clean(raw, 40) if isinstance(raw, str) else raw
    return Absent.implausible(shown or value, f"not between {low:g} and {high:g} {metric.unit}")
