"""Which server calls what how: the name tables under `catalog/`, one TOML file a server.

A file names the prefixes of the server's metrics and its usual ports; which gauges and counters
fill which columns of `server`, the newest name first; and which times belong to which stage. A
time is a histogram (or summary), a pair of counters, or a counter of seconds alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

COPIED = "vLLM"
"""Whose names others copy under a prefix of their own."""
KNOWN_WEIGHT = 1000
"""A known name outweighs any number of names that only share a prefix, such as "http_"."""
UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True)
class StageTime:
    """Where one stage's time comes from. Names are without prefix and without "_total"."""

    stage: str
    histogram: str = ""
    """Family whose _sum and _count (and _bucket) are read."""
    total: str = ""
    """Counter of time, where there is no histogram."""
    calls: str = ""
    """Counter of passes that belongs to `total`; without it means are unknown."""
    unit: str = "s"
    lagging: bool = False
    """Counted when the request ends: says nothing of requests under way."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Labels that a series must have."""

    @property
    def scale_s(self) -> float:
        return UNITS_S[self.unit]


@dataclass(frozen=True, slots=True)
class Source:
    """Where one column of `server` comes from: the first of `names` that the page has."""

    column: str
    names: tuple[str, ...]
    scale: float = 1.0
    combine: str = "sum"
    """Over label sets: "sum", or "max" of what cannot be added, such as a fill level."""
    where: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Engine:
    """One server, and what its metrics mean."""

    name: str
    prefixes: tuple[str, ...]
    """Without the separator, which may be ":" or "_"; re-exporters change the one to the other."""
    ports: tuple[int, ...]
    paths: tuple[str, ...]
    rank_labels: tuple[str, ...]
    """Labels of ranks that all count the same requests: the largest of them counts."""
    sources: tuple[Source, ...]
    stages: tuple[StageTime, ...]

    def local_name(self, name: str) -> str | None:
        """A metric's name without prefix and "_total", None when it is of another server."""
        for prefix in self.prefixes:
            if name.startswith(prefix) and name[len(prefix) : len(prefix) + 1] in {":", "_"}:
                return name[len(prefix) + 1 :].removesuffix("_total")
        return None


@cache
def engines() -> tuple[Engine, ...]:
    """All servers that are known, in the order of their file names."""
    # Imported where a table is read: most runs watch no server and never do.
    import tomllib
    from importlib import resources

    folder = resources.files("bottletop.servers") / "catalog"
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return tuple(_engine(tomllib.loads((folder / name).read_text("utf-8"))) for name in files)


def recognise(names: Iterable[str]) -> Engine | None:
    """The server whose names a page has most of; None when no name on it is known.

    Servers that copy vLLM's names under a prefix of their own are read as such and called unknown.
    """
    names = list(names)
    found = _most_named(names)
    if found is not None:
        return found
    like = next(engine for engine in engines() if engine.name == COPIED)
    for name in names:
        prefix, separator, local = name.partition(":")
        if separator and _is_known(like, local.removesuffix("_total")):
            return replace(like, name=f"unknown server ({prefix})", prefixes=(prefix,), ports=())
    return None


def _most_named(names: list[str]) -> Engine | None:
    counts = [0] * len(engines())
    for name in names:
        for index, engine in enumerate(engines()):
            local = engine.local_name(name)
            if local is not None:
                counts[index] += 1 + KNOWN_WEIGHT * _is_known(engine, local)
    most = max(counts)
    return engines()[counts.index(most)] if most >= KNOWN_WEIGHT else None


def _is_known(engine: Engine, local: str) -> bool:
    bare = local.removesuffix("_sum").removesuffix("_count").removesuffix("_bucket")
    return bare in _known(engine.name) or local in _known(engine.name)


@cache
def _known(engine_name: str) -> frozenset[str]:
    engine = next(engine for engine in engines() if engine.name == engine_name)
    return frozenset(
        [name for source in engine.sources for name in source.names]
        + [name for one in engine.stages for name in (one.histogram, one.total, one.calls) if name]
    )


def _engine(raw: dict[str, Any]) -> Engine:
    return Engine(
        name=raw["name"],
        prefixes=tuple(raw["prefixes"]),
        ports=tuple(raw.get("ports", ())),
        paths=tuple(raw.get("paths", ("/metrics",))),
        rank_labels=tuple(raw.get("rank_labels", ())),
        sources=tuple(
            source
            for column, value in raw.get("server", {}).items()
            for source in _sources(column, value)
        ),
        stages=tuple(StageTime(**entry) for entry in raw.get("stages", ())),
    )


def _sources(column: str, value: Any) -> list[Source]:
    """A list of names, a table, or a list of tables of which the first that is there counts."""
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [Source(column, tuple(value))]
    entries = value if isinstance(value, list) else [value]
    return [Source(column, **{**entry, "names": tuple(entry["names"])}) for entry in entries]
