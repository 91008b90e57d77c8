"""Histories as small pictures: samples into columns of equal time, columns into rows of cells.

Fixed scale, gaps kept: a stretch without data stays blank, a zero is drawn as the lowest level, so
that unknown never looks like idle.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.rings import Series
    from bottletop.tui.glyphs import Glyphs

NAN = math.nan


_LEFT = (0x00, 0x40, 0x44, 0x46, 0x47)
_RIGHT = (0x00, 0x80, 0xA0, 0xB0, 0xB8)
_BRAILLE = tuple(
    tuple(" " if not left | right else chr(0x2800 + left + right) for right in _RIGHT)
    for left in _LEFT
)
"""Cell filled to `left` and `right` of four dots. A blank cell is a space: a third of the bytes."""


class Grid(NamedTuple):
    """Columns of equal time that end at a multiple of their width.

    The alignment keeps a picture still while it scrolls: a sample stays in its column for good.
    """

    end_ns: int
    step_ns: int
    columns: int

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.step_ns * self.columns

    def column(self, t_ns: int) -> int:
        """The column that covers (start, end], possibly outside the grid."""
        return -((self.start_ns - t_ns) // self.step_ns) - 1


def grid(now_ns: int, span_s: float, count: int) -> Grid:
    """Columns for the last `span_s` seconds."""
    step_ns = max(1, round(span_s * NS_PER_S / max(1, count)))
    return Grid(-(-now_ns // step_ns) * step_ns, step_ns, count)


def columns(series: Series, on: Grid, hold_s: float) -> list[float]:
    """Mean of the samples of each column, NaN where there is none.

    A sample stands for the time before it (a driver's stamp ends its averaging window), so an empty
    column takes the next sample that comes at most `hold_s` later.
    """
    times, values = series
    total = [0.0] * on.columns
    seen = [0] * on.columns
    start_ns, step_ns, count = on.start_ns, on.step_ns, on.columns
    first = bisect_right(times, start_ns)
    for index in range(first, len(times)):
        value = values[index]
        if value != value:
            continue
        column = (times[index] - start_ns - 1) // step_ns
        if column >= count:
            break
        total[column] += value
        seen[column] += 1
    out = [total[at] / seen[at] if seen[at] else NAN for at in range(count)]
    hold = int(hold_s * NS_PER_S / step_ns)
    if hold:
        _fill_back(out, hold)
    return out


def _fill_back(out: list[float], hold: int) -> None:
    value, age = NAN, hold
    for at in range(len(out) - 1, -1, -1):
        if out[at] == out[at]:
            value, age = out[at], 0
        elif age < hold:
            age += 1
            out[at] = value


def merged(first: list[float], second: list[float]) -> list[float]:
    """`first`, with `second` where it has nothing."""
    return [a if a == a else b for a, b in zip(first, second, strict=True)]


def area(
    values: Sequence[float], height: int, glyphs: Glyphs, low: float = 0, high: float = 100
) -> list[str]:
    """Rows of a filled area from the top, one string a row, `len(values) / samples` cells wide."""
    two = glyphs.samples_a_cell == 2
    steps = 4 if two else len(glyphs.levels) - 1
    most = steps * height
    scale = (most - 1) / (high - low) if high > low else 0.0
    levels = [
        0 if value != value else min(most, max(1, int((value - low) * scale + 1.5)))
        for value in values
    ]
    rows = []
    for fill in _fills(steps, height):
        if two:
            pairs = zip(levels[::2], levels[1::2], strict=False)
            rows.append("".join([_BRAILLE[fill[left]][fill[right]] for left, right in pairs]))
        else:
            rows.append("".join([glyphs.levels[fill[level]] for level in levels]))
    return rows


@lru_cache(maxsize=64)
def _fills(steps: int, height: int) -> tuple[tuple[int, ...], ...]:
    """For each row from the top: how far a level fills its cell."""
    bases = [(height - 1 - row) * steps for row in range(height)]
    levels = range(steps * height + 1)
    return tuple(tuple(min(max(level - base, 0), steps) for level in levels) for base in bases)


@lru_cache(maxsize=4096)
def bar(eighths: str, share_pm: int, width: int) -> str:
    """A bar of `width` cells filled to `share_pm` thousandths; the rest is left to the caller.

    Returns only the filled part. A share above zero shows at least the thinnest part.
    """
    steps = len(eighths) - 1
    total = min(max(share_pm, 0), 1000) * width * steps // 1000
    if share_pm > 0:
        total = max(1, total)
    full, part = divmod(total, steps)
    return eighths[-1] * full + (eighths[part] if part else "")
