"""One metric page, read as the columns of `server` and the times of stages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from bottletop.servers.exposition import Series, series

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bottletop.servers.catalog import Engine, Source, StageTime

MAX_STAGES = 32
MAX_MODELS = 8
_PARTS = ("_sum", "_count", "_bucket")
_MODEL_LABELS = ("model_name", "model", "deployment")
_START_TIME = "process_start_time_seconds"


class StageTotal(NamedTuple):
    """Cumulative time of one stage since the server started."""

    stage: str
    lagging: bool
    seconds: float
    calls: float | None
    """Passes that ended; None where the server counts time alone."""
    buckets: tuple[tuple[float, float], ...]
    """(upper edge in seconds, passes up to it), cumulative as on the page; empty without them."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one scrape said."""

    columns: Mapping[str, float]
    """Values of `server` by column name; what the page lacks is not in it."""
    stages: tuple[StageTotal, ...]
    models: tuple[str, ...]
    worker: str
    """Which process answered, where the page tells it apart; else empty."""
    parts: Mapping[str, int] = field(default_factory=dict)
    """Label sets (ranks, engines, models) that were added up in each column."""


@dataclass(slots=True)
class _Family:
    """Series of one name, by what is left of their labels once ranks are folded."""

    of: dict[object, float] = field(default_factory=dict)
    labels: dict[object, Mapping[str, str]] = field(default_factory=dict)

    def add(self, one: Series, rank_labels: Sequence[str]) -> None:
        rest: object = one.told
        if rank_labels:
            rest = tuple(sorted(item for item in one.labels.items() if item[0] not in rank_labels))
        before = self.of.get(rest)
        self.of[rest] = one.value if before is None else max(before, one.value)
        self.labels[rest] = one.labels

    def matching(self, where: Mapping[str, str]) -> list[tuple[Mapping[str, str], float]]:
        if not where:
            return [(self.labels[key], value) for key, value in self.of.items()]
        return [
            (self.labels[key], value)
            for key, value in self.of.items()
            if all(self.labels[key].get(name) == wanted for name, wanted in where.items())
        ]


def read_page(page: bytes, engine: Engine) -> Page:
    """Read a page of a server that `catalog.recognise` has named. Never raises."""
    wanted = _wanted(engine)
    families: dict[str, _Family] = defaultdict(_Family)
    worker = ""
    models: dict[str, None] = {}

    local_names: dict[str, str] = {}

    def is_wanted(name: str) -> bool:
        local = engine.local_name(name)
        if local in wanted:
            local_names[name] = local
        return name in local_names or name == _START_TIME

    for one in series(page, is_wanted):
        if one.name == _START_TIME:
            worker = one.labels.get("pid", "") or f"{one.value:.2f}"
            continue
        families[local_names[one.name]].add(one, engine.rank_labels)
        for label in _MODEL_LABELS:
            if one.labels.get(label) and len(models) < MAX_MODELS:
                models[one.labels[label]] = None
    columns: dict[str, float] = {}
    parts: dict[str, int] = {}
    for source in engine.sources:
        found = _column(source, families)
        if found is not None and source.column not in columns:
            columns[source.column], parts[source.column] = found
    return Page(columns, _stages(engine.stages, families), tuple(models), worker, parts)


def _wanted(engine: Engine) -> frozenset[str]:
    names = {name for source in engine.sources for name in source.names}
    for one in engine.stages:
        names |= {one.histogram + part for part in _PARTS} if one.histogram else {one.total}
        if one.calls:
            names.add(one.calls)
    return frozenset(names)


def _column(source: Source, families: Mapping[str, _Family]) -> tuple[float, int] | None:
    for name in source.names:
        if name not in families:
            continue
        values = [value for _, value in families[name].matching(source.where)]
        if values:
            whole = max(values) if source.combine == "max" else sum(values)
            return whole * source.scale, len(values)
    return None


def _stages(
    declared: Iterable[StageTime], families: Mapping[str, _Family]
) -> tuple[StageTotal, ...]:
    """Totals by stage; several declarations of one stage add up."""
    found: dict[str, StageTotal] = {}
    for one in declared:
        total = _total(one, families)
        if total is None or (one.stage not in found and len(found) >= MAX_STAGES):
            continue
        before = found.get(one.stage)
        found[one.stage] = total if before is None else _added(before, total)
    return tuple(found.values())


def _total(one: StageTime, families: Mapping[str, _Family]) -> StageTotal | None:
    times = families.get(f"{one.histogram}_sum" if one.histogram else one.total)
    matching = times.matching(one.where) if times else []
    if not matching:
        return None
    seconds = sum(value for _, value in matching) * one.scale_s
    counts = families.get(f"{one.histogram}_count" if one.histogram else one.calls)
    calls = sum(value for _, value in counts.matching(one.where)) if counts else None
    return StageTotal(one.stage, one.lagging, seconds, calls, _buckets(one, families))


def _buckets(one: StageTime, families: Mapping[str, _Family]) -> tuple[tuple[float, float], ...]:
    family = families.get(f"{one.histogram}_bucket") if one.histogram else None
    edges: dict[float, float] = defaultdict(float)
    for labels, value in family.matching(one.where) if family else ():
        try:
            edges[float(labels.get("le", "")) * one.scale_s] += value
        except ValueError:
            continue
    return tuple(sorted(edges.items()))


def _added(one: StageTotal, other: StageTotal) -> StageTotal:
    calls = None if one.calls is None or other.calls is None else one.calls + other.calls
    same_edges = [edge for edge, _ in one.buckets] == [edge for edge, _ in other.buckets]
    buckets = (
        tuple((e, a + b) for (e, a), (_, b) in zip(one.buckets, other.buckets, strict=True))
        if same_edges
        else ()
    )
    return StageTotal(
        one.stage, one.lagging or other.lagging, one.seconds + other.seconds, calls, buckets
    )
