"""Bytes to samples. The bytes may come from anybody: every count is checked before it allocates.

Whatever is wrong with them ends in `Damaged`, never in another exception.
"""

from __future__ import annotations

import zlib
from collections import Counter
from itertools import accumulate, repeat
from math import isfinite
from operator import add
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from bottletop.model import NOT_READ, Absent, Row, Sample, State, Value
from bottletop.session import schema
from bottletop.session.codec import (
    MIXED,
    PLAIN,
    RAW,
    SPECIAL,
    STATES,
    STEPS,
    Block,
    Column,
    Damaged,
    Entity,
    Layout,
    Number,
    Special,
    TailAbsent,
    TailRow,
    TailSample,
    TailValue,
    inflate,
)
from bottletop.session.events import Arrived
from bottletop.session.strings import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BAD_BYTES = (
    msgspec.MsgspecError,
    zlib.error,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RecursionError,
)
"""What decoding foreign bytes may raise; turned into `Damaged`."""

STAMP_LIMIT = 1 << 62
WIDE_DIGITS = 80
_STATE_VALUES = {state.value for state in State}

_decode_block = msgspec.msgpack.Decoder(Block).decode
_decode_tail = msgspec.msgpack.Decoder(TailRow).decode


class Texts(Protocol):
    """The string table as a reader sees it."""

    def text(self, number: int) -> str:
        """The text with that id, empty for 0. Raises LookupError."""


class _Series(NamedTuple):
    """The rows of one entity: offsets of their stamps, and their values."""

    key: str
    offsets: Iterable[int]
    values: Iterator[tuple[Value, ...]]

    def rows(self, stamps: Iterable[int]) -> Iterator[Row]:
        """The rows, one for each sample of those stamps."""
        times = map(add, stamps, self.offsets)
        return map(Row, repeat(self.key), times, self.values)


def _gathered(
    layouts: list[list[int]], stamps: list[int], series: list[_Series]
) -> Iterator[tuple[Row, ...]]:
    """The rows of each sample, where samples differ in what they have."""
    pairs = [zip(of.offsets, of.values, strict=True) for of in series]
    for layout, t_ns in zip(layouts, stamps, strict=True):
        rows = []
        for entity in layout:
            offset, values = next(pairs[entity])
            rows.append(Row(series[entity].key, t_ns + offset, values))
        yield tuple(rows)


class Decoder:
    """Decodes blocks and tail samples of one table."""

    def __init__(self, layout: Layout, texts: Texts) -> None:
        self._layout = layout
        self._text = texts.text
        self._width = len(layout.table.columns)

    def tail(self, packed: TailSample) -> Arrived:
        """One sample of the tail. Raises `Damaged`."""
        try:
            n, t_ns = packed.n, stamp(packed.t_ns)
            if not 0 <= n <= schema.MAX_ROWS or n * self._width > schema.MAX_CELLS:
                raise Damaged(f"{n} rows in a sample")
            rows: tuple[Row, ...] = ()
            if n:
                keys = map(self._text, integer_list(packed.keys, n))
                stamps = map(stamp, packed.stamps or [t_ns] * n)
                values = zip(*self._tail_columns(packed), strict=True)
                rows = tuple(
                    Row(key, at_ns, cells)
                    for key, at_ns, cells in zip(keys, stamps, values, strict=True)
                )
            sample = Sample(
                self._text(packed.source), self._layout.table, t_ns, packed.took_ns, rows
            )
        except BAD_BYTES as error:
            raise Damaged(str(error)) from None
        return Arrived(stamp(packed.arrival), sample)

    def _tail_columns(self, packed: TailSample) -> Iterator[Iterable[Value]]:
        for position in self._layout.positions:
            if position < 0:
                yield repeat(NOT_READ, packed.n)
                continue
            column = [_tail_value(value) for value in packed.columns[position]]
            yield repeat(column[0], packed.n) if len(column) == 1 else column

    def block(self, data: bytes) -> list[Arrived]:
        """All samples of a block, in arrival order. Raises `Damaged`."""
        try:
            return self._samples(_decode_block(inflate(data)))
        except BAD_BYTES as error:
            raise Damaged(str(error)) from None

    def _samples(self, block: Block) -> list[Arrived]:
        n, table = block.n, self._layout.table
        layouts, counts = self._layouts(block)
        specials = [self._special(special) for special in block.specials]
        stamps = list(map(stamp, integer_list(block.t_ns, n)))
        series = [
            self._series(entity, counts[number], specials)
            for number, entity in enumerate(block.entities)
        ]
        rows: Iterable[tuple[Row, ...]]
        if len(block.layouts) == 1 and len(set(layouts[0])) == len(layouts[0]):
            # Every sample has the same rows: they are put together column by column.
            columns = [series[entity].rows(stamps) for entity in layouts[0]]
            rows = zip(*columns, strict=True) if columns else repeat((), n)
        else:
            rows = _gathered(layouts, stamps, series)
        return [
            Arrived(arrival, Sample(source, table, t_ns, took_ns, of))
            for arrival, t_ns, took_ns, source, of in zip(
                integer_list(block.arrivals, n),
                stamps,
                integer_list(block.took_ns, n),
                map(self._text, integer_list(block.sources, n)),
                rows,
                strict=True,
            )
        ]

    def _layouts(self, block: Block) -> tuple[list[list[int]], Counter[int]]:
        """The layout of each sample and the rows of each entity, within the limits."""
        if not 1 <= block.n <= schema.MAX_BLOCK_SAMPLES:
            raise Damaged(f"{block.n} samples in a block")
        for layout in block.layouts:
            if layout and not 0 <= min(layout) <= max(layout) < len(block.entities):
                raise Damaged("a row of no entity")
        layout_of = integer_list(block.layout_of, block.n)
        layouts = [block.layouts[at] for at in layout_of]
        total = sum(map(len, layouts))
        if total > schema.MAX_ROWS or total * self._width > schema.MAX_CELLS:
            raise Damaged(f"{total} rows in a block")
        counts: Counter[int] = Counter()
        for at, uses in Counter(layout_of).items():
            for entity in block.layouts[at]:
                counts[entity] += uses
        return layouts, counts

    def _series(self, entity: Entity, n: int, specials: list[Value]) -> _Series:
        """All rows of an entity."""
        columns = [
            repeat(NOT_READ, n)
            if position < 0
            else self._column(entity.columns[position], n, quantum, text, specials)
            for position, quantum, text in zip(
                self._layout.positions, self._layout.quanta, self._layout.texts, strict=True
            )
        ]
        offsets: Iterable[int] = repeat(0, n)
        if isinstance(entity.offsets, list):
            offsets = list(map(_offset, integer_list(entity.offsets, n)))
        elif entity.offsets != 0:
            offsets = repeat(_offset(entity.offsets), n)
        return _Series(self._text(entity.key), offsets, zip(*columns, strict=True))

    def _column(
        self, column: Column, n: int, quantum: float, text: bool, specials: list[Value]
    ) -> Iterable[Value]:
        """Exactly `n` values."""
        if column is None:
            return repeat(NOT_READ, n)
        if not isinstance(column, list):
            if text:
                return repeat(self._text(_integer(column)), n)
            return repeat(_finite(column * quantum if type(column) is int else column), n)
        if column[0] == SPECIAL:
            return repeat(specials[_integer(column[1])], n)
        if column[0] == MIXED:
            return self._mixed(column, n, quantum, text, specials)
        if text:
            return list(map(self._text, integer_list(column, n)))
        if column[0] == RAW:
            return [_finite(value) for value in _exactly(column, n)]
        steps = integer_list(column, n)
        return steps if quantum == 1 else [step * quantum for step in steps]

    def _mixed(
        self, column: list[Number], n: int, quantum: float, text: bool, specials: list[Value]
    ) -> list[Value]:
        end = 2 + 2 * _integer(column[1])
        pairs = iter(integer_list([RAW, *column[2:end]], end - 2))
        special_at = {at: specials[number] for at, number in zip(pairs, pairs, strict=True)}
        rest = column[end:]
        if rest and rest[0] not in (STEPS, RAW):
            raise Damaged("a column within a mixed column")
        left = n - len(special_at)
        values = iter(list(self._column(rest, left, quantum, text, specials)) if rest else ())
        if left < 0 or bool(rest) != bool(left):
            raise Damaged("a mixed column of the wrong length")
        if special_at and not 0 <= min(special_at) <= max(special_at) < n:
            raise Damaged("a special value outside its column")
        return [special_at[at] if at in special_at else next(values) for at in range(n)]

    def _special(self, special: Special) -> Value:
        number = special.number
        raw: Number | str | None = number
        if special.text is not None:
            text = self._text(special.text)
            raw = int(text[:WIDE_DIGITS]) if special.wide else text
        elif number is not None and not isfinite(number):
            raw = str(number)
        if special.state == PLAIN:
            return NOT_READ if raw is None else raw
        state = STATES[special.state] if 0 <= special.state < len(STATES) else None
        return _absent(state, self._text(special.reason), raw)


def _tail_value(value: TailValue) -> Value:
    if isinstance(value, str):
        return readable(value)
    if not isinstance(value, TailAbsent):
        return _finite(value)
    raw: Number | str | None = value.raw
    if isinstance(raw, str):
        raw = int(raw[:WIDE_DIGITS]) if value.wide else readable(raw)
    elif raw is not None and not isfinite(raw):
        raw = str(raw)
    if not value.state:
        return NOT_READ if raw is None else raw
    state = State(value.state) if value.state in _STATE_VALUES else None
    return _absent(state, readable(value.reason), raw)


def _absent(state: State | None, reason: str, raw: Number | str | None) -> Absent:
    if state is None:
        return Absent(State.NOT_READ, "in a state that this version does not know")
    absent = Absent(state, reason, raw)
    return NOT_READ if absent == NOT_READ else absent


def unpack_tail(data: bytes) -> TailRow:
    """One row of the tail, its samples not decoded yet. Raises `Damaged`."""
    if len(data) > schema.MAX_BLOB_BYTES:
        raise Damaged("larger than a row can be")
    try:
        return _decode_tail(data)
    except BAD_BYTES as error:
        raise Damaged(str(error)) from None


def stamp(t_ns: int) -> int:
    """A monotonic moment that arithmetic on 64 bits survives. Raises `Damaged`."""
    if not 0 <= t_ns < STAMP_LIMIT:
        raise Damaged("a stamp beyond all clocks")
    return t_ns


def integer_list(column: Column, n: int) -> list[int]:
    """Exactly `n` integers. Raises `Damaged`; `n` is within limits."""
    if not isinstance(column, list):
        return [_integer(column)] * n
    values = _exactly(column, n)
    if column[0] == STEPS:
        values = list(accumulate(values))
    elif column[0] != RAW:
        raise Damaged("integers in an unknown form")
    if values and set(map(type, values)) != {int}:
        raise Damaged("not integers")
    return values  # type: ignore[return-value]


def _exactly(column: list[Number], n: int) -> list[Number]:
    if len(column) != n + 1:
        raise Damaged(f"{len(column) - 1} values for {n} rows")
    return column[1:]


def _integer(value: object) -> int:
    if type(value) is not int:
        raise Damaged("not an integer")
    return value


def _offset(value: object) -> int:
    offset = _integer(value)
    if abs(offset) >= STAMP_LIMIT:
        raise Damaged("a stamp beyond all clocks")
    return offset


def _finite(value: Number) -> Value:
    return value if isfinite(value) else Absent.implausible(str(value), "not finite")
