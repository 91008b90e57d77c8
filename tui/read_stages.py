"""What the stages panel draws of the target's stages and servers, read from one snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottletop.ladder import Rung, hint, ladder
from bottletop.model import SourceState, number
from bottletop.serving import ServerStat, server_stats
from bottletop.stages import family, outside_shares, stage_stats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.snapshot import Snapshot
    from bottletop.stages import StageStat
    from bottletop.tui.marks import Mark
    from bottletop.tui.read_gpu import GpuPicture

STAGES_S = 30.0
MOST_NAMED = 2
UNMARKED = 'none marked; in its code: with bottletop.probe.stage("decode")'


@dataclass(frozen=True, slots=True)
class StagePicture:
    stat: StageStat
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class Outside:
    """Time of one source's cycle that no stage of it accounts for."""

    source: str
    share: float
    """0 to 1."""


@dataclass(frozen=True, slots=True)
class StageReading:
    """The target's stages, whose they are, and how they came to be known."""

    rows: tuple[StagePicture, ...]
    """Those of one source side by side."""
    outside: tuple[Outside, ...]
    servers: tuple[ServerStat, ...]
    """Those that do not answer first, then by requests that wait."""
    rungs: tuple[Rung, ...]
    trouble: str
    """Why there are no stages, and what would change it; empty where there are."""

    @property
    def mixed(self) -> bool:
        """Whether the stages come from several sources, each with a cycle of its own."""
        return len({family(stage.stat.source) for stage in self.rows}) > 1


def read_stages(
    snapshot: Snapshot, gpus: tuple[GpuPicture, ...], marked: Mapping[str, Mark]
) -> StageReading:
    """Read the stages of the last `STAGES_S` seconds, and what belongs to them."""
    view = snapshot.view
    span_s = min(STAGES_S, max(snapshot.watched_s, 1.0))
    stats = stage_stats(view, span_s)
    families = list(dict.fromkeys(family(stat.source) for stat in stats))
    if len(families) > 1:
        stats = sorted(stats, key=lambda stat: families.index(family(stat.source)))
    return StageReading(
        rows=tuple(StagePicture(stat, marked.get(stat.key)) for stat in stats),
        outside=tuple(Outside(*pair) for pair in outside_shares(stats).items()),
        servers=tuple(sorted(server_stats(view, span_s), key=_urgency)),
        rungs=tuple(ladder(view)),
        trouble="" if stats else _trouble(snapshot, gpus),
    )


def _urgency(stat: ServerStat) -> tuple[bool, float, str]:
    return stat.answers, -(stat.waiting or 0.0), stat.key


def _trouble(snapshot: Snapshot, gpus: tuple[GpuPicture, ...]) -> str:
    if snapshot.target is None:
        return "; ".join(filter(None, ["no process attached: a picks one", _on_gpus(gpus)]))
    if snapshot.target.gone:
        return "; ".join(snapshot.target.notes) or "a picks another process"
    for source in snapshot.sources:
        if source.name == "stage" and source.state is not SourceState.OK and source.reason:
            return source.reason
    return "; ".join([hint(snapshot.view) or UNMARKED, *snapshot.target.notes])


def _on_gpus(gpus: tuple[GpuPicture, ...]) -> str:
    """The processes with most GPU memory: whom one might attach to."""
    by_pid: dict[tuple[str, int], tuple[float, str]] = {}
    for gpu in gpus:
        for pid, whose, name, mem_bytes in gpu.processes:
            known = by_pid.get((whose, pid), (0.0, name))[0]
            by_pid[whose, pid] = known + (number(mem_bytes) or 0.0), name
    order = sorted(by_pid, key=lambda key: (-by_pid[key][0], key))
    named = [f"{by_pid[key][1]} ({key[0]} {key[1]})".lstrip() for key in order[:MOST_NAMED]]
    more = f" and {len(order) - MOST_NAMED} more" if len(order) > MOST_NAMED else ""
    return f"on GPUs: {', '.join(named)}{more}" if named else ""
