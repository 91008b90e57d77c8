"""The table that plain `nvidia-smi` prints, of any age, and what it prints instead of one.

A GPU is two lines between bars: name, address and ECC above; fan, temperature, performance state,
power, memory and utilisation below. Cells of a failed GPU read ERR!; a GPU that cannot be opened
has no rows, only a sentence with its address.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from bottletop.importers import smi_words, stamps
from bottletop.importers.base import Doubts, Fact, GpuId, NotImportable, Reading
from bottletop.importers.smi_pmon import kind_of
from bottletop.importers.values import cell, missing
from bottletop.model import NOT_READ
from bottletop.tables import Gpu, GpuHealth, GpuProcess
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.importers.base import Material, Options
    from bottletop.model import Metric, Value

DEFAULT_EVERY_S = 5.0
"""`nvidia-smi -l` without a number prints every five seconds."""
MAX_GPUS = 4096
_PCI = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d")
_NAMED = re.compile(
    r"\s*(?P<index>\d{1,4}|ERR!)\s+(?P<name>.*?)\s+(?:On|Off|N/A|ERR!|WDDM|TCC|MCDM)\s*"
)
_VITAL = re.compile(
    r"\s*(?P<fan>ERR!|N/A|\[N/A\]|\d+%)\s*(?P<temp>ERR!|N/A|\d+C)\s*(?P<perf>ERR!|N/A|P\d+)\s+"
    r"(?P<power>ERR!|Unknown Error|N/A|[\d.]+W)\s*/\s*(?P<cap>ERR!|Unknown Error|N/A|[\d.]+W)\s*"
)
_MEMORY = re.compile(r"\s*(?P<used>\S+)\s*/\s*(?P<total>\S+)\s*")
_VERSION = re.compile(r"Driver Version:\s*(\S+)")
_PROCESS = re.compile(
    r"\|?\s*(?P<gpu>\d{1,4})\s+(?:(?:N/A|\d+)\s+(?:N/A|\d+)\s+)?(?P<pid>\d{1,10})\s+"
    r"(?P<kind>[A-Z](?:\+[A-Z])?)\s+(?P<name>.*?)\s+(?P<used>N/A|\d+MiB)\s*\|?\s*"
)
_HEADS = ("| NVIDIA-SMI", "Disp.A | Volatile Uncorr", "Pwr:Usage/Cap")


class SmiTable:
    """Plain `nvidia-smi`."""

    format: ClassVar[str] = "nvidia-smi table"

    def recognise(self, head: Sequence[str]) -> float:
        if any(sign in line for line in head for sign in _HEADS):
            return 0.95
        if any(_row_above(line) is not None for line in head):
            return 0.9
        return 0.6 if any(map(smi_words.is_complaint, head)) else 0.0

    def read(self, material: Material, options: Options) -> Reading:
        reader = _Reader(options.every_s or DEFAULT_EVERY_S)
        for line in material.lines:
            reader.line(line)
        if not reader.facts:
            said = next(filter(smi_words.is_complaint, material.lines), "")
            why = f'nvidia-smi said "{clean(said, 100)}"' if said else "no GPU of it can be read"
            raise NotImportable(f"{material.name}: {why}")
        many = reader.tables > 1
        return Reading(
            format=f"{self.format} ({reader.tables} times)" if many else self.format,
            facts=reader.facts,
            dated=reader.dated,
            assumed_s=reader.every_s if many and not reader.dated else None,
            doubts=reader.doubts.lines(),
            limits=smi_words.POLLED if many else LIMITS,
        )


LIMITS = (
    "a single table: says what state the GPU is in, not what it did; rules that need a stretch of"
    " time cannot be judged",
)


def _row_above(line: str) -> tuple[GpuId, str] | None:
    """The upper line of a GPU: which it is, and its ECC cell; None of other lines."""
    cells = line.strip().strip("|").split("|")
    if len(cells) < 3:
        return None
    pci = _PCI.search(cells[1])
    match = _NAMED.fullmatch(cells[0])
    if pci is None or match is None:
        return None
    index = int(match["index"]) if match["index"].isdecimal() else None
    # Long product names are cut, and the cut ends in dots.
    name = clean(match["name"], 60)
    return GpuId(pci=smi_words.pci_id(pci[0]), index=index, name=name), cells[2].strip()


class _Reader:
    """State of one pass over one file."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self.facts: list[Fact] = []
        self.doubts = Doubts()
        self.dated = False
        self.tables = 1
        self._t_s = 0.0
        self._driver = ""
        self._above: tuple[GpuId, str] | None = None
        self._seen: set[GpuId] = set()

    def line(self, line: str) -> None:
        """Take in the next line."""
        failed = smi_words.failed_gpu(line, self._t_s)
        if failed is not None:
            self.facts.append(failed)
            return
        version = _VERSION.search(line)
        if version is not None:
            self._driver = clean(version[1], 40)
        elif ":" in line and "|" not in line:
            wall = stamps.wall_s(line)
            if wall is not None:
                self.dated, self._t_s = True, wall
        above = _row_above(line)
        if above is not None:
            self._begin(above)
        elif self._above is not None:
            self._below(line, *self._above)
            self._above = None
        else:
            self._process(line)

    def _begin(self, above: tuple[GpuId, str]) -> None:
        if above[0] in self._seen:
            self._seen.clear()
            self.tables += 1
            self._t_s += 0.0 if self.dated else self.every_s
        if len(self._seen) < MAX_GPUS:
            self._seen.add(above[0])
            self._above = above

    def _below(self, line: str, gpu: GpuId, ecc: str) -> None:
        cells = line.strip().strip("|").split("|")
        vital = _VITAL.fullmatch(cells[0]) if len(cells) >= 3 else None
        if vital is None:
            self.doubts.add("GPU without its second line", line)
            return
        values: dict[Metric, Value] = {
            Gpu.model: gpu.name,
            Gpu.pci_bus_id: gpu.pci,
            Gpu.fan_pct: cell(Gpu.fan_pct, vital["fan"]),
            Gpu.temp_c: cell(Gpu.temp_c, vital["temp"]),
            Gpu.pstate: cell(Gpu.pstate, vital["perf"]),
            Gpu.power_w: cell(Gpu.power_w, vital["power"]),
            Gpu.power_limit_w: cell(Gpu.power_limit_w, vital["cap"]),
        }
        if gpu.index is not None:
            values[Gpu.index] = gpu.index
        memory = _MEMORY.fullmatch(cells[1])
        if memory is not None:
            values[Gpu.mem_used_bytes] = cell(Gpu.mem_used_bytes, memory["used"])
            values[Gpu.mem_total_bytes] = cell(Gpu.mem_total_bytes, memory["total"])
        elif missing(cells[1]) is not None:
            values[Gpu.mem_used_bytes] = values[Gpu.mem_total_bytes] = _absent(cells[1])
        used = cells[2].split()
        if used:
            values[Gpu.util_pct] = cell(Gpu.util_pct, used[0])
        if self._driver:
            values[Gpu.driver] = self._driver
        values[Gpu.health] = smi_words.health_of((*vital.groups(), *used))
        self.facts.append(Fact(Gpu, self._t_s, values, gpu))
        self.facts.append(
            Fact(GpuHealth, self._t_s, {GpuHealth.ecc_uncorrected: cell(_ECC, ecc)}, gpu)
        )

    def _process(self, line: str) -> None:
        match = _PROCESS.fullmatch(line) if "|" in line else None
        if match is None:
            if line.strip() and "|" not in line and "+-" not in line and not self._dates(line):
                self.doubts.add("line that is not of the table", line)
            return
        values: dict[Metric, Value] = {
            GpuProcess.pid: int(match["pid"]),
            GpuProcess.process: smi_words.program(match["name"]) or NOT_READ,
            GpuProcess.mem_bytes: cell(GpuProcess.mem_bytes, match["used"]),
        }
        kind = kind_of(match["kind"])
        if kind is not None:
            values[GpuProcess.kind] = kind
        gpu = GpuId(index=int(match["gpu"]))
        self.facts.append(Fact(GpuProcess, self._t_s, values, gpu, f"/{match['pid']}"))

    @staticmethod
    def _dates(line: str) -> bool:
        return stamps.wall_s(line) is not None


def _absent(text: str) -> Value:
    return cell(Gpu.mem_used_bytes, text)


_ECC = GpuHealth.ecc_uncorrected
