"""The container: tables, version, limits. Every later release reads every earlier file.

    meta        facts about the recording, one a row
    series      one row a recorded column: how to read its numbers back
    block       about 60 samples of one table, column by column, compressed
    tail        what each commit brought, until all of it is sealed: kill -9 cannot take it
    evaluation  about 60 judgements of the rules, compressed
    finding     one row a finding from onset to end, with its evidence when it was worst
    mark        gaps, drops, clock steps, notes
    string      every name and free text once, so that it can be listed before sharing; only the
                sentences of findings and verdicts stay with their judgement

Large values are the last column of their table, so that a scan over the others does not read them.
"""

from __future__ import annotations

APPLICATION_ID = 0x42545243
"""ASCII "BTRC", in the SQLite header."""

MAJOR = 1
"""A reader refuses a higher one. Raised only when old readers would read wrong things."""
MINOR = 0
"""Raised when tables, columns or codecs are added that older readers may skip."""
USER_VERSION = MAJOR * 1000 + MINOR

CODEC_COLUMNS = 1
"""zlib over the MessagePack column block of `codec.py`."""

TABLES: dict[str, dict[str, str]] = {
    "meta": {"k": "TEXT PRIMARY KEY", "v": ""},
    "string": {"id": "INTEGER PRIMARY KEY", "text": "TEXT NOT NULL"},
    "series": {
        "tbl": "TEXT NOT NULL",
        "pos": "INTEGER NOT NULL",
        "name": "TEXT NOT NULL",
        "kind": "TEXT NOT NULL",
        "unit": "TEXT NOT NULL",
        "quantum": "",
    },
    "block": {
        "id": "INTEGER PRIMARY KEY",
        "tbl": "TEXT NOT NULL",
        "a0": "INTEGER NOT NULL",
        "a1": "INTEGER NOT NULL",
        "t0": "INTEGER NOT NULL",
        "t1": "INTEGER NOT NULL",
        "n": "INTEGER NOT NULL",
        "codec": "INTEGER NOT NULL",
        "data": "BLOB NOT NULL",
    },
    "tail": {
        "id": "INTEGER PRIMARY KEY",
        "t0": "INTEGER NOT NULL",
        "t1": "INTEGER NOT NULL",
        "crc": "INTEGER NOT NULL",
        "data": "BLOB NOT NULL",
    },
    "evaluation": {
        "id": "INTEGER PRIMARY KEY",
        "n": "INTEGER NOT NULL",
        "t0": "INTEGER NOT NULL",
        "t1": "INTEGER NOT NULL",
        "marks": "BLOB NOT NULL",
        "data": "BLOB NOT NULL",
    },
    "finding": {
        "id": "INTEGER PRIMARY KEY",
        "code": "TEXT NOT NULL",
        "severity": "INTEGER NOT NULL",
        "t_on": "INTEGER NOT NULL",
        "t_off": "INTEGER",
        "t_peak": "INTEGER NOT NULL",
        "data": "BLOB NOT NULL",
    },
    "mark": {
        "id": "INTEGER PRIMARY KEY",
        "arrival": "INTEGER NOT NULL",
        "t": "INTEGER NOT NULL",
        "kind": "TEXT NOT NULL",
        "text": "TEXT NOT NULL",
    },
}
"""Tables and the declarations of their columns. A minor version may append, never change.

`a0`, `a1` are the arrival numbers of the first and last sample of a block, `t0`, `t1` the earliest
and latest stamp in it, `n` how many samples or judgements a row holds.
"""


def create_statements() -> list[str]:
    """The statements that make an empty recording."""
    return [
        f"CREATE TABLE {table}(" + ", ".join(map(" ".join, columns.items())) + ")"
        for table, columns in TABLES.items()
    ]


BLOCK_SAMPLES = 60
BLOCK_CELLS = 500_000
BLOCK_ROWS = 100_000
BLOCK_AGE_S = 120
"""A block is sealed early rather than grow beyond these."""
SAMPLE_CELLS = 500_000
SAMPLE_ROWS = 100_000
"""Rows of a sample beyond these are dropped, with a mark."""
TAIL_BYTES = 16 * 1024 * 1024
"""Tables are sealed early rather than let the tail grow beyond this."""

# What a reader holds a file to. The writer's own bounds keep it within these.
MAX_BLOB_BYTES = 16 * 1024 * 1024
MAX_INFLATED_BYTES = 8 * 1024 * 1024
MAX_CELLS = BLOCK_CELLS + SAMPLE_CELLS
MAX_ROWS = BLOCK_ROWS + SAMPLE_ROWS
MAX_BLOCK_SAMPLES = 4096
MAX_TEXT_CHARS = 65_536
MAX_BLOCKS = 500_000
MAX_JUDGEMENTS = 2_000_000
MAX_TAIL_BYTES = 4 * TAIL_BYTES
MAX_TAIL_JUDGEMENT_BYTES = 4 * 1024 * 1024
MAX_LISTED = 100_000
"""Marks, findings and rows of the tail that are looked at."""
MAX_META = 1_000
MAX_SERIES = 10_000
MAX_COLUMNS = 1_024
