"""Time series of GPU readings as CSV in people's own words, one row a reading and GPU.

The first row names the columns; `series_columns` lists the names that are understood. Commas,
semicolons, tabs, bars (tables of Markdown) or plain blanks part the cells.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from bottletop.importers import smi_words
from bottletop.importers.base import MAX_FACTS, Doubts, Fact, GpuId, NotImportable, Reading
from bottletop.importers.moments import Moments
from bottletop.importers.series_columns import (
    GPU,
    NAME,
    PCI,
    REASONS,
    TIME,
    UUID,
    SeriesColumn,
    column_of,
)
from bottletop.importers.stamps import plain_number
from bottletop.importers.values import cell, missing
from bottletop.model import Absent
from bottletop.tables import Gpu
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.importers.base import Material, Options
    from bottletop.model import Metric, Value

DEFAULT_EVERY_S = 1.0
_SEPARATORS = ",;\t|"
_BLANKS = " "
_COMMA = re.compile(r"([+-]?\d+),(\d+)")
"""A decimal comma, which only a table parted by something else can have."""
_FRACTION_ROWS = 5_000
_YES = frozenset({"1", "true", "yes", "active", "on"})
_NO = frozenset({"0", "false", "no", "not active", "inactive", "off"})
_MEASURED = frozenset(
    {
        *(Gpu.util_pct, Gpu.power_w, Gpu.sm_clock_mhz, Gpu.temp_c, Gpu.mem_used_bytes),
        *(Gpu.pcie_gen, Gpu.pcie_rx_bytes, Gpu.pcie_tx_bytes),
    }
)
"""A table without any of these is of something else."""


class _Header(NamedTuple):
    separator: str
    columns: tuple[SeriesColumn | None, ...]
    names: tuple[str, ...]


def cells_of(line: str, separator: str) -> list[str]:
    """Cells of a line, quoted ones without their quotes, numbers with a decimal point."""
    if separator == _BLANKS:
        return line.split()
    if separator == "|":
        line = line.strip().removeprefix("|").removesuffix("|")
    try:
        cells = [part.strip() for part in next(csv.reader([line], delimiter=separator), [])]
    except csv.Error:
        return []
    if separator == ",":
        return cells
    return [_COMMA.sub(r"\1.\2", part) if _COMMA.fullmatch(part) else part for part in cells]


def header_of(line: str) -> _Header | None:
    """The header that a line is; None where it is none of a GPU series."""
    separator = max(_SEPARATORS, key=line.count)
    if separator not in line:
        separator = _BLANKS
    names = cells_of(line.lstrip("# "), separator)
    if len(names) < 2:
        return None
    columns = tuple(map(column_of, names))
    known = [column for column in columns if column is not None]
    measured = {column.metric for column in known} & _MEASURED
    placed = any(column.role in (TIME, GPU, UUID, PCI) for column in known)
    if not measured or len(known) * 2 < len(names) or not (placed or len(measured) > 1):
        return None
    return _Header(separator, columns, tuple(clean(name, 60) for name in names))


class GpuSeries:
    """A GPU time series with a header of common names."""

    format: ClassVar[str] = "GPU time series (CSV)"

    def recognise(self, head: Sequence[str]) -> float:
        first = next((line for line in head if line.strip()), "")
        if header_of(first) is not None:
            return 0.85
        return 0.4 if any(header_of(line) is not None for line in head) else 0.0

    def read(self, material: Material, options: Options) -> Reading:
        reader = _Reader(options.every_s or DEFAULT_EVERY_S)
        reader.find_fractions(material.lines[:_FRACTION_ROWS])
        for line in material.lines:
            if line.strip():
                reader.line(line)
        if not reader.facts:
            raise NotImportable(f"{material.name}: a GPU series, but no row of it can be read")
        return Reading(
            format=self.format,
            facts=reader.placed(),
            dated=reader.moments.dated,
            assumed_s=None if reader.numbered else reader.moments.assumed_s,
            doubts=(*reader.doubts.lines(), *reader.notes),
            limits=smi_words.limits_of(reader.facts),
        )


class _Reader:
    """State of one pass over one file."""

    def __init__(self, every_s: float) -> None:
        self.moments = Moments(every_s)
        self.doubts = Doubts()
        self.notes: list[str] = []
        self.facts: list[Fact] = []
        self.numbered = False
        """Times are plain numbers of seconds."""
        self._header: _Header | None = None
        self._fractions: set[int] = set()
        """Places of utilisation columns that are written as 0 to 1."""

    def find_fractions(self, lines: Sequence[str]) -> None:
        """See which utilisations are fractions: no name says percent, and none is above 1."""
        header = next((found for line in lines if (found := header_of(line))), None)
        if header is None:
            return
        rows = [cells_of(line, header.separator) for line in lines]
        rows = [row for row in rows if len(row) == len(header.columns)]
        for place, column in enumerate(header.columns):
            named = "%" in header.names[place] or "pct" in header.names[place].lower()
            if column is None or column.metric is None or column.metric.unit != "%" or named:
                continue
            numbers = [number for row in rows if (number := plain_number(row[place])) is not None]
            if numbers and max(numbers) <= 1 and any(0 < number < 1 for number in numbers):
                self._fractions.add(place)
                self.notes.append(f"{header.names[place]} is taken for a fraction of 1")

    def line(self, line: str) -> None:
        """Take in the next line that is not empty."""
        found = header_of(line) if self._header is None or not line[:1].isdigit() else None
        if found is not None:
            self._header = found
            unused = [n for n, c in zip(found.names, found.columns, strict=True) if c is None]
            note = f"columns not used: {', '.join(unused)}"
            if unused and note not in self.notes:
                self.notes.append(note)
            return
        header = self._header
        cells = cells_of(line, header.separator) if header else []
        if header is None or not _fits(cells, header):
            self.doubts.add("line that is no row", line)
        elif len(self.facts) >= MAX_FACTS:
            self.doubts.add("rows beyond what is read of one file")
        else:
            self._row(cells, header)

    def _row(self, cells: Sequence[str], header: _Header) -> None:
        values: dict[Metric, Value] = {}
        rates: dict[Metric, float] = {}
        flags: dict[int, bool] = {}
        parts: dict[str, str] = {}
        for place, (text, column) in enumerate(zip(cells, header.columns, strict=True)):
            if column is None:
                continue
            if place in self._fractions and (number := plain_number(text)) is not None:
                text = str(100 * number)
            if column.role:
                parts.setdefault(column.role, text)
            elif column.bit:
                self._flag(column.bit, text, flags)
            elif column.rate and column.metric is not None:
                _rate(column, column.metric, text, values, rates)
            elif column.metric is not None:
                values[column.metric] = cell(column.metric, text, column.unit)
        gpu = _gpu(parts)
        t_s, nth = self._time(parts.get(TIME, ""), gpu)
        gpu = gpu.placed(nth)
        if gpu.name:
            values[Gpu.model] = gpu.name
        values.update(smi_words.reasons(flags))
        if REASONS in parts:
            values.update(_reasons(parts[REASONS]))
        others = {metric: values.pop(metric) for metric in list(values) if metric.table is not Gpu}
        self.facts.append(Fact(Gpu, t_s, values, gpu, rates=rates))
        for metric, value in others.items():
            self.facts.append(Fact(metric.table, t_s, {metric: value}, gpu))

    def _time(self, raw: str, gpu: GpuId) -> tuple[float, int]:
        t_s, place = self.moments.at(raw, gpu)
        number = None if self.moments.dated else plain_number(raw)
        if number is not None and abs(number) < 1e8:
            self.numbered = True
            return number, place
        return t_s, place

    @staticmethod
    def _flag(bit: int, text: str, flags: dict[int, bool]) -> None:
        word = text.lower()
        if word in _YES or word in _NO:
            flags[bit] = flags.get(bit, False) or word in _YES

    def placed(self) -> list[Fact]:
        """All facts; plain times are made to begin at 0."""
        if self.moments.dated or not self.facts:
            return self.facts
        first_s = min(fact.t_s for fact in self.facts)
        return [fact._replace(t_s=fact.t_s - first_s) for fact in self.facts]


def _fits(cells: Sequence[str], header: _Header) -> bool:
    """Whether a line is a row: as many cells, and at least one that is what its column holds."""
    if len(cells) != len(header.columns):
        return False
    for text, column in zip(cells, header.columns, strict=True):
        if column is None or column.metric is None:
            continue
        if column.rate or missing(text) is not None:
            return True
        if not isinstance(cell(column.metric, text, column.unit), Absent):
            return True
    return False


def _gpu(parts: dict[str, str]) -> GpuId:
    raw = parts.get(GPU, "").strip()
    digits = raw.lower().removeprefix("gpu").removeprefix("cuda:").strip(" #:")
    index = int(digits) if digits.isdecimal() and len(digits) < 5 else None
    uuid = parts.get(UUID, "") or (raw if raw.startswith(("GPU-", "MIG-")) else "")
    pci = smi_words.pci_id(parts.get(PCI, "") or raw)
    name = parts.get(NAME, "") or (raw if index is None and not uuid and not pci else "")
    return GpuId(clean(uuid, 64), pci, index, clean(name, 80))


def _rate(
    column: SeriesColumn,
    metric: Metric,
    text: str,
    values: dict[Metric, Value],
    rates: dict[Metric, float],
) -> None:
    absent = missing(text)
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if absent is not None:
        values[metric] = absent
    elif 0 <= rate * column.rate < 1e13:
        rates[metric] = rate * column.rate
    else:
        values[metric] = Absent.implausible(clean(text, 20), "no such rate")


def _reasons(text: str) -> dict[Metric, Value]:
    """A mask in hex or decimal, or names of reasons with anything between them.

    A bare 1 says that something limits the clock, not what: then it is not known.
    """
    absent = missing(text)
    word = text.strip().lower()
    if word in ("none", "not active"):
        return {Gpu.clock_event_reasons: 0}
    if absent is not None:
        return {Gpu.clock_event_reasons: absent}
    if word.startswith("0x") or (word.isdecimal() and word != "1"):
        return {Gpu.clock_event_reasons: cell(Gpu.clock_event_reasons, word)}
    names = smi_words.slug(text)
    bits = 0
    for name, bit in smi_words.LIMITERS.items():
        if name in names:
            bits |= bit
            names = names.replace(name, "")
    if bits:
        return {Gpu.clock_event_reasons: bits}
    return {Gpu.clock_event_reasons: Absent.error(f'the log says "{clean(text, 40)}"')}
