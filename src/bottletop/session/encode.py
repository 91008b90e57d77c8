"""Samples to bytes. What is read back equals what was written, float for float.

`step * quantum` is stored only where it gives back the very same number. This runs every second
beside what it measures, so whole columns go through C loops wherever they can.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter, sub
from typing import TYPE_CHECKING, Any

import msgspec

from bottletop.model import NOT_READ, Absent
from bottletop.session.codec import (
    MIXED,
    PLAIN,
    RAW,
    SPECIAL,
    STATES,
    STEPS,
    WIDE_HIGH,
    WIDE_LOW,
    Block,
    Column,
    Entity,
    Layout,
    Number,
    Special,
    TailAbsent,
    TailJudgement,
    TailRow,
    TailSample,
    TailValue,
    deflate,
)
from bottletop.session.strings import storable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.model import Row, Sample, Table, Value
    from bottletop.session.events import Arrived
    from bottletop.session.strings import Interner

_STATE_NUMBER = {state.value: number for number, state in enumerate(STATES)}
_NUMERIC: set[type] = {int, float, bool}
_INT: set[type] = {int}
_TEXT: set[type] = {str}
_KEY, _STAMP, _VALUES = itemgetter(0), itemgetter(1), itemgetter(2)
Quantum = int | float | None
_encode = msgspec.msgpack.Encoder().encode


def pack_tail(samples: list[TailSample], judgements: list[TailJudgement]) -> bytes:
    """One row of the tail."""
    row = TailRow(samples, judgements)
    try:
        return _encode(row)
    except (OverflowError, UnicodeError):
        for sample in samples:
            sample.columns = [[_holdable(value) for value in column] for column in sample.columns]
        return _encode(row)


def _holdable(value: Any) -> TailValue:
    """A value of the tail as MessagePack can hold it."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Absent):
        raw, wide = value.raw, _is_wide(value.raw)
        if wide or isinstance(raw, str):
            raw = storable(str(raw))
        return TailAbsent(value.state.value, storable(value.reason), raw, wide)
    return TailAbsent("", "", str(value), True) if _is_wide(value) else value


class Encoder:
    """Encodes samples of one table; `intern` gives the id of a text."""

    def __init__(self, table: type[Table], intern: Interner) -> None:
        self.table = table
        self._careful = False
        """Look at every number's size: only where one was found that 64 bits cannot hold."""
        self._intern = intern
        _, self._texts, self._quanta, _ = Layout.declared(table)
        self._specials: dict[Special, int] = {}
        self._keys: tuple[tuple[str, ...], Column] = ((), None)

    def tail(self, arrived: Arrived) -> TailSample:
        """One sample, for the tail."""
        arrival, sample = arrived
        rows, t_ns = sample.rows, sample.t_ns
        n = len(rows)
        columns: list[Any] = []
        for values in zip(*map(_VALUES, rows), strict=True):
            first = values[0]
            # Identity first: most columns that are all the same share one object.
            same = first is values[-1] and values.count(first) == n
            columns.append((first,) if same else values)
        return TailSample(
            self._intern(self.table.name),
            arrival,
            self._intern(sample.source),
            t_ns,
            sample.took_ns,
            n,
            self._key_column(tuple(map(_KEY, rows))),
            [] if aligned(sample) else list(map(_STAMP, rows)),
            columns,
        )

    def _key_column(self, keys: tuple[str, ...]) -> Column:
        """Ids of the keys; most samples have the same ones as the one before."""
        if keys != self._keys[0]:
            self._keys = (keys, [RAW, *self._intern.many(keys)])
        return self._keys[1]

    def block(self, arrived: Sequence[Arrived]) -> bytes:
        """Samples of the table in arrival order, at least one, as one compressed block."""
        try:
            return deflate(_encode(self._block(arrived)))
        except OverflowError:
            self._careful = True
            return deflate(_encode(self._block(arrived)))

    def _block(self, arrived: Sequence[Arrived]) -> Block:
        self._specials = {}
        samples = [sample for _, sample in arrived]
        layouts: dict[tuple[str, ...], int] = {}
        layout_of = [
            layouts.setdefault(tuple(map(_KEY, sample.rows)), len(layouts)) for sample in samples
        ]
        series = _series(samples, list(layouts), layout_of)
        number = {key: at for at, key in enumerate(series)}
        entities = [
            Entity(self._intern(key), integers(offsets), self._columns(rows))
            for key, (rows, offsets) in series.items()
        ]
        return Block(
            len(arrived),
            integers([arrival for arrival, _ in arrived]),
            integers([sample.t_ns for sample in samples]),
            integers([sample.took_ns for sample in samples]),
            integers(self._intern.many([sample.source for sample in samples])),
            [[number[key] for key in layout] for layout in layouts],
            integers(layout_of),
            list(self._specials),
            entities,
        )

    def _columns(self, rows: Sequence[Row]) -> list[Column]:
        n = len(rows)
        columns: list[Column] = []
        values: tuple[Any, ...]
        for values, quantum, text in zip(
            zip(*map(_VALUES, rows), strict=True), self._quanta, self._texts, strict=True
        ):
            first = values[0]
            last = values[-1]
            if (last is first or last == first) and values.count(first) == n:
                columns.append(self._constant(first, quantum, text))
                continue
            # Most columns that change are counters. Their sum is an integer only if they all are,
            # and remainders, never negative, are all zero only if their sum is.
            try:
                total = sum(values)
            except TypeError:
                total = None
            if total.__class__ is int and quantum.__class__ is int and not self._careful:
                steps = values if quantum == 1 else [value // quantum for value in values]
                if quantum == 1 or sum(steps) * quantum == total:
                    columns.append([STEPS, int(steps[0]), *map(sub, steps[1:], steps)])
                else:
                    columns.append([RAW, *values])
            else:
                columns.append(self._varying(values, quantum, text))
        return columns

    def _varying(self, values: tuple[Value, ...], quantum: Quantum, text: bool) -> Column:
        kinds = set(map(type, values))
        if text:
            if kinds == _TEXT:
                return [RAW, *self._intern.many(values)]  # type: ignore[arg-type]
        elif kinds <= _NUMERIC and not self._careful:
            return numbers(values, quantum, kinds)
        return self._mixed(values, quantum, text)

    def _constant(self, value: Value, quantum: Quantum, text: bool) -> Column:
        if value is NOT_READ:
            return None
        if isinstance(value, str):
            if text:
                return self._intern(value)
        elif isinstance(value, int) and not text:
            step, rest = divmod(value, quantum or 1)
            if not rest and isinstance(step, int) and not _is_wide(step):
                return step
        elif isinstance(value, float) and not text:
            if self._careful:
                return value
            packed = numbers([value], quantum, {float})
            return packed[1] if packed[0] == STEPS else value
        return [SPECIAL, self._special(value)]

    def _mixed(self, values: tuple[Value, ...], quantum: Quantum, text: bool) -> Column:
        """Plain values as usual, the others by place and special number."""
        plain = _TEXT if text else _NUMERIC
        odd = [at for at, kind in enumerate(map(type, values)) if kind not in plain]
        if self._careful:
            odd = [at for at, value in enumerate(values) if at in odd or _is_wide(value)]
        places: list[Number] = []
        for at in odd:
            places += (at, self._special(values[at]))
        skip = set(odd)
        rest: Sequence[Any] = [value for at, value in enumerate(values) if at not in skip]
        if text:
            rest = self._intern.many(rest)
        packed: list[Number] = [RAW, *rest]
        if not text and not self._careful and rest:
            packed = numbers(rest, quantum, set(map(type, rest)))
        return [MIXED, len(odd), *places, *(packed if rest else ())]

    def _special(self, value: Value) -> int:
        """Number of a special value in the list that is being gathered."""
        state, reason = PLAIN, 0
        raw: int | float | str | None
        if isinstance(value, Absent):
            state, reason = _STATE_NUMBER[value.state._value_], self._intern(value.reason)
            raw = value.raw
        else:
            raw = value
        if isinstance(raw, str):
            special = Special(state, reason, None, self._intern(raw))
        elif _is_wide(raw):
            special = Special(state, reason, None, self._intern(str(raw)), True)
        else:
            special = Special(state, reason, raw)
        return self._specials.setdefault(special, len(self._specials))


def aligned(sample: Sample) -> bool:
    """Whether all rows are of the moment of their sample."""
    return {sample.t_ns}.issuperset(map(_STAMP, sample.rows))


_Series = dict[str, tuple[list["Row"], list[int]]]
"""Rows of each key with the offsets of their stamps, keys in the order of their first rows."""


def _series(
    samples: list[Sample], layouts: Sequence[tuple[str, ...]], layout_of: list[int]
) -> _Series:
    """The rows of samples by key; neighbours of one layout, as most are, turned around at once."""
    series: _Series = {}
    at = 0
    for number, run in groupby(layout_of):
        end = at + sum(1 for _ in run)
        layout = layouts[number]
        alone = len(set(layout)) == len(layout)
        (_extend if alone else _extend_repeated)(series, layout, samples[at:end])
        at = end
    return series


def _extend(series: _Series, layout: tuple[str, ...], run: list[Sample]) -> None:
    """Add the rows of samples of one layout, in which each key comes once."""
    times = None if all(map(aligned, run)) else [sample.t_ns for sample in run]
    zeros = [0] * len(run)
    columns = zip(*[sample.rows for sample in run], strict=True)
    for key, new in zip(layout, columns, strict=True):
        rows, offsets = series.setdefault(key, ([], []))
        rows += new
        offsets += zeros if times is None else map(sub, map(_STAMP, new), times)


def _extend_repeated(series: _Series, layout: tuple[str, ...], run: list[Sample]) -> None:
    """Add the rows of samples of one layout, in which a key may come more than once."""
    for sample in run:
        for key, row in zip(layout, sample.rows, strict=True):
            rows, offsets = series.setdefault(key, ([], []))
            rows.append(row)
            offsets.append(row.t_ns - sample.t_ns)


def _is_wide(value: object) -> bool:
    return isinstance(value, int) and not WIDE_LOW <= value <= WIDE_HIGH


def integers(values: Sequence[int]) -> Column:
    """Integers of at most 63 bits as a constant or as steps."""
    first = values[0]
    if values.count(first) == len(values):
        return first
    return [STEPS, first, *map(sub, values[1:], values)]


def numbers(values: Sequence[Any], quantum: Quantum, kinds: set[type]) -> list[Number]:
    """Numbers as steps of the quantum where that gives every one back, else as they are.

    `kinds` are their types.
    """
    steps: Sequence[int] = ()
    if kinds == _INT and isinstance(quantum, int):
        steps = [value // quantum for value in values]
        if sum(steps) * quantum != sum(values):
            steps = ()
    elif kinds == {float} and isinstance(quantum, float):
        steps = _float_steps(values, quantum)
    if steps:
        return [STEPS, steps[0], *map(sub, steps[1:], steps)]
    return [RAW, *values]


def _float_steps(values: Sequence[float], quantum: float) -> list[int]:
    """Steps that give back exactly these floats; empty when there are none."""
    try:
        steps = [round(value / quantum) for value in values]
        return steps if [step * quantum for step in steps] == list(values) else []
    except (ValueError, OverflowError):
        return []  # not finite
