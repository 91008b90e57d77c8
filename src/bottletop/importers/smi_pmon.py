"""Logs of `nvidia-smi pmon`: one line a process, GPU and reading.

The last column is the command's name; "-" everywhere says that a GPU has no process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.importers import smi_words
from bottletop.importers.base import MAX_FACTS, Doubts, Fact, GpuId, NotImportable, Reading
from bottletop.importers.moments import Moments
from bottletop.importers.smi_dmon import DEFAULT_EVERY_S, words
from bottletop.importers.values import cell
from bottletop.model import NOT_READ
from bottletop.tables import GpuProcess
from bottletop.tables.gpu import COMPUTE, GRAPHICS, MPS
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.importers.base import Material, Options
    from bottletop.model import Metric, Value

_COLUMNS: dict[str, tuple[Metric, str]] = {
    "sm": (GpuProcess.sm_util_pct, "%"),
    "fb": (GpuProcess.mem_bytes, "MiB"),
}


def kind_of(letters: str) -> int | None:
    """C, G, C+G and M+C as the kind of context."""
    if letters.startswith("M"):
        return MPS
    return {"C": COMPUTE, "C+G": COMPUTE, "G": GRAPHICS}.get(letters)


def names_of(line: str) -> tuple[str, ...]:
    """Column names of a header line; empty of other lines."""
    if not line.lstrip().startswith("#"):
        return ()
    names = tuple(name.lower() for name in words(line.replace("#", " ", 1)))
    return names if "gpu" in names and "pid" in names else ()


class SmiPmon:
    """`nvidia-smi pmon`."""

    format: ClassVar[str] = "nvidia-smi pmon"

    def recognise(self, head: Sequence[str]) -> float:
        return 0.95 if any(map(names_of, head)) else 0.0

    def read(self, material: Material, options: Options) -> Reading:
        moments, doubts = Moments(options.every_s or DEFAULT_EVERY_S), Doubts()
        facts: list[Fact] = []
        names: tuple[str, ...] = ()
        for line in material.lines:
            if line.lstrip().startswith("#"):
                names = names_of(line) or names
            elif line.strip():
                cells = words(line)
                if len(facts) >= MAX_FACTS:
                    doubts.add("rows beyond what is read of one file")
                    break
                fact = _row(cells, names, moments)
                if isinstance(fact, Fact):
                    facts.append(fact)
                elif fact is None:
                    doubts.add("line that is no row", line)
        if not facts:
            raise NotImportable(f"{material.name}: a pmon log without any process")
        return Reading(
            format=self.format,
            facts=facts,
            dated=moments.dated,
            assumed_s=moments.assumed_s,
            doubts=doubts.lines(),
            limits=smi_words.POLLED,
        )


def _row(cells: Sequence[str], names: Sequence[str], moments: Moments) -> Fact | str | None:
    """A process, "" where the line says that there is none, None where it is no row."""
    last = len(names) - 1
    if not names or len(cells) < last:
        return None
    # The command may hold blanks, and is missing where nothing runs.
    by_name = dict(zip(names, [*cells[:last], " ".join(cells[last:])], strict=False))
    gpu, pid = by_name.get("gpu", ""), by_name.get("pid", "")
    if not gpu.isdecimal() or len(gpu) > 4:
        return None
    stamp = f"{by_name.get('date', '')} {by_name.get('time', '')}".strip()
    t_s, _ = moments.at(stamp, (gpu, pid))
    if pid == "-":
        return ""
    if not pid.isdecimal() or not 0 < int(pid) < 2**32:
        return None
    values: dict[Metric, Value] = {GpuProcess.pid: int(pid)}
    values[GpuProcess.process] = clean(by_name.get("command", ""), 60) or NOT_READ
    kind = kind_of(by_name.get("type", ""))
    if kind is not None:
        values[GpuProcess.kind] = kind
    for name, (metric, unit) in _COLUMNS.items():
        if name in by_name:
            values[metric] = cell(metric, by_name[name], unit)
    return Fact(GpuProcess, t_s, values, GpuId(index=int(gpu)), f"/{pid}")
