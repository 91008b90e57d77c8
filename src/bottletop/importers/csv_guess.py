"""What the columns of a query log without a header can only be.

Guesses only what the cells settle: units, addresses, product names, a total that the other two
memory columns add up to. A table of bare numbers is refused; `--columns` says what it holds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bottletop.importers import stamps
from bottletop.importers.values import missing

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("uuid", re.compile(r"(GPU|MIG)-[0-9a-fA-F-]{8,}")),
    ("pci.bus_id", re.compile(r"([0-9A-Fa-f]{4,8}:)[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")),
    ("name", re.compile(r"(NVIDIA|Tesla|GeForce|Quadro|RTX|GTX|TITAN|GRID|Orin|Thor)\b.*", re.I)),
    ("pstate", re.compile(r"P\d{1,2}")),
    ("clocks_event_reasons.active", re.compile(r"0x[0-9a-fA-F]{8,}")),
    ("driver_version", re.compile(r"\d{3}\.\d{2,3}(\.\d{2})?")),
)
_UNITS = (
    ("%", ("utilization.gpu", "utilization.memory")),
    ("W", ("power.draw", "power.limit")),
    ("MiB", ()),
    ("MHz", ("clocks.current.sm",)),
)
_ROWS = 50


def guess_columns(rows: Sequence[Sequence[str]]) -> tuple[str, ...] | None:
    """A query name for each column, empty where none is sure; None where nothing is sure enough.

    A log needs at least utilisation or power with its unit to be worth a guess.
    """
    width = _usual_width(rows)
    if width < 2:
        return None
    columns = list(zip(*[row for row in rows if len(row) == width][:_ROWS], strict=True))
    names = [_by_shape(column) for column in columns]
    for unit, known in _UNITS:
        places = [n for n, column in enumerate(columns) if not names[n] and _in_unit(column, unit)]
        found = (
            _memory(columns, places) if unit == "MiB" else dict(zip(places, known, strict=False))
        )
        for place, name in found.items():
            names[place] = name
    _index(columns, names)
    sure = {"utilization.gpu", "power.draw", "memory.used"}
    return tuple(names) if sure & set(names) else None


def _usual_width(rows: Sequence[Sequence[str]]) -> int:
    widths = [len(row) for row in rows]
    width = max(set(widths), key=widths.count, default=0)
    return width if widths.count(width) * 2 > len(widths) else 0


def _by_shape(column: Sequence[str]) -> str:
    present = [text for text in column if missing(text) is None]
    if not present:
        return ""
    if all(":" in text and stamps.wall_s(text) is not None for text in present):
        return "timestamp"
    return next((name for name, shape in _SHAPES if all(map(shape.fullmatch, present))), "")


def _in_unit(column: Sequence[str], unit: str) -> bool:
    present = [text for text in column if missing(text) is None]
    return bool(present) and all(re.fullmatch(rf"[\d.]+ {unit}", text) for text in present)


def _memory(columns: Sequence[Sequence[str]], places: Sequence[int]) -> dict[int, str]:
    """Total and used: the total never changes and is never less; a third column may be what is free
    or what the driver keeps, so with three the order in which people ask decides."""
    if not places:
        return {}
    values = {place: _numbers(columns[place]) for place in places}
    total = max(places, key=lambda place: (max(values[place]), -place))
    if len(places) == 1:
        return {places[0]: "memory.used"} if len(set(values[total])) > 1 else {}
    rest = [place for place in places if place != total]
    if len(set(values[total])) > 1 or len(rest) > 1:
        return {total: "memory.total"} if len(set(values[total])) == 1 else {}
    return {total: "memory.total", rest[0]: "memory.used"}


def _index(columns: Sequence[Sequence[str]], names: list[str]) -> None:
    """Small whole numbers in front that come in a fixed turn from 0 are the index."""
    place = next((n for n in range(len(names)) if not names[n]), None)
    if place is None or place > 1:
        return
    column = columns[place]
    if all(text.isdecimal() and int(text) < 64 for text in column):
        turn = len(set(column))
        if column[0] == "0" and all(int(text) == n % turn for n, text in enumerate(column)):
            names[place] = "index"


def _numbers(column: Sequence[str]) -> list[float]:
    return [float(text.split()[0]) for text in column if missing(text) is None]
