"""Samples to bytes. What is read back equals what was written, float for float.

`step * quantum` is stored only where it gives back the very same number.
"""

from __future__ import annotations

from math import isfinite
from operator import sub
from typing import TYPE_CHECKING

import msgspec

from bottletop.model import NOT_READ, Absent, Row, Sample
from bottletop.session.codec import (
    MIXED,
    PLAIN,
    RAW,
    SPECIAL,
    STATES,
    STEP_LIMIT,
    STEPS,
    WIDE_HIGH,
    WIDE_LOW,
    Block,
    Cell,
    Column,
    Entity,
    Layout,
    Number,
    Special,
    TailSample,
    deflate,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bottletop.model import Table, Value
    from bottletop.session.events import Arrived

_STATE_NUMBER = {state: number for number, state in enumerate(STATES)}
_NUMERIC = {int, float, bool}
_encode = msgspec.msgpack.Encoder().encode


class Encoder:
    """Encodes samples of one table; `intern` gives the id of a text."""

    def __init__(self, table: type[Table], intern: Callable[[str], int]) -> None:
        self.table = table
        self._intern = intern
        _, self._texts, self._quanta, _ = Layout.declared(table)
        self._specials: dict[Special, int] = {}

    # -- one sample -------------------------------------------------------------------------

    def tail(self, sample: Sample) -> bytes:
        """One sample, quickly: written every tick, read only after a crash."""
        intern, t_ns = self._intern, sample.t_ns
        rows: list[list[Cell]] = [
            [intern(row.key), row.t_ns - t_ns, *self._cells(row.values)] for row in sample.rows
        ]
        packed = TailSample(intern(sample.source), t_ns, sample.took_ns, rows)
        try:
            return _encode(packed)
        except OverflowError:
            for row in rows:
                row[2:] = [self._special(cell) if _is_wide(cell) else cell for cell in row[2:]]
            return _encode(packed)

    def _cells(self, values: tuple[Value, ...]) -> list[Cell]:
        cells: list[Cell] = []
        for value, text in zip(values, self._texts, strict=True):
            if value is NOT_READ:
                cells.append(None)
            elif isinstance(value, str):
                cells.append(self._intern(value) if text else self._special(value))
            elif text or isinstance(value, Absent):
                cells.append(self._special(value))
            else:
                cells.append(value)
        return cells

    # -- many samples -----------------------------------------------------------------------

    def block(self, arrived: Sequence[Arrived]) -> bytes:
        """Samples of the table in arrival order, at least one, as one compressed block."""
        self._specials = {}
        rows_of: dict[str, list[Row]] = {}
        offsets_of: dict[str, list[int]] = {}
        layouts: dict[tuple[str, ...], int] = {}
        layout_of = []
        for _, sample in arrived:
            t_ns = sample.t_ns
            for row in sample.rows:
                key = row.key
                if key not in rows_of:
                    rows_of[key], offsets_of[key] = [], []
                rows_of[key].append(row)
                offsets_of[key].append(row.t_ns - t_ns)
            layout = tuple([row.key for row in sample.rows])
            layout_of.append(layouts.setdefault(layout, len(layouts)))
        number = {key: at for at, key in enumerate(rows_of)}
        entities = [
            Entity(self._intern(key), integers(offsets_of[key]), self._columns(rows))
            for key, rows in rows_of.items()
        ]
        packed = Block(
            len(arrived),
            integers([arrival for arrival, _ in arrived]),
            integers([sample.t_ns for _, sample in arrived]),
            integers([sample.took_ns for _, sample in arrived]),
            integers([self._intern(sample.source) for _, sample in arrived]),
            [[number[key] for key in layout] for layout in layouts],
            integers(layout_of),
            list(self._specials),
            entities,
        )
        return deflate(_encode(packed))

    def _columns(self, rows: list[Row]) -> list[Column]:
        columns = zip(*[row.values for row in rows], strict=True)
        return [
            self._column(values, quantum, text)
            for values, quantum, text in zip(columns, self._quanta, self._texts, strict=True)
        ]

    def _column(self, values: tuple[Value, ...], quantum: float, text: bool) -> Column:
        first = values[0]
        if values.count(first) == len(values):
            return self._constant(first, quantum, text)
        kinds = set(map(type, values))
        if text and kinds == {str}:
            return integers([self._intern(value) for value in values])  # type: ignore[arg-type]
        if not text and kinds <= _NUMERIC and not any(map(_is_wide, values)):
            return numbers(values, quantum)  # type: ignore[arg-type]
        return self._mixed(values, quantum, text)

    def _constant(self, value: Value, quantum: float, text: bool) -> Column:
        if value is NOT_READ:
            return None
        if text:
            if isinstance(value, str):
                return self._intern(value)
        elif type(value) is int:
            if type(quantum) is int and value % quantum == 0 and abs(value) < STEP_LIMIT:
                return value // quantum
        elif type(value) is float:
            tag, step = numbers([value], quantum)
            return step if tag == STEPS else value
        return [SPECIAL, self._special_number(value)]

    def _mixed(self, values: tuple[Value, ...], quantum: float, text: bool) -> Column:
        """Plain values as usual, the others by place and special number."""
        places: list[Number] = []
        rest: list[Number] = []
        for at, value in enumerate(values):
            if text and isinstance(value, str):
                rest.append(self._intern(value))
            elif text or isinstance(value, (str, Absent)) or _is_wide(value):
                places += (at, self._special_number(value))
            else:
                rest.append(value)
        packed = numbers(rest, 1 if text else quantum) if rest else []
        return [MIXED, len(places) // 2, *places, *packed]

    # -- special values ---------------------------------------------------------------------

    def _special_number(self, value: Value) -> int:
        return self._specials.setdefault(self._special(value), len(self._specials))

    def _special(self, value: Value | Cell) -> Special:
        if isinstance(value, Absent):
            state, reason = _STATE_NUMBER[value.state], self._intern(value.reason)
            raw: object = value.raw
        else:
            state, reason, raw = PLAIN, 0, value
        if isinstance(raw, str):
            return Special(state, reason, None, self._intern(raw))
        if _is_wide(raw):
            return Special(state, reason, None, self._intern(str(raw)), True)
        if isinstance(raw, (int, float)):
            return Special(state, reason, raw)
        return Special(state, reason)


def _is_wide(value: object) -> bool:
    return type(value) is int and not WIDE_LOW <= value <= WIDE_HIGH


def integers(values: Sequence[int]) -> Column:
    """Integers as a constant or as steps."""
    first = values[0]
    return first if values.count(first) == len(values) else numbers(values, 1)


def numbers(values: Sequence[Number], quantum: float) -> list[Number]:
    """Numbers as steps of the quantum where that gives every one back, else as they are."""
    kinds = set(map(type, values))
    steps: list[int] = []
    if kinds == {int} and type(quantum) is int:
        if quantum == 1:
            steps = list(values)  # type: ignore[arg-type]
        elif not any(value % quantum for value in values):
            steps = [value // quantum for value in values]  # type: ignore[misc]
    elif kinds == {float} and type(quantum) is float and all(map(isfinite, values)):
        steps = [round(value / quantum) for value in values]
        if [step * quantum for step in steps] != list(values):
            steps = []
    if steps and max(steps) < STEP_LIMIT and min(steps) > -STEP_LIMIT:
        return [STEPS, steps[0], *map(sub, steps[1:], steps)]
    return [RAW, *values]
