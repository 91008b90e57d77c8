"""Logs of `nvidia-smi dmon`: one line a GPU and reading, under a header of short names.

Names and units stand in two lines that begin with "#" and come again every few readings; which
columns there are follows from `-s` and the driver's age, so the header decides. `-o D` and `-o T`
put date and time in front, `--format csv` puts commas between. "-" stands for unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from bottletop.importers import smi_words
from bottletop.importers.base import MAX_FACTS, Doubts, Fact, GpuId, NotImportable, Reading
from bottletop.importers.moments import Moments
from bottletop.importers.values import cell, missing
from bottletop.model import Absent
from bottletop.tables import Gpu, GpuHealth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.importers.base import Material, Options
    from bottletop.model import Metric, Value

DEFAULT_EVERY_S = 1.0
"""`nvidia-smi dmon` reads once a second unless `-d` says otherwise."""
GAUGES: dict[str, tuple[Metric, str]] = {
    "pwr": (Gpu.power_w, "W"),
    "gtemp": (Gpu.temp_c, "C"),
    "temp": (Gpu.temp_c, "C"),
    "mtemp": (Gpu.temp_mem_c, "C"),
    "sm": (Gpu.util_pct, "%"),
    "mem": (Gpu.mem_util_pct, "%"),
    "enc": (Gpu.enc_util_pct, "%"),
    "dec": (Gpu.dec_util_pct, "%"),
    "jpg": (Gpu.jpg_util_pct, "%"),
    "ofa": (Gpu.ofa_util_pct, "%"),
    "mclk": (Gpu.mem_clock_mhz, "MHz"),
    "pclk": (Gpu.sm_clock_mhz, "MHz"),
    "fb": (Gpu.mem_used_bytes, "MiB"),
    "bar1": (GpuHealth.bar1_used_bytes, "MiB"),
    "sbecc": (GpuHealth.ecc_corrected, ""),
    "dbecc": (GpuHealth.ecc_uncorrected, ""),
    "pci": (GpuHealth.pcie_replays, ""),
}
RATES: dict[str, tuple[Metric, float]] = {
    "rxpci": (Gpu.pcie_rx_bytes, 1e6),
    "txpci": (Gpu.pcie_tx_bytes, 1e6),
    "pviol": (Gpu.throttle_sw_power_ns, 1e7),
}
"""Columns that say how fast a counter grew: MB/s, and percent of the time."""
FLAGS = {"tviol": 0x020}
"""Set while heat limited the clock."""
_FRONT = frozenset({"gpu", "date", "time"})
_KNOWN = frozenset({*GAUGES, *RATES, *FLAGS, *_FRONT})


class Layout(NamedTuple):
    """Names of the columns, and where what stands in front of the values is."""

    names: tuple[str, ...]
    gpu: int
    date: int | None
    time: int | None


def words(line: str) -> list[str]:
    """The cells of a line, of either form."""
    return line.replace(",", " ").split()


def layout_of(line: str) -> Layout | None:
    """The layout that a header line gives; None of other lines."""
    if not line.lstrip().startswith("#"):
        return None
    names = tuple(name.lower() for name in words(line.replace("#", " ", 1)))
    if "gpu" not in names or "pid" in names or len(_KNOWN.intersection(names)) < 2:
        return None
    places = {name: at for at, name in reversed(list(enumerate(names)))}
    return Layout(names, places["gpu"], places.get("date"), places.get("time"))


class SmiDmon:
    """`nvidia-smi dmon`."""

    format: ClassVar[str] = "nvidia-smi dmon"

    def recognise(self, head: Sequence[str]) -> float:
        return 0.95 if any(layout_of(line) is not None for line in head) else 0.0

    def read(self, material: Material, options: Options) -> Reading:
        reader = _Reader(options.every_s or DEFAULT_EVERY_S)
        for line in material.lines:
            reader.line(line)
        if not reader.facts:
            raise NotImportable(f"{material.name}: a dmon log, but no row of it can be read")
        unused = sorted(reader.unused)
        notes = (f"columns not used: {', '.join(unused)}",) if unused else ()
        return Reading(
            format=self.format,
            facts=reader.facts,
            dated=reader.moments.dated,
            assumed_s=reader.moments.assumed_s,
            doubts=(*reader.doubts.lines(), *notes),
            limits=smi_words.limits_of(reader.facts),
        )


class _Reader:
    """State of one pass over one file."""

    def __init__(self, every_s: float) -> None:
        self.moments = Moments(every_s)
        self.doubts = Doubts()
        self.facts: list[Fact] = []
        self.unused: set[str] = set()
        self._layout: Layout | None = None

    def line(self, line: str) -> None:
        """Take in the next line."""
        if not line.strip():
            return
        if line.lstrip().startswith("#"):
            found = layout_of(line)
            if found is not None:
                self._layout = found
                self.unused |= set(found.names) - _KNOWN
            return
        failed = smi_words.failed_gpu(line, self.moments.now_s)
        if failed is not None:
            self.facts.append(failed)
            return
        cells, layout = words(line), self._layout
        if layout is None or len(cells) != len(layout.names) or not cells[layout.gpu].isdecimal():
            self.doubts.add("line that is no row", line)
            return
        if len(self.facts) >= MAX_FACTS:
            self.doubts.add("rows beyond what is read of one file")
            return
        self._row(cells, layout)

    def _row(self, cells: Sequence[str], layout: Layout) -> None:
        gpu = GpuId(index=int(cells[layout.gpu][:6]))
        date = cells[layout.date] if layout.date is not None else ""
        time = cells[layout.time] if layout.time is not None else ""
        t_s, _ = self.moments.at(f"{date} {time}".strip(), gpu)
        values: dict[Metric, Value] = {}
        rates: dict[Metric, float] = {}
        flags: dict[int, bool] = {}
        for name, text in zip(layout.names, cells, strict=True):
            if name in GAUGES:
                metric, unit = GAUGES[name]
                values[metric] = cell(metric, text, unit)
            elif name in RATES:
                self._rate(name, text, values, rates)
            elif name in FLAGS and missing(text) is None:
                flags[FLAGS[name]] = text not in ("0", "No")
        values.update(smi_words.reasons(flags))
        health = {metric: values.pop(metric) for metric in list(values) if metric.table is not Gpu}
        self.facts.append(Fact(Gpu, t_s, values, gpu, rates=rates))
        if health:
            self.facts.append(Fact(GpuHealth, t_s, health, gpu))

    @staticmethod
    def _rate(
        name: str, text: str, values: dict[Metric, Value], rates: dict[Metric, float]
    ) -> None:
        metric, scale = RATES[name]
        absent = missing(text)
        try:
            rate = float(text)
        except ValueError:
            rate = -1.0
        if absent is not None:
            values[metric] = absent
        elif 0 <= rate < 1e7:
            rates[metric] = rate * scale
        else:
            values[metric] = Absent.implausible(text[:20], "no such rate")
