"""Reads a recording, whoever wrote it: in arrival order, one block a table in memory at a time.

What is damaged is skipped and counted; tables and columns that this version does not know are
skipped and listed; columns that it knows and the file does not have are `NOT_READ`.
"""

from __future__ import annotations

import heapq
import json
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bottletop.session import index, schema
from bottletop.session.codec import Damaged
from bottletop.session.decode import Decoder, unpack_tail
from bottletop.session.events import Arrived, Evaluated, Event, Mark, RecordedFinding
from bottletop.session.judgements import JudgementDecoder
from bottletop.session.opening import (
    NewerFormat,
    NotARecording,
    NotReadable,
    Opened,
    open_checked,
)
from bottletop.session.strings import StoredTexts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    from bottletop.model import Anchor
    from bottletop.session.codec import TailSample
    from bottletop.session.index import BlockRef, EvaluationRow, MetaValue

__all__ = ["NewerFormat", "NotARecording", "NotReadable", "Recording", "open_recording"]

KEPT_ROWS = 100_000
"""Decoded rows that are kept: five minutes of a large host, about 40 MB of it."""

_STAMP = itemgetter(1)

Keyed = tuple[int, int, int, Event]
"""Arrival number; for what follows the sample of that number its moment, and judgements first."""


@dataclass(frozen=True, slots=True)
class RecordingInfo:
    """A recording at a glance, with all that is not whole about it."""

    path: str
    format: str
    tables: dict[str, int]
    """Samples of each table."""
    evaluations: int
    duration_s: float
    ended_cleanly: bool
    synchronous: str
    damaged: int
    damage: tuple[str, ...]
    """What the damaged pieces were, the first hundred of them; grows as the file is read."""
    unknown_tables: tuple[str, ...]
    unknown_columns: tuple[str, ...]
    notes: tuple[str, ...]


def open_recording(path: str | Path) -> Recording:
    """Open a recording for reading. Raises `NotReadable` with one line that says why not."""
    path = Path(path).absolute()
    opened = open_checked(path)
    try:
        return Recording(path, opened)
    except Damaged as error:
        opened.db.close()
        raise NotARecording(f"{path}: not a recording: {error}") from None
    except BaseException:
        opened.db.close()
        raise


class Recording:
    """An open recording. Close it, or use it as a context manager."""

    def __init__(self, path: Path, opened: Opened) -> None:
        self.path = path
        self._opened = opened
        self._source = index.Source(opened.db)
        self._texts = StoredTexts(self._text)
        self._judgements = JudgementDecoder(self._texts)
        self._index = index.load(self._source, self._judgements)
        self._decoders = {
            name: Decoder(layout, self._texts) for name, layout in self._index.layouts.items()
        }
        self._kept: dict[int, list[Arrived]] = {}
        self._kept_rows = 0
        found = self._index
        self.evaluation_times = [t_ns for row in found.evaluations for t_ns in row.times]
        self.evaluation_times += [item.judgement.t_ns for item in found.tail_evaluations]
        """Monotonic ns of every judgement, in order."""
        self.start_ns, self.end_ns = self._ends()

    def close(self) -> None:
        """Let the file go."""
        self._opened.db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- facts ------------------------------------------------------------------------------

    @property
    def meta(self) -> Mapping[str, MetaValue]:
        """Facts that the recorder wrote down."""
        return self._index.meta

    @property
    def anchor(self) -> Anchor:
        """Ties the recording's clock to the wall."""
        return self._index.anchor

    @property
    def ended_cleanly(self) -> bool:
        """False for a recording that was killed or is still being written."""
        return self.meta.get("clean_end") == 1

    @property
    def thresholds(self) -> dict[str, dict[str, float]]:
        """The rules' effective thresholds in the live run, by rule and name."""
        try:
            stored = json.loads(str(self.meta.get("thresholds", "{}")))
        except (ValueError, RecursionError):
            return {}
        if not isinstance(stored, dict):
            return {}
        return {
            code: {
                name: value
                for name, value in of.items()
                if isinstance(value, (int, float)) and abs(value) < 1e300
            }
            for code, of in stored.items()
            if isinstance(of, dict)
        }

    def marks(self) -> tuple[Mark, ...]:
        """Everything that was noted, in order."""
        return tuple(self._index.marks)

    def findings(self) -> list[RecordedFinding]:
        """Every finding from onset to end, in order of onset."""
        found = []
        sql = "SELECT t_on, t_off, t_peak, data FROM finding ORDER BY id"
        for on_ns, off_ns, peak_ns, data in self._source.rows(f"{sql} LIMIT {schema.MAX_LISTED}"):
            times = [on_ns, peak_ns] if off_ns is None else [on_ns, peak_ns, off_ns]
            try:
                if not isinstance(data, bytes) or not all(
                    isinstance(t_ns, int) and index.plausible(self.anchor, t_ns) for t_ns in times
                ):
                    raise Damaged("makes no sense")
                finding = self._judgements.finding(data)
            except Damaged as error:
                self._source.note(f"a finding: {error}")
                continue
            found.append(RecordedFinding(finding, on_ns, off_ns, peak_ns))  # type: ignore[arg-type]
        return sorted(found, key=lambda item: item.on_ns)

    def evaluations(self) -> Iterator[Evaluated]:
        """Every judgement as it was made live, in order."""
        return self._evaluated(None)

    def judgement_at(self, t_ns: int) -> Evaluated | None:
        """The newest judgement at that moment, None before the first."""
        for evaluated in reversed(self._index.tail_evaluations):
            if evaluated.judgement.t_ns <= t_ns:
                return evaluated
        rows = self._index.evaluations
        for row in reversed(rows[: bisect_right(rows, t_ns, key=lambda row: row.times[0])]):
            for evaluated in reversed(self._evaluation_row(row)):
                if evaluated.judgement.t_ns <= t_ns:
                    return evaluated
        return None

    def info(self) -> RecordingInfo:
        """What the file holds and what is not whole about it."""
        found = self._index
        tables = Counter({name: sum(ref.n for ref in refs) for name, refs in found.blocks.items()})
        tables.update(arrived.sample.table.name for *_, arrived in self._tail())
        return RecordingInfo(
            path=str(self.path),
            format=f"{schema.MAJOR}.{self._opened.minor}",
            tables=dict(tables),
            evaluations=len(self.evaluation_times),
            duration_s=(self.end_ns - self.start_ns) / 1e9,
            ended_cleanly=self.ended_cleanly,
            synchronous=str(self.meta.get("synchronous", "")),
            damaged=self._source.damaged_count,
            damage=tuple(self._source.damaged),
            unknown_tables=tuple(sorted(found.unknown_tables)),
            unknown_columns=found.unknown_columns,
            notes=self._opened.notes,
        )

    def _ends(self) -> tuple[int, int]:
        found = self._index
        times = [t for refs in found.blocks.values() for ref in refs for t in (ref.t0, ref.t1)]
        times += found.tail_ends
        times += self.evaluation_times
        if not times:
            return self.anchor.mono_ns, self.anchor.mono_ns
        return min(times), max(times)

    # -- events -----------------------------------------------------------------------------

    def events(self, since_ns: int | None = None) -> Iterator[Event]:
        """Samples, marks and judgements in exactly the order in which the live run had them.

        With `since_ns`, each table begins with the block that holds that moment, so that its last
        sample before it is there too.
        """
        found = self._index
        streams: list[Iterator[Keyed]] = [
            self._samples(name, refs, since_ns) for name, refs in found.blocks.items()
        ]
        streams.append(iter(self._tail()))
        streams.append(self._keyed_marks(since_ns))
        streams.append(self._keyed_evaluations(since_ns))
        for *_, event in heapq.merge(*streams, key=lambda item: item[:3]):
            yield event

    def _samples(
        self, name: str, refs: Sequence[BlockRef], since_ns: int | None
    ) -> Iterator[Keyed]:
        decoder, newest = self._decoders[name], 0
        for ref in refs[_first(refs, since_ns) :]:
            for arrived in self._block(ref, decoder):
                if arrived.arrival > newest:
                    newest = arrived.arrival
                    yield newest, -1, 0, arrived

    def _tail(self) -> Iterator[tuple[int, int, int, Arrived]]:
        """Samples of all tables that no block holds."""
        sealed, newest = index.sealed_arrivals(self._index), 0
        for data in self._index.tail:
            for packed in unpack_tail(data).samples:
                arrived = self._tail_sample(packed, sealed)
                if arrived is not None and arrived.arrival > newest:
                    newest = arrived.arrival
                    yield newest, -1, 0, arrived

    def _block(self, ref: BlockRef, decoder: Decoder) -> list[Arrived]:
        """The samples of a block; those that were read last are kept for going back."""
        samples = self._kept.pop(ref.id, None)
        if samples is None:
            samples = self._decoded(ref, decoder)
            self._kept_rows += sum(len(one.sample.rows) for one in samples)
        self._kept[ref.id] = samples
        while self._kept_rows > KEPT_ROWS:
            oldest = self._kept.pop(next(iter(self._kept)))
            self._kept_rows -= sum(len(one.sample.rows) for one in oldest)
        return samples

    def _decoded(self, ref: BlockRef, decoder: Decoder) -> list[Arrived]:
        try:
            if ref.codec != schema.CODEC_COLUMNS:
                raise Damaged(f"codec {ref.codec} is not known to this version")
            data = self._source.value("SELECT data FROM block WHERE id=?", ref.id)
            if not isinstance(data, bytes):
                raise Damaged("no data")
            samples = decoder.block(data)
            for arrival, sample in samples:
                stamps = {sample.t_ns, *map(_STAMP, sample.rows)}
                inside = ref.t0 <= min(stamps) <= max(stamps) <= ref.t1
                if not (inside and ref.a0 <= arrival <= ref.a1):
                    raise Damaged("holds what it says it does not")
        except Damaged as error:
            self._source.note(f"block {ref.id}: {error}")
            return []
        return samples

    def _tail_sample(self, packed: TailSample, sealed: Mapping[str, int]) -> Arrived | None:
        try:
            name = self._texts.text(packed.table)
            if packed.arrival <= sealed.get(name, 0):
                return None
            if name not in self._decoders:
                self._index.unknown_tables.add(name)
                return None
            arrived = self._decoders[name].tail(packed)
            stamps = {arrived.sample.t_ns, *map(_STAMP, arrived.sample.rows)}
            if not all(index.plausible(self.anchor, t_ns) for t_ns in stamps):
                raise Damaged("beyond all dates")
        except (Damaged, LookupError) as error:
            self._source.note(f"sample {packed.arrival}: {error}")
            return None
        return arrived

    def _keyed_marks(self, since_ns: int | None) -> Iterator[Keyed]:
        newest = 0
        for mark in self._index.marks:
            if since_ns is None or mark.t_ns >= since_ns:
                newest = max(newest, mark.arrival)
                yield newest, mark.t_ns, 1, mark

    def _keyed_evaluations(self, since_ns: int | None) -> Iterator[Keyed]:
        newest = 0
        for evaluated in self._evaluated(since_ns):
            newest = max(newest, evaluated.arrival)
            yield newest, evaluated.judgement.t_ns, 0, evaluated

    def _evaluated(self, since_ns: int | None) -> Iterator[Evaluated]:
        for row in self._index.evaluations:
            if since_ns is None or row.times[-1] >= since_ns:
                yield from self._evaluation_row(row)
        yield from self._index.tail_evaluations

    def _evaluation_row(self, row: EvaluationRow) -> list[Evaluated]:
        try:
            data = self._source.value("SELECT data FROM evaluation WHERE id=?", row.id)
            if not isinstance(data, bytes):
                raise Damaged("no data")
            judgements = self._judgements.batch(len(row.times), data)
            if [judgement.t_ns for judgement in judgements] != row.times:
                raise Damaged("holds what it says it does not")
        except Damaged as error:
            self._source.note(f"evaluation {row.id}: {error}")
            return []
        return list(map(Evaluated, row.arrivals, judgements))

    def _text(self, number: int) -> str | None:
        text = self._source.value("SELECT text FROM string WHERE id=?", number)
        return text if isinstance(text, str) else None


def _first(refs: Sequence[BlockRef], since_ns: int | None) -> int:
    """The last block that begins at or before a moment."""
    if since_ns is None:
        return 0
    return max((at for at, ref in enumerate(refs) if ref.t0 <= since_ns), default=0)
