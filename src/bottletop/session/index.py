"""Finds out where everything in a recording is, without decoding any of it.

Every value is checked for its type and range, since SQLite lets any column hold anything.
"""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import Anchor, Kind
from bottletop.session import schema
from bottletop.session.codec import Damaged, Layout, TailRow
from bottletop.session.decode import STAMP_LIMIT, stamp, unpack_tail
from bottletop.session.events import Evaluated, Mark
from bottletop.session.strings import readable
from bottletop.tables import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bottletop.model import Table
    from bottletop.session.judgements import JudgementDecoder

LATEST_WALL_NS = 1 << 63
MAX_QUANTUM = 1e15
DAMAGE_LISTED = 100

MetaValue = str | int | float


class BlockRef(NamedTuple):
    """One sealed block, without its data."""

    id: int
    a0: int
    a1: int
    t0: int
    t1: int
    n: int
    codec: int


class EvaluationRow(NamedTuple):
    """When about 60 judgements were made; what they said is not read yet."""

    id: int
    times: list[int]
    arrivals: list[int]


class Source:
    """Runs queries; what goes wrong is noted in `damaged` and ends the query early."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.damaged: list[str] = []
        self.damaged_count = 0

    def note(self, what: str) -> None:
        """Count one damaged piece; the first hundred are described."""
        self.damaged_count += 1
        if len(self.damaged) < DAMAGE_LISTED:
            self.damaged.append(readable(what)[:200])

    def rows(self, sql: str, *parameters: int | str) -> Iterator[tuple[object, ...]]:
        """Rows of a query."""
        try:
            yield from self._db.execute(sql, parameters)
        except sqlite3.Error as error:
            self.note(f"{sql.split(' FROM ')[-1]}: {error}")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """One state of the file for all queries within: a recorder may be sealing blocks."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("ROLLBACK")

    def value(self, sql: str, *parameters: int) -> object:
        """The only value of a query, None where there is none."""
        return next((row[0] for row in self.rows(sql, *parameters)), None)


@dataclass(slots=True)
class Index:
    """Where everything is; about 200 bytes a block."""

    meta: dict[str, MetaValue]
    anchor: Anchor
    layouts: dict[str, Layout]
    unknown_columns: tuple[str, ...]
    unknown_tables: set[str] = field(default_factory=set)
    blocks: dict[str, list[BlockRef]] = field(default_factory=dict)
    evaluations: list[EvaluationRow] = field(default_factory=list)
    tail: list[bytes] = field(default_factory=list)
    """Rows of the tail whole, since a recorder may be sealing them meanwhile."""
    tail_ends: list[int] = field(default_factory=list)
    """First and last stamp of each."""
    tail_evaluations: list[Evaluated] = field(default_factory=list)
    judgements_left: int = schema.MAX_JUDGEMENTS
    tail_bytes_left: int = schema.MAX_TAIL_BYTES
    tail_judgement_bytes_left: int = schema.MAX_TAIL_JUDGEMENT_BYTES
    marks: list[Mark] = field(default_factory=list)


def load(source: Source, judgements: JudgementDecoder) -> Index:
    """Read the index. Raises `Damaged` when the file says nothing of its clock."""
    with source.frozen():
        meta = _meta(source)
        layouts, unknown = _layouts(source)
        index = Index(meta, _anchor(meta), layouts, unknown)
        _load_blocks(source, index)
        _load_evaluations(source, index, judgements)
        _load_tail(source, index, judgements)
        _load_marks(source, index)
    return index


def plausible(anchor: Anchor, t_ns: int) -> bool:
    """Whether a moment can be written as a date."""
    return 0 <= t_ns < STAMP_LIMIT and 0 <= anchor.wall_at(t_ns) < LATEST_WALL_NS


def _meta(source: Source) -> dict[str, MetaValue]:
    meta: dict[str, MetaValue] = {}
    for key, value in source.rows(f"SELECT k, v FROM meta LIMIT {schema.MAX_META}"):
        if not isinstance(key, str):
            continue
        if isinstance(value, str):
            meta[readable(key)] = readable(value)
        elif isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
            meta[readable(key)] = value
    return meta


def _anchor(meta: Mapping[str, MetaValue]) -> Anchor:
    mono_ns, wall_ns = meta.get("anchor_mono_ns"), meta.get("anchor_wall_ns")
    if not isinstance(mono_ns, int) or not isinstance(wall_ns, int):
        raise Damaged("it does not say what its clock was")
    anchor = Anchor(mono_ns, wall_ns)
    if not plausible(anchor, mono_ns):
        raise Damaged("its clock is beyond all dates")
    return anchor


def _layouts(source: Source) -> tuple[dict[str, Layout], tuple[str, ...]]:
    """How to read each known table, and the columns that are not known here."""
    recorded: dict[str, dict[str, tuple[int, str, int | float]]] = {}
    for table, position, name, kind, quantum in source.rows(
        f"SELECT tbl, pos, name, kind, quantum FROM series LIMIT {schema.MAX_SERIES}"
    ):
        if (
            isinstance(table, str)
            and isinstance(position, int)
            and 0 <= position < schema.MAX_COLUMNS
            and isinstance(name, str)
            and isinstance(kind, str)
            and isinstance(quantum, (int, float))
            and 0 < quantum <= MAX_QUANTUM
        ):
            of = recorded.setdefault(readable(table), {})
            of[readable(name)] = (position, kind, 1 if quantum == 1 else quantum)
    unknown = []
    layouts = {}
    for name, columns in recorded.items():
        table_here = BY_NAME.get(name)
        if table_here is None:
            continue
        layouts[name] = _layout(table_here, columns)
        known = {metric.name for metric in table_here.columns}
        unknown += [f"{name}.{column}" for column in columns if column not in known]
    return layouts, tuple(unknown)


def _layout(table: type[Table], recorded: Mapping[str, tuple[int, str, int | float]]) -> Layout:
    declared = Layout.declared(table)
    positions, quanta = [], []
    for metric, text, quantum in zip(table.columns, declared.texts, declared.quanta, strict=True):
        position, kind, recorded_quantum = recorded.get(metric.name, (-1, metric.kind, quantum))
        if (kind == Kind.TEXT) != text:
            position = -1
        positions.append(position)
        quanta.append(recorded_quantum)
    return Layout(table, declared.texts, tuple(quanta), tuple(positions))


def _load_blocks(source: Source, index: Index) -> None:
    sql = f"SELECT id, a0, a1, t0, t1, n, codec, tbl FROM block LIMIT {schema.MAX_BLOCKS}"
    for row in source.rows(sql):
        *numbers, table = row
        if not isinstance(table, str) or not all(type(number) is int for number in numbers):
            source.note("a block of no table")
            continue
        ref = BlockRef(*numbers)  # type: ignore[arg-type]
        if not 0 < ref.a0 <= ref.a1 or not ref.t0 <= ref.t1:
            source.note(f"block {ref.id}: out of order")
        elif not (plausible(index.anchor, ref.t0) and plausible(index.anchor, ref.t1)):
            source.note(f"block {ref.id}: beyond all dates")
        elif table not in index.layouts:
            index.unknown_tables.add(readable(table))
        else:
            index.blocks.setdefault(table, []).append(ref)
    for refs in index.blocks.values():
        refs.sort(key=lambda ref: ref.a0)


def sealed_arrivals(index: Index) -> dict[str, int]:
    """The last arrival that the blocks of each table cover: the tail may still have it too."""
    return {table: refs[-1].a1 for table, refs in index.blocks.items()}


def _load_evaluations(source: Source, index: Index, judgements: JudgementDecoder) -> None:
    sql = f"SELECT id, n, marks FROM evaluation ORDER BY id LIMIT {schema.MAX_BLOCKS}"
    for number, n, marks in source.rows(sql):
        try:
            if not isinstance(number, int) or not isinstance(n, int):
                raise Damaged("no numbers")
            if not isinstance(marks, bytes):
                raise Damaged("no marks")
            index.judgements_left -= max(n, 1)
            if index.judgements_left < 0:
                raise Damaged("more than any recording has")
            times, arrivals = judgements.marks(n, marks)
            if not all(plausible(index.anchor, t_ns) for t_ns in times):
                raise Damaged("beyond all dates")
        except Damaged as error:
            source.note(f"evaluation {number}: {error}")
            continue
        index.evaluations.append(EvaluationRow(number, times, arrivals))


def _load_tail(source: Source, index: Index, judgements: JudgementDecoder) -> None:
    sql = f"SELECT id, t0, t1, crc, data FROM tail ORDER BY id LIMIT {schema.MAX_LISTED}"
    for number, t0, t1, crc, data in source.rows(sql):
        try:
            if not isinstance(t0, int) or not isinstance(t1, int):
                raise Damaged("no stamps")
            if not plausible(index.anchor, t0) or not plausible(index.anchor, t1):
                raise Damaged("beyond all dates")
            if not isinstance(data, bytes) or zlib.crc32(data) != crc:
                raise Damaged("was changed")
            index.tail_bytes_left -= len(data)
            if index.tail_bytes_left < 0:
                raise Damaged("more than any recorder leaves")
            _take_tail_row(index, unpack_tail(data), judgements)
        except Damaged as error:
            source.note(f"tail row {number}: {error}")
            continue
        index.tail.append(data)
        index.tail_ends += (t0, t1)


def _take_tail_row(index: Index, row: TailRow, judgements: JudgementDecoder) -> None:
    """Note what of a tail row no block holds."""
    last = index.evaluations[-1] if index.evaluations else None
    sealed = last.id + len(last.times) - 1 if last else 0
    for item in row.judgements:
        if item.number > sealed:
            index.tail_judgement_bytes_left -= len(item.data)
            if index.tail_judgement_bytes_left < 0:
                raise Damaged("more than any recorder leaves")
            judgement = judgements.one(item.data)
            if not plausible(index.anchor, judgement.t_ns):
                raise Damaged("beyond all dates")
            index.tail_evaluations.append(Evaluated(stamp(item.arrival), judgement))


def _load_marks(source: Source, index: Index) -> None:
    sql = "SELECT arrival, t, kind, text FROM mark ORDER BY id"
    for arrival, t_ns, kind, text in source.rows(f"{sql} LIMIT {schema.MAX_LISTED}"):
        if (
            isinstance(arrival, int)
            and isinstance(t_ns, int)
            and isinstance(kind, str)
            and isinstance(text, str)
            and 0 <= arrival < STAMP_LIMIT
            and plausible(index.anchor, t_ns)
        ):
            index.marks.append(Mark(arrival, t_ns, readable(kind), readable(text)))
        else:
            source.note("a mark that makes no sense")
