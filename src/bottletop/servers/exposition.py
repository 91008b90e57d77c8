"""The text format of Prometheus and OpenMetrics, as far as a page of a server needs it.

Only series whose names are asked for are looked at twice: a page of a busy server has thousands of
lines, of which a diagnosis needs a few dozen. The format: github.com/prometheus/docs, "exposition
formats". Pages are hostile input: what is not a series is passed over, what is too much is cut off.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MAX_SERIES = 50_000
MAX_LABELS_BYTES = 4096

_SERIES = re.compile(
    rb"^[ \t]*([A-Za-z_:][\w:]{0,255})"
    rb'(?:\{((?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*)\})?'
    rb"[ \t]+([^\s#]+)",
    re.MULTILINE,
)
_LABEL = re.compile(rb'([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)


class Series(NamedTuple):
    """One line of a page."""

    name: str
    labels: Mapping[str, str]
    value: float
    told: bytes
    """The labels as they stand on the page."""


def series(page: bytes, wanted: Callable[[str], bool]) -> Iterator[Series]:
    """Every series with a name that `wanted` agrees to, asked once a name. Never raises.

    NaN, infinities and what is no number are left out: they are no count and no time.
    """
    asked: dict[bytes, str] = {}
    for number, found in enumerate(_SERIES.finditer(page)):
        if number >= MAX_SERIES:
            return
        raw_name, raw_labels, raw_value = found.groups()
        name = asked.get(raw_name)
        if name is None:
            name = raw_name.decode("ascii", "replace")
            name = asked[raw_name] = name if wanted(name) else ""
        if not name:
            continue
        value = _number(raw_value)
        if value is not None:
            told = raw_labels or b""
            yield Series(name, labels_of(told), value, told)


@lru_cache(maxsize=8192)
def labels_of(raw: bytes) -> Mapping[str, str]:
    """Labels of one series, values cleaned. Remembered, as the next page has the same ones."""
    if not raw or len(raw) > MAX_LABELS_BYTES:
        return {}
    return {
        key.decode("ascii"): clean(_ESCAPE.sub(_unescape, value), 128)
        for key, value in _LABEL.findall(raw)
    }


def names(page: bytes) -> list[str]:
    """Names of the series of a page, each once, in order."""
    found: dict[bytes, None] = {}
    for number, match in enumerate(_SERIES.finditer(page)):
        if number >= MAX_SERIES:
            break
        found[match[1]] = None
    return [name.decode("ascii", "replace") for name in found]


def _unescape(match: re.Match[bytes]) -> bytes:
    return b"\n" if match[1] == b"n" else match[1]


def _number(raw: bytes) -> float | None:
    try:
        value = float(raw)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
