"""What the target's stages say: is work in flight, and what kind of work.

Stage names are the target's own words. They decide only what no sensor can see: waiting for a
request (no demand) and waiting for another service. Whether a stage burns CPU or waits for storage
is measured on threads; its name only confirms it.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NS_PER_S
from bottletop.stages import own_part
from bottletop.tables import Stage
from bottletop.tables.stage import PROBE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bottletop.model import Metric
    from bottletop.store import View

NEEDS: tuple[Metric, ...] = (
    Stage.stage,
    Stage.source,
    Stage.calls,
    Stage.inclusive_ns,
    Stage.self_ns,
    Stage.occupied_ns,
    Stage.in_flight,
)


class StageKind(enum.StrEnum):
    """What a stage's name says about the work in it."""

    DEVICE = "device"
    """Work on the GPU, or waiting for it."""
    HOST = "host"
    """Preparing or finishing on the CPU."""
    STORAGE = "storage"
    EXTERNAL = "external"
    """Waiting for another service, a tool, a network."""
    INPUT = "input"
    """The main loop waiting for its own loader."""
    WAIT = "wait"
    """Waiting for demand."""
    OTHER = "other"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORDS: tuple[tuple[StageKind, frozenset[str]], ...] = (
    (StageKind.INPUT, _words("batch loader dataloader data input prefetch")),
    (
        StageKind.DEVICE,
        _words(
            "forward infer inference generate generation prefill predict execute compute model gpu "
            "cuda device kernel kernels sync synchronize h2d d2h"
        ),
    ),
    (
        StageKind.EXTERNAL,
        _words(
            "tool tools retrieve retrieval rpc grpc http https api remote network net search "
            "database db sql redis service upstream external fetch download agent"
        ),
    ),
    (
        StageKind.HOST,
        _words(
            "pre preprocess preprocessing preproc tokenize tokenise tokenizer tokenization "
            "detokenize detokenise decode resize crop normalize normalise augment augmentation "
            "transform transforms collate pad parse post postprocess postprocessing serialize "
            "serialise deserialize deserialise json pickle encode filter nms prompt format"
        ),
    ),
    (
        StageKind.STORAGE,
        _words("read load open disk io storage file files mmap write save checkpoint"),
    ),
)
_WAITING = _words("wait waiting idle queue queued poll accept await next get")
_TOKEN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
KNOWN_NAMES = 256
"""Stage names of which it is kept what kind they are."""


def stage_kind(name: str, siblings: Iterable[str] = ()) -> StageKind:
    """Classify a stage by its name; `siblings` are the other stages of its process.

    "decode" is work on the GPU beside a "prefill", and picture decoding everywhere else.
    """
    return _kind(name, any(map(_is_prefill, siblings)))


def _is_prefill(name: str) -> bool:
    return "prefill" in name.lower()


@lru_cache(maxsize=KNOWN_NAMES)
def _kind(name: str, beside_prefill: bool) -> StageKind:
    words = [word.lower() for word in _TOKEN.findall(name)]
    if not words:
        return StageKind.OTHER
    if words[0] in _WAITING:
        rest = frozenset(words[1:])
        for kind, known in _WORDS:
            if rest & known and kind in (StageKind.INPUT, StageKind.DEVICE):
                return kind
        return StageKind.WAIT if words[0] not in ("next", "get") else StageKind.OTHER
    if beside_prefill and "decode" in words:
        return StageKind.DEVICE
    for word in words:
        for kind, known in _WORDS:
            if kind is not StageKind.INPUT and word in known:
                return kind
    return StageKind.OTHER


class StageUse(NamedTuple):
    """One stage of one process over a window."""

    key: str
    name: str
    kind: StageKind
    process: int
    """Pid."""
    occupancy: float
    """Mean number of passes inside, nested stages not counted."""
    calls: float
    mean_s: float | None
    span_s: float
    leaf: bool
    """False for a stage that spends its time in nested ones, which then speak for it."""
    never_ended: bool
    """No pass of it has ever ended."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What the stages of the target say of a window."""

    stages: tuple[StageUse, ...]
    """Longest first."""
    present: float
    """Share of time with at least one stage under way that is not waiting for demand, 0 to 1."""
    waiting: float
    """Share of time in a stage that waits for demand while nothing else is under way, 0 to 1."""
    span_s: float
    """Seconds of stage readings behind these numbers."""
    under_way: float
    """Mean number of passes inside stages that are not waiting for demand."""

    def share(self, *kinds: StageKind) -> float:
        """Share of time spent in stages of these kinds, 0 to 1.

        Where passes overlap, the time in which anything is under way is divided among the kinds.
        """
        inside = sum([use.occupancy for use in self.stages if use.kind in kinds])
        total = self.under_way
        return inside * self.present / total if total > self.present else inside

    def longest(self, *kinds: StageKind) -> StageUse | None:
        """The stage of these kinds that takes the most time."""
        return next((use for use in self.stages if use.kind in kinds and use.occupancy > 0), None)


def demand(view: View, span_s: float, without: frozenset[int] = frozenset()) -> Demand | None:
    """What the stages said over the last `span_s` seconds; None where there are no stages.

    Processes in `without` are left out.
    """
    return view.memo(("demand", span_s, without), lambda: _demand(view, span_s, without))


def _demand(view: View, span_s: float, without: frozenset[int]) -> Demand | None:
    uses = stage_uses(view, span_s)
    if without:
        uses = [use for use in uses if use.process not in without]
    if not uses:
        return None
    present = _present(view, uses, span_s)
    waiting = sum([use.occupancy for use in uses if use.kind is StageKind.WAIT])
    return Demand(
        stages=tuple(uses),
        present=present,
        waiting=min(waiting, 1.0 - present),
        span_s=max([use.span_s for use in uses]),
        under_way=sum([use.occupancy for use in uses if use.kind is not StageKind.WAIT]),
    )


def stage_uses(view: View, span_s: float) -> list[StageUse]:
    """Every stage of every process over the last `span_s` seconds, longest first."""
    return view.memo(("stages", span_s), lambda: _stage_uses(view, span_s))


def _stage_uses(view: View, span_s: float) -> list[StageUse]:
    # A server's metric page counts requests, most of them when they end: no sign of what is under
    # way now, and its times overlap without bound.
    names = {
        key: view.text(Stage.stage, key)
        for key in view.keys(Stage)
        if view.text(Stage.source, key) in ("", PROBE)
    }
    prefilling = {_process(key) for key, name in names.items() if _is_prefill(name)}
    found = (
        _use(view, key, name, _kind(name, _process(key) in prefilling), span_s)
        for key, name in names.items()
    )
    uses = [use for use in found if use is not None]
    if not uses:
        return []
    # A stage that came up within the window was not there before.
    whole_s = max(use.span_s for use in uses)
    ended = {use.process for use in uses if use.calls > 0}
    uses = [
        use._replace(
            occupancy=0.0 if _contains_others(use, ended) else use.occupancy * use.span_s / whole_s,
            span_s=whole_s,
        )
        for use in uses
    ]
    uses.sort(key=lambda use: (-use.occupancy, use.key))
    return uses


def _contains_others(use: StageUse, ended: set[int]) -> bool:
    """A pass that never ends while others of its process come and go holds the whole service: that
    it is under way says nothing about demand."""
    return use.never_ended and use.process in ended


def _use(view: View, key: str, name: str, kind: StageKind, span_s: float) -> StageUse | None:
    ends = view.ends(Stage, key, span_s)
    if ends is None:
        return None
    own, inclusive = ends.grown(Stage.self_ns), ends.grown(Stage.inclusive_ns)
    if own is None or inclusive is None:
        return None
    inside = own_part(view, key, own, inclusive)
    occupied = ends.grown(Stage.occupied_ns)
    if occupied is None:
        occupied = inclusive
    inside_ns = occupied * (1.0 if inside is None else inside)
    seconds = (ends.last_ns - ends.first_ns) / NS_PER_S
    calls = ends.grown(Stage.calls) or 0.0
    return StageUse(
        key=key,
        name=name,
        kind=kind,
        process=int(key.partition("@")[0]),
        occupancy=inside_ns / NS_PER_S / seconds,
        calls=calls,
        mean_s=inclusive / NS_PER_S / calls if calls else None,
        span_s=seconds,
        leaf=inside is None or inside >= 0.5,
        never_ended=inside is None,
    )


def _process(key: str) -> str:
    return key.partition("/")[0]


def _present(view: View, uses: list[StageUse], span_s: float) -> float:
    """Share of time in which something other than waiting for demand was under way.

    Passes of one worker do not overlap, so their times add up exactly; where workers overlap, the
    sum is only an upper bound and the moments at which stages were read decide.
    """
    busy_of: dict[int, float] = {}
    for use in uses:
        if use.kind is not StageKind.WAIT:
            busy_of[use.process] = busy_of.get(use.process, 0.0) + use.occupancy
    if not busy_of:
        return 0.0
    upper = min(1.0, sum(busy_of.values()))
    if len(busy_of) == 1 and max(busy_of.values()) <= 1.05:
        return upper
    lower = min(1.0, max((share for share in busy_of.values() if share <= 1.05), default=0.0))
    if lower >= upper:
        return upper
    seen = _seen_under_way(view, uses, span_s)
    return upper if seen is None else min(upper, max(lower, seen))


def _seen_under_way(view: View, uses: list[StageUse], span_s: float) -> float | None:
    """Share of readings in which a stage other than waiting was under way; None without any."""
    read = view.memo(("under way", span_s), lambda: _under_way(view, span_s))
    keys = [use.key for use in uses if use.key in read]
    if len({(read[key].moments, read[key].first_ns) for key in keys}) == 1:
        busy = 0
        for key in keys:
            busy |= read[key].under_way
        return busy.bit_count() / read[keys[0]].moments
    moments: dict[int, bool] = {}
    for key in keys:
        for t_ns, value in view.series(Stage.in_flight, key, span_s).points():
            at = t_ns // (NS_PER_S // 4)
            moments[at] = moments.get(at, False) or value > 0
    return sum(moments.values()) / len(moments) if moments else None


class _Readings(NamedTuple):
    """What the readings of one stage say of work under way."""

    moments: int
    first_ns: int
    under_way: int
    """One byte a moment: 1 where a pass was under way."""


def _under_way(view: View, span_s: float) -> dict[str, _Readings]:
    """Readings of all stages that say whether work is there, by stage."""
    out = {}
    for use in stage_uses(view, span_s):
        if use.kind is not StageKind.WAIT and use.leaf:
            times, values = view.series(Stage.in_flight, use.key, span_s)
            if times:
                under_way = int.from_bytes(bytes(map((0.0).__lt__, values)), "big")
                out[use.key] = _Readings(len(times), times[0], under_way)
    return out
