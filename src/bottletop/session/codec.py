"""The bytes of a recording: what a column block and a row of the tail look like.

A column of numbers is a constant, integer steps in units of the metric's quantum, or raw numbers.
Text is the id of its string. What is not a plain value of its column (`Absent`, a word in a number
column) goes through a list of special values. `encode.py` writes these bytes, `decode.py` reads
them from anybody.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from bottletop.model import Kind, State
from bottletop.session import schema

if TYPE_CHECKING:
    from bottletop.model import Table

COMPRESSION_LEVEL = 4
"""1 % larger than level 6 in half the time."""

STATES = (
    State.NOT_READ,
    State.NOT_APPLICABLE,
    State.UNSUPPORTED,
    State.DENIED,
    State.STALE,
    State.LOST,
    State.ERROR,
    State.IMPLAUSIBLE,
)
"""States by the number under which they are stored: append only."""
PLAIN = -1
"""State number of a special value that is there: a word or a number out of place."""

STEPS, RAW, SPECIAL, MIXED = range(4)
"""First item of a column that is a list:

    STEPS, first, step, ...             each step added to the number before it
    RAW, number, ...
    SPECIAL, number                     all the same special value
    MIXED, m, place, number, ... (m pairs), then the other values as STEPS or RAW
"""

WIDE_LOW, WIDE_HIGH = -(1 << 63), (1 << 64) - 1
"""The integers that MessagePack can hold."""

Number = int | float | bool
Numbers = Annotated[list[Number], msgspec.Meta(max_length=schema.MAX_CELLS)]
Column = Number | None | Numbers
"""None: never read. A number: constant, in units of the quantum where it is an integer."""


class Damaged(Exception):
    """Bytes that no writer of ours wrote, or that were changed since."""


class Special(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A value that does not fit its column's numbers. Texts are string ids."""

    state: int
    reason: int = 0
    number: Number | None = None
    text: int | None = None
    wide: bool = False
    """`text` holds the digits of an integer beyond 64 bits."""


class Entity(msgspec.Struct, array_like=True, gc=False):
    """The rows of one key in a block."""

    key: int
    offsets: Column
    """Stamp of each row minus the stamp of its sample, ns."""
    columns: Annotated[list[Column], msgspec.Meta(max_length=schema.MAX_COLUMNS)]


class Block(msgspec.Struct, array_like=True, gc=False):
    """Samples of one table, column by column."""

    n: int
    arrivals: Column
    t_ns: Column
    took_ns: Column
    sources: Column
    layouts: Annotated[
        list[Annotated[list[int], msgspec.Meta(max_length=schema.MAX_ROWS)]],
        msgspec.Meta(max_length=schema.MAX_BLOCK_SAMPLES),
    ]
    """Lists of entity numbers: which rows a sample has, in which order."""
    layout_of: Column
    specials: Annotated[list[Special], msgspec.Meta(max_length=schema.MAX_ROWS)]
    entities: Annotated[list[Entity], msgspec.Meta(max_length=schema.MAX_ROWS)]


class TailAbsent(msgspec.Struct):
    """`Absent` as MessagePack writes the model's own class: by field names."""

    state: str
    """Empty for a value that is there but that MessagePack cannot hold."""
    reason: str = ""
    raw: Number | str | None = None
    wide: bool = False
    """`raw` has the digits of an integer beyond 64 bits."""


TailValue = Number | str | TailAbsent


class TailSample(msgspec.Struct, array_like=True, gc=False):
    """One sample, values as they are, each column across the rows."""

    table: int
    arrival: int
    source: int
    t_ns: int
    took_ns: int
    n: int
    keys: Column
    stamps: Annotated[list[int], msgspec.Meta(max_length=schema.MAX_ROWS)]
    """Empty where they are all `t_ns`."""
    columns: Annotated[
        list[Annotated[list[TailValue], msgspec.Meta(max_length=schema.MAX_ROWS)]],
        msgspec.Meta(max_length=schema.MAX_COLUMNS),
    ]
    """One value stands for `n` that are the same."""


class TailJudgement(msgspec.Struct, array_like=True, gc=False):
    """One judgement, as `judgements.py` packs it."""

    number: int
    arrival: int
    data: bytes


class TailRow(msgspec.Struct, array_like=True, gc=False):
    """What one commit brought and no block holds yet. Written every tick, read after a crash."""

    samples: list[TailSample]
    judgements: list[TailJudgement]


class Layout(NamedTuple):
    """How the columns of one table are kept, each in the table's order as declared here."""

    table: type[Table]
    texts: tuple[bool, ...]
    quanta: tuple[int | float, ...]
    positions: tuple[int, ...]
    """Position in the recording, -1 for a column that it does not have."""

    @classmethod
    def declared(cls, table: type[Table]) -> Layout:
        """The layout that this release writes."""
        return cls(
            table,
            tuple(metric.kind is Kind.TEXT for metric in table.columns),
            tuple(1 if metric.quantum == 1 else metric.quantum for metric in table.columns),
            tuple(range(len(table.columns))),
        )


def deflate(data: bytes) -> bytes:
    """Compress as `inflate` reads it."""
    return zlib.compress(data, COMPRESSION_LEVEL)


def inflate(data: bytes) -> bytes:
    """Decompress at most `schema.MAX_INFLATED_BYTES`. Raises `Damaged` or zlib.error."""
    stream = zlib.decompressobj()
    out = stream.decompress(data, schema.MAX_INFLATED_BYTES)
    if not stream.eof:
        raise Damaged("cut short, or larger than a block can be")
    return out
