"""/proc/meminfo as people paste it: on unified-memory parts it is the GPU's memory too."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from bottletop.importers.base import Fact, NotImportable, Reading
from bottletop.importers.values import believed
from bottletop.tables import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.importers.base import Material, Options
    from bottletop.model import Metric, Value

_LINE = re.compile(r"\s*(\w+(?:\(\w+\))?):\s+(\d{1,18})(?: kB)?\s*")
_COLUMNS = {
    "MemTotal": Memory.total_bytes,
    "MemAvailable": Memory.available_bytes,
    "MemFree": Memory.free_bytes,
    "Dirty": Memory.dirty_bytes,
    "Shmem": Memory.shmem_bytes,
    "SwapTotal": Memory.swap_total_bytes,
    "SwapFree": Memory.swap_free_bytes,
}


class Meminfo:
    """/proc/meminfo."""

    format: ClassVar[str] = "/proc/meminfo"

    def recognise(self, head: Sequence[str]) -> float:
        return 0.9 if any(line.startswith("MemTotal:") for line in head) else 0.0

    def read(self, material: Material, options: Options) -> Reading:
        del options
        values: dict[Metric, Value] = {}
        for line in material.lines:
            match = _LINE.fullmatch(line)
            metric = _COLUMNS.get(match[1]) if match else None
            if match is not None and metric is not None:
                values[metric] = believed(metric, int(match[2]) * 1024, match[2])
        if not values:
            raise NotImportable(f"{material.name}: meminfo without any number")
        return Reading(self.format, [Fact(Memory, 0.0, values, key="host")])
