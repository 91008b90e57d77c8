"""Judges foreign evidence: logs from a ticket instead of a live host.

The same store, the same engine and the same report as everywhere; only the clock is one that steps
through the imported samples. The engine looks at every reading, at most once a second, and windows
reach back over as many readings as they would live (`Store.periods`): a log of one line a minute is
coarse, not stale.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bottletop import importers
from bottletop.importers import NotImportable, Options
from bottletop.importers.join import START_NS
from bottletop.model import NS_PER_S, Anchor, Source, SourceState, Unknown
from bottletop.rules.engine import Engine
from bottletop.rules.entities import NOTHING_ATTACHED
from bottletop.snapshot import ReadFile, Watch
from bottletop.store import Store
from bottletop.tables import Gpu

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bottletop.importers import Joined, Reading
    from bottletop.importers.base import Fact
    from bottletop.model import Judgement, Sample
    from bottletop.rules.base import Limits

MAX_FILES = 64
LOOK_NS = round(0.8 * NS_PER_S)
"""Readings closer than this are judged together: about one look a second."""
SETTLE_NS = NS_PER_S // 5
"""What comes this soon after a reading belongs to it, unless it goes on coming."""


def judge_files(
    paths: Sequence[str], options: Options | None = None, limits: Limits | None = None
) -> Watch:
    """Read files of foreign evidence and judge them together.

    A file that cannot be used is listed with its reason while others can. Raises `NotImportable`
    with one line where none can.
    """
    if len(paths) > MAX_FILES:
        raise NotImportable(f"{len(paths)} files are too many at once: at most {MAX_FILES}")
    readings: list[Reading] = []
    files: list[ReadFile] = []
    for path in paths:
        try:
            found = importers.load(Path(path))
            reading = importers.read(found, options or Options())
        except NotImportable as error:
            files.append(ReadFile(Path(path).name, "", refused=str(error)))
            continue
        readings.append(reading)
        files.append(_listed(found, reading))
    if not readings:
        raise NotImportable("; ".join(file.refused for file in files))
    return judge(importers.join(readings), files, limits)


def judge(joined: Joined, files: Sequence[ReadFile], limits: Limits | None = None) -> Watch:
    """Judge joined readings from their first to their last."""
    moments = list(_looks(joined.samples))
    cadence_s = joined.periods.get(Gpu) or max(joined.periods.values(), default=1.0)
    engine = Engine(limits=limits, cadence_s=cadence_s, looks=len(moments))
    store = Store(joined.periods)
    at = 0
    for moment_ns in moments:
        while at < len(joined.samples) and joined.samples[at].t_ns <= moment_ns:
            store.ingest(joined.samples[at])
            at += 1
        engine.evaluate(store.view(moment_ns))
    return Watch(
        judgement=_of_logs(engine.summary(), {sample.table.name for sample in joined.samples}),
        view=store.view(joined.end_ns),
        anchor=Anchor(START_NS, joined.wall_ns),
        sources=tuple(_source(file) for file in files),
        target=None,
        watched_s=(joined.end_ns - START_NS) / NS_PER_S,
        origin=", ".join(file.name for file in files if not file.refused),
        dated=joined.wall_ns != 0,
        files=tuple(files),
        notes=joined.notes,
    )


def _of_logs(judgement: Judgement, tables: set[str]) -> Judgement:
    """The same in words that fit logs: nothing can be attached to, and other logs may say more."""
    unknown = tuple(
        entry
        if (table := entry.missing.partition(":")[0].partition(".")[0]) in tables
        else Unknown(entry.code, f"{table}: not in these logs")
        for entry in judgement.unknown
    )
    text = judgement.verdict.text.replace(NOTHING_ATTACHED, "these logs say nothing of the process")
    text = text.replace("watching: ", "").replace("nothing holds", "nothing in these logs holds")
    text = text.replace("no running process is attached", "these logs say nothing of the process")
    return replace(judgement, verdict=replace(judgement.verdict, text=text), unknown=unknown)


def _looks(samples: Sequence[Sample]) -> Iterator[int]:
    """Moments to look at: every reading, but at most one a second, and the last in any case.

    Rows of the same moment in several tables are there together at the look.
    """
    before_ns = -2 * LOOK_NS
    times = sorted({sample.t_ns for sample in samples})
    for number, t_ns in enumerate(times):
        last = number + 1 == len(times)
        since_ns = t_ns - before_ns
        settled = last or times[number + 1] - t_ns > SETTLE_NS
        if last or since_ns >= LOOK_NS + SETTLE_NS or (since_ns >= LOOK_NS and settled):
            before_ns = t_ns
            yield t_ns


def _source(file: ReadFile) -> Source:
    state = SourceState.UNAVAILABLE if file.refused else SourceState.OK
    return Source(file.name, state, file.refused or file.format, None, None)


def _listed(found: importers.Material, reading: Reading) -> ReadFile:
    doubts = reading.doubts
    if found.cut:
        doubts = (*doubts, f"only the first {importers.base.MAX_BYTES >> 20} MiB were read")
    times = {round(fact.t_s, 3) for fact in reading.facts}
    return ReadFile(
        name=found.name,
        format=reading.format,
        readings=_most_rows(reading.facts),
        span_s=max(times) - min(times) if times else 0.0,
        assumed_s=reading.assumed_s,
        doubts=doubts,
        limits=reading.limits,
    )


def _most_rows(facts: Sequence[Fact]) -> int:
    """Readings of the entity that has most."""
    counts: dict[tuple[object, ...], int] = {}
    for fact in facts:
        who = (fact.table, fact.gpu, fact.key)
        counts[who] = counts.get(who, 0) + 1
    return max(counts.values(), default=0)
