"""The writing side of the file. Belongs to one thread; raises sqlite3.Error and OSError.

Rules that others paid for: checkpoint after creating the tables and after every few seals, so that
a copy of the main file alone is readable; rows leave the tail in the transaction that seals the
last of them; tables are sealed at different moments; rollback journal again at the end, so that one
file is left.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
import zlib
from collections import deque
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NS_PER_S
from bottletop.session import schema
from bottletop.session.codec import TailJudgement
from bottletop.session.encode import Encoder, aligned, pack_tail
from bottletop.session.events import Arrived, Evaluated, Event, Mark
from bottletop.session.findings import FindingLog
from bottletop.session.judgements import JudgementEncoder
from bottletop.session.newfile import FileId, connect
from bottletop.session.strings import Interner, storable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from bottletop.clock import Clock
    from bottletop.model import Anchor, Sample, Table

SEALS_A_CHECKPOINT = 5
"""A copy of the main file alone is about twenty seconds behind at most."""
STAGGER = 7
SLOW_COMMIT_NS = 50_000_000
COMMITS_JUDGED = 60

_STAMP = itemgetter(1)

MetaValue = str | int | float


class _OpenBlock:
    """Samples of one table that are not sealed yet."""

    def __init__(self, encoder: Encoder, limit: int) -> None:
        self.encoder = encoder
        self.limit = limit
        self.samples: list[Arrived] = []
        self.stamps: list[int] = []
        """The earliest and the latest stamp of each."""
        self.in_tail = 0
        """How many of them are in the tail already."""
        self.rows = 0

    @property
    def full(self) -> bool:
        cells = self.rows * len(self.encoder.table.columns)
        return (
            len(self.samples) >= self.limit
            or self.rows >= schema.BLOCK_ROWS
            or cells >= schema.BLOCK_CELLS
        )


class _TailRef(NamedTuple):
    """A row of the tail: it goes once all up to these is sealed."""

    id: int
    arrival: int
    number: int
    size: int


class Container:
    """Writes events into an empty file made by `create`."""

    def __init__(
        self,
        path: Path,
        made: FileId,
        *,
        meta: Mapping[str, MetaValue],
        thresholds: Mapping[str, Mapping[str, float]],
        anchor: Anchor,
        clock: Clock,
        synchronous: str,
    ) -> None:
        self._clock = clock
        self._intern = Interner()
        self._judgements = JudgementEncoder(self._intern)
        self._blocks: dict[type[Table], _OpenBlock] = {}
        self._evaluated: list[Evaluated] = []
        self._evaluated_in_tail = 0
        self._evaluations = 0
        self._tail: deque[_TailRef] = deque()
        self._tail_bytes = 0
        self._tail_rows = 0
        self._last_ns = anchor.mono_ns
        self._last_arrival = 0
        self._commits_ns: deque[int] = deque(maxlen=COMMITS_JUDGED)
        self._sealed = 0
        self._covers = False
        """Something was sealed since rows of the tail went."""
        self.dropped_rows = 0
        self.waits_for_disk = synchronous == "FULL"
        """False once commits no longer wait: a power cut may then take the last minute."""
        self._db = connect(path, made, synchronous=synchronous)
        self._findings = FindingLog(self._db, self._judgements)
        try:
            self._set_up(
                {
                    **meta,
                    "thresholds": json.dumps(thresholds, sort_keys=True),
                    "anchor_mono_ns": anchor.mono_ns,
                    "anchor_wall_ns": anchor.wall_ns,
                    "started_ns": clock.monotonic_ns(),
                    "uuid": str(uuid.uuid4()),
                    "synchronous": synchronous,
                    "clean_end": 0,
                    **_zone(anchor),
                }
            )
        except BaseException:
            self.abandon()
            raise

    def _set_up(self, facts: Mapping[str, MetaValue]) -> None:
        run = self._db.execute
        run("BEGIN")
        for statement in schema.create_statements():
            run(statement)
        self._write_meta(facts)
        run("COMMIT")
        run("PRAGMA wal_checkpoint(TRUNCATE)")  # else a copy of the main file would be empty

    def _write_meta(self, facts: Mapping[str, MetaValue]) -> None:
        rows = [
            (storable(key), storable(value) if isinstance(value, str) else value)
            for key, value in facts.items()
        ]
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES(?, ?)", rows)

    # -- events -----------------------------------------------------------------------------

    def write(self, events: Iterable[Event]) -> None:
        """Take in events in their order and commit them."""
        run = self._db.execute
        run("BEGIN")
        try:
            for event in events:
                if isinstance(event, Arrived):
                    self._sample(event)
                elif isinstance(event, Evaluated):
                    self._judged(event)
                else:
                    self._mark(event)
            self._seal_old()
            self._write_tail()
            self._write_strings()
            began_ns = self._clock.monotonic_ns()
            run("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                run("ROLLBACK")
            raise
        self._judge_commit(self._clock.monotonic_ns() - began_ns)
        if self._sealed >= SEALS_A_CHECKPOINT:
            self._sealed = 0
            run("PRAGMA wal_checkpoint(PASSIVE)")

    def _sample(self, arrived: Arrived) -> None:
        arrival, sample = arrived
        self._last_arrival = arrival
        block = self._blocks.get(sample.table) or self._open_block(sample.table)
        fitting = min(schema.SAMPLE_ROWS, schema.SAMPLE_CELLS // len(sample.table.columns))
        if len(sample.rows) > fitting:
            arrived = Arrived(arrival, self._shortened(sample, arrival, fitting))
        block.samples.append(arrived)
        block.stamps += _ends(arrived.sample)
        block.rows += len(arrived.sample.rows)
        self._last_ns = max(self._last_ns, sample.t_ns)
        if block.full:
            self._seal(block)

    def _shortened(self, sample: Sample, arrival: int, rows: int) -> Sample:
        lost = len(sample.rows) - rows
        self.dropped_rows += lost
        text = f"{lost} rows of {sample.table.name}: more than a recording can take at once"
        self._mark(Mark(arrival, sample.t_ns, "drop", text))
        return sample._replace(rows=sample.rows[:rows])

    def _open_block(self, table: type[Table]) -> _OpenBlock:
        # The first blocks differ in length, so that tables are not all sealed in the same tick.
        limit = schema.BLOCK_SAMPLES - STAGGER * len(self._blocks) % (schema.BLOCK_SAMPLES - 10)
        block = self._blocks[table] = _OpenBlock(Encoder(table, self._intern), limit)
        self._db.executemany(
            "INSERT INTO series VALUES(?, ?, ?, ?, ?, ?)",
            [
                (table.name, item.index, item.name, item.kind.value, item.unit, item.quantum)
                for item in table.columns
            ],
        )
        return block

    def _seal_old(self) -> None:
        """Seal the table that holds the tail up, one a commit: read seldom, or rows too large."""
        oldest: _OpenBlock | None = None
        for block in self._blocks.values():
            samples = block.samples
            if samples and (oldest is None or samples[0].arrival < oldest.samples[0].arrival):
                oldest = block
        if oldest is None:
            return
        before_ns = self._last_ns - schema.BLOCK_AGE_S * NS_PER_S
        if oldest.samples[0].sample.t_ns < before_ns or self._tail_bytes > schema.TAIL_BYTES:
            self._seal(oldest)

    def _seal(self, block: _OpenBlock) -> None:
        samples = block.samples
        self._db.execute(
            "INSERT INTO block(tbl, a0, a1, t0, t1, n, codec, data) VALUES(?,?,?,?,?,?,?,?)",
            (
                block.encoder.table.name,
                samples[0].arrival,
                samples[-1].arrival,
                min(block.stamps),
                max(block.stamps),
                len(samples),
                schema.CODEC_COLUMNS,
                block.encoder.block(samples),
            ),
        )
        block.samples, block.stamps, block.in_tail, block.rows = [], [], 0, 0
        block.limit = schema.BLOCK_SAMPLES
        self._sealed += 1
        self._covers = True

    def _write_tail(self) -> None:
        """One row with all that is new and in no block yet; rows that blocks cover go."""
        arrived: list[tuple[Encoder, Arrived]] = []
        stamps: list[int] = []
        for block in self._blocks.values():
            if block.in_tail < len(block.samples):
                arrived += [(block.encoder, one) for one in block.samples[block.in_tail :]]
                stamps += block.stamps[2 * block.in_tail :]
                block.in_tail = len(block.samples)
        judged = self._evaluated[self._evaluated_in_tail :]
        stamps += [one.judgement.t_ns for one in judged]
        self._evaluated_in_tail = len(self._evaluated)
        if arrived or judged:
            arrived.sort(key=lambda item: item[1].arrival)
            self._insert_tail(arrived, judged, stamps)
        if self._covers:
            self._prune_tail()

    def _insert_tail(
        self,
        arrived: list[tuple[Encoder, Arrived]],
        judged: list[Evaluated],
        stamps: list[int],
    ) -> None:
        first = self._evaluations - len(judged) + 1
        judgements = [
            TailJudgement(number, one.arrival, self._judgements.one(one.judgement))
            for number, one in enumerate(judged, first)
        ]
        data = pack_tail([encoder.tail(one) for encoder, one in arrived], judgements)
        self._tail_bytes += len(data)
        self._tail_rows += 1
        self._tail.append(
            _TailRef(
                self._tail_rows,
                arrived[-1][1].arrival if arrived else 0,
                self._evaluations if judged else 0,
                len(data),
            )
        )
        self._db.execute(
            "INSERT INTO tail VALUES(?, ?, ?, ?, ?)",
            (self._tail_rows, min(stamps), max(stamps), zlib.crc32(data), data),
        )

    def _prune_tail(self) -> None:
        blocks = self._blocks.values()
        arrival = min((b.samples[0].arrival for b in blocks if b.samples), default=1 << 62)
        number = self._evaluations - len(self._evaluated) + 1
        covered = 0
        while self._tail and self._tail[0].arrival < arrival and self._tail[0].number < number:
            row = self._tail.popleft()
            covered, self._tail_bytes = row.id, self._tail_bytes - row.size
        self._covers = False
        if covered:
            self._db.execute("DELETE FROM tail WHERE id<=?", (covered,))

    def _write_strings(self) -> None:
        if self._intern.new:
            self._db.executemany("INSERT INTO string VALUES(?, ?)", self._intern.new)
            self._intern.new = []

    # -- judgements -------------------------------------------------------------------------

    def _judged(self, evaluated: Evaluated) -> None:
        self._evaluated.append(evaluated)
        self._evaluations += 1
        self._last_ns = max(self._last_ns, evaluated.judgement.t_ns)
        self._findings.follow(evaluated.judgement)
        if len(self._evaluated) >= schema.BLOCK_SAMPLES:
            self._seal_evaluations()

    def _seal_evaluations(self) -> None:
        times = [item.judgement.t_ns for item in self._evaluated]
        first = self._evaluations - len(self._evaluated) + 1
        self._db.execute(
            "INSERT INTO evaluation VALUES(?, ?, ?, ?, ?, ?)",
            (first, len(times), min(times), max(times), *self._judgements.batch(self._evaluated)),
        )
        self._evaluated, self._evaluated_in_tail = [], 0
        self._covers = True

    def _mark(self, mark: Mark) -> None:
        self._db.execute(
            "INSERT INTO mark(arrival, t, kind, text) VALUES(?, ?, ?, ?)",
            (mark.arrival, mark.t_ns, storable(mark.kind), storable(mark.text)),
        )

    # -- durability -------------------------------------------------------------------------

    def _judge_commit(self, took_ns: int) -> None:
        """Stop waiting for a disk that takes too long, rather than fall behind."""
        self._commits_ns.append(took_ns)
        if not self.waits_for_disk or len(self._commits_ns) < COMMITS_JUDGED:
            return
        p95_ns = sorted(self._commits_ns)[COMMITS_JUDGED * 95 // 100]
        if p95_ns <= SLOW_COMMIT_NS:
            return
        self.waits_for_disk = False
        self._db.execute("PRAGMA synchronous=NORMAL")
        text = f"commits took {p95_ns / 1e6:.0f} ms: they no longer wait for the disk"
        self._write_meta({"synchronous": "NORMAL"})
        self._mark(Mark(self._last_arrival, self._last_ns, "durability", text))

    def finish(self) -> None:
        """Seal everything and leave one file behind."""
        run = self._db.execute
        run("BEGIN")
        for block in self._blocks.values():
            if block.samples:
                self._seal(block)
        if self._evaluated:
            self._seal_evaluations()
        self._prune_tail()
        self._write_strings()
        run("COMMIT")
        self._write_meta({"ended_ns": self._last_ns, "clean_end": 1})
        # execute() would free one page only; a script runs the pragma to its end.
        self._db.executescript("PRAGMA incremental_vacuum")
        run("PRAGMA wal_checkpoint(TRUNCATE)")
        with suppress(sqlite3.OperationalError):
            # A reader elsewhere has it open: the file stays in two parts until that one closes.
            run("PRAGMA journal_mode=DELETE")
        self._db.close()

    def abandon(self) -> None:
        """Let go after an error; what was committed stays readable."""
        with suppress(sqlite3.Error):
            self._db.close()


def _ends(sample: Sample) -> tuple[int, int]:
    """The stamps between which all of a sample lies."""
    t_ns = sample.t_ns
    if aligned(sample):
        return t_ns, t_ns
    stamps = {t_ns, *map(_STAMP, sample.rows)}
    return min(stamps), max(stamps)


def _zone(anchor: Anchor) -> dict[str, MetaValue]:
    """The host's zone when the recording began, so that its times can be read elsewhere."""
    local = datetime.fromtimestamp(anchor.wall_ns / 1e9).astimezone()
    offset = local.utcoffset()
    return {
        "zone": local.tzname() or "",
        "utc_offset_s": round(offset.total_seconds()) if offset else 0,
    }
