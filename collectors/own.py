"""What bottletop itself costs. Fills `self`."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.base import Unavailable
from bottletop.collectors.files import FileCollector
from bottletop.linux.procfs import parse_stat
from bottletop.model import NOT_READ, Table
from bottletop.roots import read_record
from bottletop.tables.own import Own

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.model import Sample


class OwnCollector(FileCollector):
    """One row about this process; what the runtime and the driver collector spend is added."""

    name: ClassVar[str] = "self"
    tables: ClassVar[tuple[type[Table], ...]] = (Own,)

    def open(self) -> None:
        """Raises `Unavailable` on a captured tree: we are no process of that host."""
        if not self._roots.live:
            raise Unavailable("bottletop does not run on the captured host")

    def read(self) -> Sequence[Sample]:
        """Read once. Raises OSError."""
        began_ns = self._clock.monotonic_ns()
        stat = parse_stat(read_record(f"{self._roots.proc}/self/stat"))
        stats = self._context.stats
        row = Own.row(
            "bottletop",
            began_ns,
            {
                Own.cpu_ns: time.process_time_ns(),
                Own.rss_bytes: stat.rss_pages * resource.getpagesize(),
                Own.threads: stat.threads,
                Own.nvml_ns: stats.nvml_ns,
                Own.nvml_calls: stats.nvml_calls,
                Own.nvml_p95_s: NOT_READ if stats.nvml_p95_s is None else stats.nvml_p95_s,
                Own.late_ticks: stats.late_ticks,
                Own.sampler_ns: stats.sampler_ns,
                Own.engine_s: stats.engine_s,
            },
        )
        return (self.sample(Own, began_ns, (row,)),)
